/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two sets of positive values compared: the ratio of their geometric means, its 95 % interval and
 * the probability of a difference at least as large where there is none. All by Student's t on
 * logarithms, in which a ratio is a difference.
 */
#ifndef JM_STAT_COMPARE_H
#define JM_STAT_COMPARE_H

struct jm_comparison {
	int n_a, n_b;	  /* values that are known */
	double ratio;	  /* b to a; NAN: none on one side */
	double low, high; /* 95 % interval of the ratio; NAN: too few values */
	double p;	  /* two-sided; NAN: too few values */
	int dof;
};

/* Independent values: Welch, "The generalization of Student's problem when several different
 * population variances are involved" (Biometrika 34, 1947). The degrees of freedom are rounded
 * down, which widens. NAN and what is not above 0 mean "unknown". */
void jm_stat_compare_welch(
	const double *a, int n_a, const double *b, int n_b, struct jm_comparison *ret);
/* Pairs [n], as of one block: what a block has in common cancels. A pair with an unknown is left
 * out. */
void jm_stat_compare_paired(const double *a, const double *b, int n, struct jm_comparison *ret);

#endif
