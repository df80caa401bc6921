/* SPDX-License-Identifier: Apache-2.0 */
/* Series of several machines of one kind: the card, which is the set of devices of a host, is a
 * factor. Its effect is taken out of the means, and the interval is that of the rest. */
#include "machine_effect.h"
#include "base/stat/stat_blocks.h"

#include <math.h>
#include <stdlib.h>

struct table {
	double *value, *mean, *half_width, *effect;
	int *setting, *card;
	int n;
};

static void done(struct table *t)
{
	free(t->value);
	free(t->mean);
	free(t->half_width);
	free(t->effect);
	free(t->setting);
	free(t->card);
}

/* The series' cases as rows; machines of other series stay levels without a value. */
static int make(const struct jm_grouping *g, const struct jm_group_series *s, struct table *t)
{
	size_t n = (size_t)s->n_ok + (size_t)s->n_failed, most = n + (size_t)g->n_machines + 1;
	int index = (int)(s - g->series);

	*t = (struct table){.value = calloc(n, sizeof(double)),
		.mean = calloc((size_t)s->n_points, sizeof(double)),
		.half_width = calloc((size_t)s->n_points, sizeof(double)),
		.effect = calloc(most, sizeof(double)),
		.setting = calloc(n, sizeof(int)),
		.card = calloc(n, sizeof(int))};
	if (!t->value || !t->mean || !t->half_width || !t->effect || !t->setting || !t->card)
		return JM_ENOMEM;
	for (int i = 0; i < g->n_cases; i++) {
		if (g->c[i].series != index)
			continue;
		t->setting[t->n] = g->c[i].point - s->first_point;
		t->card[t->n++] = g->c[i].machine - s->first_machine;
	}
	return 0;
}

static void read_values(
	const struct jm_grouping *g, const struct jm_group_series *s, int metric, struct table *t)
{
	int index = (int)(s - g->series), n = 0;

	for (int i = 0; i < g->n_cases; i++)
		if (g->c[i].series == index)
			t->value[n++] = g->c[i].m.value[metric];
}

/* Largest less smallest effect, as a part of the mean of all values. */
static double spread_of(const struct table *t, int n_cards)
{
	double low = NAN, high = NAN, sum = 0;
	int n = 0;

	for (int i = 0; i < n_cards; i++) {
		low = fmin(low, t->effect[i]);
		high = fmax(high, t->effect[i]);
	}
	for (int i = 0; i < t->n; i++) {
		if (isnan(t->value[i]))
			continue;
		sum += t->value[i];
		n++;
	}
	return n ? (high - low) / fabs(sum / n) : NAN;
}

static int adjust_metric(
	struct jm_grouping *g, struct jm_group_series *s, int metric, struct table *t)
{
	struct jm_block_values values = {.value = t->value,
		.setting = t->setting,
		.card = t->card,
		.n = t->n,
		.n_settings = s->n_points,
		.n_cards = g->n_machines - s->first_machine};
	struct jm_blocks blocks = {t->mean, t->half_width, t->effect};
	int rc;

	read_values(g, s, metric, t);
	rc = jm_stat_blocks(&values, &blocks);
	if (rc == JM_ENOMEM)
		return rc;
	for (int i = 0; i < s->n_points; i++) {
		struct jm_stat *stat = &g->point[s->first_point + i].stat[metric];

		stat->half_width = rc ? NAN : t->half_width[i];
		if (!rc && stat->n)
			stat->mean = t->mean[i];
	}
	if (metric == JM_M_THROUGHPUT)
		s->cards_linked = !rc;
	if (metric == JM_M_THROUGHPUT)
		s->spread_throughput = rc ? NAN : spread_of(t, values.n_cards);
	if (metric == JM_M_JOULES_ITEM)
		s->spread_joules = rc ? NAN : spread_of(t, values.n_cards);
	return 0;
}

int jm_machine_effect_remove(struct jm_grouping *g, struct jm_group_series *s, struct jm_err *err)
{
	struct table t;
	int rc = make(g, s, &t);

	for (int m = 0; m < JM_M_ALL && !rc; m++)
		rc = adjust_metric(g, s, m, &t);
	done(&t);
	return rc ? jm_err_set(err, rc, "Out of memory for the cards of a series.") : 0;
}
