/* SPDX-License-Identifier: Apache-2.0 */
/* Launcher `local`: each rank is a child process on this host, in a separate process group. */
#include "launcher.h"
#include "base/clock.h"
#include "base/process/driver_call.h"
#include "base/process/open_files.h"
#include "measure/command/launch.h"
#include "call_watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS JM_MILLISECOND /* between looks whether a rank has ended */

/* The child's ends of what a rank is given. */
struct ends {
	int job, frames, errs, orders, gang;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void jm_rank_close(struct jm_rank *rank)
{
	close_fd(&rank->frames_fd);
	close_fd(&rank->err_fd);
	close_fd(&rank->orders_fd);
}

/* An unnamed file that holds the job; its offset is at the start. */
static int job_file(const json_t *job, struct jm_err *err)
{
	char *text = json_dumps(job, JSON_COMPACT | JSON_REAL_PRECISION(15));
	int fd = memfd_create("job", MFD_CLOEXEC);
	size_t n = text ? strlen(text) : 0;

	if (!text || fd < 0 || write(fd, text, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET) < 0) {
		close_fd(&fd);
		fd = jm_err_set(err, JM_EIO, "The job of a worker could not be written: %s.",
			strerror(errno));
	}
	free(text);
	return fd;
}

/* The job with its place in the gang. */
static int job_of(const struct jm_launch *what, const json_t *gang, struct jm_err *err)
{
	json_t *job = json_copy((json_t *)(uintptr_t)what->job);
	int fd;

	if (!job || json_object_set(job, "gang", (json_t *)(uintptr_t)gang)) {
		json_decref(job);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the job of a worker.");
	}
	fd = job_file(job, err);
	json_decref(job);
	return fd;
}

/* Descriptors that the child has at another place would be overwritten before they are used. */
int jm_rank_high_fd(int fd, struct jm_err *err)
{
	int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 16);

	if (fd >= 0 && moved < 0)
		jm_err_set(err, JM_EIO, "A descriptor of a worker could not be made: %s.",
			strerror(errno));
	close_fd(&fd);
	return moved;
}

static void close_ends(struct ends *e)
{
	close_fd(&e->job);
	close_fd(&e->frames);
	close_fd(&e->errs);
	close_fd(&e->orders);
}

static int make_ends(const struct jm_launch *what, const json_t *gang, struct jm_rank *rank,
	struct ends *e, struct jm_err *err)
{
	int frames[2] = {-1, -1}, errs[2] = {-1, -1}, orders[2] = {-1, -1},
	    job = job_of(what, gang, err);

	if (job < 0)
		return job;
	if (pipe2(frames, O_CLOEXEC) || pipe2(errs, O_CLOEXEC) || pipe2(orders, O_CLOEXEC))
		jm_err_set(err, JM_EIO, "A pipe could not be made: %s.", strerror(errno));
	*rank = (struct jm_rank){.frames_fd = frames[0], .err_fd = errs[0], .orders_fd = orders[1]};
	*e = (struct ends){.job = jm_rank_high_fd(job, err),
		.frames = jm_rank_high_fd(frames[1], err),
		.errs = jm_rank_high_fd(errs[1], err),
		.orders = jm_rank_high_fd(orders[0], err),
		.gang = e->gang};
	if (err->code)
		return err->code;
	fcntl(rank->err_fd, F_SETFL, O_NONBLOCK);
	fcntl(rank->orders_fd, F_SETFL, O_NONBLOCK);
	return 0;
}

