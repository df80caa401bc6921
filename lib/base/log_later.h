/* SPDX-License-Identifier: Apache-2.0 */
/* A log that collects its lines while the caller must not block, and passes them on afterwards. A
 * write to a stopped terminal, or to a full pipe that no process reads, blocks. */
#ifndef JM_LOG_LATER_H
#define JM_LOG_LATER_H

#include "base/ctx.h"

struct jm_log_later {
	struct jm_ctx ctx; /* as the given one, but its log collects */
	const struct jm_ctx *to;
	char *text; /* level, line and a 0, again and again */
	size_t n;
};

void jm_log_later_init(struct jm_log_later *l, const struct jm_ctx *to);
/* Passes on what there is. May be called again. */
void jm_log_later_done(struct jm_log_later *l);

#endif
