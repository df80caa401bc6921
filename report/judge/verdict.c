/* SPDX-License-Identifier: Apache-2.0 */
/* Which setting is best, by each metric, and when that cannot be said. Two settings are
 * distinguished when their 95 % intervals do not overlap. Settings that the device violated, and
 * those whose requests broke bounds of latency, are excluded. */
#include "verdict.h"
#include "report/format/text.h"
#include "report_objective.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NOISE	1e-9 /* relative; less comes from rounding */
#define OVERLAP "their 95 %% intervals overlap"

const char *jm_verdict_kind_name(enum jm_verdict_kind kind)
{
	static const char *const names[] = {"best", "tie", "none"};

	return names[kind];
}

static double half_width(const struct jm_stat *s)
{
	return isnan(s->half_width) ? INFINITY : s->half_width;
}

/* Counts `a` as better than `b`: higher or lower, by the direction of the metric. */
static bool better(int metric, double a, double b)
{
	return jm_group_metric_better(metric) > 0 ? a > b : a < b;
}

static bool takes_part(const struct jm_group_point *p, int metric)
{
	return p->eligible && p->stat[metric].n > 0;
}

static int count_eligible(const struct jm_grouping *g, const struct jm_group_series *s, int metric)
{
	int n = 0;

	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		n += takes_part(&g->point[i], metric);
	return n;
}

/* The best of a series by a mean, of those that `wanted` (NULL = all) says may be. -1 = none. */
static int find_leading(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	bool (*wanted)(const struct jm_grouping *g, int point))
{
	int leading = -1;

	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (takes_part(&g->point[i], metric) && (!wanted || wanted(g, i)) &&
			(leading < 0 || better(metric, g->point[i].stat[metric].mean,
						g->point[leading].stat[metric].mean)))
			leading = i;
	return leading;
}

int jm_verdict_leading(const struct jm_grouping *g, const struct jm_group_series *s, int metric)
{
	return find_leading(g, s, metric, NULL);
}

bool jm_verdict_tied(const struct jm_grouping *g, const struct jm_verdict *v, int point)
{
	const struct jm_group_point *a, *b = &g->point[point];

	if (v->leading < 0 || !takes_part(b, v->metric))
		return false;
	a = &g->point[v->leading];
	return a->series == b->series && fabs(a->stat[v->metric].mean - b->stat[v->metric].mean) <=
						 half_width(&a->stat[v->metric]) +
							 half_width(&b->stat[v->metric]) +
							 NOISE * fabs(a->stat[v->metric].mean);
}

static bool any_late(const struct jm_grouping *g, const struct jm_group_series *s)
{
	bool late = false;

	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		late |= g->point[i].late;
	return late;
}

/* Why no best setting by the metric can be named; NULL = it can. */
static const char *obstacle(
	const struct jm_grouping *g, const struct jm_group_series *s, const struct jm_verdict *v)
{
	bool relative = v->metric >= JM_M_GAIN;

	if (!s->n_ok)
		return "no run succeeded";
	if (jm_group_metric_energy(v->metric)) {
		if (!s->has_energy)
			return "there was no meter";
		if (s->mixed_origin)
			return "the energy of some cases is measured and of others not";
		if (s->origin == JM_ESTIMATED)
			return "the energy is estimated, and an estimate cannot distinguish "
			       "settings";
		if (s->faulty)
			return "a sensor gave impossible readings in some cases (see their "
			       "quality), so that their energy cannot be compared";
	}
	if (s->soft)
		return "a soft control (duty cycle, quota) does not predict the effect of a cap of "
		       "the device";
	if (s->n_machines > 1 && !s->cards_linked)
		return "the cards that were pooled share no settings, so that the effects of cards "
		       "and settings cannot be separated";
	if (relative && s->reference < 0)
		return "there is no reference case";
	if (v->leading < 0)
		return any_late(g, s) ? "no setting that the devices held kept --ttft and --tpot"
				      : "no setting that the devices held has a value";
	if (count_eligible(g, s, v->metric) < 2)
		return any_late(g, s)
			       ? "only one setting that the devices held kept --ttft and --tpot"
			       : "there are fewer than two settings";
	if (g->point[v->leading].stat[v->metric].n < 2)
		return "one repeat gives no interval; run with --repeat 3 or more";
	return NULL;
}

/* Is the setting within the limit of slowdown, with all of its interval? */
static bool fast(const struct jm_grouping *g, int point)
{
	const struct jm_group_point *p = &g->point[point];
	const struct jm_stat *loss = &p->stat[JM_M_LOSS];

	return point != g->series[p->series].reference && takes_part(p, JM_M_LOSS) &&
	       loss->mean + half_width(loss) <= jm_report_objective_slowdown(g);
}

