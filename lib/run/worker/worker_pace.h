/* SPDX-License-Identifier: Apache-2.0 */
/* Pauses between steps that hold a mean power, and the wait for thermal steady state: both by what
 * meters read. */
#ifndef JM_WORKER_PACE_H
#define JM_WORKER_PACE_H

#include "worker_state.h"

/* watts: 0 = there are no pauses. */
int jm__pace_begin(struct jm__worker *w, struct jm__pace *p, double watts, struct jm_err *err);
/* Behind a step: the pause. JM_EIO: a meter of the work has had no reading yet. */
int jm__pace_rest(struct jm__worker *w, struct jm__pace *p, double step_s, struct jm_err *err);
bool jm__pace_ready(const struct jm__worker *w, const struct jm__pace *p);
void jm__pace_settle(struct jm__worker *w, struct jm__pace *p); /* the measured phase begins */
/* After the end of the session: whether the power was held, in the record. */
void jm__pace_record(struct jm__worker *w);
/* Soft control: not a limit that a driver enforces, and no rights are needed. */
void jm__pace_record_soft(
	struct jm__worker *w, const struct jm__pace *pace, const struct jm_own *own);
bool jm__heat_done(struct jm__worker *w, struct jm__heat *h);
void jm__heat_record(struct jm__worker *w, const struct jm__heat *h);

#endif
