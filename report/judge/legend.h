/* SPDX-License-Identifier: Apache-2.0 */
/* What signs and intervals of a table mean. */
#ifndef JM_REPORT_LEGEND_H
#define JM_REPORT_LEGEND_H

#include "report/model/grouping.h"

/* "; mean ± half of the 95 % interval over 3 runs", what follows it in a caption; "" where no run
 * succeeded. */
void jm_text_spread(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* A sign beside settings or figures of a table, and its meaning. */
struct jm_text_sign {
	const char *sign, *meaning;
};
#define JM_TEXT_SIGNS 6
/* Writes those that the table of the series has to ret[JM_TEXT_SIGNS], and NULL after them; returns
 * ret. */
const struct jm_text_sign *jm_text_signs(
	const struct jm_grouping *g, const struct jm_group_series *s, struct jm_text_sign *ret);

#endif
