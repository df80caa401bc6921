/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From readings to what the sensor did: a run is a value, when the sensor came to it and until when it
 * was seen. Where the sensor's refresh is known, polls that fall together narrow down when it steps.
 */
#ifndef JM_PLATEAUS_H
#define JM_PLATEAUS_H

#include "trace/trace.h"

struct jm_run {
	double value;	     /* NAN = the sensor did not answer */
	int64_t lo, hi;	     /* the sensor came to it in (lo, hi] */
	int64_t first, seen; /* first and last seen */
};

/* Best guess of when the sensor came to it. */
static inline int64_t jm_run_start(const struct jm_run *run)
{
	return run->lo + (run->hi - run->lo) / 2;
}

typedef void jm_run_fn(void *arg, const struct jm_run *run);

struct jm_steps {
	int64_t refresh;
	bool stamped;
	struct jm_run now;
	bool any;
	jm_run_fn *fn;
	void *arg;
};

void jm_steps_init(struct jm_steps *s, const struct jm_signal *signal, jm_run_fn *fn, void *arg);
/* A jm_trace_each callback whose arg is the jm_steps: fn gets each run when the next has begun. */
int jm_steps_feed(void *steps, struct jm_reading reading);
void jm_steps_end(struct jm_steps *s);

#endif
