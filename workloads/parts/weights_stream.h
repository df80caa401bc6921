/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values from a safetensors file to the memory of a device: threads read and convert a piece into
 * pinned memory while the device takes the piece before it. A device that uses the host's memory
 * gets its values without such pieces.
 */
#ifndef JM_WEIGHTS_STREAM_H
#define JM_WEIGHTS_STREAM_H

#include "data/safetensors.h"
#include "engine/run/program.h"

struct jm_weights_piece {
	char *host; /* pinned; NULL = not needed yet */
	struct jm_event taken;
};

struct jm_weights_stream {
	struct jm_program *p;
	struct jm_weights_piece piece[2];
	int now;
	size_t piece_bytes; /* 64 MiB; another value only before the first tensor */
};

int jm_weights_stream_open(struct jm_weights_stream *s, struct jm_program *p, struct jm_err *err);
/* Can the tensor be written in pieces? Only if its layout is plain. */
bool jm_weights_stream_takes(const struct jm_tensor *t);
/* Writes all elements of `from` to those of t from `first` on. JM_EFORMAT: one is not a number or
 * infinite. */
int jm_weights_stream_send(struct jm_weights_stream *s, const struct jm_safetensors *file,
	const struct jm_safetensor *from, struct jm_tensor *t, int64_t first, struct jm_err *err);
/* Waits until the device has everything. */
int jm_weights_stream_end(struct jm_weights_stream *s, struct jm_err *err);
void jm_weights_stream_close(struct jm_weights_stream *s); /* a zeroed one is allowed */

/* The type of the engine; F64 also for those that it does not have. */
enum jm_dtype jm_weights_dtype(enum jm_safetensor_type type);
/* n elements in another type, rounded to nearest; false: one of them is not finite. */
bool jm_weights_convert(
	enum jm_dtype from, const void *source, int64_t n, enum jm_dtype to, void *target);

#endif
