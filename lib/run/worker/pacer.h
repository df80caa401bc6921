/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pauses between steps that hold a mean power: the controller of the share of working time, from
 * readings of the meter. This limits no power: within a step the device draws its usual power. It
 * cannot hold a power above that of uninterrupted work or below that of an idle device.
 *
 *	jm_pacer_pause	after a step: the length of the pause
 *	jm_pacer_see	at intervals: the power read over whole cycles of work and pause since the
 *			last call
 */
#ifndef JM_PACER_H
#define JM_PACER_H

#include <stdbool.h>

/* Readings within this share of the wanted power count as near it. */
#define JM_PACER_NEAR 0.03

struct jm_pacer {
	double watts;		    /* to hold */
	double duty;		    /* share of the time to work, above 0, at most 1 */
	double floor_watts;	    /* of pauses, estimated from readings */
	double old_duty, old_watts; /* the reading before; duty 0 = none */
	double owed_pause_s;	    /* of pauses too short to be made */
	int near;		    /* readings in a row that were near */
	double work_s, pause_s;	    /* since the measured phase began */
};

void jm_pacer_init(struct jm_pacer *p, double watts);
/*
 * watts: the mean over cycles of the current duty; NAN = unknown. owed: joules used above the
 * target since the measured phase began; before it, 0.
 */
void jm_pacer_see(struct jm_pacer *p, double watts, double owed_joules);
/* Seconds to pause after a step that took step_s; 0: continue. */
double jm_pacer_pause(struct jm_pacer *p, double step_s);
/* Near enough for the measured phase to begin, or out of reach. */
bool jm_pacer_ready(const struct jm_pacer *p);
/* The measured phase begins. */
void jm_pacer_settle(struct jm_pacer *p);

#endif
