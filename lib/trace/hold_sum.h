/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over time: a reading holds from its time until the next one, and no reading holds as
 * unknown. */
#ifndef JM_HOLD_SUM_H
#define JM_HOLD_SUM_H

#include "trace/trace.h"

/* One signal over [t0, t1]; begins with value = NAN and at = t0. */
struct jm_held {
	int64_t t0, t1;
	int64_t at;   /* up to here it is summed up */
	double value; /* that holds from there on; NAN = unknown */
};

/* The seconds within [t0, t1] for which the value has held when the next reading comes at t_ns; 0
 * for NAN. */
static inline double jm_held_until(struct jm_held *h, int64_t t_ns)
{
	int64_t from = h->at, to = t_ns < h->t1 ? t_ns : h->t1;

	if (to <= from)
		return 0;
	h->at = to;
	return h->value == h->value ? (double)(to - from) * 1e-9 : 0;
}

/* Mean over the time with readings, or the share of it in which one of the bits of the mask was set
 * (mask 0: the mean). NAN = there was no reading. */
int jm_held_mean(const struct jm_trace *trace, int signal, int64_t t0_ns, int64_t t1_ns, int mask,
	double *ret, struct jm_err *err);

#endif
