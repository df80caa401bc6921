/* SPDX-License-Identifier: Apache-2.0 */
/* What the records of a report gained, beside the gains that a paper reports of the same work. */
#ifndef JM_PUBLISHED_OWN_H
#define JM_PUBLISHED_OWN_H

#include "report/model/grouping.h"

/*
 * Of a series that did the work: own_gain_percent and own_cap_watts in each of its rows that is
 * about a metric and as many devices, at the setting with the best mean.
 */
void jm_published_own(const struct jm_grouping *g, const struct jm_group_series *s, json_t *work);

#endif
