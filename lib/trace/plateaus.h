/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From readings to what the sensor did: a run is a value, when the sensor came to it and until when
 * it was seen. Where the sensor's refresh is known, polls that fall together narrow down when it
 * steps.
 */
#ifndef JM_PLATEAUS_H
#define JM_PLATEAUS_H

#include "trace/trace.h"

struct jm_plateau {
	double value;	     /* NAN = the sensor did not answer */
	int64_t lo, hi;	     /* the sensor came to it in (lo, hi] */
	int64_t first, seen; /* first and last seen */
};

/* Best guess of when the sensor came to it. */
static inline int64_t jm_plateau_start(const struct jm_plateau *run)
{
	return run->lo + (run->hi - run->lo) / 2;
}

typedef void jm_plateau_fn(void *arg, const struct jm_plateau *run);

struct jm_plateaus {
	int64_t refresh, drift; /* ns; by how much a refresh may be off */
	bool stamped;
	struct jm_plateau now;
	bool any;
	jm_plateau_fn *fn;
	void *arg;
};

void jm_plateaus_init(
	struct jm_plateaus *s, const struct jm_signal *signal, jm_plateau_fn *fn, void *arg);
/* A jm_trace_each callback whose arg is the jm_plateaus: fn gets each run when the next has
 * begun. */
int jm_plateaus_feed(void *steps, struct jm_reading reading);
/* The same for jm_trace_each_some. */
int jm_plateaus_feed_all(void *steps, const struct jm_reading *reading, int n);
void jm_plateaus_end(struct jm_plateaus *s);

#endif
