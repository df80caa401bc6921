/* SPDX-License-Identifier: Apache-2.0 */
/* From the command line of `run` to the request that a plan is made from. */
#ifndef JM_RUN_REQUEST_H
#define JM_RUN_REQUEST_H

#include "run_parts.h"

/* ---- run_request.c ---- */

/* The request's "what" without its settings, and "how"; see plan.h. The caller owns it. */
json_t *jm_run_request(struct jm_cli *cli);
/* --resume takes the plan from the store: is nothing given that would change it? */
int jm_run_check_resume(struct jm_cli *cli);

#endif
