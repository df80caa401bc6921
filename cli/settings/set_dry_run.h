/* SPDX-License-Identifier: Apache-2.0 */
/* `set --dry-run`. */
#ifndef JM_SET_DRY_RUN_H
#define JM_SET_DRY_RUN_H

#include "cli/frame/cli.h"

/* Prints what `set` would write. controls: as of jm_guard_start; found: the values of --found,
 * NULL = none. */
int jm_set_dry_run(struct jm_cli *cli, const char *controls, char *const *found);

#endif
