/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that a case has started and that the cases after it use, too: a server. A workload
 * names the option that has its command (`keeps`); a case that gives this option another value, has
 * other environment variables or is of another kind does not use it, and it ends before that case,
 * else after the last one.
 *
 * A reaper (case_reaper.h), whose mark the process carries, ends it if this program is killed.
 */
#ifndef JM_KEPT_PROCESS_H
#define JM_KEPT_PROCESS_H

#include "run/worker/case_reaper.h"

#include <jansson.h>

/* Zeroed = none. */
struct jm_kept_process {
	pid_t pid; /* of its session and group; 0 = none */
	int pidfd;
	char *what; /* by which a case is known that uses it; NULL = the last one used none */
	struct jm_case_reaper reaper;
};

/*
 * Before a case with these parameters: ends the process if the case uses none, or another one.
 * True: the case uses one, *ret_pid, or may start it (0), with reaper.variable in the environment
 * of its worker. program: as of jm_case_reaper_start; hurry_fd: as of jm_kept_process_end.
 */
bool jm_kept_process_for(struct jm_kept_process *k, struct jm_ctx *ctx, const char *program,
	const json_t *parameters, int hurry_fd, pid_t *ret_pid);
/* The process that the case has started; the one before it has ended. */
void jm_kept_process_take(struct jm_kept_process *k, pid_t pid);
/*
 * SIGTERM to its group and, when that has ended, to all else that carries its mark; SIGKILL 10 s
 * after the first, but at least 2 s after the second, or as soon as hurry_fd (-1 = none) is
 * readable. Takes a zeroed one.
 */
void jm_kept_process_end(struct jm_kept_process *k, int hurry_fd);

#endif
