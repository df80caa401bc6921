/* SPDX-License-Identifier: Apache-2.0 */
/* The agent of a rank that is not the first (agent_links.h): runs what the head sends, until the
 * head says goodbye or is gone. */
#ifndef JM_AGENT_H
#define JM_AGENT_H

#include "base/ctx.h"
#include "gang_place.h"

struct jm_agent_options {
	const struct jm_gang_place *place;
	const char *program;  /* of the worker; NULL = this one */
	const char *controls; /* of the guard (guard/guard.h) */
	char *const *stated;  /* of jm_guard_state; NULL = nothing */
	int cancel_fd;	      /* readable = end at once */
};

/* Its worker has ended and the settings of this host are restored when this returns. JM_EGONE: the
 * head ended without a goodbye; JM_EINTR: cancelled. */
int jm_agent_serve(struct jm_ctx *ctx, const struct jm_agent_options *o, struct jm_err *err);

#endif
