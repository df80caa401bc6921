/* SPDX-License-Identifier: Apache-2.0 */
/* Least squares for two crossed factors, by the normal equations. */
#include "stat_blocks.h"
#include "stat.h"

#include "joulemark.h"

#include <math.h>
#include <stdlib.h>

#define MOST_LEVELS 256 /* of both factors together */
#define SURE	    0.975

/* Of levels that some value has, settings first; -1 = none has. */
struct levels {
	int setting[MOST_LEVELS], card[MOST_LEVELS];
	int n_settings, n;
};

static int number_levels(const struct jm_block_values *v, struct levels *l)
{
	if (v->n_settings > MOST_LEVELS || v->n_cards > MOST_LEVELS)
		return JM_ERANGE;
	*l = (struct levels){.n = 0};
	for (int i = 0; i < MOST_LEVELS; i++)
		l->setting[i] = l->card[i] = -1;
	for (int i = 0; i < v->n; i++)
		if (!isnan(v->value[i]) && l->setting[v->setting[i]] < 0)
			l->setting[v->setting[i]] = l->n++;
	l->n_settings = l->n;
	for (int i = 0; i < v->n; i++)
		if (!isnan(v->value[i]) && l->card[v->card[i]] < 0)
			l->card[v->card[i]] = l->n++;
	return l->n > MOST_LEVELS ? JM_ERANGE : 0;
}

/* X'X + w w', where w weighs a card's effect by its values: their weighted sum is 0. Also X'y. */
static void fill_equations(
	const struct jm_block_values *v, const struct levels *l, double *a, double *right)
{
	double w[MOST_LEVELS] = {0};
	int n = l->n;

	for (int i = 0; i < v->n; i++) {
		int s = l->setting[v->setting[i]], c = l->card[v->card[i]];

		if (isnan(v->value[i]))
			continue;
		a[s * n + s]++;
		a[c * n + c]++;
		a[s * n + c]++;
		a[c * n + s]++;
		right[s] += v->value[i];
		right[c] += v->value[i];
		w[c]++;
	}
	for (int i = 0; i < n; i++)
		for (int k = 0; k < n; k++)
			a[i * n + k] += w[i] * w[k];
}

/* In place, by Gauss and Jordan; positive definite, so no pivot is looked for. False: it is
 * singular, which is so when no card links two groups of settings. */
static bool invert(double *a, int n)
{
	for (int p = 0; p < n; p++) {
		double pivot = a[p * n + p];

		if (!(pivot > 1e-9))
			return false;
		a[p * n + p] = 1;
		for (int k = 0; k < n; k++)
			a[p * n + k] /= pivot;
		for (int i = 0; i < n; i++) {
			double factor = a[i * n + p];

			if (i == p)
				continue;
			a[i * n + p] = 0;
			for (int k = 0; k < n; k++)
				a[i * n + k] -= factor * a[p * n + k];
		}
	}
	return true;
}

static void solve(const double *inverse, const double *right, int n, double *ret)
{
	for (int i = 0; i < n; i++) {
		ret[i] = 0;
		for (int k = 0; k < n; k++)
			ret[i] += inverse[i * n + k] * right[k];
	}
}

static double residual_variance(
	const struct jm_block_values *v, const struct levels *l, const double *effect, int *ret_n)
{
	double sum = 0;
	int n = 0;

	for (int i = 0; i < v->n; i++) {
		double rest = v->value[i];

		if (isnan(rest))
			continue;
		rest -= effect[l->setting[v->setting[i]]] + effect[l->card[v->card[i]]];
		sum += rest * rest;
		n++;
	}
	*ret_n = n;
	n -= l->n - 1;
	return n > 0 ? sum / n : NAN;
}

static void put_results(const struct jm_block_values *v, const struct levels *l,
	const double *inverse, const double *effect, struct jm_blocks *ret)
{
	int n;
	double variance = residual_variance(v, l, effect, &n);
	int dof = n - (l->n - 1);
	double t = dof > 0 ? jm_stat_t_quantile(SURE, dof) : NAN;

	for (int i = 0; i < v->n_cards; i++)
		ret->card[i] = l->card[i] < 0 ? NAN : effect[l->card[i]];
	for (int i = 0; i < v->n_settings; i++) {
		int s = l->setting[i];
		/* [A^-1 X'X A^-1], where A^-1 w is known: -1/n for each setting */
		double share = s < 0 ? NAN : inverse[s * l->n + s] - 1 / ((double)n * n);

		ret->mean[i] = s < 0 ? NAN : effect[s];
		ret->half_width[i] = t * sqrt(fmax(variance * share, 0));
	}
}

int jm_stat_blocks(const struct jm_block_values *v, struct jm_blocks *ret)
{
	struct levels l;
	double effect[MOST_LEVELS], right[MOST_LEVELS] = {0}, *a;
	int rc = number_levels(v, &l);

	if (rc)
		return rc;
	a = calloc((size_t)l.n * (size_t)l.n + 1, sizeof(*a));
	if (!a)
		return JM_ENOMEM;
	fill_equations(v, &l, a, right);
	if (invert(a, l.n)) {
		solve(a, right, l.n, effect);
		put_results(v, &l, a, effect, ret);
	} else {
		rc = JM_ERANGE;
	}
	free(a);
	return rc;
}
