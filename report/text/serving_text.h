/* SPDX-License-Identifier: Apache-2.0 */
/* How long requests waited, and what each cost: of runs that serve a language model. */
#ifndef JM_SERVING_TEXT_H
#define JM_SERVING_TEXT_H

#include "report/format/cells.h"
#include "report/model/grouping.h"

/* How many runs of the series served requests; the tables below take 1 and more. */
int jm_served_runs(const struct jm_grouping *g, const struct jm_group_series *s);
/* TTFT, TPOT, time between tokens and of a whole answer, in ms: mean, p50, p99 of each run. */
int jm_served_latencies(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err);
/* Requests, goodput and joules of each run; whether the 99th percentiles keep the bounds --ttft and
 * --tpot (p99_in_bounds). */
int jm_served_costs(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err);
/* What the tables cover, in a sentence. */
void jm_served_span(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);

#endif
