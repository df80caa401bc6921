/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a session share: session.c (opening, threads, phases) and session_report.c (the
 * report). */
#ifndef JM_SESSION_PRIVATE_H
#define JM_SESSION_PRIVATE_H

#include <pthread.h>

#include "base/ctx.h"
#include "base/clock.h"
#include "sampler.h"
#include "session.h"
#include "source_calls.h"

struct jm_open_source {
	const struct jm_source *source;
	void *state;
	int first_signal, n_signals;
	struct jm_reader *reader;
	bool left; /* its reader was given up: the source is in a call that does not return */
	struct jm_driver_call *uses_left; /* such a call of `uses`; NULL = none */
};

struct jm_session {
	struct jm_ctx *ctx;
	struct jm_session_options options;
	struct jm_meters set;
	struct jm_open_source *source;
	int n_sources;
	bool started, announced, stopped;
	bool own_unread; /* no meter reads the GPU that the work runs on */
	int64_t start_ns;

	pthread_mutex_t lock; /* of trace, newest, moments and their errors */
	struct jm_trace *trace;
	struct jm_reading *newest; /* newest of each signal, if no trace is kept */
	int64_t *delay_ns;	   /* of each signal, by calibration */
	bool delayed;		   /* some delays are not 0 */
	struct jm_moment *moment;
	int n_moments;
	int rc; /* of the trace and on_chunk */
	struct jm_err err;

	pthread_t writer;
	pthread_cond_t finish;
	bool finishing;

	pthread_mutex_t phase_lock;
	struct jm_phase *phase;
	int n_phases;
};

/* Takes what the readers have; with the lock held. */
int jm__session_drain(struct jm_session *s);
/* What a total adds up: the topmost meters of one origin. */
bool jm__counts_in_total(const struct jm_meters *set, int meter, enum jm_origin origin);
/* Two topmost meters of one origin that share a part have no sum. */
bool jm__overlaps_its_kind(const struct jm_meters *set, int meter);

#endif
