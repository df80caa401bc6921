/* SPDX-License-Identifier: Apache-2.0 */
/* The choices of all groups together. */
#ifndef JM_LAYOUT_SEARCH_H
#define JM_LAYOUT_SEARCH_H

#include "program_plan.h"

/* A group of canonical nodes and the choice for it. */
struct jm_advice {
	struct jm_group group;
	struct jm_choice choice;
	/* false: the backend refused the group in the search; select is called again */
	bool chosen;
	/* bits: the results that the node writes to separate tensors, because the backend cannot
	 * add to them; other nodes add them */
	unsigned apart;
	bool narrow; /* the first result is written in the type of the operands */
};
/* Finds the choices of n groups with the lowest total cost; does not change the
 * graph */
int jm_program_search_layouts(
	struct jm_program *p, struct jm_advice *advice, int n, struct jm_err *err);

#endif
