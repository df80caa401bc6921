/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mean power of work that has not run yet, from work that was measured on the same device in
 * the same precision:
 *
 *	seconds of a step = a0 + a1 FLOPs + a2 bytes
 *	watts             = p0 + p1 FLOPs / seconds + p2 bytes / seconds
 *
 * None of the six is below 0. The first line is fitted to the seconds that were measured, by their
 * relative errors; the second one to the watts that were measured, over the seconds that the first
 * one gives: so its residuals include what the first line gets wrong.
 */
#ifndef JM_POWER_FIT_H
#define JM_POWER_FIT_H

#include "base/ctx.h"

#define JM_POWER_TERMS 3
#define JM_POWER_LEAST 8 /* works that a fit needs: two more than it has factors */

/* One work, per step and device; all above 0. */
struct jm_power_work {
	double flops, bytes, seconds, watts;
};

/* Least squares over a part of the terms: a constant, FLOPs, bytes. */
struct jm_power_line {
	double factor[JM_POWER_TERMS];			/* 0: not used */
	double inverse[JM_POWER_TERMS][JM_POWER_TERMS]; /* of the sums of products of terms */
	double squares;					/* sum over the residuals */
	int n_used;
};

struct jm_power_fit {
	struct jm_power_line seconds, watts;
	int n; /* works */
	/* what was measured: FLOPs per byte, seconds of a step, watts; most_watts is infinite
	 * unless three works or more are level there, as under a power limit */
	double least_intensity, most_intensity, least_seconds, most_seconds, least_watts,
		most_watts;
};

struct jm_power_estimate {
	double watts, low,
		high;	/* and its 95 % interval for the mean of one more work, by Student's t */
	double seconds; /* of a step */
};

/* JM_ERANGE: too few works, or too much alike. */
int jm_power_fit_make(
	const struct jm_power_work *work, int n, struct jm_power_fit *ret, struct jm_err *err);
/* JM_ERANGE: the work is unlike all that were measured. Never above most_watts by more than 2 %. */
int jm_power_fit_predict(const struct jm_power_fit *fit, double flops, double bytes,
	struct jm_power_estimate *ret, struct jm_err *err);

#endif
