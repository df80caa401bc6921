/* SPDX-License-Identifier: Apache-2.0 */
/* What a handful of repeats says: mean, spread, interval, outliers. Nothing is ever dropped. */
#ifndef JM_STAT_H
#define JM_STAT_H

#include <stdbool.h>

struct jm_stat {
	int n;		   /* values that are known */
	double mean;	   /* NAN: n = 0 */
	double median;	   /* NAN: n = 0 */
	double sd;	   /* of the sample (n - 1); NAN: n < 2 */
	double half_width; /* of the 95 % interval of the mean, Student's t; NAN: n < 2 */
	double min, max;   /* NAN: n = 0 */
};

/* For qsort: doubles, the smallest first, NAN last. */
int jm_stat_by_value(const void *a, const void *b);

/* NAN among the values means "unknown": it is left out of n. */
void jm_stat_of(const double *values, int n, struct jm_stat *ret);

/*
 * Flags values far from the median: |x - median| > 10 * 1.4826 * MAD, the modified Z score of
 * Iglewicz and Hoaglin, "How to Detect and Handle Outliers" (1993), with a wide threshold, for
 * repeats are few. Returns how many are flagged; fewer than 4 known values, or a MAD of 0, flag
 * none.
 */
int jm_stat_outliers(const double *values, int n, bool *ret_flags);

/* Distribution function of Student's t and the value it reaches with probability p; dof >= 1, 0 < p
 * < 1. */
double jm_stat_t_cdf(double t, int dof);
double jm_stat_t_quantile(double p, int dof);

#endif
