/* SPDX-License-Identifier: Apache-2.0 */
/* Energy of a meter in a stretch of time, from its trace: by counter and by integration, with bounds. */
#ifndef JM_ENERGY_H
#define JM_ENERGY_H

#include "meter/meter.h"
#include "trace/trace.h"

struct jm_energy {
	double joules; /* the better of the two; NAN = unknown (also where a part is unknown) */
	double joules_counter;	      /* NAN = no counter */
	double joules_integrated;     /* NAN = no power signal */
	double error_sampling;	      /* J, 95 %: edges, steps, windows; NAN = unknown */
	double error_calibration;     /* J: the sensor's own accuracy; NAN = unknown */
	double covered_s;	      /* seconds of the stretch that readings speak for */
	double watts_mean, watts_max; /* over the covered part; NAN = unknown */
	long samples, gaps;
};

/* t0_ns < t1_ns on the trace's clock. Fails only on an unreadable trace. */
int jm_energy_of(const struct jm_trace *trace, const struct jm_meters *set, int meter,
	int64_t t0_ns, int64_t t1_ns, struct jm_energy *ret, struct jm_err *err);

#endif
