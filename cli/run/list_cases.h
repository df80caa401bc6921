/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of a run, as `run --dry-run` and `plan --cases` print them. */
#ifndef JM_LIST_CASES_H
#define JM_LIST_CASES_H

#include "planned.h"

/* The cases, each with its id, in the order of the first block; returns the exit status. */
int jm_list_cases(struct jm_run_call *r);

#endif
