/* SPDX-License-Identifier: Apache-2.0 */
/* A server that a run starts by a command of the shell, and ends or leaves to the next run. */
#ifndef JM_SERVER_PROCESS_H
#define JM_SERVER_PROCESS_H

#include "base/process/child_process.h"

/* Zeroed = none. */
struct jm_server_process {
	struct jm_proc proc; /* one that is not our child has pid and pidfd alone */
	bool kept;	     /* others end it, so it does not end with this process */
};

/*
 * Starts `sh -c command` in a session of its own, without input and output: the command
 * redirects what is to be kept. Unless s->kept, it ends with this process. Errors: as
 * jm_proc_start.
 */
int jm_server_start(struct jm_server_process *s, const struct jm_ctx *ctx, const char *command,
	struct jm_err *err);
/* Takes one that another process has started, and that others end. False: it has ended. */
bool jm_server_take(struct jm_server_process *s, pid_t pid);
/* Has it ended? Then *ret_status is its exit status, -1 if it was not our child. */
bool jm_server_has_ended(struct jm_server_process *s, const struct jm_ctx *ctx, int *ret_status);
/* SIGTERM to its group, SIGKILL after 10 s; waits for the end of all of it. Takes a zeroed one. */
void jm_server_stop(struct jm_server_process *s, const struct jm_ctx *ctx);
/* It goes on. Takes a zeroed one. */
void jm_server_leave(struct jm_server_process *s);

#endif
