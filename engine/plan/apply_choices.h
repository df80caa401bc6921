/* SPDX-License-Identifier: Apache-2.0 */
/* From choices to units. */
#ifndef JM_APPLY_CHOICES_H
#define JM_APPLY_CHOICES_H

#include "program_plan.h"

/* Fills p->unit */
int jm_program_apply_choices(struct jm_program *p, struct jm_err *err);

#endif
