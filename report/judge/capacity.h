/* SPDX-License-Identifier: Apache-2.0 */
/* How many nodes a rack can hold. */
#ifndef JM_REPORT_CAPACITY_H
#define JM_REPORT_CAPACITY_H

#include "report/model/grouping.h"

/* "Nodes in a rack of 70,000 W with a reserve of 27 % at 400 W: by rated power (10,200 W) 5 with
 * 2,500 token/s, by the maximum ..." */
void jm_text_capacity(
	const struct jm_grouping *g, const struct jm_group_point *p, char *out, size_t size);

/* Of a rack, or of all that share their power: {usable_watts, and for each of rated, max, p99,
 * mean: nodes_*, *_watts of a node, throughput_*}; null without --rack-power. The highest maximum
 * and p99 of the runs count. */
json_t *jm_capacity(const struct jm_grouping *g, const struct jm_group_point *p);

#endif
