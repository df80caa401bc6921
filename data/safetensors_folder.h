/* SPDX-License-Identifier: Apache-2.0 */
/* Writes tensors as the files of a folder. */
#ifndef JM_SAFETENSORS_FOLDER_H
#define JM_SAFETENSORS_FOLDER_H

#include "data/safetensors_write.h"

/*
 * As jm_safetensors_write, as the files of a folder, which exists: model.safetensors, or, if that
 * had more than shard_bytes, shards of at most so many bytes (but of one tensor at least) and
 * model.safetensors.index.json; at most 512, which are larger then. Older files stay until all
 * shards are on the disk. The old index is removed before shards get their names, and the new one
 * written after that: meanwhile the folder is refused.
 */
int jm_safetensors_write_folder(const char *path, const struct jm_safetensor *tensor, int n,
	uint64_t shard_bytes, const json_t *notes, jm_safetensors_fn *give, void *arg,
	struct jm_err *err);

#endif
