/* SPDX-License-Identifier: Apache-2.0 */
/* What products and transfers cost each other: of runs of the workload overlap. */
#ifndef JM_OVERLAPPED_H
#define JM_OVERLAPPED_H

#include "report/format/cells.h"
#include "report/model/grouping.h"

/* How many runs of the series are of this workload; the tables below take 1 and more. */
int jm_overlapped_runs(const struct jm_grouping *g, const struct jm_group_series *s);
/* Products, transfers and both of each run: ms of a pair alone and beside the other, slow-down,
 * watts, joules. */
int jm_overlapped_parts(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err);
/* Both at once: ms that the transfers add, and that running both at once saves. */
int jm_overlapped_both(const struct jm_grouping *g, const struct jm_group_series *s,
	struct jm_grid *ret, struct jm_err *err);
extern const char jm_overlapped_caption[];

#endif
