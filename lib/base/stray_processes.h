/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a killed case leaves behind: a process that left its group (setsid) is adopted by us instead of
 * by init, and can be ended with the case.
 */
#ifndef JM_STRAY_PROCESSES_H
#define JM_STRAY_PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/ctx.h"

#define JM_STRAYS_KNOWN 64

struct jm_strays {
	const struct jm_ctx *ctx;
	bool adopting; /* we do since jm_strays_begin */
	int was;       /* whether we did before */
	/* our children of before, and their sessions */
	pid_t known[JM_STRAYS_KNOWN], session[JM_STRAYS_KNOWN];
	int n_known;
	/* those that have come since and were asked to end */
	pid_t asked[JM_STRAYS_KNOWN];
	int n_asked;
	/* of one round: how many are still there, whether it is worth while to wait for one, to look again */
	int n_left;
	pid_t first_left;
	bool wait, again;
};

/* From now on orphans come to us. Those of before that have ended are reaped. */
void jm_strays_begin(struct jm_strays *o, const struct jm_ctx *ctx);
enum jm_strays_end { JM_STRAYS_LEAVE, JM_STRAYS_ASK, JM_STRAYS_KILL };

/*
 * No more. Those that have come since, and theirs, are left alone, asked to end (SIGTERM) and killed two seconds
 * later, or as soon as hurry_fd (-1 = none) can be read, which is left to be read; or killed at once. But
 * never a joulemark guard, which is putting settings back, nor who shares the session of one that was there
 * before. Takes three seconds at most; what is then left is logged.
 */
void jm_strays_end(struct jm_strays *o, enum jm_strays_end how, int hurry_fd);

/* A joulemark's guard puts back what it has set when its client is gone: it is never to be killed. */
bool jm_is_guard(pid_t pid);

#endif
