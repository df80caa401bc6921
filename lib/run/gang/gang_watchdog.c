/* SPDX-License-Identifier: Apache-2.0 */
#include "gang_watchdog.h"
#include "base/process/process_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_MS 500

/* ---- the call's side ------------------------------------------------------------------------- */

/* A session of its own, so that it is not stopped with the call. */
static int spawn(const char *program, int pidfd)
{
	char *argv[] = {(char *)(uintptr_t) "joulemark", (char *)(uintptr_t) "watchdog", NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	pid_t pid;
	int rc;

	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
	posix_spawn_file_actions_init(&files);
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&files, pidfd, JM_WATCHDOG_FD);
	rc = posix_spawn(&pid, program ? program : "/proc/self/exe", &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return rc;
}

int jm_watchdog_start(const char *program, struct jm_err *err)
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	int high = pidfd < 0 ? -1 : fcntl(pidfd, F_DUPFD_CLOEXEC, 16); /* above those it has */
	int rc = high < 0 ? errno : spawn(program, high);

	if (pidfd >= 0)
		close(pidfd);
	if (high >= 0)
		close(high);
	if (!rc)
		return 0;
	return jm_err_set(err, JM_ECHILD,
		"A process that watches over this one could not be started: %s.", strerror(rc));
}

/* ---- its own process ------------------------------------------------------------------------- */

int jm_watchdog_serve(struct jm_err *err)
{
	struct pollfd ended = {.fd = JM_WATCHDOG_FD, .events = POLLIN};
	pid_t call =
		getppid(); /* another one, if the call has ended: then nothing is left to watch */
	int64_t since = 0, now;
	sigset_t all;

	if (fcntl(JM_WATCHDOG_FD, F_GETFD) < 0)
		return jm_err_set(err, JM_EUSAGE, "'watchdog' is for 'joulemark run' alone.");
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	while (poll(&ended, 1, LOOK_MS) <= 0) {
		now = jm_clock_now(jm_clock_real());
		if (jm_process_state(call) != 'T')
			since = 0;
		else if (!since)
			since = now;
		else if (now - since >= JM_STOPPED_NS)
			syscall(SYS_pidfd_send_signal, JM_WATCHDOG_FD, SIGKILL, NULL, 0);
	}
	return 0;
}
