/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a power budget is shared among the limits of devices: pure, as search.h.
 *
 *	jm_budget_next	the limits of the next visit, which together are never above the budget
 *	jm_budget_add	what came of that visit
 *
 * EQUAL and PROPORTIONAL (to the highest limit of each device) are known at once. MARGINAL begins
 * with equal limits and moves power to where it does more, by visits: first away from devices that
 * draw less than their limit, as those do that wait for a slower one, until the rate of items would
 * fall; then along the slope of the rate, found by giving each device in turn some watts of all
 * others. A move is kept if the rate has not fallen (of unused watts), or has risen. While the last
 * limits are held, visits go on; where rate or power move by JM_TUNE_DRIFT, it looks again.
 */
#ifndef JM_BUDGET_H
#define JM_BUDGET_H

#include "visit.h"

#define JM_BUDGET_MOST 64 /* devices */

enum jm_share { JM_SHARE_EQUAL, JM_SHARE_PROPORTIONAL, JM_SHARE_MARGINAL };
extern const char *const jm_share_names[]; /* "equal", "proportional", "marginal", NULL */

struct jm_budget_device {
	double min, max, step; /* of its limit, W; step 0 = any */
};

struct jm_budget_options {
	double watts;
	enum jm_share share;
	struct jm_budget_device device[JM_BUDGET_MOST];
	int n;
};

struct jm_budget_visit {
	double seconds, items;
	double watts[JM_BUDGET_MOST]; /* mean power of each device; NAN = unknown */
};

struct jm_budget_result {
	double limit[JM_BUDGET_MOST]; /* W, that are held, or the best so far */
	double first_rate, rate; /* items/s with the first limits, and with these; NAN = unknown */
	int visits, tried, kept; /* moves */
};

struct jm_budget;

/* JM_ERANGE: below the sum of the least limits; JM_EUSAGE: more devices than JM_BUDGET_MOST. */
int jm_budget_new(
	const struct jm_budget_options *options, struct jm_budget **ret, struct jm_err *err);
void jm_budget_free(struct jm_budget *b); /* takes NULL */
const double *jm_budget_next(const struct jm_budget *b);
/* Is nothing tried any more? */
bool jm_budget_holds(const struct jm_budget *b);
/* JM_ERANGE: a visit without items or time, which is ignored. */
int jm_budget_add(struct jm_budget *b, const struct jm_budget_visit *visit, struct jm_err *err);
void jm_budget_result(const struct jm_budget *b, struct jm_budget_result *ret);

#endif
