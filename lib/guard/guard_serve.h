/* SPDX-License-Identifier: Apache-2.0 */
/* The guard's own process; its other end is guard.h. */
#ifndef JM_GUARD_SERVE_H
#define JM_GUARD_SERVE_H

#include "base/ctx.h"

/* Serves the client at the other end of the socket until the client has ended. */
int jm_guard_serve(struct jm_ctx *ctx, int fd, struct jm_err *err);
struct jm_guard_terms;
/*
 * The same under terms (guard_terms.h): every client's message has to come from the client's own
 * process; one that is malformed ends the lease; nothing stays in place after it. What is done is
 * logged. Returns after all was put back.
 */
int jm_guard_serve_lease(
	struct jm_ctx *ctx, int fd, const struct jm_guard_terms *terms, struct jm_err *err);

#endif
