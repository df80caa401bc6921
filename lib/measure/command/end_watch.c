/* SPDX-License-Identifier: Apache-2.0 */
#include "end_watch.h"
#include "base/clock.h"
#include "base/ctx.h"

#define UNSEEN (JM_SECOND / 2) /* more than two waits: the loop stood still */

void jm_end_watch_begin(struct jm_end_watch *w, int64_t start_ns)
{
	*w = (struct jm_end_watch){start_ns, start_ns, start_ns};
}

void jm_end_watch_look(struct jm_end_watch *w, int64_t now_ns)
{
	w->running_ns = w->look_ns;
	w->look_ns = now_ns;
}

int64_t jm_end_watch_unseen(
	const struct jm_end_watch *w, const struct jm_ctx *ctx, const char *what, int64_t end_ns)
{
	int64_t unseen = end_ns - w->running_ns;

	if (unseen <= UNSEEN)
		return 0;
	jm_log(ctx, JM_WARNING,
		"joulemark itself stood still between %.3f s and %.3f s, and '%s' ended in this "
		"time. Its energy is that until %.3f s.",
		(double)(w->running_ns - w->start_ns) * 1e-9, (double)(end_ns - w->start_ns) * 1e-9,
		what, (double)(end_ns - w->start_ns) * 1e-9);
	return unseen;
}
