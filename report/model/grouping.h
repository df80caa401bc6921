/* SPDX-License-Identifier: Apache-2.0 */
/* From records to series: which belong together, and their statistics. */
#ifndef JM_GROUPING_H
#define JM_GROUPING_H

#include "series.h"

/* The options (NULL: none) with their defaults, of a grouping whose other parts are not there
 * yet. */
void jm_group_take_options(struct jm_grouping *g, const struct jm_report_options *options);
/* The records must outlive the group. */
int jm_group_init(struct jm_grouping *g, const json_t *records,
	const struct jm_report_options *options, struct jm_err *err);
void jm_group_done(struct jm_grouping *g);

const char *jm_group_state_name(enum jm_group_state state);
/* "EDS k=1.5", "energy per token": name and unit of a metric in this series. */
void jm_group_metric_title(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	char *out, size_t size);
void jm_group_metric_unit(const struct jm_group_series *s, int metric, char *out, size_t size);
/* "eds_k1.5", "joules_per_item": for CSV and JSON. */
void jm_group_metric_name(const struct jm_grouping *g, int metric, char *out, size_t size);
int jm_group_metric_better(int metric);	 /* +1: more is better, -1: less is, 0: neither */
bool jm_group_metric_energy(int metric); /* is it unknown without energy? */

#endif
