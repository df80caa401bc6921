/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room measure: sources are sampled (sampler.h), the work runs in phases (session.h) and can be
 * looked at meanwhile (live.h), outside commands are launched and report their progress (launch.h,
 * progress.h), what runs already is measured (attach.h), a trace is written as
 * CSV (trace_csv.h).
 * May include: base, meter, trace, energy.
 *
 * A session measures: it opens sources, samples them in the background, knows the phases of the
 * work and says at the end what energy each meter used in each. `measure` and every case of `run`
 * stand on it.
 *
 *	jm_session_open sources opened, meters known (rights may be dropped after this)
 *	jm_session_start   sampling runs; returns when every source was read once (5 ms at most)
 *	jm_session_begin / jm_session_end    phases; may nest and overlap
 *	jm_session_stop waits at most one sensor refresh for the last edge, then joins the threads
 *	jm_session_report  meters, total and quality of a phase as JSON (session_report.h)
 *
 * In simulated time: the working thread joins the clock (jm_sleeper_init) before jm_session_start,
 * or time runs ahead of it, and leaves it (jm_sleeper_done) before jm_session_stop, or the
 * simulated time stops. Between the two time runs as fast as the machine lets it;
 * jm_session_announce_stop before leaving makes the last readings independent of that.
 */
#ifndef JM_SESSION_H
#define JM_SESSION_H

#include <jansson.h>

#include "energy/energy.h"
#include "meter/source.h"
#include "trace/trace.h"

struct jm_session;

struct jm_session_options {
	/* "nvml", "rapl", "sim:h100x4"...; NULL-terminated. NULL = every measuring source that
	 * opens, and an estimate of what none of them covers. */
	const char *const *sources;
	/* Between readings; 0 = half the sensors' refresh, within 20 and 100 ms. */
	int64_t interval_ns;
	/* Called once a second and at the end with the new part of the trace; may be NULL. Its
	 * failure ends the session's trace, not the measurement, and is reported by
	 * jm_session_stop. */
	int (*on_chunk)(void *arg, const struct jm_chunk *chunk, struct jm_err *err);
	void *on_chunk_arg;
	/* Called for each reading, at least four times a second, from threads of the session one at
	 * a time; may be NULL. */
	void (*on_reading)(void *arg, int signal, struct jm_reading reading);
	void *on_reading_arg;
	/* Readings are not kept, so that the session may run for ever; it has no energy and no
	 * report. */
	bool no_trace;
	/* What the sources declare about their sensors counts, not what calibration found
	 * (sensors_file.h). */
	bool as_declared;
	/* Where names are looked up, NULL-terminated; NULL = jm_sources. For tests. */
	const struct jm_source *const *table;
};

struct jm_phase {
	char name[64];
	int64_t t0_ns, t1_ns; /* on the clock; t1_ns = JM_FOREVER while it is open */
	double items;	      /* credited to it; NAN = none */
};

/* Monotonic and wall time of one moment, so that traces of several machines fit on one axis. */
struct jm_moment {
	int64_t t_ns, wall_ns;
};

int jm_session_open(struct jm_ctx *ctx, const struct jm_session_options *options,
	struct jm_session **ret, struct jm_err *err);
const struct jm_meters *jm_session_meters(const struct jm_session *s);
int jm_session_start(struct jm_session *s, struct jm_err *err);
/* The clock at jm_session_start, from which the times of a report are counted. */
int64_t jm_session_began(const struct jm_session *s);
/* From any thread, at time t_ns of the clock (0 = now). Names: setup, warmup, steady, verify,
 * cooldown, command, or the user's own. begin returns the phase's index or an error code. */
int jm_session_begin(struct jm_session *s, const char *name, int64_t t_ns, struct jm_err *err);
void jm_session_end(struct jm_session *s, int phase, int64_t t_ns);
/* Energy until now is going to be asked for, as where a phase begins or ends: counters are read
 * around here. */
void jm_session_edge(struct jm_session *s);
/* Items done in a phase, when they are done; from any thread. */
void jm_session_credit(struct jm_session *s, int phase, double items);
/* Items of all phases so far are unknown. */
void jm_session_forget_items(struct jm_session *s);
/* Optional, before jm_session_stop: sampling ends by itself, one sensor refresh from now at the
 * latest. */
void jm_session_announce_stop(struct jm_session *s);
int jm_session_stop(struct jm_session *s, struct jm_err *err);

/* ---- while it runs, and after stop; from any thread ---- */

/* Energy of one meter from t0_ns to t1_ns of the clock, by the readings that have come so far; see
 * energy.h. Where a stretch is to be looked at again and again, use live.h. */
int jm_session_energy_now(struct jm_session *s, int meter, int64_t t0_ns, int64_t t1_ns,
	struct jm_energy *ret, struct jm_err *err);
/* The newest reading of a signal of the set: its time is 0, its value NAN where none has come. */
struct jm_reading jm_session_newest(struct jm_session *s, int signal);

/* ---- after stop ---- */

/* Energy of one meter in one phase; see energy.h. */
int jm_session_energy(
	struct jm_session *s, int meter, int phase, struct jm_energy *ret, struct jm_err *err);
const struct jm_trace *jm_session_trace(const struct jm_session *s);
const struct jm_phase *jm_session_phases(const struct jm_session *s, int *ret_n);
void jm_session_close(struct jm_session *s); /* takes NULL */

#endif
