/* SPDX-License-Identifier: Apache-2.0 */
/* A server that a run starts by a command of the shell, and ends. */
#ifndef JM_SERVER_PROCESS_H
#define JM_SERVER_PROCESS_H

#include "base/process/child_process.h"

/* Zeroed = none. */
struct jm_server_process {
	struct jm_proc proc;
};

/*
 * Starts `sh -c command` in a process group of its own, without input and output: the command
 * redirects what is to be kept. It ends with this process. Errors: as jm_proc_start.
 */
int jm_server_start(struct jm_server_process *s, const struct jm_ctx *ctx, const char *command,
	struct jm_err *err);
/* Has it ended? Then *ret_status is its exit status. */
bool jm_server_has_ended(struct jm_server_process *s, const struct jm_ctx *ctx, int *ret_status);
/* SIGTERM to its group, SIGKILL after 10 s; waits for the end. Takes a zeroed one. */
void jm_server_stop(struct jm_server_process *s, const struct jm_ctx *ctx);

#endif
