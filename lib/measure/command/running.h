/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The present power and the energy so far of each meter, in constant memory: for programs that
 * watch without end. The energy of a stretch, with its uncertainty, is in energy/energy.h.
 */
#ifndef JM_RUNNING_H
#define JM_RUNNING_H

#include "meter/meter.h"

struct jm_running;

struct jm_running_meter {
	/* the last reading; of a meter with only a counter, its rate; NAN = none now */
	double watts;
	double joules; /* since the first reading; NAN = there was none */
	bool counter;  /* joules come from a counter; else power is summed up */
	long resets;   /* of the counter: what it had counted since the reading before is missing */
	/* since the first reading, without one of power: the energy of that time is missing; 0 with
	 * a counter */
	double unknown_s;
};

/* The set must outlive it. */
int jm_running_new(const struct jm_meters *set, struct jm_running **ret, struct jm_err *err);
/* A reading of a signal, in order of time; from any thread (on_reading of a session). */
void jm_running_take(void *running, int signal, struct jm_reading reading);
struct jm_running_meter jm_running_of(struct jm_running *r, int meter);
void jm_running_free(struct jm_running *r); /* takes NULL */

#endif
