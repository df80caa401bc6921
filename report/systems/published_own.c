/* SPDX-License-Identifier: Apache-2.0 */
#include "published_own.h"
#include "base/text/json.h"
#include "report/judge/verdict.h"
#include "report/model/dimension.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char several_series[] =
	"Several series did this work on the same number of devices, so their gains are not shown "
	"beside those of the papers; report one series at a time.";

/* The metric that papers call by that name, the improvement in which is a gain; -1 = none. */
static int metric_of(const struct jm_grouping *g, const char *name)
{
	static const struct {
		const char *name;
		int metric;
	} named[] = {
		{"energy", JM_M_GAIN},
		{"energy saved minus slowdown", JM_M_GAIN_LOSS},
		{"EDP", JM_M_EDP},
	};

	for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
		if (!strcmp(named[i].name, name))
			return named[i].metric;
	for (int k = 0; k < g->options.n_k; k++) {
		char title[40];

		snprintf(title, sizeof(title), "EDS k=%g", g->options.k[k]);
		if (!strcmp(title, name))
			return JM_M_EDS + k;
	}
	return -1;
}

/* The best point of the only series that compares with the row; -1 = none, or several. */
static int find_own(
	const struct jm_grouping *g, const bool *did, const json_t *row, int metric, int *ret_n)
{
	int own = -1;

	*ret_n = 0;
	for (int i = 0; i < g->n_series; i++) {
		const struct jm_group_series *s = &g->series[i];
		int best;

		if (!did[i] || s->reference < 0 ||
			jm_json_real_of(row, "devices") != jm_json_real_of(s->record, "devices"))
			continue;
		best = jm_verdict_leading(g, s, metric);
		if (best < 0 || isnan(jm_verdict_improvement(g, metric, best)))
			continue;
		++*ret_n;
		own = best;
	}
	return *ret_n == 1 ? own : -1;
}

void jm_published_own(const struct jm_grouping *g, const bool *did, json_t *work)
{
	int cap = jm_dim_cap(g);
	bool several = false;
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(work, "rows"), i, row)
	{
		int metric = metric_of(g, jm_json_text(row, "metric")), own, n;

		if (metric < 0)
			continue;
		own = find_own(g, did, row, metric, &n);
		several = several || n > 1;
		if (own < 0)
			continue;
		json_object_set_new(row, "own_cap_watts",
			cap < 0 ? json_null() : jm_json_number(g->point[own].value[cap].x));
		json_object_set_new(row, "own_gain_percent",
			jm_json_number(jm_verdict_improvement(g, metric, own)));
	}
	if (several)
		json_array_append_new(json_object_get(work, "notes"), json_string(several_series));
}
