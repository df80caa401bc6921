/* SPDX-License-Identifier: Apache-2.0 */
/* A command in the foreground; its signals, its status. */
#include "hold.h"
#include "base/child_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* A signal of the terminal goes to the whole group, so the command has it already. */
static void pass_on(int sigfd, pid_t pid)
{
	struct signalfd_siginfo info;

	if (read(sigfd, &info, sizeof(info)) == sizeof(info) && info.ssi_code != SI_KERNEL)
		kill(pid, (int)info.ssi_signo);
}

static void wait_for(const struct jm_proc *proc, int sigfd)
{
	struct pollfd p[] = {
		{.fd = proc->pidfd, .events = POLLIN},
		{.fd = sigfd, .events = POLLIN},
	};

	while (!p[0].revents) {
		p[1].revents = 0;
		if (poll(p, 2, -1) > 0 && p[1].revents)
			pass_on(sigfd, proc->pid);
	}
}

int jm_hold_command(
	const struct jm_ctx *ctx, char *const *argv, int *ret_status, struct jm_err *err)
{
	sigset_t signals, before;
	struct jm_proc proc = {.pidfd = -1, .out_fd = -1};
	const struct jm_proc_options options = {.argv = argv, .mask = &before};
	int sigfd, rc;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGQUIT);
	pthread_sigmask(SIG_BLOCK, &signals, &before);
	sigfd = signalfd(-1, &signals, SFD_CLOEXEC);
	rc = jm_proc_start(&proc, ctx, &options, err);
	if (rc) {
		*ret_status = jm_proc_status_of(rc);
	} else {
		wait_for(&proc, sigfd);
		rc = jm_proc_reap(&proc, ctx, err);
		*ret_status = proc.status;
		jm_proc_done(&proc);
	}
	if (sigfd >= 0)
		close(sigfd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}
