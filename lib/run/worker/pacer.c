/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two loops: the duty follows the ratio of wanted to read power, both minus the power of pauses,
 * which is estimated from readings at different duties; and deviations of the energy are
 * compensated over some seconds.
 */
#include "pacer.h"

#include <math.h>

#define LEAST_DUTY    0.01
#define LEAST_PAUSE_S 0.001 /* shorter ones add up: sleeping is not that exact */
#define PAY_BACK_S    3.0
#define MOST_PAY_BACK 0.1  /* of the wanted power */
#define APART	      0.05 /* relative difference of duties from which the floor can be estimated */
#define HIGHEST_FLOOR 0.9  /* of a reading */
#define MOST_STEP     4.0  /* times the duty before */
#define READY	      2	   /* readings in a row */

void jm_pacer_init(struct jm_pacer *p, double watts)
{
	*p = (struct jm_pacer){.watts = watts, .duty = 1};
}

static double clamp(double x, double least, double most)
{
	return fmin(fmax(x, least), most);
}

/* Minus the surplus energy, compensated over some seconds. */
static double wanted(const struct jm_pacer *p, double owed_joules)
{
	double limit = MOST_PAY_BACK * p->watts;

	return p->watts - clamp(owed_joules / PAY_BACK_S, -limit, limit);
}

/* Power is a linear function of the duty; two readings at different duties give its value at
 * duty 0. */
static void learn_floor(struct jm_pacer *p, double watts)
{
	double apart = p->duty - p->old_duty;

	if (p->old_duty > 0 && fabs(apart) > APART * p->duty) {
		double slope = (watts - p->old_watts) / apart;

		p->floor_watts = clamp(watts - slope * p->duty, 0, HIGHEST_FLOOR * watts);
	}
	p->old_duty = p->duty;
	p->old_watts = watts;
}

static double next_duty(const struct jm_pacer *p, double watts, double owed_joules)
{
	double ratio = (wanted(p, owed_joules) - p->floor_watts) / (watts - p->floor_watts);

	return clamp(p->duty * clamp(ratio, 1 / MOST_STEP, MOST_STEP), LEAST_DUTY, 1);
}

void jm_pacer_see(struct jm_pacer *p, double watts, double owed_joules)
{
	bool near;

	if (!(watts > 0))
		return;
	learn_floor(p, watts);
	near = fabs(watts - p->watts) <= JM_PACER_NEAR * p->watts;
	/* out of reach: the work draws less, or pauses alone draw more */
	near |= p->duty >= 1 && watts < p->watts;
	near |= p->floor_watts > (1 + JM_PACER_NEAR) * p->watts;
	p->near = near ? p->near + 1 : 0;
	p->duty = next_duty(p, watts, isnan(owed_joules) ? 0 : owed_joules);
}

double jm_pacer_pause(struct jm_pacer *p, double step_s)
{
	double pause = p->owed_pause_s + step_s * (1 - p->duty) / p->duty;

	p->work_s += step_s;
	if (pause < LEAST_PAUSE_S) {
		p->owed_pause_s = pause;
		return 0;
	}
	p->owed_pause_s = 0;
	p->pause_s += pause;
	return pause;
}

bool jm_pacer_ready(const struct jm_pacer *p)
{
	return p->near >= READY;
}

void jm_pacer_settle(struct jm_pacer *p)
{
	p->work_s = p->pause_s = 0;
}
