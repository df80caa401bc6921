/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How well the end of a process is known to a loop that looks at it. A loop that stood still
 * (SIGSTOP, a debugger, a slow reader of its output) sees the end late: the process ended between
 * two looks. A suspended machine needs no such bounds: process and clock stand still with it.
 */
#ifndef JM_END_WATCH_H
#define JM_END_WATCH_H

#include "joulemark.h"
#include "base/clock.h"

#define JM_END_LOOK (200 * JM_MILLISECOND) /* the longest wait of such a loop */

struct jm_end_watch {
	int64_t start_ns;   /* of the process */
	int64_t running_ns; /* it had not ended yet */
	int64_t look_ns;    /* of the last look, whose answer is not yet known */
};

void jm_end_watch_begin(struct jm_end_watch *w, int64_t start_ns);
/* Before each look; the one before it found that the process runs. */
void jm_end_watch_look(struct jm_end_watch *w, int64_t now_ns);
/* Found to have ended: for how long before end_ns it may have ended already, which a warning then
 * says; 0 = the end was seen when it came. */
int64_t jm_end_watch_unseen(
	const struct jm_end_watch *w, const struct jm_ctx *ctx, const char *what, int64_t end_ns);

#endif