static void set_files(posix_spawn_file_actions_t *files, const struct ends *e, int out_fd)
{
	posix_spawn_file_actions_adddup2(files, e->job, STDIN_FILENO);
	if (out_fd >= 0)
		posix_spawn_file_actions_adddup2(files, out_fd, STDOUT_FILENO);
	else
		posix_spawn_file_actions_addopen(files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(files, e->errs, STDERR_FILENO);
	posix_spawn_file_actions_adddup2(files, e->frames, JM_WORKER_FRAMES);
	posix_spawn_file_actions_adddup2(files, e->orders, JM_WORKER_ORDERS);
	if (e->gang >= 0)
		posix_spawn_file_actions_adddup2(files, e->gang, JM_WORKER_GANG);
}

static int spawn(const struct jm_launch *what, const struct ends *e, int out_fd, pid_t *ret)
{
	char *argv[] = {(char *)(uintptr_t) "joulemark", (char *)(uintptr_t) "worker", NULL};
	const char *program = what->program ? what->program : "/proc/self/exe";
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	/* its own group: Ctrl-C of the terminal reaches only the parent, which then decides */
	posix_spawnattr_setflags(
		&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawn_file_actions_init(&files);
	set_files(&files, e, out_fd);
	rc = posix_spawn(ret, program, &files, &attr, argv, what->env ? what->env : environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return rc;
}

int jm_rank_start(const struct jm_launch *what, const json_t *gang, int gang_fd,
	struct jm_rank *rank, struct jm_err *err)
{
	struct ends e = {-1, -1, -1, -1, gang_fd};
	bool first = !json_integer_value(json_object_get(gang, "rank"));
	int rc = make_ends(what, gang, rank, &e, err), failed = 0;

	if (!rc)
		failed = spawn(what, &e, first ? what->out_fd : -1, &rank->pid);
	close_ends(&e);
	if (failed)
		rc = jm_err_set(err, JM_ECHILD, "No worker could be started from %s: %s.",
			what->program ? what->program : "/proc/self/exe", strerror(failed));
	if (rc)
		jm_rank_close(rank);
	return rc;
}

static void local_signal(const struct jm_rank *rank, int number, bool with_children)
{
	if (rank->pid > 0)
		kill(with_children ? -rank->pid : rank->pid, number);
}

/* Waits until it can be reaped, for at most `ns`. */
static bool await_end(pid_t pid, int64_t ns)
{
	int64_t until = jm_clock_now(jm_clock_real()) + ns;
	siginfo_t info = {0};

	while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) < 0 ? errno == EINTR
										: !info.si_pid) {
		if (jm_clock_now(jm_clock_real()) >= until)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
	}
	return true;
}

static int local_wait(struct jm_rank *rank)
{
	bool ended;
	int status = 0;

	if (rank->pid <= 0)
		return 0;
	ended = await_end(rank->pid, JM_DRIVER_LIMIT_NS);
	kill(-rank->pid, SIGKILL); /* processes that it may have left; its id is still reserved */
	if (!ended && !await_end(rank->pid, JM_SECOND)) {
		rank->pid = 0;
		return -1;
	}
	while (waitpid(rank->pid, &status, 0) < 0 && errno == EINTR)
		;
	rank->pid = 0;
	return status;
}

/* The kernel's own account, which a debugger does not change. */
static bool is_stopped(const struct jm_rank *rank)
{
	siginfo_t info = {0};

	return rank->pid > 0 &&
	       !waitid(P_PID, (id_t)rank->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) &&
	       info.si_pid == rank->pid;
}

bool jm_rank_end_stopped(struct jm_rank *rank, struct jm_err *why)
{
	int64_t now = jm_clock_now(jm_clock_real());

	if (!is_stopped(rank))
		rank->stopped_ns = 0;
	else if (!rank->stopped_ns)
		rank->stopped_ns = now;
	if (!rank->stopped_ns || now - rank->stopped_ns < JM_STOPPED_NS)
		return false;
	local_signal(rank, SIGKILL, true);
	jm_err_set(why, JM_EGONE,
		"It was stopped (SIGSTOP) for %d s, during which the other ranks waited for it, "
		"and was killed.",
		(int)(JM_STOPPED_NS / JM_SECOND));
	return true;
}

static void end_all(struct jm_rank *rank, int n)
{
	for (int r = 0; r < n; r++) {
		local_signal(&rank[r], SIGKILL, true);
		local_wait(&rank[r]);
		jm_rank_close(&rank[r]);
	}
}

static int start_rank(
	const struct jm_launch *what, int r, int gang_fd, struct jm_rank *rank, struct jm_err *err)
{
	json_t *gang = json_pack("{s:i, s:i, s:s}", "rank", r, "world", what->world, "launcher",
		jm_launcher_local.name);
	int rc = jm_rank_start(what, gang, gang_fd, rank, err);

	json_decref(gang);
	return rc;
}

static int local_start(const struct jm_launch *what, struct jm_rank *rank, struct jm_err *err)
{
	int gang = -1, rc = 0;

	if (what->world > 1) {
		rc = jm_open_files_allow(what->world, err);
		if (rc)
			return rc;
		gang = memfd_create("gang", MFD_CLOEXEC);
		if (gang < 0)
			return jm_err_set(err, JM_EIO,
				"Memory that the ranks share could not be made: %s.",
				strerror(errno));
		gang = jm_rank_high_fd(gang, err);
		if (gang < 0)
			return err->code;
	}
	for (int r = 0; r < what->world && !rc; r++) {
		rc = start_rank(what, r, gang, &rank[r], err);
		if (rc)
			end_all(rank, r);
	}
	close_fd(&gang);
	return rc;
}

const struct jm_launcher jm_launcher_local = {
	.name = "local",
	.summary = "child processes on this host",
	.start = local_start,
	.signal = local_signal,
	.wait = local_wait,
};
