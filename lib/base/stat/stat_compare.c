/* SPDX-License-Identifier: Apache-2.0 */
#include "stat_compare.h"

#include <math.h>
#include <stdbool.h>

#include "stat.h"

#define SURE 0.975

/* Mean and variance of known logarithms. */
struct logs {
	int n;
	double mean, variance;
};

static bool is_known(double x)
{
	return x > 0 && isfinite(x);
}

static void add(struct logs *l, double x)
{
	double delta = x - l->mean;

	l->n++;
	l->mean += delta / l->n;
	l->variance += delta * (x - l->mean); /* a sum until finish */
}

static void finish(struct logs *l)
{
	l->variance = l->n > 1 ? l->variance / (l->n - 1) : NAN;
}

static struct logs logs_of(const double *x, int n)
{
	struct logs l = {0};

	for (int i = 0; i < n; i++)
		if (is_known(x[i]))
			add(&l, log(x[i]));
	finish(&l);
	return l;
}

/* From a difference of logarithms, its standard error and its degrees of freedom. */
static void conclude(double difference, double error, int dof, struct jm_comparison *c)
{
	double reach;

	c->ratio = exp(difference);
	if (isnan(error) || dof < 1)
		return;
	c->dof = dof;
	reach = jm_stat_t_quantile(SURE, dof) * error;
	c->low = exp(difference - reach);
	c->high = exp(difference + reach);
	if (error > 0)
		c->p = 2 * jm_stat_t_cdf(-fabs(difference / error), dof);
	else
		c->p = difference == 0;
}

static double sum_of_dof(double part, int n)
{
	return part * part / (n - 1);
}

void jm_stat_compare_welch(
	const double *a, int n_a, const double *b, int n_b, struct jm_comparison *ret)
{
	struct logs x = logs_of(a, n_a), y = logs_of(b, n_b);
	double of_x = x.variance / x.n, of_y = y.variance / y.n, dof = x.n + y.n - 2;

	*ret = (struct jm_comparison){
		.n_a = x.n, .n_b = y.n, .ratio = NAN, .low = NAN, .high = NAN, .p = NAN};
	if (!x.n || !y.n)
		return;
	if (of_x + of_y > 0)
		dof = (of_x + of_y) * (of_x + of_y) /
		      (sum_of_dof(of_x, x.n) + sum_of_dof(of_y, y.n));
	conclude(y.mean - x.mean, sqrt(of_x + of_y), (int)floor(dof * (1 + 1e-12)), ret);
}

void jm_stat_compare_paired(const double *a, const double *b, int n, struct jm_comparison *ret)
{
	struct logs d = {0};

	for (int i = 0; i < n; i++)
		if (is_known(a[i]) && is_known(b[i]))
			add(&d, log(b[i] / a[i]));
	finish(&d);
	*ret = (struct jm_comparison){
		.n_a = d.n, .n_b = d.n, .ratio = NAN, .low = NAN, .high = NAN, .p = NAN};
	if (d.n)
		conclude(d.mean, sqrt(d.variance / d.n), d.n - 1, ret);
}
