/* SPDX-License-Identifier: Apache-2.0 */
/* The guard's own process; its other end is guard.h. */
#ifndef JM_GUARD_SERVE_H
#define JM_GUARD_SERVE_H

#include "base/ctx.h"

/* Serves the client at the other end of the socket until the client has ended. */
int jm_guard_serve(struct jm_ctx *ctx, int fd, struct jm_err *err);

#endif
