/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command while something is held for it. */
#ifndef JM_HOLD_H
#define JM_HOLD_H

#include "cli/frame/cli.h"
#include "guard/guard.h"

/* Is there a file of this name, or in PATH, that may be executed? */
bool jm_hold_executable(const char *name);
/* jm_option.takes_next of --json where a command may follow: is the word a file to write, and not
 * that command? */
bool jm_hold_json_next(const char *word);
/* The same of a command's first word; NULL is no command and passes. Before anything is set or
 * stored. */
int jm_hold_check(char *const *argv, struct jm_err *err);

/* Starts the guard of the controls that --device or --control name; NULL = this machine's. */
int jm_hold_guard(
	struct jm_cli *cli, const char *device, const char *control, struct jm_guard **ret);
/*
 * Runs the command to its end; INT, TERM, HUP and QUIT that we get are passed on. ret_status: its
 * own or 128 + signal; 127 (not found) or 126 together with an error when it could not be started.
 */
int jm_hold_command(
	const struct jm_ctx *ctx, char *const *argv, int *ret_status, struct jm_err *err);

#endif
