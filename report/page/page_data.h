/* SPDX-License-Identifier: Apache-2.0 */
/* What the page shows, as JSON. */
#ifndef JM_PAGE_DATA_H
#define JM_PAGE_DATA_H

#include "report/model/group.h"

/* For the caller to decref; NULL: no memory. */
json_t *jm_page_data(const struct jm_grouping *g);
/* Of the meters of a record that include others or are included: {id: [[joules, rest, error of the rest] or null of
 * each phase]}. For the caller to decref. */
json_t *jm_page_parts(const json_t *record);
/* Of one good run of each setting: [{run, every, steps, warmup, end_s, throughput, loss}]. For the caller to decref. */
json_t *jm_page_steps(const struct jm_grouping *g);
/* The record with its details: those of a large store are read for some of them only. */
const json_t *jm_page_whole_record(const struct jm_grouping *g, const struct jm_group_case *c);

#endif
