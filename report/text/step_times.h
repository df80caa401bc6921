/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a step went: of trainings by several ranks. */
#ifndef JM_STEP_TIMES_H
#define JM_STEP_TIMES_H

#include "run_table.h"

/* Means over the ranks: computation alone, beside transfers, waits; and the same by kind of
 * transfer. */
extern const struct jm_run_tables jm_step_times;

#define JM_STEP_SHARES 3 /* computation alone, computation beside transfers, waits for transfers */
/* These shares of a step of the next run from number *i on, ms, a run being a row of the first
 * table; NAN = unknown. false: there is none. */
bool jm_step_shares_next(const struct jm_grouping *g, const struct jm_group_series *s, int *i,
	double ret_ms[JM_STEP_SHARES]);

#endif
