/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the cases of a report: runs of one setting follow each other. */
#ifndef JM_CASE_ORDER_H
#define JM_CASE_ORDER_H

#include "series.h"

/* Series in order of appearance; in each the reference first, then by the dimensions' values:
 * none, numbers, words. A word such as "default", which may stand for another number in each run,
 * has the least of them as its x afterwards. Returns -1 when out of memory. */
int jm_cases_sort(struct jm_grouping *g);

#endif
