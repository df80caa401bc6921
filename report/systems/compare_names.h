/* SPDX-License-Identifier: Apache-2.0 */
/* What the two sides of a comparison are called: by what distinguishes them. */
#ifndef JM_COMPARE_NAMES_H
#define JM_COMPARE_NAMES_H

#include "comparison.h"

struct jm_compare_names {
	/* "A node1": of the columns of each side, by what differs first: host, devices, file,
	 * filter */
	char head[2][24];
	char whole[2][400]; /* "node1, 4 x NVIDIA H100, sweep.db" */
};

/* JM_ENOMEM */
int jm_compare_name_sides(
	const struct jm_compare_side side[2], struct jm_compare_names *ret, struct jm_err *err);

#endif
