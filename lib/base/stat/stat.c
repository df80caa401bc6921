/* SPDX-License-Identifier: Apache-2.0 */
/* What a handful of repeats says: mean, spread, interval, outliers. */
#include "stat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAD_TO_SD	1.4826 /* of normal values: 1 / quantile(0.75) */
#define OUTLIER_LIMIT	10.0   /* in such standard deviations */
#define OUTLIER_LEAST	4
#define DOF_LARGE	2000 /* from here on t differs from its limit by less than 1e-3 relative */
#define MEDIAN_ON_STACK 64

int jm_stat_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return isnan(x) || isnan(y) ? !!isnan(x) - !!isnan(y) : (x > y) - (x < y);
}

/* values: sorted on return. */
static double median_of(double *values, int n)
{
	if (!n)
		return NAN;
	qsort(values, (size_t)n, sizeof(*values), jm_stat_by_value);
	return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* The known values. Returns a copy in `stack` or, if there are many, on the heap; NULL: no
 * memory. */
static double *copy_known(const double *values, int n, double *stack, int *ret_n)
{
	double *copy = n > MEDIAN_ON_STACK ? malloc((size_t)n * sizeof(*copy)) : stack;

	*ret_n = 0;
	for (int i = 0; copy && i < n; i++)
		if (!isnan(values[i]))
			copy[(*ret_n)++] = values[i];
	return copy;
}

static double known_median(const double *values, int n)
{
	double stack[MEDIAN_ON_STACK], *copy, median = NAN;
	int known;

	copy = copy_known(values, n, stack, &known);
	if (copy)
		median = median_of(copy, known);
	if (copy != stack)
		free(copy);
	return median;
}

void jm_stat_of(const double *values, int n, struct jm_stat *ret)
{
	struct jm_stat s = {0, NAN, NAN, NAN, NAN, NAN, NAN};
	double sum = 0, squares = 0;

	for (int i = 0; i < n; i++) {
		if (isnan(values[i]))
			continue;
		s.n++;
		sum += values[i];
		s.min = fmin(s.min, values[i]);
		s.max = fmax(s.max, values[i]);
	}
	if (s.n)
		s.mean = sum / s.n;
	for (int i = 0; i < n; i++)
		if (!isnan(values[i]))
			squares += (values[i] - s.mean) * (values[i] - s.mean);
	if (s.n > 1) {
		s.sd = sqrt(squares / (s.n - 1));
		s.half_width = jm_stat_t_quantile(0.975, s.n - 1) * s.sd / sqrt(s.n);
	}
	s.median = known_median(values, n);
	*ret = s;
}

int jm_stat_outliers(const double *values, int n, bool *ret_flags)
{
	double stack[MEDIAN_ON_STACK], *away, median, mad = NAN;
	int known, flagged = 0;

	memset(ret_flags, 0, (size_t)n * sizeof(*ret_flags));
	median = known_median(values, n);
	away = copy_known(values, n, stack, &known);
	for (int i = 0; away && i < known; i++)
		away[i] = fabs(away[i] - median);
	if (away && known >= OUTLIER_LEAST)
		mad = median_of(away, known);
	if (away != stack)
		free(away);
	if (!(mad > 0))
		return 0;
	for (int i = 0; i < n; i++) {
		ret_flags[i] = fabs(values[i] - median) > OUTLIER_LIMIT * MAD_TO_SD * mad;
		flagged += ret_flags[i];
	}
	return flagged;
}

/*
 * The probability of |T| < t as a finite sum in the angle atan(t / sqrt(dof)): Abramowitz and
 * Stegun, Handbook of Mathematical Functions, 26.7.3 (odd) and 26.7.4 (even).
 */
static double t_within(double t, int dof)
{
	double angle = atan(t / sqrt(dof)), c = cos(angle), s = sin(angle);
	double term = dof % 2 ? c : 1, sum = 0;

	for (int i = dof % 2 ? 1 : 0; i <= dof - 2; i += 2) {
		sum += term;
		term *= c * c * (i + 1) / (i + 2);
	}
	return dof % 2 ? 2 / M_PI * (angle + s * sum) : s * sum;
}

double jm_stat_t_cdf(double t, int dof)
{
	if (dof > DOF_LARGE)
		return 0.5 * erfc(-t / M_SQRT2);
	return 0.5 + 0.5 * copysign(t_within(fabs(t), dof), t);
}

double jm_stat_t_quantile(double p, int dof)
{
	double low = 0, high = 1, upper = p < 0.5 ? 1 - p : p;

	while (jm_stat_t_cdf(high, dof) < upper && high < 1e12)
		high *= 2;
	for (int i = 0; i < 200 && high - low > 1e-13 * high; i++) {
		double middle = 0.5 * (low + high);

		if (jm_stat_t_cdf(middle, dof) < upper)
			low = middle;
		else
			high = middle;
	}
	return copysign(0.5 * (low + high), p - 0.5);
}
