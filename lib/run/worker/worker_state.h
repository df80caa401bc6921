/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a worker, which its parts share: worker.c (its life), worker_phases.c,
 * worker_affinity.c, worker_orders.c, worker_native.c and worker_command.c (its work),
 * worker_device.c and worker_pace.c (of native work: its device, its pauses).
 */
#ifndef JM_WORKER_STATE_H
#define JM_WORKER_STATE_H

#include <pthread.h>
#include <sched.h>

#include "base/ctx.h"
#include "base/clock.h"
#include "measure/view/live.h"
#include "orders.h"
#include "measure/session/outer_marks.h"
#include "result/record.h"
#include "affinity.h"
#include "clock_alignment.h"
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
	struct jm_live *live;	       /* for the progress; NULL = none yet */
	const char *unit;	       /* of an item, for the progress; NULL = "item" */
	int rank, world;	       /* of the gang; 0 of 1: alone */
	bool measures;		       /* for its host */
	double machine_cpu_s;	       /* the machine's processor time in native work */
	jm_affinity_fn *find_affinity; /* NULL = nothing is bound */
	json_t *affinity;	       /* what it answered */
	cpu_set_t found_cpus;	       /* what this thread could use before */
	struct jm_orders orders;
	struct jm_outer_marks outer; /* of native work */
	bool stop;		     /* it was ordered to */
	/* worker_orders.c */
	struct jm__span *span;
	int n_spans, n_asked, n_answered;
	/* the settings of the last requested phase replace those of the case */
	bool other_settings;
	/* of native work */
	struct native *native; /* worker_native.c; NULL = none, or torn down */
	/* that of the device that computes; -1 = the device has no name, or no meter */
	int own_meter;
	struct jm_alignment alignment;
	struct jm__end *end;
	int n_ends;
};

/* worker_pace.c: pauses between steps. Ready: the measured phase may begin. */
#define JM__PACE_LIMIT_S  30.0
#define JM__PACE_SILENT_S 5.0 /* or three refresh periods: without any reading that is an error */
struct jm__pace {
	bool holds; /* a power is to be held */
	bool reads; /* each meter of the work has had a reading */
	struct jm_pacer pacer;
	int64_t begin_ns, settled_ns; /* of the measured phase; 0 = not yet */
	int64_t from_ns, to_ns; /* a stretch that is to be looked at; 0 = not begun, not ended */
};

/* and thermal steady state before the measured phase; limit_s 0 = not waited for */
struct jm__heat {
	double limit_s, waited_s;
	int64_t begin_ns, next_ns;
	bool reached;
	struct jm_steady state;
};

#endif
