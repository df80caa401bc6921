/* SPDX-License-Identifier: Apache-2.0 */
/* run --dry-run: what would be run. */
#ifndef JM_RUN_LIST_H
#define JM_RUN_LIST_H

#include "planned.h"

/* The cases, each with its id, in the order of the first block; returns the exit status. */
int jm_run_list_cases(struct jm_run_call *r);

#endif