/* Is it within that limit, and does it clearly save energy? */
static bool saves(const struct jm_grouping *g, int point)
{
	const struct jm_stat *gain = &g->point[point].stat[JM_M_GAIN];

	return fast(g, point) && gain->n > 0 && gain->mean - half_width(gain) > 0;
}

static bool saving_tied(const struct jm_grouping *g, const struct jm_verdict *v, int point)
{
	const struct jm_stat *own = &g->point[point].stat[JM_M_GAIN], *best;

	if (v->leading < 0 || !fast(g, point) || own->n < 1)
		return false;
	best = &g->point[v->leading].stat[JM_M_GAIN];
	return own->mean + half_width(own) >= best->mean - half_width(best);
}

/* Is the mean power of the setting within the budget, with all of its interval? */
static bool fits(const struct jm_grouping *g, int point)
{
	const struct jm_stat *watts = &g->point[point].stat[JM_M_WATTS];

	return takes_part(&g->point[point], JM_M_THROUGHPUT) && watts->n > 0 &&
	       watts->mean + half_width(watts) <= g->options.objective_number;
}

/* Does the mean of its power fit, if not its whole interval? */
static bool fits_by_mean(const struct jm_grouping *g, int point)
{
	const struct jm_stat *watts = &g->point[point].stat[JM_M_WATTS];

	return watts->n > 0 && isfinite(watts->half_width) &&
	       watts->mean <= g->options.objective_number && !fits(g, point);
}

int jm_verdict_within_missed(
	const struct jm_grouping *g, const struct jm_group_series *s, const struct jm_verdict *v)
{
	const int speed = JM_M_THROUGHPUT;
	int missed = -1;

	if (g->options.objective == JM_OBJECTIVE_POWER && v->leading >= 0)
		missed = find_leading(g, s, speed, fits_by_mean);
	return missed >= 0 && better(speed, g->point[missed].stat[speed].mean,
				      g->point[v->leading].stat[speed].mean)
		       ? missed
		       : -1;
}

bool jm_verdict_within_tied(const struct jm_grouping *g, const struct jm_verdict *v, int point)
{
	if (g->options.objective == JM_OBJECTIVE_SLOWDOWN)
		return saving_tied(g, v, point);
	if (v->kind == JM_VERDICT_NONE)
		return false;
	return jm_verdict_tied(g, v, point) &&
	       (g->options.objective != JM_OBJECTIVE_POWER || fits(g, point));
}

static void within_slowdown(
	const struct jm_grouping *g, const struct jm_group_series *s, struct jm_verdict *ret)
{
	struct jm_verdict v = {.metric = JM_M_GAIN, .kind = JM_VERDICT_NONE, .improvement = NAN};
	const char *why;
	int n_fast = 0, n_tied = 0;

	v.leading = jm_verdict_leading(g, s, JM_M_GAIN);
	why = s->n_points < 2 ? "there are fewer than two settings" : obstacle(g, s, &v);
	v.leading = why ? -1 : find_leading(g, s, JM_M_GAIN, saves);
	for (int i = s->first_point; i < s->first_point + s->n_points; i++) {
		n_fast += fast(g, i);
		n_tied += saving_tied(g, &v, i);
	}
	if (why)
		snprintf(v.why, sizeof(v.why), "%s", why);
	else if (!n_fast)
		snprintf(v.why, sizeof(v.why),
			"the reference stays, because each other setting that the devices held is, "
			"or may be, more than %g %% slower",
			jm_report_objective_slowdown(g));
	else if (v.leading < 0)
		jm_text_format(v.why, sizeof(v.why),
			"the reference stays, because no setting within the limit uses clearly "
			"less energy");
	else
		v.kind = n_tied > 1 ? JM_VERDICT_TIE : JM_VERDICT_BEST;
	if (v.kind == JM_VERDICT_TIE)
		snprintf(v.why, sizeof(v.why), OVERLAP);
	*ret = v;
}

/* The energy must be known, as for any choice by it. */
static void within_power(
	const struct jm_grouping *g, const struct jm_group_series *s, struct jm_verdict *ret)
{
	struct jm_verdict v = {.metric = JM_M_JOULES_ITEM, .improvement = NAN};
	const char *why;
	int n_tied = 0;

	v.leading = jm_verdict_leading(g, s, v.metric);
	why = obstacle(g, s, &v);
	v.metric = JM_M_THROUGHPUT;
	v.leading = why ? -1 : find_leading(g, s, v.metric, fits);
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		n_tied += fits(g, i) && jm_verdict_tied(g, &v, i);
	v.kind = v.leading < 0 ? JM_VERDICT_NONE : n_tied > 1 ? JM_VERDICT_TIE : JM_VERDICT_BEST;
	if (why)
		snprintf(v.why, sizeof(v.why), "%s", why);
	else if (v.leading < 0)
		snprintf(v.why, sizeof(v.why),
			"the mean power of each setting is, or may be, above %g W",
			g->options.objective_number);
	else if (v.kind == JM_VERDICT_TIE)
		snprintf(v.why, sizeof(v.why), OVERLAP);
	*ret = v;
}

