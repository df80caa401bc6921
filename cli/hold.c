/* SPDX-License-Identifier: Apache-2.0 */
/* A command in the foreground; its signals, its status. */
#include "hold.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A signal of the terminal goes to the whole group, so the command has it already. */
static void pass_on(int sigfd, pid_t pid)
{
	struct signalfd_siginfo info;

	if (read(sigfd, &info, sizeof(info)) == sizeof(info) && info.ssi_code != SI_KERNEL)
		kill(pid, (int)info.ssi_signo);
}

static int wait_for(pid_t pid, int sigfd)
{
	struct pollfd p[] = {
		{.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN},
		{.fd = sigfd, .events = POLLIN},
	};
	int status;

	while (p[0].fd >= 0 && !p[0].revents) {
		p[0].revents = p[1].revents = 0;
		if (poll(p, 2, -1) > 0 && p[1].revents)
			pass_on(sigfd, pid);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (p[0].fd >= 0)
		close(p[0].fd);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int start(char *const *argv, const sigset_t *mask, pid_t *ret_pid)
{
	posix_spawnattr_t attr;
	int rc = posix_spawnattr_init(&attr);

	if (rc)
		return rc;
	posix_spawnattr_setsigmask(&attr, mask);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	rc = posix_spawnp(ret_pid, argv[0], NULL, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	return rc;
}

int jm_hold_command(char *const *argv, int *ret_status, struct jm_err *err)
{
	sigset_t signals, before;
	pid_t pid;
	int sigfd, rc;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGQUIT);
	pthread_sigmask(SIG_BLOCK, &signals, &before);
	sigfd = signalfd(-1, &signals, SFD_CLOEXEC);
	rc = start(argv, &before, &pid);
	if (!rc)
		*ret_status = wait_for(pid, sigfd);
	close(sigfd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!rc)
		return 0;
	*ret_status = rc == ENOENT ? 127 : 126;
	return jm_err_set(err, rc == ENOENT ? JM_ENOENT : JM_EPERM, "Cannot start '%s': %s.",
		argv[0], strerror(rc));
}
