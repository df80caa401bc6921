/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a series that no other one beats. */
#ifndef JM_REPORT_PARETO_H
#define JM_REPORT_PARETO_H

#include "series.h"

/* Sets .pareto of the points of the series. */
void jm_pareto_mark(struct jm_grouping *g, const struct jm_group_series *s);

#endif
