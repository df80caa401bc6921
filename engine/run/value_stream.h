/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of tensors to the memory of a device, in pieces: the host makes a piece in pinned memory
 * while the device takes the piece before it. A device that uses the host's memory gets its values
 * without such pieces.
 */
#ifndef JM_VALUE_STREAM_H
#define JM_VALUE_STREAM_H

#include "program.h"

/* Writes the values first to first + n - 1 of those that are sent to `to`. */
typedef int jm_values_fn(void *arg, int64_t first, int64_t n, void *to, struct jm_err *err);

struct jm_value_piece {
	char *host; /* pinned; NULL = not needed yet */
	struct jm_event taken;
};

struct jm_value_stream {
	struct jm_program *p;
	struct jm_value_piece piece[2];
	int now;
	size_t piece_bytes; /* 64 MiB; another value only before the first tensor */
};

int jm_value_stream_open(struct jm_value_stream *s, struct jm_program *p, struct jm_err *err);
/* Can the tensor be written in pieces? Only if its layout is plain. */
bool jm_value_stream_takes(const struct jm_tensor *t);
/*
 * Makes `count` values by fn, in the type of jm_program_value_type, and writes them to the elements
 * of t from `at` on. Where t is in 8 bits, both are multiples of its rows, which are rounded as by
 * jm_program_write_values.
 */
int jm_value_stream_send(struct jm_value_stream *s, struct jm_tensor *t, int64_t at, int64_t count,
	jm_values_fn *fn, void *arg, struct jm_err *err);
/* Waits until the device has everything. */
int jm_value_stream_end(struct jm_value_stream *s, struct jm_err *err);
void jm_value_stream_close(struct jm_value_stream *s); /* a zeroed one is allowed */

#endif
