/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room trace: readings over time: kept (trace.h), coded (codec.h), as plateaus of a sensor
 * (plateaus.h), summed up over time (hold_sum.h).
 * May include: base, meter.
 *
 * A trace: the readings of all signals, changes only, in chunks. Memory is bounded: full chunks go
 * to an unlinked temporary file. One writer; readers after the writer is done.
 */
#ifndef JM_TRACE_H
#define JM_TRACE_H

#include "meter/meter.h"

struct jm_trace;

/* A piece of one signal's readings, encoded (see trace.c); what the store keeps as a blob. */
struct jm_chunk {
	int signal;
	int64_t t0_ns, t1_ns; /* of its first and last reading */
	uint32_t n;	      /* readings that went in */
	const void *data;
	size_t bytes;
};

/* Checks the bytes of a chunk from a store or file and fills the rest from them. Hostile bytes are
 * an error (JM_EFORMAT, JM_EVERSION), never a crash. data stays the caller's. */
int jm_chunk_parse(
	int signal, const void *data, size_t bytes, struct jm_chunk *ret, struct jm_err *err);

/* Moves all readings of the bytes of a whole chunk by so much time, as to the clock of another
 * host. */
void jm_chunk_shift(void *data, int64_t by_ns);

/* Calls fn for each reading of the chunk in order; fn returns non-zero to stop. Damage:
 * JM_EFORMAT. */
int jm_chunk_each(const struct jm_chunk *chunk, int (*fn)(void *arg, struct jm_reading reading),
	void *arg, struct jm_err *err);

struct jm_trace *jm_trace_new(const struct jm_meters *set, struct jm_err *err);
/* Readings of a signal come in order of time; one whose stamp is not after the last is dropped. */
int jm_trace_append(struct jm_trace *t, int signal, struct jm_reading reading, struct jm_err *err);
/* As many of several signals. The first error ends it. */
int jm_trace_append_all(
	struct jm_trace *t, const struct jm_signal_reading *reading, size_t n, struct jm_err *err);
/* Its time is 0, its value NAN where none has come. */
struct jm_reading jm_trace_newest(const struct jm_trace *t, int signal);
/* Closes the open chunks and hands each new chunk since the last flush to fn (may be NULL). */
int jm_trace_flush(struct jm_trace *t, int (*fn)(void *, const struct jm_chunk *, struct jm_err *),
	void *arg, struct jm_err *err);
/* Closes the open chunks and hands all chunks to fn, also those that an earlier call has handed
 * out. */
int jm_trace_chunks(struct jm_trace *t, int (*fn)(void *, const struct jm_chunk *, struct jm_err *),
	void *arg, struct jm_err *err);
/* Adds a chunk made elsewhere, in order of time; damaged bytes are an error, never a crash. */
int jm_trace_add_chunk(struct jm_trace *t, const struct jm_chunk *chunk, struct jm_err *err);
/* Calls fn for each reading of the signal with t0 <= t <= t1 in order of time, and for the last one
 * before t0 and the first one after t1. fn returns non-zero to stop. */
int jm_trace_each(const struct jm_trace *t, int signal, int64_t t0_ns, int64_t t1_ns,
	int (*fn)(void *arg, struct jm_reading reading), void *arg, struct jm_err *err);
/* The same, many readings at a time. */
typedef int jm_readings_fn(void *arg, const struct jm_reading *reading, int n);
int jm_trace_each_some(const struct jm_trace *t, int signal, int64_t t0_ns, int64_t t1_ns,
	jm_readings_fn *fn, void *arg, struct jm_err *err);
void jm_trace_free(struct jm_trace *t); /* takes NULL */

#endif
