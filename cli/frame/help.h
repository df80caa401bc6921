/* SPDX-License-Identifier: Apache-2.0 */
/* Help of the program, of a command, of a workload or a model. */
#ifndef JM_HELP_H
#define JM_HELP_H

#include "cli/frame/cli.h"

/* Lines of at most `width` columns on out. */
int jm_help_program(const struct jm_command *const *commands, FILE *out, int width);
/* all: with every option, not only the usual ones */
int jm_help_command(const struct jm_command *cmd, bool all, FILE *out, int width);
/* The options that 'run NAME' takes besides its own, NAME the first argument; false when it is no
 * workload and no model. */
bool jm_help_workload(const struct jm_cli *cli);
/* The help of the command with the options of the model or preset that is its first argument; false
 * when there is no such model. */
bool jm_help_model(const struct jm_cli *cli);

#endif
