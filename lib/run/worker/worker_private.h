/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a worker share: worker.c (its life), worker_phases.c, worker_orders.c, worker_native.c and worker_command.c (its
 * work), worker_device.c and worker_pace.c (of native work: its device, its pauses). */
#ifndef JM_WORKER_PRIVATE_H
#define JM_WORKER_PRIVATE_H

#include <pthread.h>

#include "base/ctx.h"
#include "base/clock.h"
#include "measure/view/live.h"
#include "orders.h"
#include "result/record.h"
#include "alignment.h"
#include "pacer.h"
#include "steady_state.h"

/* When a device had finished what a phase holds, by its own clock. */
struct jm__end {
	int phase;
	int64_t device_ns;
};

/* A phase of a case that has settings of single phases. */
struct jm__span {
	int phase;
	int number;	 /* of the request for its settings, 1...; 0 = they held when it began */
	int64_t from_ns; /* when they were in force; JM_FOREVER = not yet */
};

struct jm__worker {
	struct jm_ctx *ctx;
	const json_t *job, *parameters;
	int fd;
	pthread_mutex_t lock; /* frames come from two threads */
	struct jm_session *session;
	json_t *record;
	struct jm_sleeper sleeper;
	const char **sources; /* NULL-terminated; NULL = all that open */
	int main_phase;
	int64_t last_progress, start_ns;
	struct jm_live *live; /* for the progress; NULL = none yet */
	const char *unit;     /* of an item, for the progress; NULL = "item" */
	int rank, world;      /* of the gang; 0 of 1: alone */
	struct jm_orders orders;
	bool stop; /* it was ordered to */
	/* worker_orders.c */
	struct jm__span *span;
	int n_spans, n_asked, n_answered;
	/* the settings of the last requested phase replace those of the case */
	bool other_settings;
	/* of native work */
	int own_meter; /* that of the device that computes; -1 = the device has no name, or no meter */
	struct jm_alignment alignment;
	struct jm__end *end;
	int n_ends;
};

/* worker_phases.c */
/* Before the work is torn down, which may hang: the parent ends the other ranks, and in time this one. */
void jm__worker_tell_failure(struct jm__worker *w, int code, const struct jm_err *why);
int jm__worker_begin(struct jm__worker *w, const char *phase, struct jm_err *err);
void jm__worker_end(struct jm__worker *w, int phase);
/* items, seconds: of the steady phase; share: of the whole, NAN = unknown. Reports to the parent
 * at intervals. */
void jm__worker_progress(
	struct jm__worker *w, const char *phase, double items, double seconds, double share);
/* How long a reading may still include the time before a setting was changed. */
int64_t jm__worker_sensor_window(const struct jm__worker *w);
/* After a setting: waits until no reading includes the time before it. */
int jm__worker_settle(struct jm__worker *w, struct jm_err *err);
double jm__worker_seconds_since(const struct jm__worker *w, int64_t t0);

/* worker_orders.c: takes the orders that have come; w->stop says whether the work is to end. */
void jm__worker_take_orders(struct jm__worker *w);
/* Native work: before a phase begins, returns when its settings are in force; and when it has begun. */
int jm__worker_enter(
	struct jm__worker *w, const char *phase, bool *ret_changed, struct jm_err *err);
int jm__worker_entered(struct jm__worker *w, int phase, struct jm_err *err);
/* A command: when it has marked a phase; after its end: waits for the answers, checks that all phases were marked. */
void jm__worker_marked(struct jm__worker *w, int phase, const char *name);
int jm__worker_wait_settings(struct jm__worker *w, struct jm_err *err);
int jm__worker_check_marked(struct jm__worker *w, struct jm_err *err);
/* Into a record that has its phases. */
void jm__worker_record_settings(struct jm__worker *w);

/* worker_device.c: after setup; at borders of phases, with nothing under way; instead of jm__worker_end, device_ns 0 =
 * unknown; when all is done */
void jm__worker_own(struct jm__worker *w, const struct jm_work *work);
int jm__worker_anchor(struct jm__worker *w, const struct jm_work *work, struct jm_err *err);
void jm__worker_end_at(struct jm__worker *w, int phase, int64_t device_ns);
double jm__worker_align(struct jm__worker *w);

/* worker_pace.c: pauses between steps. Ready: the measured phase may begin. */
#define JM__PACE_LIMIT_S 30.0
struct jm__pace {
	bool holds; /* a power is to be held */
	struct jm_pacer pacer;
	int64_t begin_ns, settled_ns; /* of the measured phase; 0 = not yet */
	int64_t from_ns, to_ns; /* a stretch that is to be looked at; 0 = not begun, not ended */
};
void jm__pace_begin(struct jm__worker *w, struct jm__pace *p, double watts);
void jm__pace_rest(struct jm__worker *w, struct jm__pace *p, double step_s);
bool jm__pace_ready(const struct jm__worker *w, const struct jm__pace *p);
void jm__pace_settle(struct jm__worker *w, struct jm__pace *p); /* the measured phase begins */
/* After the end of the session: whether the power was held, in the record. */
void jm__pace_record(struct jm__worker *w);

/* and thermal steady state before the measured phase; limit_s 0 = not waited for */
struct jm__heat {
	double limit_s, waited_s;
	int64_t begin_ns, next_ns;
	bool reached;
	struct jm_steady state;
};
bool jm__heat_done(struct jm__worker *w, struct jm__heat *h);
void jm__heat_record(struct jm__worker *w, const struct jm__heat *h);

/* Both fill the record and main_phase; an error is a failure of the work. */
int jm__worker_native(struct jm__worker *w, struct jm_err *err);
int jm__worker_command(struct jm__worker *w, struct jm_err *err);

#endif
