/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a step went: of trainings by several ranks. */
#ifndef JM_STEP_TIMES_H
#define JM_STEP_TIMES_H

#include "run_table.h"

/* Means over the ranks: computation alone, beside transfers, waits; and the same by kind of
 * transfer. */
extern const struct jm_run_tables jm_step_times;

#endif
