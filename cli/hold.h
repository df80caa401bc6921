/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command while something is held for it. */
#ifndef JM_HOLD_H
#define JM_HOLD_H

#include "joulemark.h"

/*
 * Runs the command to its end; INT, TERM, HUP and QUIT that we get are passed on. ret_status: its own
 * or 128 + signal; 127 (not found) or 126 together with an error when it could not be started.
 */
int jm_hold_command(
	const struct jm_ctx *ctx, char *const *argv, int *ret_status, struct jm_err *err);

#endif
