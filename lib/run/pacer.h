/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pauses between steps that hold a mean power: what share of the time to work, learned from what the meter reads.
 * This limits no power: within a step the device draws what it draws. It reaches nothing above the power of
 * uninterrupted work and nothing below that of an idle device.
 *
 *	jm_pacer_pause	behind a step: how long to rest
 *	jm_pacer_see	now and then: what was read over whole turns of work and pause, since the last time
 */
#ifndef JM_PACER_H
#define JM_PACER_H

#include <stdbool.h>

struct jm_pacer {
	double watts;		    /* to hold */
	double duty;		    /* share of the time to work, above 0, at most 1 */
	double floor_watts;	    /* of pauses, as far as readings told */
	double old_duty, old_watts; /* the reading before; duty 0 = none */
	double owed_pause_s;	    /* of pauses too short to be made */
	int near;		    /* readings in a row that were near */
	double work_s, pause_s;	    /* since the measured phase began */
};

void jm_pacer_init(struct jm_pacer *p, double watts);
/*
 * watts: the mean over turns of the duty as it is; NAN = unknown. owed: joules that were used above what was to be
 * used, since the measured phase began; before, 0.
 */
void jm_pacer_see(struct jm_pacer *p, double watts, double owed_joules);
/* Seconds to rest behind a step that took step_s; 0: go on. */
double jm_pacer_pause(struct jm_pacer *p, double step_s);
/* Near enough for the measured phase to begin, or out of reach. */
bool jm_pacer_ready(const struct jm_pacer *p);
/* The measured phase begins. */
void jm_pacer_settle(struct jm_pacer *p);

#endif
