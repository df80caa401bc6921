/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process by vfork and exec, its end by pidfd. A fork would copy the page tables, and each
 * page that a sampling thread writes afterwards: a third of what starting a command costs.
 */
#include "child_process.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOOK_FAILED INT32_MAX /* sent by the child instead of an errno */

/* What the child reports: the time before exec and, if exec failed, the reason. */
struct word {
	int64_t t_ns;
	int why;
};

char **jm_proc_environment(const char *const *add)
{
	size_t n = 0, more = 0, used = 0;
	char **env;

	while (environ && environ[n])
		n++;
	while (add && add[more])
		more++;
	env = calloc(n + more + 1, sizeof(*env));
	for (size_t i = 0; env && i < n; i++) {
		size_t name = strcspn(environ[i], "=") + 1;
		bool replaced = false;

		for (size_t k = 0; k < more; k++)
			replaced = replaced || !strncmp(environ[i], add[k], name);
		if (!replaced)
			env[used++] = environ[i];
	}
	for (size_t k = 0; env && k < more; k++)
		env[used++] = (char *)add[k];
	return env;
}

struct plumbing {
	int told[2]; /* on it the child reports why exec failed; exec closes it */
	int out[2];  /* its stdout; -1 = not captured */
	char **env;
};

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void undo(struct plumbing *p)
{
	for (int i = 0; i < 2; i++) {
		close_end(&p->told[i]);
		close_end(&p->out[i]);
	}
	free(p->env);
	p->env = NULL;
}

static int prepare(struct plumbing *p, const struct jm_proc_options *o, struct jm_err *err)
{
	*p = (struct plumbing){.told = {-1, -1}, .out = {-1, -1}};
	p->env = jm_proc_environment(o->env);
	if (p->env && !pipe2(p->told, O_CLOEXEC) && (!o->capture || !pipe2(p->out, O_CLOEXEC)))
		return 0;
	jm_err_set(err, JM_EIO, "Cannot prepare to start '%s': %s.", o->argv[0], strerror(errno));
	undo(p);
	return JM_EIO;
}

static void tell(int fd, const struct word *word)
{
	if (write(fd, word, sizeof(*word)) < 0)
		_exit(125);
}

/* In the child, which shares the parent's memory: the parent's handlers must not run here. exec
 * does the same. */
static void forget_handlers(void)
{
	struct sigaction action;

	for (int i = 1; i < NSIG; i++)
		if (!sigaction(i, NULL, &action) && action.sa_handler != SIG_DFL &&
			action.sa_handler != SIG_IGN)
			signal(i, SIG_DFL);
}

/* In the child: async-signal-safe calls only, and nothing of the parent's memory is written. */
static _Noreturn void become(
	const struct plumbing *p, const struct jm_proc_options *o, const sigset_t *mask)
{
	struct word word = {.why = HOOK_FAILED};
	struct timespec now;

	forget_handlers();
	pthread_sigmask(SIG_SETMASK, mask, NULL);
	if (o->capture)
		dup2(p->out[1], STDOUT_FILENO);
	if (!o->before_exec || !o->before_exec(o->before_exec_arg)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		word.t_ns = now.tv_sec * JM_SECOND + now.tv_nsec;
		word.why = 0;
		tell(p->told[1], &word);
		execvpe(o->argv[0], o->argv, p->env);
		word.why = errno;
	}
	tell(p->told[1], &word);
	_exit(126);
}

/* This thread continues when the child has called exec or has ended; other threads are not
 * delayed. */
static pid_t start_child(const struct plumbing *p, const struct jm_proc_options *o)
{
	sigset_t all, before;
	pid_t pid;
	int why;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* the child calls only what is safe in it, and does not return */
	pid = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork) */
	if (!pid)
		become(p, o, o->mask ? o->mask : &before); /* NOLINT(clang-analyzer-unix.Vfork) */
	why = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = why;
	return pid;
}

