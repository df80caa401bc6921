/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room energy: from readings to joules with bounds, by counter and by power; the median of power
 * (watts.h); how far a measurement can be trusted (quality.h).
 * May include: base, meter, trace.
 *
 * Energy of a meter in a stretch of time, from its trace: by counter and by integration, with
 * bounds.
 */
#ifndef JM_ENERGY_H
#define JM_ENERGY_H

#include "energy/sensor_fault.h"
#include "meter/meter.h"
#include "trace/trace.h"

struct jm_energy {
	double joules; /* the better of the two; NAN = unknown (also where a part is unknown) */
	double joules_counter;	  /* NAN = no counter */
	double joules_integrated; /* NAN = no power signal */
	double error;		  /* J, 95 %: both of these combined, see jm_energy_error */
	double error_sampling;	  /* J, 95 %: edges, steps, windows; NAN = unknown */
	double error_calibration; /* J: the sensor's own accuracy; NAN = unknown */
	/* J: the largest error of energy by power if the load is locked to the sensor: if its
	 * period is the refresh or a whole part of it, so that all readings show one moment of it.
	 * What the sensor does not see may then be anything from 0 W to the device's limit. NAN =
	 * it sees all the time, there is a counter, or the limit is unknown. */
	double error_locked;
	/* Energy by power whose readings are too few and too alike to exclude such a load:
	 * error_sampling is error_locked. */
	bool may_be_locked;
	/* Energy by power whose readings are too few to tell such a load from others:
	 * error_sampling holds for loads of any other period. */
	bool few_readings;
	double covered_s;	      /* seconds of the interval that readings cover */
	double watts_mean, watts_max; /* over the covered part; NAN = unknown */
	long samples, gaps;
	/* Where power is integrated: how many moments of its load the sensor saw, over and over,
	 * because the load repeats in step with it. 0 = it does not, or there is a counter. */
	int places;
	int resets; /* that the counter went through; its energy is unknown then */
	struct jm_fault fault;
};

/* Nothing is known: NAN everywhere, no second covered. */
extern const struct jm_energy jm_energy_unknown;

/*
 * The combined bound of an energy. What sampling misses and how far the sensor is off have nothing
 * to do with each other, so that their squares add: sqrt(sampling^2 + calibration^2). NAN where one
 * is unknown.
 */
double jm_energy_error(double sampling, double calibration);

/* t0_ns < t1_ns on the trace's clock. Fails only on an unreadable trace. */
int jm_energy_of(const struct jm_trace *trace, const struct jm_meters *set, int meter,
	int64_t t0_ns, int64_t t1_ns, struct jm_energy *ret, struct jm_err *err);

#endif
