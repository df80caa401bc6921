/* SPDX-License-Identifier: Apache-2.0 */
/* Series that share one table: what differs between them is a column, not a title. */
#ifndef JM_FAMILY_H
#define JM_FAMILY_H

#include "series.h"

#define JM_FAMILY_AXES 8
#define JM_AXIS_TEXT   80

struct jm_family {
	int first, n;		    /* series */
	struct jm_group_series all; /* their points as those of one series; not in the group */
	const char *axis[JM_FAMILY_AXES]; /* names, of the first series that has each */
	int n_axes;
};

/* Numbers the series of the cases anew: those of one workload and unit become neighbours, in the
 * order in which they appear. -1: no memory. */
int jm_family_gather(struct jm_grouping *g);
void jm_family_of(const struct jm_grouping *g, int first, struct jm_family *ret);
/* "8", "bf16"; "-" = the series has none. */
void jm_family_axis(const struct jm_group_series *s, const char *name, char *out, size_t size);
/* "batch 8, device cpu" of one member. */
void jm_family_name(
	const struct jm_grouping *g, const struct jm_family *f, int member, char *out, size_t size);

#endif
