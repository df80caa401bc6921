/* SPDX-License-Identifier: Apache-2.0 */
/* From a plan file to the requests that its runs are (run/plan/plan.h), through the options of
 * `run`. */
#ifndef JM_CLI_PLAN_REQUEST_H
#define JM_CLI_PLAN_REQUEST_H

#include "cli/frame/cli.h"
#include "plan_file_options.h"
#include "run/plan/plan_file.h"

#define JM_PLAN_CASES_MOST 100000

/* With what the command line gives in place of the plan's values; cli: of a command that has these
 * options. */
int jm_plan_request_load(struct jm_cli *cli, const struct jm_plan_selection *selection,
	const char *path, struct jm_plan_file *ret);
/* Is the run one of those that --tag selects? */
bool jm_plan_request_selected(
	const struct jm_plan_selection *selection, const struct jm_plan_run *run);
/* The run's request, its settings still as texts ("set"); for the caller to decref. */
int jm_plan_request_make(struct jm_cli *cli, const struct jm_plan_run *run, json_t **ret_request);

#endif
