/* SPDX-License-Identifier: Apache-2.0 */
/* How many nodes a rack can hold. */
#ifndef JM_REPORT_CAPACITY_H
#define JM_REPORT_CAPACITY_H

#include "report/model/grouping.h"

/* "Nodes in a rack of 40,000 W at 400 W: by rated power (10,200 W) 3, by the 99th percentile
 * ..." */
void jm_text_capacity(
	const struct jm_grouping *g, const struct jm_group_point *p, char *out, size_t size);

/* Nodes of a rack by rated, 99th percentile and mean power, and the rack's throughput; null
 * without --rack-power. The highest p99 of the runs counts. */
json_t *jm_capacity(const struct jm_grouping *g, const struct jm_group_point *p);

#endif
