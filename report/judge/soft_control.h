/* SPDX-License-Identifier: Apache-2.0 */
/* Powers that were held by pauses, and shares of multiprocessors. */
#ifndef JM_REPORT_SOFT_CONTROL_H
#define JM_REPORT_SOFT_CONTROL_H

#include "report/model/grouping.h"

/* "--hold-power: ... 300 W held": how runs of the series held the power by pauses; false: none was
 * to hold one. */
bool jm_text_held(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* "--sm-share: ...": runs had a part of the multiprocessors; NULL: none. */
const char *jm_text_share(const struct jm_grouping *g, const struct jm_group_series *s);
/* Both sentences, as far as the series has them: an array that the caller owns. */
json_t *jm_soft_json(const struct jm_grouping *g, const struct jm_group_series *s);

#endif
