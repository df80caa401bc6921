/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a worker share: worker.c (its life), worker_phases.c, worker_native.c and worker_command.c (its work). */
#ifndef JM_WORKER_PRIVATE_H
#define JM_WORKER_PRIVATE_H

#include <pthread.h>

#include "base/clock.h"
#include "measure/live.h"
#include "run/orders.h"
#include "result/record.h"

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
	int rank, world;      /* of the gang; 0 of 1: alone */
	struct jm_orders orders;
	bool stop;	   /* it was ordered to */
	int setting_phase; /* that began with the last order of a setting; -1 = none */
};

/* worker_phases.c */
int jm__worker_begin(struct jm__worker *w, const char *phase, struct jm_err *err);
void jm__worker_end(struct jm__worker *w, int phase);
/* items, seconds: of the steady phase; share: of the whole, NAN = unknown. Reports to the parent
 * at intervals. */
void jm__worker_progress(
	struct jm__worker *w, const char *phase, double items, double seconds, double share);
/* After a setting: waits until no reading includes the time before it. */
int jm__worker_settle(struct jm__worker *w, struct jm_err *err);
double jm__worker_seconds_since(const struct jm__worker *w, int64_t t0);

/* Takes the orders that have come; w->stop says whether the work is to end. */
void jm__worker_take_orders(struct jm__worker *w);

/* Both fill the record and main_phase; an error is a failure of the work. */
int jm__worker_native(struct jm__worker *w, struct jm_err *err);
int jm__worker_command(struct jm__worker *w, struct jm_err *err);

#endif
