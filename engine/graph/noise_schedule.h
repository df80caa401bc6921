/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a sample is left after steps of noise (Ho et al., arXiv 2006.11239). */
#ifndef JM_NOISE_SCHEDULE_H
#define JM_NOISE_SCHEDULE_H

#include "node.h"

#include <math.h>

/* Logarithms of variances are used between these (draw-moments). */
#define JM_LOG_VAR_LEAST (-30.0)
#define JM_LOG_VAR_MOST	 20.0

/* The square root of beta_j (node.h, add-noise). */
static inline double jm_noise_root(const union jm_attr *a, int64_t j)
{
	double from = sqrt(a->noise.first), to = sqrt(a->noise.last);

	return a->noise.steps > 1 ? from + (to - from) * (double)j / (double)(a->noise.steps - 1)
				  : from;
}

/* The share of the sample's variance after step t. */
static inline double jm_noise_kept(const union jm_attr *a, int64_t t)
{
	double kept = 1;

	for (int64_t j = 0; j <= t; j++)
		kept *= 1 - jm_noise_root(a, j) * jm_noise_root(a, j);
	return kept;
}

#endif
