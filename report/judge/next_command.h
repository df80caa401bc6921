/* SPDX-License-Identifier: Apache-2.0 */
/* What to do with the best setting, as a command to copy. */
#ifndef JM_REPORT_NEXT_COMMAND_H
#define JM_REPORT_NEXT_COMMAND_H

#include "report/model/grouping.h"

/* "sudo joulemark set gpu.power=600W": applies the best setting within the limit of slowdown.
 * False: there is none, or it sets no knob of a whole run. */
bool jm_next_command(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* "With --max-slowdown 22%, 400 W is within the limit.": the smallest limit under which a setting
 * that clearly saves energy is found. False: there is no such setting, or one within the limit
 * already. */
bool jm_next_limit(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);

#endif
