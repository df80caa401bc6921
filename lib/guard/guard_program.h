/* SPDX-License-Identifier: Apache-2.0 */
/* Which program the guard is: joulemark, whose hidden command `guard` serves (guard.h). */
#ifndef JM_GUARD_PROGRAM_H
#define JM_GUARD_PROGRAM_H

#include <sys/types.h>

#include "joulemark.h"

/*
 * Its path, the first of these that is there:
 *	JM_GUARD of the environment, unless privileges are raised;
 *	ctx->guard_program, which a program sets if it is joulemark itself;
 *	joulemark in the folder of the library that contains this code, or in its ../bin or
 *	../../bin;
 *	joulemark where this build is installed.
 * A file that another user could have written is refused: JM_EPERM. JM_ENOENT: there is none; the
 * error names all places.
 */
int jm_guard_program(const struct jm_ctx *ctx, char *out, size_t size, struct jm_err *err);

/* Starts the guard as a process in a separate session, at the other end of the socket *ret_fd. If
 * it cannot be executed, every request is answered with that error. */
int jm_guard_launch(const char *program, pid_t *ret_pid, int *ret_fd, struct jm_err *err);

#endif
