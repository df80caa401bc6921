/* SPDX-License-Identifier: Apache-2.0 */
/* What the records of a report gained, beside the gains that a paper reports of the same work. */
#ifndef JM_PUBLISHED_OWN_H
#define JM_PUBLISHED_OWN_H

#include "report/model/grouping.h"

/*
 * Of the series that did the work (did [n_series]): own_gain_percent and own_cap_watts in each of
 * its rows that is about a metric and as many devices, at the setting with the best mean. Where
 * several series have that number of devices the row has neither, and the work a note.
 */
void jm_published_own(const struct jm_grouping *g, const bool *did, json_t *work);

#endif
