/* SPDX-License-Identifier: Apache-2.0 */
/* What `run` shows on standard error: a line per run of a case; on a terminal a bar with the time
 * left. */
#ifndef JM_RUN_SHOW_H
#define JM_RUN_SHOW_H

#include "run_parts.h"

/* width: 0 = the terminal's. */
void jm_run_show_init(struct jm_run_show *show, const struct jm_plan *plan, int width, bool quiet);
void jm_run_show_event(void *arg, const struct jm_run_event *event);
void jm_run_show_done(struct jm_run_show *show);

/* Names that are not the same in all cases of the plan, {"parameters": {device: true}, "options":
 * {batch: true}}; the caller owns it. NULL = memory ran out. */
json_t *jm_run_varying(const struct jm_plan *plan);
/* What distinguishes this case from the others of its plan: settings, and what varies. */
void jm_run_case_label(const json_t *varying, const struct jm_plan_case *c, char *out, size_t size);
/* What is run: the words of the command, or workload, model, device and precision. */
void jm_run_case_work(const struct jm_plan_case *c, char *out, size_t size);

#endif
