/* SPDX-License-Identifier: Apache-2.0 */
/* Phases of the work in a worker, and how far it is. */
#ifndef JM_WORKER_PHASES_H
#define JM_WORKER_PHASES_H

#include "worker_state.h"

/* Before the work is torn down, which may hang: the parent ends the other ranks, and in time this
 * one. */
void jm__worker_tell_failure(struct jm__worker *w, int code, const struct jm_err *why);
int jm__worker_begin(struct jm__worker *w, const char *phase, struct jm_err *err);
/* Items of native work, to the phase and to a joulemark outside. */
void jm__worker_credit(struct jm__worker *w, int phase, double items);
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

#endif
