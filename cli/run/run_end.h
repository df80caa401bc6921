/* SPDX-License-Identifier: Apache-2.0 */
/* The end of `run`: its exit status, the JSON, the table, and which commands go on from there. */
#ifndef JM_RUN_END_H
#define JM_RUN_END_H

#include "planned.h"

/* Rc is the result of all plans; returns the exit status. */
int jm_run_finish(struct jm_run_call *r, int rc);
/* What root makes for the user who called sudo belongs to that user. */
void jm_run_give_to_caller(const char *path);
bool jm_run_json_on_stdout(const struct jm_run_call *r); /* --json - */

#endif
