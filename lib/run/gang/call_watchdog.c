/* SPDX-License-Identifier: Apache-2.0 */
#include "call_watchdog.h"
#include "base/process/process_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_MS 500
#define TERM_NS (3 * JM_SECOND) /* that a call has to end by itself */

#define RANK	   "OMPI_COMM_WORLD_RANK" /* mpirun gives it to what it starts */
#define ABOVE_MOST 16

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

/* What is watched, and since when something is wrong; 0 = nothing is. */
struct watched {
	struct jm_process process;
	int64_t stopped;
};

struct watch {
	pid_t call;
	struct watched above[ABOVE_MOST]; /* that have to go on: up to the launcher */
	int n_above;
	bool orphan; /* the launcher is gone already */
	int64_t call_stopped, asked;
};

/* Has mpirun started it, or what has started it? One that cannot be read is of another user. */
static bool is_of_rank(pid_t pid)
{
	char *rank = jm_process_variable(pid, RANK);
	bool found = rank;

	free(rank);
	return found;
}

/* The first process of a container may be mpirun; else it is the one that takes orphans. */
static bool is_launcher(pid_t pid)
{
	static const char *const names[] = {"mpi", "orte", "prte"};
	char name[64];

	jm_process_file("", pid, "comm", name, sizeof(name));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

/* mpirun, or its daemon on this host, and what it has started above the call, as a script: when
 * one is gone, nobody takes what the call prints, and nobody would end the ranks of other hosts.
 * Others who start ranks may end before them. */
static void find_above(struct watch *w)
{
	pid_t pid = w->call;
	bool below = secure_getenv(RANK);

	while (below && w->n_above < ABOVE_MOST && (pid = jm_process_parent(pid)) > 0) {
		below = is_of_rank(pid);
		w->orphan = pid == 1 && !below && secure_getenv("PMIX_RANK") && !is_launcher(pid);
		w->above[w->n_above++].process = jm_process_of(pid);
	}
}

/* For so long that it counts as gone? */
static bool is_stopped(pid_t pid, int64_t *since, int64_t now)
{
	if (jm_process_state(pid) != 'T')
		*since = 0;
	else if (!*since)
		*since = now;
	return *since && now - *since >= JM_STOPPED_NS;
}

static void end_call(int number)
{
	syscall(SYS_pidfd_send_signal, JM_WATCHDOG_FD, number, NULL, 0);
}

static bool has_lost_launcher(struct watch *w, int64_t now)
{
	bool lost = w->orphan;

	for (int i = 0; i < w->n_above; i++)
		lost |= !jm_process_runs(&w->above[i].process) ||
			is_stopped(w->above[i].process.pid, &w->above[i].stopped, now);
	return lost;
}

/* A call that has lost its launcher ends as by Ctrl-C, if it can. */
static void look(struct watch *w)
{
	int64_t now = jm_clock_now(jm_clock_real());

	if (is_stopped(w->call, &w->call_stopped, now) || (w->asked && now - w->asked >= TERM_NS))
		end_call(SIGKILL);
	else if (!w->asked && has_lost_launcher(w, now)) {
		end_call(SIGTERM);
		w->asked = now;
	}
}

int jm_watchdog_serve(struct jm_err *err)
{
	struct pollfd ended = {.fd = JM_WATCHDOG_FD, .events = POLLIN};
	/* another parent, if the call has ended: then nothing is left to watch */
	struct watch w = {.call = getppid()};
	sigset_t all;

	if (fcntl(JM_WATCHDOG_FD, F_GETFD) < 0)
		return jm_err_set(err, JM_EUSAGE, "'watchdog' is for 'joulemark run' alone.");
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	find_above(&w);
	while (poll(&ended, 1, LOOK_MS) <= 0)
		look(&w);
	return 0;
}
