/* SPDX-License-Identifier: Apache-2.0 */
#include "published_own.h"
#include "base/text/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char several_series[] =
	"Several series did this work on the same number of devices, so their gains are not shown "
	"beside those of the papers; report one series at a time.";

/* A metric as papers name it, and what it gains over the reference, in percent. */
struct gain {
	const char *name;
	int metric;
	bool is_gain; /* its value is; else 100 (1 - value / that of the reference) */
};

static const struct gain gains[] = {
	{"energy", JM_M_GAIN, true},
	{"energy saved minus slowdown", JM_M_GAIN_LOSS, true},
	{"EDP", JM_M_EDP, false},
};

static bool find_gain(const struct jm_grouping *g, const char *name, struct gain *ret)
{
	for (size_t i = 0; i < sizeof(gains) / sizeof(gains[0]); i++)
		if (!strcmp(gains[i].name, name)) {
			*ret = gains[i];
			return true;
		}
	for (int k = 0; k < g->options.n_k; k++) {
		char title[40];

		snprintf(title, sizeof(title), "EDS k=%g", g->options.k[k]);
		if (!strcmp(title, name)) {
			*ret = (struct gain){name, JM_M_EDS + k, false};
			return true;
		}
	}
	return false;
}

static double gain_of(const struct gain *what, const struct jm_group_point *p,
	const struct jm_group_point *reference)
{
	double value = p->stat[what->metric].mean;

	return what->is_gain ? value : 100 * (1 - value / reference->stat[what->metric].mean);
}

/* The cap of the first dimension that is one, W. */
static double cap_of(const struct jm_grouping *g, const struct jm_group_point *p)
{
	for (int d = 0; d < g->n_dims; d++)
		if (!strcmp(g->dim[d].unit, "W") && g->dim[d].knob)
			return p->value[d].x;
	return NAN;
}

/* The setting with the highest mean; NULL = there is none. */
static const struct jm_group_point *best_of(
	const struct jm_grouping *g, const struct jm_group_series *s, const struct gain *what)
{
	const struct jm_group_point *best = NULL, *reference = &g->point[s->reference];

	for (int i = s->first_point; i < s->first_point + s->n_points; i++) {
		const struct jm_group_point *p = &g->point[i];

		if (p->eligible && !isnan(gain_of(what, p, reference)) &&
			(!best || gain_of(what, p, reference) > gain_of(what, best, reference)))
			best = p;
	}
	return best;
}

/* The best setting of the only series that compares with the row; NULL = none, or several. */
static const struct jm_group_point *find_own(const struct jm_grouping *g, const bool *did,
	const json_t *row, const struct gain *what, int *ret_n, double *ret_gain)
{
	const struct jm_group_point *own = NULL;

	*ret_n = 0;
	for (int i = 0; i < g->n_series; i++) {
		const struct jm_group_series *s = &g->series[i];
		const struct jm_group_point *best;

		if (!did[i] || s->reference < 0 ||
			jm_json_real_of(row, "devices") != jm_json_real_of(s->record, "devices"))
			continue;
		best = best_of(g, s, what);
		if (!best)
			continue;
		++*ret_n;
		own = best;
		*ret_gain = gain_of(what, best, &g->point[s->reference]);
	}
	return *ret_n == 1 ? own : NULL;
}

void jm_published_own(const struct jm_grouping *g, const bool *did, json_t *work)
{
	bool several = false;
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(work, "rows"), i, row)
	{
		const struct jm_group_point *own;
		struct gain what;
		double gain;
		int n;

		if (!find_gain(g, jm_json_text(row, "metric"), &what))
			continue;
		own = find_own(g, did, row, &what, &n, &gain);
		several = several || n > 1;
		if (!own)
			continue;
		json_object_set_new(row, "own_cap_watts", jm_json_number(cap_of(g, own)));
		json_object_set_new(row, "own_gain_percent", jm_json_number(gain));
	}
	if (several)
		json_array_append_new(json_object_get(work, "notes"), json_string(several_series));
}
