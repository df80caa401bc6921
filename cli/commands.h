/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands. Only main.c takes it; a command finds it in its jm_cli. */
#ifndef JM_COMMANDS_H
#define JM_COMMANDS_H

#include "cli/frame/cli.h"

extern const struct jm_command *const jm_commands[]; /* NULL-terminated */

#endif
