/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Effects of the order of the runs: all runs of a series are taken together, each as its change
 * from the mean of its setting, so that few repeats of many settings are enough.
 */
#include "warnings.h"
#include "base/stat/stat.h"
#include "base/stat/stat_compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LEAST_FREEDOM  3
#define LEAST_SETTINGS 3
#define DRIFT_MATTERS  0.2 /* percent from the first repeat to the last */
#define FIRST_MATTERS  0.5 /* percent */

/* Runs of all settings that have several: values by the mean of their setting, less 1, and the
 * place among its repeats, less the mean place. first, others: of each setting the first repeat,
 * and the mean of the others. */
struct runs {
	double *change, *place, *first, *others;
	int n, n_settings, last;
	bool requests; /* of a server, which are others in each repeat */
};

static bool runs_init(struct runs *r, size_t n)
{
	*r = (struct runs){.change = calloc(n, sizeof(double)),
		.place = calloc(n, sizeof(double)),
		.first = calloc(n, sizeof(double)),
		.others = calloc(n, sizeof(double))};
	return r->change && r->place && r->first && r->others;
}

static void runs_done(struct runs *r)
{
	free(r->change);
	free(r->place);
	free(r->first);
	free(r->others);
}

/* The n cases of one setting on one machine, in the order of their repeats. */
static void add_setting(const struct jm_group_case *c, int n, int metric, struct runs *r)
{
	double sum = 0, places = 0;
	int known = 0, begin = r->n;

	for (int i = 0; i < n; i++) {
		double value = c[i].m.value[metric];

		if (!c[i].ok || !(value > 0))
			continue;
		r->requests |= json_is_object(json_object_get(c[i].record, "serving"));
		r->change[r->n] = value;
		r->place[r->n++] = known++;
		sum += value;
		places += r->place[r->n - 1];
	}
	if (known < 2) {
		r->n = begin;
		return;
	}
	r->first[r->n_settings] = r->change[begin];
	r->others[r->n_settings++] = (sum - r->change[begin]) / (known - 1);
	r->last = known - 1 > r->last ? known - 1 : r->last;
	for (int i = begin; i < r->n; i++) {
		r->change[i] = r->change[i] * known / sum - 1;
		r->place[i] -= places / known;
	}
}

/* On one machine: what machines differ by is no effect of the order. */
static bool are_repeats(const struct jm_group_case *a, const struct jm_group_case *b)
{
	return a->point == b->point && a->machine == b->machine;
}

static void collect(
	const struct jm_grouping *g, const struct jm_group_series *s, int metric, struct runs *r)
{
	r->n = r->n_settings = r->last = 0;
	r->requests = false;
	for (int i = 0, n; i < g->n_cases; i += n) {
		n = 1;
		while (i + n < g->n_cases && are_repeats(&g->c[i], &g->c[i + n]))
			n++;
		if (&g->series[g->c[i].series] == s)
			add_setting(&g->c[i], n, metric, r);
	}
}

/* Least squares within the settings: the change in percent from the first repeat to the last, and
 * the half width of its 95 % interval. */
static double drift_of(const struct runs *r, double *ret_half)
{
	double xx = 0, xy = 0, rest = 0, slope;
	int dof = r->n - r->n_settings - 1;

	for (int i = 0; i < r->n; i++) {
		xx += r->place[i] * r->place[i];
		xy += r->place[i] * r->change[i];
	}
	slope = xy / xx;
	for (int i = 0; i < r->n; i++)
		rest += pow(r->change[i] - slope * r->place[i], 2);
	*ret_half = 100 * r->last * jm_stat_t_quantile(0.975, dof) * sqrt(rest / dof / xx);
	return 100 * r->last * slope;
}

/* The likely cause of what the order of the runs shows. */
static const char *cause(const struct runs *r, const char *otherwise)
{
	return r->requests ? "Each repeat has requests of its own, which may be the cause."
			   : otherwise;
}

static void warn_drift(const struct runs *r, const char *what, json_t *into)
{
	char text[300];
	double half, drift;

	if (r->n - r->n_settings - 1 < LEAST_FREEDOM)
		return;
	drift = drift_of(r, &half);
	if (!(fabs(drift) > half) || !(fabs(drift) > DRIFT_MATTERS))
		return;
	snprintf(text, sizeof(text),
		"The %s drifts: it changes by %+.2f %% ± %.2f %% from the first repeat of a "
		"setting to "
		"the last. %s",
		what, drift, half,
		cause(r, "Let the machine reach a steady temperature first, or run more blocks."));
	json_array_append_new(into, json_string(text));
}

static void warn_first(const struct runs *r, const char *what, json_t *into)
{
	struct jm_comparison c;
	double percent;
	char text[300];

	if (r->n_settings < LEAST_SETTINGS)
		return;
	jm_stat_compare_paired(r->others, r->first, r->n_settings, &c);
	percent = 100 * (c.ratio - 1);
	if (!(c.low > 1 || c.high < 1) || !(fabs(percent) > FIRST_MATTERS))
		return;
	snprintf(text, sizeof(text),
		"First runs differ: the %s of the first repeat of a setting is %.2f %% %s than "
		"that of "
		"the later ones (95 %% interval %+.2f to %+.2f %%). %s",
		what, fabs(percent), percent < 0 ? "lower" : "higher", 100 * (c.low - 1),
		100 * (c.high - 1), cause(r, "A longer warm-up may be needed."));
	json_array_append_new(into, json_string(text));
}

void jm_shares_reject(struct jm_group_point *p)
{
	static const int shares[] = {JM_M_MFU, JM_M_HFU};

	for (int i = 0; i < 2; i++) {
		struct jm_stat *stat = &p->stat[shares[i]];

		if (!stat->n || stat->mean <= 100)
			continue;
		p->impossible_percent = fmax(p->impossible_percent, stat->mean);
		jm_stat_of(NULL, 0, stat);
	}
}

/* A share above the whole says that the peak is not that of one device in FLOP/s. */
static void warn_peak(const struct jm_grouping *g, const struct jm_group_series *s, json_t *into)
{
	double largest = 0;
	char text[300];

	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		largest = fmax(largest, g->point[i].impossible_percent);
	if (!(largest > 0))
		return;
	snprintf(text, sizeof(text),
		"A utilisation of %.4g %% is impossible and is not shown: --peak-flops %.4g is too "
		"low. "
		"It is the dense peak of one device in FLOP/s, in the precision of the work, such "
		"as "
		"989e12.",
		largest, g->options.figures.peak_flops);
	json_array_append_new(into, json_string(text));
}

json_t *jm_warnings(const struct jm_grouping *g, const struct jm_group_series *s)
{
	static const struct {
		int metric;
		const char *name;
	} watched[] = {{JM_M_THROUGHPUT, "throughput"}, {JM_M_JOULES_ITEM, "energy per item"}};
	json_t *out = json_array();
	struct runs r;
	bool ready = runs_init(&r, (size_t)g->n_cases + 1);

	for (size_t i = 0; ready && i < sizeof(watched) / sizeof(watched[0]); i++) {
		collect(g, s, watched[i].metric, &r);
		warn_first(&r, watched[i].name, out);
		warn_drift(&r, watched[i].name, out);
	}
	runs_done(&r);
	warn_peak(g, s, out);
	return out;
}
