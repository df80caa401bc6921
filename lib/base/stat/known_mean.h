/* SPDX-License-Identifier: Apache-2.0 */
/* The mean of values of which some are unknown, NAN; zeroed: none was added. */
#ifndef JM_KNOWN_MEAN_H
#define JM_KNOWN_MEAN_H

#include <math.h>

struct jm_known_mean {
	double sum;
	int n;
};

static inline void jm_known_mean_add(struct jm_known_mean *m, double value)
{
	if (isnan(value))
		return;
	m->sum += value;
	m->n++;
}

/* NAN: none is known. */
static inline double jm_known_mean(const struct jm_known_mean *m)
{
	return m->n ? m->sum / m->n : NAN;
}

#endif
