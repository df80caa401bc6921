/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pauses between steps that hold a mean power: what share of the time to work, learned from what the meter reads.
 * This limits no power: within a step the device draws what it draws. It reaches nothing above the power of
 * uninterrupted work and nothing below that of an idle device.
 *
 *	jm_pacer_see	at the end of a pause: what was read since the last time
 *	jm_pacer_pause	behind a step: how long to rest
 */
#ifndef JM_PACER_H
#define JM_PACER_H

#include <stdbool.h>
#include <stdint.h>

struct jm_pacer {
	double watts;		    /* to hold */
	double duty;		    /* share of the time to work, above 0, at most 1 */
	double floor_watts;	    /* of pauses, as far as readings told */
	double old_duty, old_watts; /* the reading before; duty 0 = none */
	int64_t changed_ns;	    /* when the duty became what it is */
	bool measured;		    /* since jm_pacer_settle */
	double owed_joules;	    /* used above what was to be used, since jm_pacer_settle */
	double owed_pause_s;	    /* of pauses too short to be made */
	int near;		    /* readings in a row that were near */
	/* for the record, since jm_pacer_settle */
	double work_s, pause_s;
};

void jm_pacer_init(struct jm_pacer *p, double watts, int64_t now_ns);
/* The mean power from t0 to t1, whole turns of work and pause; now: the end of the last turn. */
void jm_pacer_see(struct jm_pacer *p, double watts, int64_t t0_ns, int64_t t1_ns, int64_t now_ns);
/* Seconds to rest behind a step that took step_s; 0: go on. */
double jm_pacer_pause(struct jm_pacer *p, double step_s);
/* Near enough for the measured phase to begin, or out of reach. */
bool jm_pacer_ready(const struct jm_pacer *p);
/* The measured phase begins: what was used above or below before does not count. */
void jm_pacer_settle(struct jm_pacer *p);

#endif
