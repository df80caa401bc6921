/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a record for the page: its details; the meters that include others or are included, in
 * each phase. */
#ifndef JM_PAGE_DETAILS_H
#define JM_PAGE_DETAILS_H

#include "report/model/grouping.h"

/* Of the meters of a record that include others or are included: {id: [[joules, rest, error of the
 * rest] or null of each phase]}. For the caller to decref. */
json_t *jm_page_parts(const json_t *record);
/* The record with its details: those of a large store are read for some of them only. */
const json_t *jm_page_whole_record(const struct jm_grouping *g, const struct jm_group_case *c);

#endif
