/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of parameters that are made once for all micro-steps. */
#ifndef JM_HOIST_COPIES_H
#define JM_HOIST_COPIES_H

#include "program_plan.h"

/* Moves copies of parameters before the micro-steps if there are several, and sets
 * their lifetime */
int jm_program_hoist_copies(struct jm_program *p, struct jm_err *err);
void jm_program_keep_hoisted(struct jm_program *p);

#endif
