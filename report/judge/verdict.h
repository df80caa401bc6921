/* SPDX-License-Identifier: Apache-2.0 */
/* The best setting by each metric, or why there is none. */
#ifndef JM_REPORT_VERDICT_H
#define JM_REPORT_VERDICT_H

#include "report/model/grouping.h"

enum jm_verdict_kind { JM_VERDICT_BEST, JM_VERDICT_TIE, JM_VERDICT_NONE };
const char *jm_verdict_kind_name(enum jm_verdict_kind kind); /* "best", "tie", "none" */
struct jm_verdict {
	int metric;
	enum jm_verdict_kind kind;
	int leading;	    /* point with the best mean; -1 = nothing to compare */
	double improvement; /* percent of the reference's mean, positive = better; NAN */
	char text[200];	    /* "300 W", "no clear best: 300 W, 400 W", "no conclusion" */
	char why[240];	    /* of tie and none: one sentence */
};
/* The setting with the best mean by the metric, of those that the device held and that kept bounds
 * of latency; -1 = there is none. */
int jm_verdict_leading(const struct jm_grouping *g, const struct jm_group_series *s, int metric);
/* Percent by which the mean at the point is better than that of the reference; NAN = unknown. */
double jm_verdict_improvement(const struct jm_grouping *g, int metric, int point);
#define JM_VERDICT_MAX (5 + JM_METRIC_MAX_K)
/* Returns how many. */
int jm_verdicts(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_verdict ret[JM_VERDICT_MAX]);
/*
 * The number of the verdict whose question is the same as that of number i, with the same answer:
 * the energy saved ranks settings as the energy per item does, energy saved minus slowdown as EDS
 * 2; -1 = none.
 */
int jm_verdict_repeats(
	const struct jm_grouping *g, const struct jm_verdict v[JM_VERDICT_MAX], int n, int i);
/*
 * The setting that saves most energy by its mean, and clearly saves some, among those whose
 * slowdown, upper end of its 95 % interval, is at most jm_report_objective_slowdown. A tie: there
 * are others within the limit whose saving cannot be distinguished from it. With another objective
 * the best setting by that; with a budget of power that with the highest throughput among those
 * whose mean power, upper end of its interval, is within it. Without text.
 */
void jm_verdict_within(
	const struct jm_grouping *g, const struct jm_group_series *s, struct jm_verdict *ret);
/* Is the point the leading one of that, or among those that cannot be distinguished from it? */
bool jm_verdict_within_tied(const struct jm_grouping *g, const struct jm_verdict *v, int point);
/* Of that verdict, with a budget of power: the fastest setting that is faster and would fit but for
 * the interval of its power; -1 = none. */
int jm_verdict_within_missed(
	const struct jm_grouping *g, const struct jm_group_series *s, const struct jm_verdict *v);
/* Is the point among those that cannot be distinguished from the leading one? */
bool jm_verdict_tied(const struct jm_grouping *g, const struct jm_verdict *v, int point);

#endif
