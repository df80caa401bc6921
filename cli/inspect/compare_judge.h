/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions of `compare --fail-if`, and the exit status that they lead to. */
#ifndef JM_COMPARE_JUDGE_H
#define JM_COMPARE_JUDGE_H

#include "compare_parts.h"

/* Text is cut into pieces, which the conditions point to. */
int jm_conditions_parse(char *text, struct jm_conditions *ret, struct jm_err *err);
int jm_conditions_judge(const struct jm_conditions *conditions, const char *title,
	const struct jm_compare_line *line);
/* The one that a command ends with: a condition that is met, then a damaged record, then an
 * undecided condition. */
int jm_compare_worse(int status, int other);

#endif
