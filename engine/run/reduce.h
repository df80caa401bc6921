/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of gradients over the ranks of a gang; each rank has its own samples.
 *
 * The backward pass finishes gradients one after the other. After the unit that completes a bucket
 * (enough adjacent gradients of a slab) a node starts the sum of this interval, while the backward
 * pass continues; a node at the start of the update waits for all. With a sharded update
 * (shard_update.c) each rank receives a share of the sum, and what it updates is gathered.
 *
 * Ranks that share a model (tensor_parallel.h) sum activations in the order of the graph: on the
 * device's compute queue, on that of transfers where computation goes on (plan/hide_sums.h), or in
 * host memory.
 */
#ifndef JM_REDUCE_H
#define JM_REDUCE_H

#include "comm/comm.h"
#include "account.h"
#include "engine/plan/program_plan.h"
#include "reduce_bytes.h"

/* The cost of the transfers in a step. */
struct jm_reduce_cost {
	struct jm_reduce_bytes sent;
	/* means of the steps so far; NAN = unknown */
	double exposed;	   /* seconds that computation waits for sums and gathers of the update */
	double exposed_tp; /* and for exchanges of ranks that share a model */
	double step;	   /* seconds of a step, from its first wait to that of the next step */
	struct jm_account_time kind[JM_ACCOUNT_KINDS_N];
};

/* The communicators of a rank; NULL = there are no others. */
struct jm_ranks {
	const struct jm_comm *models; /* that sum gradients: with the same part of a model */
	const struct jm_comm *tp;     /* that share a stage, or a model of one stage */
	const struct jm_comm *model;  /* of all stages of the model; NULL with one stage */
	const struct jm_comm *all;    /* of which the next stage is `apart` ranks away */
	int apart;
	bool account; /* say where the time of a step goes, by events around transfers */
};

/* Sets the communicators before the first step of a program of several ranks; they must stay open
 * as long as the program. */
int jm_reduce_open(struct jm_program *p, const struct jm_ranks *ranks, struct jm_err *err);
void jm_reduce_close(struct jm_program *p); /* a program without a reduction is allowed */
/* Steps are counted by the first waits of this clock (waits.h). */
void jm_reduce_count_by(struct jm_program *p, struct jm_waits *clock);
/* Runs one unit. */
int jm_program_run_unit(struct jm_program *p, int unit, struct jm_err *err);
/* Runs a transfer in the order of the compute queue: computation behind it waits, which `waits`
 * counts (NULL: nothing does). first: it is the first transfer of its step. */
int jm_reduce_run_in_order(struct jm_program *p, const struct jm_comm *comm, struct jm_transfer *t,
	struct jm_waits *waits, bool first, struct jm_err *err);
/* Brings all parameters up to date after a sharded update, of which each rank updates a share; all
 * ranks call this between two steps. Waits for the device. */
int jm_reduce_gather(struct jm_program *p, struct jm_err *err);
/* The cost so far; waits for the device. */
struct jm_reduce_cost jm_reduce_cost(struct jm_program *p);
void jm_reduce_reset(struct jm_program *p); /* discards the steps so far */

/* The name of the transport for the device's memory where host is not taken: "local", "nccl". */
const char *jm_reduce_transport(const struct jm_device *d);

#endif
