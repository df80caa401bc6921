/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a file of the format safetensors. */
#ifndef JM_SAFETENSORS_WRITE_H
#define JM_SAFETENSORS_WRITE_H

#include "data/safetensors_header.h"

struct jm_safetensors_sink; /* a file that is being written */

/* Appends to the tensor. JM_EIO: the disk is full, or another error. */
int jm_safetensors_put(
	struct jm_safetensors_sink *sink, const void *from, size_t bytes, struct jm_err *err);

/* Puts all bytes of tensor i. Returns 0 or an error, with which nothing is written. */
typedef int jm_safetensors_fn(
	void *arg, int i, struct jm_safetensors_sink *sink, struct jm_err *err);
/*
 * Writes n tensors, of which name, type and dims are read here. They are given in the order of the
 * widths of their types, so that each is aligned to its type. notes: an object of texts for
 * "__metadata__", or NULL. The file gets its name at once when all of it is on the disk; until then
 * an old one stays. JM_EUSAGE: a name is given twice, or a type is unknown.
 */
int jm_safetensors_write(const char *path, const struct jm_safetensor *tensor, int n,
	const json_t *notes, jm_safetensors_fn *give, void *arg, struct jm_err *err);
struct jm_output;
/* The same, but an old file stays until jm_output_place. */
int jm_safetensors_prepare(const char *path, const struct jm_safetensor *tensor, int n,
	const json_t *notes, jm_safetensors_fn *give, void *arg, struct jm_output **ret,
	struct jm_err *err);

#endif
