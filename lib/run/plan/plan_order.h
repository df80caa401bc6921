/* SPDX-License-Identifier: Apache-2.0 */
/* Which run of a plan file comes after which. */
#ifndef JM_PLAN_ORDER_H
#define JM_PLAN_ORDER_H

#include "plan_runs.h"

/* Orders the runs so that each comes after the runs that it follows. */
int jm__plan_order(struct jm_plan_file *file, struct jm_err *err);

#endif
