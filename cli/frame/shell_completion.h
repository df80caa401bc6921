/* SPDX-License-Identifier: Apache-2.0 */
/* Completion of the command line for bash, zsh and fish, made from the tables of commands and
 * options. */
#ifndef JM_SHELL_COMPLETION_H
#define JM_SHELL_COMPLETION_H

#include "cli.h"

#define JM_SHELLS(X)                                                                               \
	X(BASH, "bash")                                                                            \
	X(ZSH, "zsh")                                                                              \
	X(FISH, "fish")
enum jm_shell {
#define X(name, text) JM_SHELL_##name,
	JM_SHELLS(X)
#undef X
};

void jm_completion_print(const struct jm_command *const *commands, enum jm_shell shell, FILE *out);

#endif
