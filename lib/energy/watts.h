/* SPDX-License-Identifier: Apache-2.0 */
/* The power of a meter over a stretch of its trace, by the share of time that it takes each
 * value. */
#ifndef JM_WATTS_H
#define JM_WATTS_H

#include "trace/trace.h"

struct jm_watts {
	double median, p99; /* that is exceeded half, and 1 % of the time */
};

/*
 * The power that is exceeded for a share of the time from t0_ns to t1_ns, in watts, to 0.1 %; a
 * reading holds until the next one. From the power signal, else from the rate between two changes
 * of the energy counter. Parts without a reading do not count; NAN when there is none at all.
 * Constant memory, one pass.
 */
int jm_watts_of(const struct jm_trace *trace, const struct jm_meters *set, int meter, int64_t t0_ns,
	int64_t t1_ns, struct jm_watts *ret, struct jm_err *err);
/* Those above `most` become `most`; what is NAN stays NAN, and with `most` NAN all stay. */
struct jm_watts jm_watts_at_most(struct jm_watts watts, double most);

#endif
