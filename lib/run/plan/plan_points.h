/* SPDX-License-Identifier: Apache-2.0 */
/* The points of a run: one after the other, how many, and which are left out. */
#ifndef JM_PLAN_POINTS_H
#define JM_PLAN_POINTS_H

#include "plan_runs.h"

/* Points without those excluded by axes, times the values of the free axes and of settings.
 * ret_exact: false = they were too many to look for those excluded. */
double jm_plan_count(const struct jm_plan_run *run, bool *ret_exact);
/* "batch (1000) x seq (100)" */
void jm_plan_axes_text(const struct jm_plan_run *run, char *out, size_t size);

bool jm_plan_first(const struct jm_plan_run *run, struct jm_plan_point *ret);
bool jm_plan_next(const struct jm_plan_run *run, struct jm_plan_point *point);
/* Appends what is excluded at that point by settings: [{"gpu.power": ["300W"]}]. */
int jm_plan_excluded_settings(const struct jm_plan_run *run, const struct jm_plan_point *point,
	json_t *ret, struct jm_err *err);

#endif
