/* SPDX-License-Identifier: Apache-2.0 */
/* --affinity: on which processors the ranks of a host run, and those that read its sensors. */
#ifndef JM_RUN_AFFINITY_H
#define JM_RUN_AFFINITY_H

#include <jansson.h>

#include "cli/frame/cli.h"
#include "run/plan/plan.h"

/* One value: near, none, or lists of CPUs: 0-11+96-107/12-23+108-119. */
int jm_run_affinity_check(const char *value, struct jm_err *err);
/* The record's key "affinity" of a case's parameters; gang: as in launcher.h, NULL = all ranks run
 * on this host. NULL without an error: nothing is asked for, and no GPU is used. */
json_t *jm_run_affinity(const json_t *parameters, const json_t *gang, struct jm_err *err);
/* For --dry-run: what it would be for the cases of a plan. */
int jm_run_affinity_show(struct jm_cli *cli, const struct jm_plan *plan);

#endif
