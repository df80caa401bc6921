/* SPDX-License-Identifier: Apache-2.0 */
/* The limits that a power budget was shared among, for the page. */
#ifndef JM_BUDGETS_H
#define JM_BUDGETS_H

#include "report/model/grouping.h"

/* Of each run under a budget: [{run, watts, share, knob, limits, ...: as in the record, changes:
 * {start_s: [...], watts: [[of the first device, ...], ...]}, end_s: of the last phase, or null}].
 * For the caller to decref. */
json_t *jm_page_budgets(const struct jm_grouping *g);

#endif
