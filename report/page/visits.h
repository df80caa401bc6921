/* SPDX-License-Identifier: Apache-2.0 */
/* The visits of the settings that a tuner compared, for the page. */
#ifndef JM_VISITS_H
#define JM_VISITS_H

#include "report/model/grouping.h"

/* Of each run that was tuned: [{run, objective, knob, unit, found, chosen, choice, why, ...: as in
 * the record, visits: {start_s, stage, found, value, second, objective, objective_error, aside}}],
 * where each key of visits has a list. For the caller to decref. */
json_t *jm_page_visits(const struct jm_grouping *g);

#endif
