/* SPDX-License-Identifier: Apache-2.0 */
/* Series of several machines. */
#ifndef JM_REPORT_MACHINE_EFFECT_H
#define JM_REPORT_MACHINE_EFFECT_H

#include "series.h"

/* Means and intervals of a series of several machines, with the card as a factor. */
int jm_cards_adjust(struct jm_grouping *g, struct jm_group_series *s, struct jm_err *err);

#endif
