/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON Schema of plan files, from the rows of options and words. */
#ifndef JM_CLI_PLAN_SCHEMA_H
#define JM_CLI_PLAN_SCHEMA_H

#include "cli/frame/cli.h"

/* Returns the exit status. */
int jm_plan_schema_print(struct jm_cli *cli);

#endif
