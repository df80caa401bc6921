/* SPDX-License-Identifier: Apache-2.0 */
/* What metrics and columns mean. */
#ifndef JM_REPORT_MEANING_H
#define JM_REPORT_MEANING_H

#include "report/model/grouping.h"

/* "EDP: energy times time per token; lower is better": of a metric whose name does not say it; ""
 * of the others. */
void jm_text_meaning(
	const struct jm_grouping *g, const char *item, int metric, char *out, size_t size);
/* "least energy per token": what the best setting by a metric is. */
void jm_text_question(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	char *out, size_t size);
/* "per GPU" where the one control was set on several devices; "" = it was not. */
void jm_text_per(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* Has a setting of the series a value of the metric? */
bool jm_group_has_metric(const struct jm_grouping *g, const struct jm_group_series *s, int metric);
/* "4 GPUs", "5 meters": what power and energy are sums over; "" of one meter. */
void jm_text_sum(const struct jm_group_series *s, char *out, size_t size);
/* Both as a sentence; false: one of them is "". */
bool jm_text_sums(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* What EDP and EDS are. */
void jm_text_products(const struct jm_group_series *s, char *out, size_t size);
/* "unchanged, the value that the devices had before the run"; the series has a reference. */
const char *jm_text_reference(const struct jm_grouping *g, const struct jm_group_series *s);
/* What the columns saved and slower are; a slowdown of more than 100 % is also given as a multiple
 * of the time. */
void jm_text_relative(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* Why the intervals of those columns can be narrower than those they are made of; false: they are
 * not paired. */
bool jm_text_paired(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);

#endif
