/* SPDX-License-Identifier: Apache-2.0 */
/* Speed and loss of the steps of one run of each setting, for the page. */
#ifndef JM_STEPS_H
#define JM_STEPS_H

#include "report/model/grouping.h"

/* Of one good run of each setting: [{run, every, steps, warmup, end_s, throughput, loss}]. For the
 * caller to decref. */
json_t *jm_page_steps(const struct jm_grouping *g);

#endif
