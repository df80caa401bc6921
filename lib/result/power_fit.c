/* SPDX-License-Identifier: Apache-2.0 */
#include "result/power_fit.h"
#include "base/stat/stat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TERMS	JM_POWER_TERMS
#define SETS	(1u << TERMS)
#define ALIKE	1e-4 /* of a column's square that the others do not explain: less tells nothing */
#define BESIDE	1.5  /* how far beyond what was measured a work may lie, as a factor */
#define OVER	1.02 /* the same of watts: a limit holds on average, and sensors scatter */
#define LEVEL	3    /* works within 2 % of the highest power: a limit holds them */
#define P_UPPER 0.975

/* The terms of all works, and what they shall add up to. */
struct rows {
	double (*term)[TERMS];
	double *sum;
	int n;
};

static double product(const double *a, const double *b)
{
	return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

/* Inverts a symmetric matrix whose diagonal is 1 in the set and 0 outside, in place. */
static bool invert(double m[TERMS][TERMS], unsigned set)
{
	for (int i = 0; i < TERMS; i++) {
		double pivot = m[i][i];

		if (!(set >> i & 1))
			continue;
		if (pivot < ALIKE)
			return false;
		m[i][i] = 1;
		for (int k = 0; k < TERMS; k++)
			m[i][k] /= pivot;
		for (int j = 0; j < TERMS; j++) {
			double factor = m[j][i];

			if (j == i)
				continue;
			m[j][i] = 0;
			for (int k = 0; k < TERMS; k++)
				m[j][k] -= factor * m[i][k];
		}
	}
	return true;
}

/* The inverse of the sums of products of the terms in the set; others are 0. */
static bool inverse_of(const struct rows *r, unsigned set, double inverse[TERMS][TERMS])
{
	double m[TERMS][TERMS] = {{0}}, norm[TERMS];

	for (int k = 0; k < r->n; k++)
		for (int i = 0; i < TERMS; i++)
			for (int j = 0; j < TERMS; j++)
				if ((set >> i & 1) && (set >> j & 1))
					m[i][j] += r->term[k][i] * r->term[k][j];
	for (int i = 0; i < TERMS; i++)
		norm[i] = m[i][i] > 0 ? sqrt(m[i][i]) : 1;
	for (int i = 0; i < TERMS; i++)
		for (int j = 0; j < TERMS; j++)
			m[i][j] /= norm[i] * norm[j];
	if (!invert(m, set))
		return false;
	for (int i = 0; i < TERMS; i++)
		for (int j = 0; j < TERMS; j++)
			inverse[i][j] = m[i][j] / (norm[i] * norm[j]);
	return true;
}

static bool solve(const struct rows *r, unsigned set, struct jm_power_line *ret)
{
	double sums[TERMS] = {0};

	*ret = (struct jm_power_line){.squares = 0};
	if (!inverse_of(r, set, ret->inverse))
		return false;
	for (int k = 0; k < r->n; k++)
		for (int i = 0; i < TERMS; i++)
			sums[i] += r->term[k][i] * r->sum[k];
	for (int i = 0; i < TERMS; i++) {
		ret->factor[i] = product(ret->inverse[i], sums);
		ret->n_used += set >> i & 1;
		if (ret->factor[i] < 0)
			return false;
	}
	for (int k = 0; k < r->n; k++)
		ret->squares += pow(r->sum[k] - product(ret->factor, r->term[k]), 2);
	return true;
}

/* Of all sets of terms whose factors are not below 0, that with the least residuals. */
static bool best_line(const struct rows *r, struct jm_power_line *ret)
{
	struct jm_power_line line;
	bool found = false;

	for (unsigned set = 1; set < SETS; set++) {
		if (!solve(r, set, &line) || (found && line.squares >= ret->squares))
			continue;
		*ret = line;
		found = true;
	}
	return found;
}

static double seconds_of(const struct jm_power_fit *fit, double flops, double bytes)
{
	return product(fit->seconds.factor, (double[TERMS]){1, flops, bytes});
}

static void set_terms(struct rows *r, int k, double sum, double by, const double *term)
{
	for (int i = 0; i < TERMS; i++)
		r->term[k][i] = term[i] / by;
	r->sum[k] = sum;
}

static bool fit_lines(const struct jm_power_work *work, struct rows *r, struct jm_power_fit *ret)
{
	for (int k = 0; k < r->n; k++)
		set_terms(r, k, 1, work[k].seconds, (double[]){1, work[k].flops, work[k].bytes});
	if (!best_line(r, &ret->seconds))
		return false;
	for (int k = 0; k < r->n; k++) {
		double seconds = seconds_of(ret, work[k].flops, work[k].bytes);

		set_terms(r, k, work[k].watts, seconds,
			(double[]){seconds, work[k].flops, work[k].bytes});
	}
	return best_line(r, &ret->watts);
}

static void set_range(const struct jm_power_work *work, struct jm_power_fit *ret)
{
	int level = 0;

	ret->least_intensity = ret->least_seconds = ret->least_watts = INFINITY;
	ret->most_intensity = ret->most_seconds = ret->most_watts = 0;
	for (const struct jm_power_work *w = work; w < work + ret->n; w++) {
		ret->least_intensity = fmin(ret->least_intensity, w->flops / w->bytes);
		ret->most_intensity = fmax(ret->most_intensity, w->flops / w->bytes);
		ret->least_seconds = fmin(ret->least_seconds, w->seconds);
		ret->most_seconds = fmax(ret->most_seconds, w->seconds);
		ret->least_watts = fmin(ret->least_watts, w->watts);
		ret->most_watts = fmax(ret->most_watts, w->watts);
	}
	for (const struct jm_power_work *w = work; w < work + ret->n; w++)
		level += w->watts * OVER >= ret->most_watts;
	if (level < LEVEL)
		ret->most_watts = INFINITY;
}

int jm_power_fit_make(
	const struct jm_power_work *work, int n, struct jm_power_fit *ret, struct jm_err *err)
{
	struct rows r = {.n = n};
	bool good;

	*ret = (struct jm_power_fit){.n = n};
	if (n < JM_POWER_LEAST)
		return jm_err_set(err, JM_ERANGE,
			"%d different works were measured; an estimate of power needs %d or more. "
			"Measure others, such as more batch sizes and models.",
			n, JM_POWER_LEAST);
	r.term = calloc((size_t)n, sizeof(*r.term));
	r.sum = calloc((size_t)n, sizeof(*r.sum));
	if (!r.term || !r.sum) {
		free(r.term);
		free(r.sum);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d works.", n);
	}
	set_range(work, ret);
	good = fit_lines(work, &r, ret);
	free(r.term);
	free(r.sum);
	return good ? 0
		    : jm_err_set(err, JM_ERANGE,
			      "The %d works that were measured are too much alike for an estimate "
			      "of power; measure others, such as more batch sizes and models.",
			      n);
}

static int check_range(
	double value, double least, double most, const char *what, struct jm_err *err)
{
	if (value >= least / BESIDE && value <= most * BESIDE)
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"%s of this work (%.3g) lie outside of what was measured (%.3g to %.3g), so that "
		"its power would be a guess; measure works that are more like it.",
		what, value, least, most);
}

int jm_power_fit_predict(const struct jm_power_fit *fit, double flops, double bytes,
	struct jm_power_estimate *ret, struct jm_err *err)
{
	double seconds = seconds_of(fit, flops, bytes);
	double term[TERMS] = {1, flops / seconds, bytes / seconds}, leverage = 0, half;
	int dof = fit->n - fit->seconds.n_used - fit->watts.n_used;
	double most = fit->most_watts * OVER;
	int rc = check_range(
		flops / bytes, fit->least_intensity, fit->most_intensity, "FLOPs per byte", err);

	if (!rc)
		rc = check_range(seconds, fit->least_seconds, fit->most_seconds,
			"The estimated seconds of a step", err);
	if (rc)
		return rc;
	for (int i = 0; i < TERMS; i++)
		leverage += term[i] * product(fit->watts.inverse[i], term);
	half = jm_stat_t_quantile(P_UPPER, dof) * sqrt(fit->watts.squares / dof * (1 + leverage));
	ret->seconds = seconds;
	ret->watts = fmin(product(fit->watts.factor, term), most);
	ret->low = fmax(ret->watts - half, 0);
	ret->high = fmin(ret->watts + half, most);
	return 0;
}