static int explain(int why, const char *name, struct jm_err *err)
{
	if (why == HOOK_FAILED)
		return jm_err_set(
			err, JM_EIO, "'%s' was not started: its preparation failed.", name);
	if ((why == ENOENT || why == ENOTDIR) && strpbrk(name, " ;|&<>"))
		return jm_err_set(err, JM_ENOENT,
			"There is no command '%s'; to run a line of a shell, give sh -c '...'.",
			name);
	if (why == ENOENT || why == ENOTDIR)
		return jm_err_set(err, JM_ENOENT,
			"There is no command '%s'; check its spelling and the PATH.", name);
	if (why == EACCES || why == EISDIR || why == ENOEXEC || why == EPERM)
		return jm_err_set(
			err, JM_EPERM, "'%s' cannot be executed: %s.", name, strerror(why));
	return jm_err_set(err, JM_EIO, "Cannot start '%s': %s.", name, strerror(why));
}

static bool hear(int fd, struct word *word)
{
	ssize_t n;

	do
		n = read(fd, word, sizeof(*word));
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*word);
}

/* Waits for exec, or for the reason why it failed. A child that ended without a report was
 * killed after it had started. */
static int await_exec(int fd, const char *name, int64_t *t_ns, struct jm_err *err)
{
	struct word word = {0};

	while (hear(fd, &word)) {
		if (word.why)
			return explain(word.why, name, err);
		*t_ns = word.t_ns;
	}
	return 0;
}

int jm_proc_start(struct jm_proc *p, const struct jm_ctx *ctx, const struct jm_proc_options *o,
	struct jm_err *err)
{
	struct plumbing pipes;
	int rc = prepare(&pipes, o, err);

	if (rc)
		return rc;
	*p = (struct jm_proc){.pidfd = -1, .out_fd = -1};
	if (o->captured)
		o->captured(o->captured_arg, pipes.out[0]);
	p->pid = start_child(&pipes, o);
	if (p->pid < 0) {
		rc = jm_err_set(err, JM_EIO, "Cannot start '%s': %s.", o->argv[0], strerror(errno));
		undo(&pipes);
		return rc;
	}
	close_end(&pipes.told[1]);
	p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	p->start_ns = jm_ctx_now(ctx);
	rc = await_exec(pipes.told[0], o->argv[0], &p->start_ns, err);
	if (!rc && p->pidfd < 0)
		rc = jm_err_set(err, JM_ENOSUP,
			"This kernel cannot watch a process (pidfd_open: %s); Linux 5.3 is needed.",
			strerror(errno));
	if (!rc) {
		p->out_fd = pipes.out[0];
		pipes.out[0] = -1;
	}
	undo(&pipes);
	if (rc)
		jm_proc_done(p);
	return rc;
}

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

int jm_proc_reap(struct jm_proc *p, const struct jm_ctx *ctx, struct jm_err *err)
{
	struct rusage used;
	int status;
	pid_t pid;

	do {
		pid = wait4(p->pid, &status, 0, &used);
		p->end_ns = jm_ctx_now(ctx);
	} while (pid < 0 && errno == EINTR);
	if (pid < 0)
		return jm_err_set(err, JM_ECHILD, "Cannot wait for process %d: %s.", (int)p->pid,
			strerror(errno));
	p->ended = true;
	p->user_s = seconds_of(used.ru_utime);
	p->system_s = seconds_of(used.ru_stime);
	p->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	p->status = p->signal ? 128 + p->signal : WEXITSTATUS(status);
	return 0;
}

void jm_proc_done(struct jm_proc *p)
{
	if (p->pid > 0 && !p->ended) {
		kill(p->pid, SIGKILL);
		while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
			;
		p->ended = true;
	}
	close_end(&p->pidfd);
	close_end(&p->out_fd);
}

int jm_proc_status_of(int code)
{
	return code == JM_ENOENT ? 127 : code == JM_EPERM ? 126 : 125;
}
