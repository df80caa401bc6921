/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways to a meter's energy, and what each knows; energy.c puts them together. */
#ifndef JM_ENERGY_PRIVATE_H
#define JM_ENERGY_PRIVATE_H

#include "energy.h"

struct jm_stretch {
	const struct jm_trace *trace;
	const struct jm_meters *set;
	int64_t t0, t1;
};

struct jm_part {
	double joules;	 /* NAN where a part of the stretch is unknown */
	double known;	 /* J over what is known */
	double variance; /* J^2, of joules */
	double covered_s;
	double watts_max;
	long samples, gaps;
};

/* energy_counter.c: signal is a counter; power: the meter's power signal for the shape, or -1 */
int jm_energy_by_counter(
	const struct jm_stretch *s, int signal, int power, struct jm_part *ret, struct jm_err *err);
/* energy_power.c: signal is a power */
int jm_energy_by_power(
	const struct jm_stretch *s, int signal, struct jm_part *ret, struct jm_err *err);

/* How far a reading may speak beyond when it was seen: a refresh that may be late. */
static inline int64_t jm_reach(const struct jm_signal *signal)
{
	return signal->refresh_ns + signal->refresh_ns / 5 + INT64_C(20000000);
}

#endif
