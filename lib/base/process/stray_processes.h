/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that survive a killed case: one that left its group (setsid) is adopted by us instead
 * of by init, and can be ended with the case.
 */
#ifndef JM_STRAY_PROCESSES_H
#define JM_STRAY_PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/ctx.h"
#include "marked_processes.h"

#define JM_STRAYS_KNOWN 64

struct jm_strays {
	const struct jm_ctx *ctx;
	bool adopting; /* orphans are adopted since jm_strays_begin */
	int was;       /* the kernel's setting before */
	/* the children that existed before, and their sessions */
	pid_t known[JM_STRAYS_KNOWN], session[JM_STRAYS_KNOWN];
	int n_known;
	char mark[JM_MARK_SIZE]; /* of jm_strays_know; "" = none */
	/* adopted processes that were asked to end */
	pid_t asked[JM_STRAYS_KNOWN];
	int n_asked;
	/* of one round: how many are left, whether waiting for one is worth while, whether to look
	 * again */
	int n_left;
	pid_t first_left;
	bool wait, again;
};

/* From now on orphans are adopted. Earlier children that have ended are reaped. */
void jm_strays_begin(struct jm_strays *o, const struct jm_ctx *ctx);
/* A child of a child, which is left alone although it was started since, and so is all that carries
 * its mark (marked_processes.h): others end it. */
void jm_strays_know(struct jm_strays *o, pid_t pid, const char *mark);
enum jm_strays_end { JM_STRAYS_LEAVE, JM_STRAYS_ASK, JM_STRAYS_KILL };

/*
 * Ends adopting. The processes adopted meanwhile, and their children, are left alone; or asked to
 * end (SIGTERM) and killed two seconds later, or as soon as hurry_fd (-1 = none) is readable, from
 * which nothing is read; or killed at once. A joulemark guard, which is restoring settings, is
 * never ended, and neither is a process in the session of an earlier child. Takes three seconds at
 * most; the processes that are left then are logged.
 */
void jm_strays_end(struct jm_strays *o, enum jm_strays_end how, int hurry_fd);

#endif
