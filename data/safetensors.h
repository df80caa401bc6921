/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors by name in files of the format safetensors (github.com/huggingface/safetensors, README:
 * Format): u64 little-endian n, n bytes of JSON {"NAME": {"dtype": "F32", "shape": [2, 3],
 * "data_offsets": [0, 24]}, ...}, then the bytes of all tensors, row by row, without gap or overlap
 * to the end of the file. One file, or a folder as Hugging Face lays it out: model.safetensors, or
 * model.safetensors.index.json that names the shard of each tensor; diffusers has
 * diffusion_pytorch_model in place of model. A folder of a diffusers pipeline has the networks in
 * folders unet, vae and text_encoder, whose names and a '/' stand in front of those of their
 * tensors.
 */
#ifndef JM_SAFETENSORS_H
#define JM_SAFETENSORS_H

#include "data/safetensors_header.h"

/*
 * Opens the file, or the folder with all its shards, and checks every header; nothing else is read.
 * Trusts nothing. JM_ENOENT, JM_EPERM, JM_EFORMAT: the error names the file and what is wrong with
 * it. To be closed in any case of success.
 */
int jm_safetensors_open(const char *path, struct jm_safetensors *ret, struct jm_err *err);
void jm_safetensors_close(struct jm_safetensors *s); /* a zeroed one is allowed */

/* NULL = there is no tensor of this name. */
const struct jm_safetensor *jm_safetensors_find(const struct jm_safetensors *s, const char *name);
/*
 * Bytes from .. from + n - 1 of the tensor; they must exist. Several threads may read at once.
 * JM_EFORMAT: the file became shorter since it was opened.
 */
int jm_safetensors_read(const struct jm_safetensors *s, const struct jm_safetensor *t,
	uint64_t from, void *to, size_t n, struct jm_err *err);

#endif