/* The reference at 700 W and a case that asks for 700 W are one and the same setting. */
static bool same_setting(
	const struct jm_grouping *g, const struct jm_group_point *a, const struct jm_group_point *b)
{
	for (int i = 0; i < g->n_dims; i++)
		if (!g->dim[i].knob || a->enforced_min[i] != b->enforced_min[i] ||
			a->enforced_max[i] != b->enforced_max[i])
			return a == b;
	return g->n_dims > 0 || a == b;
}

/* "300 W, 400 W": those that cannot be distinguished from the leading one. Returns how many
 * settings that are. */
static int list_tied(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_verdict *v, char *out, size_t size)
{
	int n = 1;

	out[0] = '\0';
	for (int i = s->first_point; i < s->first_point + s->n_points; i++) {
		if (!jm_verdict_tied(g, v, i))
			continue;
		n += !same_setting(g, &g->point[i], &g->point[v->leading]);
		jm_text_append(out, size, ", ", g->point[i].label);
	}
	return n;
}

double jm_verdict_improvement(const struct jm_grouping *g, int metric, int point)
{
	int reference = g->series[g->point[point].series].reference;
	double mean = g->point[point].stat[metric].mean, ref;

	if (metric == JM_M_GAIN || metric == JM_M_GAIN_LOSS)
		return mean;
	if (reference < 0)
		return NAN;
	ref = g->point[reference].stat[metric].mean;
	return 100 * jm_group_metric_better(metric) * (mean - ref) / ref;
}

static void judge(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	struct jm_verdict *v)
{
	const char *why;
	char tied[160];

	*v = (struct jm_verdict){.metric = metric, .improvement = NAN};
	v->leading = jm_verdict_leading(g, s, metric);
	why = obstacle(g, s, v);
	if (why) {
		v->kind = JM_VERDICT_NONE;
		snprintf(v->text, sizeof(v->text), "no conclusion");
		snprintf(v->why, sizeof(v->why), "%s", why);
		return;
	}
	v->improvement = jm_verdict_improvement(g, metric, v->leading);
	if (list_tied(g, s, v, tied, sizeof(tied)) > 1) {
		v->kind = JM_VERDICT_TIE;
		snprintf(v->text, sizeof(v->text), "no clear best: %s", tied);
		snprintf(v->why, sizeof(v->why), OVERLAP);
		return;
	}
	v->kind = JM_VERDICT_BEST;
	snprintf(v->text, sizeof(v->text), "%s", g->point[v->leading].label);
}

void jm_verdict_within(
	const struct jm_grouping *g, const struct jm_group_series *s, struct jm_verdict *ret)
{
	if (g->options.objective == JM_OBJECTIVE_SLOWDOWN)
		within_slowdown(g, s, ret);
	else if (g->options.objective == JM_OBJECTIVE_POWER)
		within_power(g, s, ret);
	else
		judge(g, s, jm_report_objective_metric(g), ret);
	if (ret->kind == JM_VERDICT_NONE)
		ret->leading = -1;
}

int jm_verdicts(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_verdict ret[JM_VERDICT_MAX])
{
	int n = 0;

	judge(g, s, JM_M_THROUGHPUT, &ret[n++]);
	judge(g, s, JM_M_JOULES_ITEM, &ret[n++]);
	judge(g, s, JM_M_EDP, &ret[n++]);
	for (int i = 0; i < g->options.n_k; i++)
		judge(g, s, JM_M_EDS + i, &ret[n++]);
	judge(g, s, JM_M_GAIN, &ret[n++]);
	judge(g, s, JM_M_GAIN_LOSS, &ret[n++]);
	return n;
}

int jm_verdict_repeats(
	const struct jm_grouping *g, const struct jm_verdict v[JM_VERDICT_MAX], int n, int i)
{
	int same = v[i].metric == JM_M_GAIN ? JM_M_JOULES_ITEM : -1;

	for (int k = 0; k < g->options.n_k && v[i].metric == JM_M_GAIN_LOSS; k++)
		if (g->options.k[k] == 2)
			same = JM_M_EDS + k;
	for (int k = 0; k < n; k++)
		if (v[k].metric == same && v[k].kind == v[i].kind && v[k].leading == v[i].leading &&
			!strcmp(v[k].text, v[i].text) && !strcmp(v[k].why, v[i].why))
			return k;
	return -1;
}
