/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters and running statistics of a program to a weights file, in the first layout that
 * its model knows. */
#ifndef JM_WEIGHTS_SAVE_H
#define JM_WEIGHTS_SAVE_H

#include "weights_load.h"
#include "comm/comm.h"

struct jm_weights_source {
	int64_t batches;      /* num_batches_tracked of each norm that is trained */
	uint64_t shard_bytes; /* of each file of a folder, at most */
	/* the file that frozen tensors are copied from, and how they are called in it; NULL = there
	 * is none */
	const struct jm_safetensors *from;
	const struct jm_weights_loaded *found;
	const struct jm_comm *comm; /* of ranks that share (whole_tensor.h), or NULL */
};

/*
 * Writes the tensors, or their means where the update keeps those, in the types of the masters,
 * f32 unless the precision has none; those that are frozen as they are in `from`. The file gets
 * its name when all of it is on the disk. A path that ends in '/', or is a folder, becomes a folder
 * as Hugging Face lays it out (jm_safetensors_write_folder), with a config.json if one describes
 * the model. Waits for the device.
 * Of ranks that share a model or its update all call it, and rank 0 writes the file, which is that
 * of one rank.
 */
int jm_weights_save(struct jm_program *p, struct jm_network network,
	const struct jm_weights_source *source, const char *path, struct jm_err *err);

/* Can it be written? Makes the folder. */
int jm_weights_try(const char *path, struct jm_err *err);

#endif
