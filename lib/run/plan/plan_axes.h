/* SPDX-License-Identifier: Apache-2.0 */
/* The axes of a run: which lists are swept, which advance together, which combinations are omitted. */
#ifndef JM_PLAN_AXES_H
#define JM_PLAN_AXES_H

#include "plan_file_private.h"

/* After the keys are there. */
int jm__plan_axes(struct jm_plan_run *run, const struct jm_option *rows, struct jm_err *err);
void jm__plan_axes_done(struct jm_plan_run *run);

#endif
