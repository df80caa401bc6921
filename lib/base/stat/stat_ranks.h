/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of values by their ranks. */
#ifndef JM_STAT_RANKS_H
#define JM_STAT_RANKS_H

/*
 * Independent values by their ranks alone, whatever their distribution: the two-sided probability
 * that the sum of ranks of `a` is at least as far from its mean if all orders are equally likely.
 * Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than
 * the other" (Annals of Mathematical Statistics 18, 1947). Ties have the mean of their ranks. Exact
 * for up to 60 values, beyond by the normal distribution with the variance corrected for ties. NAN:
 * a side is empty.
 */
double jm_stat_mann_whitney(const double *a, int n_a, const double *b, int n_b);

#endif
