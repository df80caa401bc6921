/* SPDX-License-Identifier: Apache-2.0 */
/* What `joulemark status` shows of a running `run`. */
#ifndef JM_RUN_STATUS_H
#define JM_RUN_STATUS_H

#include "run_parts.h"

/* ---- run_status.c ---- */

/* Publishes the event to other processes. label: of the case; left_s: until the end of the plan,
 * NAN = unknown. */
void jm_run_status_put(const struct jm_run_show *show, const struct jm_run_event *e,
	const char *label, double left_s);

#endif
