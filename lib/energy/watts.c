/* SPDX-License-Identifier: Apache-2.0 */
/* Median and 99th percentile of power: seconds at each power, in bins of constant ratio. A bin
 * stands for the mean of its powers, so that a power which does not change is exact. */
#include "energy/watts.h"
#include "trace/hold_sum.h"

#include <math.h>
#include <stdlib.h>

#define WATTS_LOW 1e-3	/* the first bin takes all below, zero included */
#define BIN_RATIO 1e-3	/* width of a bin, relative */
#define BINS	  20800 /* up to 1e6 W; the last takes all above */

struct times {
	double seconds[BINS], joules[BINS];
	int first, end;	     /* bins outside were never written: most memory is not even touched */
	struct jm_held held; /* a power, W */
	bool counter;
	double wrap;
	struct jm_reading last; /* of a counter: its last change */
};

static int bin_of(double watts)
{
	double bin = watts > WATTS_LOW ? log(watts / WATTS_LOW) / BIN_RATIO : 0;

	return bin < BINS - 1 ? (int)bin : BINS - 1;
}

/* The power that is held, until t_ns. */
static void hold_until(struct times *t, int64_t t_ns)
{
	double seconds = jm_held_until(&t->held, t_ns);
	int bin;

	if (!(seconds > 0))
		return;
	bin = bin_of(t->held.value);
	t->seconds[bin] += seconds;
	t->joules[bin] += seconds * t->held.value;
	if (bin < t->first)
		t->first = bin;
	if (bin >= t->end)
		t->end = bin + 1;
}

static int take_power(void *arg, struct jm_reading r)
{
	struct times *t = arg;

	hold_until(t, r.t_ns);
	t->held.value = r.value;
	return 0;
}

/* A counter gives the power of the time before it. */
static int take_count(void *arg, struct jm_reading r)
{
	struct times *t = arg;
	double seconds = (double)(r.t_ns - t->last.t_ns) * 1e-9;
	double joules = jm_counter_rise(t->wrap, t->last.value, r.value, seconds);

	if (joules == 0)
		return 0;
	t->held.value = joules > 0 && seconds > 0 ? joules / seconds : NAN;
	hold_until(t, r.t_ns);
	t->last = r;
	return 0;
}

/* The power that is not exceeded for that share of the time. */
static double quantile(const struct times *t, double share)
{
	double all = 0, below = 0;

	for (int i = t->first; i < t->end; i++)
		all += t->seconds[i];
	if (!(all > 0))
		return NAN;
	for (int i = t->first; i < t->end; i++) {
		below += t->seconds[i];
		if (below >= all * share)
			return t->joules[i] / t->seconds[i];
	}
	return NAN;
}

int jm_watts_of(const struct jm_trace *trace, const struct jm_meters *set, int meter, int64_t t0_ns,
	int64_t t1_ns, struct jm_watts *ret, struct jm_err *err)
{
	int signal = jm_meter_power_signal(set, meter), rc;
	struct times *t;

	if (signal < 0) {
		*ret = (struct jm_watts){NAN, NAN};
		return 0;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the distribution of a power.");
	t->held = (struct jm_held){t0_ns, t1_ns, t0_ns, NAN};
	t->last.value = NAN;
	t->first = BINS;
	t->counter = set->signal[signal].quantity == JM_Q_ENERGY;
	t->wrap = set->signal[signal].wrap;
	rc = jm_trace_each(
		trace, signal, t0_ns, t1_ns, t->counter ? take_count : take_power, t, err);
	if (!rc && !t->counter)
		hold_until(t, t1_ns);
	if (!rc)
		*ret = (struct jm_watts){quantile(t, 0.5), quantile(t, 0.99)};
	free(t);
	return rc;
}

/* Not fmin(), which returns its other argument for NAN. */
static double at_most(double watts, double most)
{
	return watts > most ? most : watts;
}

struct jm_watts jm_watts_at_most(struct jm_watts watts, double most)
{
	return (struct jm_watts){at_most(watts.median, most), at_most(watts.p99, most)};
}
