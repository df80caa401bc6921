/* SPDX-License-Identifier: Apache-2.0 */
/* Straight lines through temperature and power, by least squares. */
#include "steady_state.h"

#include <math.h>

#define WINDOW_NS ((int64_t)(JM_STEADY_WINDOW_S * 1e9))
#define STEP_NS	  (WINDOW_NS / (JM_STEADY_POINTS / 2))

static int index_of(const struct jm_steady *s, int i)
{
	return (s->next - s->n + i + JM_STEADY_POINTS) % JM_STEADY_POINTS;
}

static int64_t time_of(const struct jm_steady *s, int i)
{
	return s->point[index_of(s, i)].t_ns;
}

void jm_steady_add(struct jm_steady *s, int64_t t_ns, double celsius, double watts)
{
	if (s->n && t_ns < time_of(s, s->n - 1) + STEP_NS)
		return;
	s->point[s->next].t_ns = t_ns;
	s->point[s->next].celsius = celsius;
	s->point[s->next].watts = watts;
	s->next = (s->next + 1) % JM_STEADY_POINTS;
	s->n += s->n < JM_STEADY_POINTS;
	/* one point stays that is older than the window, so that it is full */
	while (s->n > 2 && time_of(s, 1) <= t_ns - WINDOW_NS)
		s->n--;
}

/* From the first point on. */
static double seconds_of(const struct jm_steady *s, int i)
{
	return 1e-9 * (double)(time_of(s, i) - time_of(s, 0));
}

static double value_of(const struct jm_steady *s, int i, bool watts)
{
	int at = index_of(s, i);

	return watts ? s->point[at].watts : s->point[at].celsius;
}

/* Rise of the line over the window, through the points that are known; NAN: fewer than half are. */
static double rise(const struct jm_steady *s, bool watts, double *ret_mean)
{
	double t_sum = 0, sum = 0, product = 0, square = 0;
	int n = 0;

	for (int i = 0; i < s->n; i++) {
		if (isnan(value_of(s, i, watts)))
			continue;
		t_sum += seconds_of(s, i);
		sum += value_of(s, i, watts);
		n++;
	}
	*ret_mean = sum / n;
	if (2 * n < s->n)
		return NAN;
	for (int i = 0; i < s->n; i++) {
		double t = seconds_of(s, i) - t_sum / n;

		if (isnan(value_of(s, i, watts)))
			continue;
		product += t * (value_of(s, i, watts) - *ret_mean);
		square += t * t;
	}
	return square > 0 ? product / square * JM_STEADY_WINDOW_S : NAN;
}

void jm_steady_change(const struct jm_steady *s, double *ret_kelvin, double *ret_watts)
{
	double mean;

	*ret_kelvin = *ret_watts = NAN;
	if (s->n < 3 || time_of(s, s->n - 1) - time_of(s, 0) < WINDOW_NS)
		return;
	*ret_kelvin = rise(s, false, &mean);
	*ret_watts = rise(s, true, &mean) / mean;
}

bool jm_steady_is(const struct jm_steady *s)
{
	double kelvin, watts;

	jm_steady_change(s, &kelvin, &watts);
	if (isnan(kelvin) && isnan(watts))
		return false;
	return !(fabs(kelvin) > JM_STEADY_KELVIN) && !(fabs(watts) > JM_STEADY_WATTS);
}
