/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When do the repeats of a plan suffice? The check follows each block from JM_UNTIL_LEAST on: every
 * case's interval of the mean of its throughput (or of its time, where it has no items), and of its
 * energy per item where it has one, must be narrow enough.
 *
 * With K checks there are K chances to stop at a spread that is small by chance. Each check
 * therefore uses the interval of level 1 - 0.05 / K (Bonferroni), K being the largest number of
 * checks that the plan allows.
 */
#ifndef JM_REPEAT_UNTIL_H
#define JM_REPEAT_UNTIL_H

#include <jansson.h>
#include <stdbool.h>

#define JM_UNTIL_LEAST 3 /* repeats */

/*
 * The relative half width of the interval of n values at that level; NAN where fewer than two are
 * known, or their mean is 0.
 */
double jm_until_half_width(const double *values, int n, double level);
/* The level of each of so many looks. */
double jm_until_level(int looks);

/* records[i * stride + r]: of case i and repeat r, NULL = none; cases without any figure are not
 * waited for. ret_worst: the widest relative half width of all; NAN = none is known. */
bool jm_until_reached(json_t *const *records, int n_cases, int stride, int blocks, double width,
	double level, double *ret_worst);

#endif
