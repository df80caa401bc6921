/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of the machine on a series of several. */
#ifndef JM_REPORT_MACHINE_EFFECT_H
#define JM_REPORT_MACHINE_EFFECT_H

#include "series.h"

/* Removes the differences between machines from the means and intervals of a series of several. */
int jm_machine_effect_remove(struct jm_grouping *g, struct jm_group_series *s, struct jm_err *err);

#endif
