/* SPDX-License-Identifier: Apache-2.0 */
/* A budget (budget.h) on real limits: sets them in an order in which their sum never surpasses it.
 * Part of tuner.h. */
#ifndef JM_TUNED_BUDGET_H
#define JM_TUNED_BUDGET_H

#include "budget.h"
#include "measure/session/session.h"
#include "tuned_knob.h"

/* What each device said it enforces, from a change on until the next one. */
struct jm_budget_change {
	int64_t t_ns;
	double watts[JM_BUDGET_MOST];
};

struct jm_tuned_budget {
	const struct jm_ctx *ctx;
	struct jm_budget *budget;     /* NULL = there is none */
	double most;		      /* W */
	double limit[JM_BUDGET_MOST]; /* asked for last, in the order of the knob's devices */
	double watts[JM_BUDGET_MOST]; /* of the last visit; NAN = unknown */
	double sum_most;	      /* W that all enforce together, at most after each change */
	struct jm_budget_change *change; /* two for each time: lowered, then raised */
	int n, n_changes;		 /* n: devices */
};

/* Sets the first limits. JM_EUSAGE: the knob is no power limit; as jm_budget_new. */
int jm_tuned_budget_open(struct jm_tuned_budget *t, const struct jm_ctx *ctx,
	struct jm_tuned_knob *knob, double watts, enum jm_share share, struct jm_err *err);
void jm_tuned_budget_close(struct jm_tuned_budget *t);
/* The limits of the next visit; ret_changed: they are others. */
int jm_tuned_budget_apply(struct jm_tuned_budget *t, struct jm_tuned_knob *knob, bool *ret_changed,
	struct jm_err *err);
/* The limits of this visit again, which another program has changed. */
int jm_tuned_budget_set(struct jm_tuned_budget *t, struct jm_tuned_knob *knob, struct jm_err *err);
/* A visit from t0_ns to t1_ns; JM_ERANGE: it has no items. */
int jm_tuned_budget_add(struct jm_tuned_budget *t, const struct jm_tuned_knob *knob,
	struct jm_session *session, int64_t t0_ns, int64_t t1_ns, double items);

#endif
