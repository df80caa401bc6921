/* SPDX-License-Identifier: Apache-2.0 */
/* What a choice costs. */
#ifndef JM_COST_H
#define JM_COST_H

#include "program_plan.h"

/*
 * Seconds of a choice, including reorders of operands from their current layouts; infinite
 * if the layouts of results are not allowed. c NULL: the group is refused, and its nodes run one by
 * one. apart: bits, the sums of a single node that separate nodes add.
 */
double jm_choice_cost(const struct jm_program *p, const struct jm_group *group,
	const struct jm_choice *c, unsigned apart);
/* True for a copy that no group has read yet, whose layout can still change. */
bool jm_choice_is_open(const struct jm_program *p, const struct jm_tensor *t);

#endif
