/* SPDX-License-Identifier: Apache-2.0 */
/* The axes of a run: which lists are swept, which advance together, which combinations are
 * omitted. */
#ifndef JM_PLAN_AXES_H
#define JM_PLAN_AXES_H

#include "plan_runs.h"

struct jm__plan_condition {
	const struct jm_plan_key *key;
	json_t *texts;
};

struct jm_plan_exclude {
	bool *mask[JM_PLAN_AXES]; /* per value of the axis; NULL = any */
	struct jm__plan_condition *derived;
	int n_derived;
	json_t *settings; /* {"gpu.power": ["300W"]}; NULL = none */
};

/* After the keys are there. */
int jm__plan_axes(struct jm_plan_run *run, const struct jm_option *rows, struct jm_err *err);
void jm__plan_axes_done(struct jm_plan_run *run);

#endif
