/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler: a thread per source that reads it on absolute deadlines into its own ring. One
 * consumer takes the readings out; a thread whose ring is full empties it itself, so nothing is
 * dropped.
 *
 * Around an edge (start, stop, begin and end of a phase) a reader polls fast until its counters
 * have stepped, for at most one refresh of its sensors, so as to see when.
 */
#ifndef JM_SAMPLER_H
#define JM_SAMPLER_H

#include "base/ctx.h"
#include "base/clock.h"
#include "meter/source.h"

struct jm_reader;

struct jm_reader_options {
	struct jm_ctx *ctx;
	const struct jm_source *source;
	void *state;		     /* of the source */
	const struct jm_meters *set; /* the whole set; outlives the reader */
	int first_signal, n_signals; /* the source's part of it */
	int64_t interval_ns;	     /* 0 = from the sensors' refresh */
	void (*full)(void *arg); /* the ring is full: drain the reader; in the reader's thread */
	void *full_arg;
};

/* A reader of a source that is open; its thread does not run yet. */
int jm_reader_new(const struct jm_reader_options *o, struct jm_reader **ret, struct jm_err *err);
int jm_reader_start(struct jm_reader *reader, struct jm_err *err);
/* Waits until the reader has read its source once, for at most `ns` of real time. */
void jm_reader_await_first(struct jm_reader *reader, int64_t ns);
/* Something changes now: poll fast for a moment. From any thread. */
void jm_reader_edge(struct jm_reader *reader);
/* Has the reader seen the last edge that was asked for, or does it read no more? From any
 * thread. */
bool jm_reader_edge_passed(const struct jm_reader *reader);
/* To be called a few times a second, from one thread: a device that keeps its source in a call is
 * given up, if the source can (see `leave` in source.h). */
void jm_reader_look(struct jm_reader *reader);
/* The last edge: the reader ends when it has seen it. Then join. */
void jm_reader_stop(struct jm_reader *reader);
/*
 * Waits for its end. False: its source has not returned from a reading until this time of the
 * machine's clock, or the user has interrupted twice. The reader is then given up: its thread
 * touches nothing but the source and the reader when that returns after all, so both must stay, and
 * the source is not to be called any more.
 */
bool jm_reader_join(struct jm_reader *reader, int64_t until_ns);
/* When the last readings had come, on the context's clock; 0 = none yet. After join. */
int64_t jm_reader_last(const struct jm_reader *reader);
/* Takes what is in the ring and passes it on in order, many at a time; fn may change them. Not from
 * two threads at once. An error of fn is returned, and what is left in the ring is lost. */
int jm_reader_drain(struct jm_reader *reader,
	int (*fn)(void *arg, struct jm_signal_reading *reading, size_t n, struct jm_err *err),
	void *arg, struct jm_err *err);
/* After join: 0, or the error after which the source gave nothing more, also of one that was given
 * up. */
int jm_reader_result(const struct jm_reader *reader, struct jm_err *err);
/* After join: seconds of a processor that reading took. */
double jm_reader_cpu(const struct jm_reader *reader);
/* Takes NULL; joined before. One that was given up stays. */
void jm_reader_free(struct jm_reader *reader);

#endif
