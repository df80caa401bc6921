/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of safetensors files for a stream of values: threads read and convert. */
#ifndef JM_WEIGHTS_STREAM_H
#define JM_WEIGHTS_STREAM_H

#include "data/safetensors.h"
#include "engine/run/value_stream.h"

/* Writes all elements of `from` to those of t from `at` on, as jm_value_stream_send. JM_EFORMAT:
 * one is not a number, or infinite in the type of t. */
int jm_weights_send(struct jm_value_stream *s, const struct jm_safetensors *file,
	const struct jm_safetensor *from, struct jm_tensor *t, int64_t at, struct jm_err *err);

/* The type of the engine; F64 also for those that it does not have. */
enum jm_dtype jm_weights_dtype(enum jm_safetensor_type type);
/* n elements in another type, rounded to nearest; false: one of them is not finite in one of both
 * types. */
bool jm_weights_convert(
	enum jm_dtype from, const void *source, int64_t n, enum jm_dtype to, void *target);
/* Reports a tensor of which jm_weights_convert returned false; to: its type in the network.
 * JM_EFORMAT. */
int jm_weights_not_finite(const struct jm_safetensors *file, const struct jm_safetensor *t,
	enum jm_dtype to, struct jm_err *err);

#endif
