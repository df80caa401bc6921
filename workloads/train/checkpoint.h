/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint: all that the next step of a training depends on, as a safetensors file. Tensors
 * have the names of the graph: masters and frozen parameters, the state of the network (running
 * statistics), and the moments and the mean of each trained parameter ("adamw.m/NAME"). Counters
 * are texts of its "__metadata__".
 */
#ifndef JM_CHECKPOINT_H
#define JM_CHECKPOINT_H

#include "comm/comm.h"
#include "data/safetensors.h"
#include "engine/graph/model.h"
#include "engine/run/program.h"
#include "scaler.h"

struct jm_checkpoint {
	long step;		 /* steps done */
	int64_t batches;	 /* that norms have counted */
	struct jm_scaler scaler; /* at most the outcome of the last step is late */
	/* what the numbers of steps mean: of another one they would name other samples */
	uint64_t seed;
	int64_t samples; /* of a step, of all ranks */
	uint64_t data;	 /* digest of what is learnt */
};

/* Writes the checkpoint; the file gets its name when all of it is on the disk. Waits for the
 * device. comm: of ranks that share (whole_tensor.h), which all call it, or NULL. */
int jm_checkpoint_write(struct jm_program *p, const struct jm_training *t,
	const struct jm_checkpoint *c, const struct jm_comm *comm, const char *path,
	struct jm_err *err);
/* Is this file a checkpoint, of any version? */
bool jm_checkpoint_is(const struct jm_safetensors *file);
/*
 * Writes the tensors of the file to the built program and returns the counters. now: seed,
 * samples and data of this run, and its loss scale. JM_EFORMAT, JM_EUSAGE: it is no checkpoint, or
 * one of another network, precision, optimizer, seed or batch.
 */
int jm_checkpoint_read(struct jm_program *p, const struct jm_training *t,
	const struct jm_checkpoint *now, const char *path, struct jm_checkpoint *ret,
	struct jm_err *err);

#endif
