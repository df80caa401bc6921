/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A load that repeats in step with the sensor, or nearly so, shows it the same few moments over and over.
 * What is missed between them then adds up instead of averaging out: readings that are `lag` refreshes
 * apart are alike again after nearer ones were not.
 */
#include "energy/energy_parts.h"

#include <math.h>

#define UNLIKE	   0.5	/* correlation below which readings are not alike */
#define BETTER	   0.05 /* a longer lag must be more alike than a shorter one by this */
#define MOST	   0.99 /* correlation: readings are rounded */
#define SURE	   0.9	/* correlation of readings that repeat */
#define TURNS	   3	/* repetitions that make a pattern */
#define FEW_PLACES 8

static double square(double x)
{
	return x * x;
}

void jm_pattern_add(struct jm_pattern *p, double watts)
{
	double off = watts - p->mean;

	for (long lag = 1; lag <= JM_PATTERN_LAGS && lag <= p->n; lag++)
		p->apart[lag - 1] += square(watts - p->last[(p->n - lag) % JM_PATTERN_LAGS]);
	p->last[p->n++ % JM_PATTERN_LAGS] = watts;
	p->mean += off / (double)p->n;
	p->squares += off * (watts - p->mean);
}

static double alike_at(const struct jm_pattern *p, long lag)
{
	double unlike = 2 * p->squares / (double)p->n * (double)(p->n - lag);

	return unlike > 0 ? 1 - p->apart[lag - 1] / unlike : 0;
}

/* The lag at which readings are most alike after they were not; 0 = there is none. */
static long best_lag(const struct jm_pattern *p, double *ret_alike)
{
	bool fell = false;
	long best = 0;

	*ret_alike = 0;
	for (long lag = 1; lag <= JM_PATTERN_LAGS && lag < p->n; lag++) {
		double alike = alike_at(p, lag);

		if (fell && alike > *ret_alike + BETTER) {
			*ret_alike = alike;
			best = lag;
		}
		fell = fell || alike < UNLIKE;
	}
	return best;
}

double jm_pattern_repeats(const struct jm_pattern *p)
{
	double alike;
	long lag = best_lag(p, &alike);

	if (!lag)
		return 1;
	alike = fmin(alike, MOST);
	return fmax(1, fmin((1 + alike) / (1 - alike), (double)p->n / (double)lag));
}

int jm_pattern_places(const struct jm_pattern *p)
{
	double alike;
	long lag = best_lag(p, &alike);

	return alike >= SURE && lag <= FEW_PLACES && p->n >= TURNS * lag ? (int)lag : 0;
}
