/* SPDX-License-Identifier: Apache-2.0 */
/* What is odd about the runs of a series. */
#ifndef JM_REPORT_WARNINGS_H
#define JM_REPORT_WARNINGS_H

#include "series.h"

/* More than the whole is no result: makes such a utilisation unknown and notes the largest. */
void jm_shares_reject(struct jm_group_point *p);
/* Drift over the runs, and first runs that differ: one sentence each, for the caller to decref. */
json_t *jm_warnings(const struct jm_grouping *g, const struct jm_group_series *s);

#endif
