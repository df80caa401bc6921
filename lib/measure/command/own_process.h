/* SPDX-License-Identifier: Apache-2.0 */
/* Is a process that a driver names the one that is measured, or a member of the control group that
 * is measured? */
#ifndef JM_OWN_PROCESS_H
#define JM_OWN_PROCESS_H

#include <sys/types.h>

#include "base/ctx.h"

#define JM_OWN_PROCESSES 64 /* that are remembered after they have ended */

struct jm_own_process {
	const struct jm_ctx *ctx;
	pid_t pid;	    /* 0 = a group is measured */
	const char *cgroup; /* its path below /sys/fs/cgroup, without slashes at its ends */
	int n;
	struct {
		pid_t pid;
		bool own;
	} seen[JM_OWN_PROCESSES];
};

/* arg: a struct jm_own_process. 1 = yes, 0 = no, -1 = not known, as of a process that ended before
 * the first question. */
int jm_own_process(void *arg, pid_t pid);
/* True if our process ids are those of the machine, which drivers report. Those of a container
 * usually are not. */
bool jm_own_process_ids(const struct jm_ctx *ctx);

#endif
