/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of the machine on a series of several. */
#ifndef JM_REPORT_MACHINE_EFFECT_H
#define JM_REPORT_MACHINE_EFFECT_H

#include "series.h"

/* Takes it out of the means and intervals of the series, whose cards are a factor. */
int jm_machine_effect_remove(struct jm_grouping *g, struct jm_group_series *s, struct jm_err *err);

#endif
