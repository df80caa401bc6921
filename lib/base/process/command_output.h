/* SPDX-License-Identifier: Apache-2.0 */
/* What a short command prints, and its exit status. */
#ifndef JM_COMMAND_OUTPUT_H
#define JM_COMMAND_OUTPUT_H

#include "joulemark.h"

#include <stddef.h>

/*
 * Runs argv (NULL-terminated, looked up in PATH) to its end. *ret_text: its stdout and stderr in
 * the order in which they came, terminated by 0 and for the caller to free. JM_ERANGE: it printed
 * more than `most` bytes and was killed; JM_ENOENT, JM_EPERM: it cannot be executed.
 */
int jm_command_output(const struct jm_ctx *ctx, char *const *argv, size_t most, char **ret_text,
	int *ret_status, struct jm_err *err);

#endif
