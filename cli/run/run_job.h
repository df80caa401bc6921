/* SPDX-License-Identifier: Apache-2.0 */
/* --job FILE:N: one job of a run that `submit` has submitted. */
#ifndef JM_CLI_RUN_JOB_H
#define JM_CLI_RUN_JOB_H

#include "cli/frame/cli.h"
#include "run/sweep/sweep.h"

/* The request of the job, for the caller to decref; sets in *o which blocks and which part of them
 * are run, and goes to the folder in which the plan was submitted. */
int jm_run_job_read(
	struct jm_cli *cli, const char *text, struct jm_run_options *o, json_t **ret_request);

#endif
