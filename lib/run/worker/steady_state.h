/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thermal steady state by rule: over the last JM_STEADY_WINDOW_S the regression line of the
 * temperatures changes by at most 1 K and that of the power by at most 1 %. The power is checked
 * because leakage grows with temperature, also where no sensor reports the latter.
 */
#ifndef JM_STEADY_STATE_H
#define JM_STEADY_STATE_H

#include <stdbool.h>
#include <stdint.h>

#define JM_STEADY_WINDOW_S 10.0
#define JM_STEADY_KELVIN   1.0
#define JM_STEADY_WATTS	   0.01 /* of the mean */
#define JM_STEADY_POINTS   64	/* in a window, at most */

struct jm_steady {
	int n, next;
	struct {
		int64_t t_ns;
		double celsius, watts; /* NAN = no such sensor, or no reading */
	} point[JM_STEADY_POINTS];
};

/* Points that come more often than JM_STEADY_POINTS in a window are ignored. */
void jm_steady_add(struct jm_steady *s, int64_t t_ns, double celsius, double watts);
/* Change over the window, in K and as a share of the mean power; NAN: unknown at most points, or
 * the window is not full. */
void jm_steady_change(const struct jm_steady *s, double *ret_kelvin, double *ret_watts);
/* Is the rule satisfied? A quantity that is unknown is ignored, as long as the other one is
 * known. */
bool jm_steady_is(const struct jm_steady *s);

#endif
