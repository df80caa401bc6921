/* SPDX-License-Identifier: Apache-2.0 */
/* How often a source is read, from what its sensors declare. */
#include "sampler_pace.h"
#include "base/clock.h"

#include <math.h>

#define EDGE_POLLS 22			  /* within one refresh and its slack */
#define EDGE_FAST  (1 * JM_MILLISECOND)	  /* shortest time between polls at an edge */
#define EDGE_LONG  (1 * JM_SECOND)	  /* the longest wait for a slow sensor */
#define EDGE_BLIND (100 * JM_MILLISECOND) /* of a sensor whose refresh is unknown */
#define EDGE_SLACK 10			  /* a refresh may be late by 1/10 of itself */
#define BLIND_MIN  (1 * JM_SECOND)	  /* without a reading: the least time that makes a gap */
#define BLIND	   4			  /* and in intervals, or refreshes */

static bool speaks_of_energy(const struct jm_signal *signal)
{
	return signal->quantity == JM_Q_ENERGY || signal->quantity == JM_Q_POWER;
}

/* The slowest of the source's energy and power sensors; 0 = unknown. */
static int64_t slowest_refresh(const struct jm_meters *set, int first, int n)
{
	int64_t slowest = 0;

	for (int i = 0; i < n; i++) {
		const struct jm_signal *signal = &set->signal[first + i];

		if (speaks_of_energy(signal) && signal->refresh_ns > slowest)
			slowest = signal->refresh_ns;
	}
	return slowest;
}

static int64_t clamp(int64_t v, int64_t low, int64_t high)
{
	return v < low ? low : v > high ? high : v;
}

/* A counter must not go round unseen, however seldom it is to be read. */
static int64_t longest_interval(const struct jm_meters *set, int first, int n)
{
	double longest = 1e9; /* s */

	for (int i = 0; i < n; i++) {
		const struct jm_signal *signal = &set->signal[first + i];

		if (signal->quantity == JM_Q_ENERGY && signal->wrap > 0)
			longest = fmin(longest, signal->wrap / JM_WRAP_WATTS);
	}
	return (int64_t)(longest * 1e9);
}

struct jm_reader_pace jm__reader_pace(
	const struct jm_meters *set, int first, int n, int64_t interval_ns)
{
	int64_t refresh = slowest_refresh(set, first, n);
	int64_t wait = refresh ? refresh + refresh / EDGE_SLACK : EDGE_BLIND;
	struct jm_reader_pace pace = {.interval = interval_ns};

	pace.patience = clamp(wait, 2 * EDGE_FAST, EDGE_LONG);
	pace.fast = clamp(pace.patience / EDGE_POLLS, EDGE_FAST, EDGE_LONG);
	if (!pace.interval)
		pace.interval =
			refresh ? clamp(refresh / 2, 20 * JM_MILLISECOND, 100 * JM_MILLISECOND)
				: 100 * JM_MILLISECOND;
	pace.interval = clamp(pace.interval, 1, longest_interval(set, first, n));
	pace.blind = clamp(
		BLIND * (pace.interval > refresh ? pace.interval : refresh), BLIND_MIN, INT64_MAX);
	return pace;
}
