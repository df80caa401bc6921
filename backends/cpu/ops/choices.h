/* SPDX-License-Identifier: Apache-2.0 */
/* The choices that select returns. */
#ifndef JM_CHOICES_H
#define JM_CHOICES_H

#include "layout.h"

/* Fills choices for a group whose types are supported. Returns their number; 0 = none,
 * err holds the reason. */
int cpu_choices(const struct cpu_dev *dev, const struct jm_group *group, const struct cpu_op *op,
	struct jm_choice *choice, struct jm_err *err);

#endif
