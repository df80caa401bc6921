/* SPDX-License-Identifier: Apache-2.0 */
#include "search_range.h"

#include <math.h>

int jm_range_check(const struct jm_search_range *r, struct jm_err *err)
{
	double range = r->max - r->min;

	if (isfinite(range) && range > 0 && r->step >= 0 &&
		!(r->step > 0 && range / r->step < JM_TUNE_SETTINGS - 1))
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"From %g to %g in steps of %g there are less than %d settings; give the "
		"knob a wider range, or smaller steps.",
		r->min, r->max, r->step, JM_TUNE_SETTINGS);
}

double jm_range_rounded(const struct jm_search_range *r, double x)
{
	if (r->step > 0)
		x = r->min + r->step * round((x - r->min) / r->step);
	return fmin(fmax(x, r->min), r->max);
}

int jm_range_grid(const struct jm_search_range *r, int n, double ret[JM_RANGE_GRID][JM_TUNE_KNOBS])
{
	double part = JM_TUNE_GOLDEN * (r->max - r->min);
	const double x[] = {r->min, r->max, r->min + part, r->max - part};
	int k = 0;

	if (n == 1) {
		for (; k < 4; k++)
			ret[k][0] = x[k];
		return k;
	}
	for (; k < JM_RANGE_GRID; k++) {
		ret[k][0] = r[0].min + k / 3 * (r[0].max - r[0].min) / 2;
		ret[k][1] = r[1].min + k % 3 * (r[1].max - r[1].min) / 2;
	}
	return k;
}
