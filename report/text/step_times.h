/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a step went: of trainings by several ranks. */
#ifndef JM_STEP_TIMES_H
#define JM_STEP_TIMES_H

#include "report/format/cells.h"
#include "report/model/grouping.h"

/* How many runs of the series know it; the tables below take 1 and more. */
int jm_step_times_runs(const struct jm_grouping *g, const struct jm_group_series *s);
/* Means over the ranks: computation alone, beside transfers, waits. */
int jm_step_times_shares(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err);
/* The same of each kind of transfer: how long it goes on, exposed and overlapped. */
int jm_step_times_kinds(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err);
extern const char jm_step_times_caption[];

#endif
