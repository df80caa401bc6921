/* SPDX-License-Identifier: Apache-2.0 */
/* The ranges of the knobs of a search, and the grid over them. Part of search.h. */
#ifndef JM_SEARCH_RANGE_H
#define JM_SEARCH_RANGE_H

#include "visit.h"

#define JM_RANGE_GRID 9 /* points of a grid, without the setting found */

struct jm_search_range {
	double min, max, step; /* of a knob, in its unit; step 0 = any */
	double found;	       /* the value found; NAN = it is no number, and counts as max */
};

/* JM_ERANGE: there are less than JM_TUNE_SETTINGS values in it. */
int jm_range_check(const struct jm_search_range *r, struct jm_err *err);
/* The value nearest to x that the knob can take. */
double jm_range_rounded(const struct jm_search_range *r, double x);
/* Points over n knobs, not rounded: of one both ends and two values in the golden ratio, of two all
 * pairs of both ends and the middle. Returns how many. */
int jm_range_grid(const struct jm_search_range *r, int n, double ret[JM_RANGE_GRID][JM_TUNE_KNOBS]);

#endif
