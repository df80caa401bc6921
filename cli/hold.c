/* SPDX-License-Identifier: Apache-2.0 */
/* A command in the foreground; its signals, its status. */
#include "hold.h"
#include "base/child_process.h"
#include "base/forward_signals.h"
#include "cli.h"

#include <poll.h>

static void wait_for(const struct jm_proc *proc, const struct jm_forward_signals *signals)
{
	struct pollfd p[] = {
		{.fd = proc->pidfd, .events = POLLIN},
		{.fd = signals->fd, .events = POLLIN},
	};

	while (!p[0].revents) {
		p[1].revents = 0;
		if (poll(p, 2, -1) > 0 && p[1].revents)
			jm_signals_pass_on(signals, proc->pid);
	}
}

int jm_hold_command(
	const struct jm_ctx *ctx, char *const *argv, int *ret_status, struct jm_err *err)
{
	struct jm_forward_signals signals;
	struct jm_proc proc = {.pidfd = -1, .out_fd = -1};
	const struct jm_proc_options options = {.argv = argv, .mask = &signals.before};
	int rc = jm_signals_catch(&signals, err);

	*ret_status = JM_EXIT_FAILURE;
	if (rc)
		return rc;
	rc = jm_proc_start(&proc, ctx, &options, err);
	if (rc) {
		*ret_status = jm_proc_status_of(rc);
	} else {
		wait_for(&proc, &signals);
		rc = jm_proc_reap(&proc, ctx, err);
		*ret_status = proc.status;
		jm_proc_done(&proc);
	}
	jm_signals_release(&signals);
	return rc;
}
