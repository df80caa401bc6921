/* SPDX-License-Identifier: Apache-2.0 */
/* Which program the guard is, and starting it. */
#include "guard/guard_program.h"

#include "base/ctx.h"
#include "base/member.h"
#include "guard/guard_wire.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* May this file be executed with our rights? */
static int check(const char *path, struct jm_err *err)
{
	struct stat st;

	if (stat(path, &st))
		return jm_err_set(err, errno == ENOENT || errno == ENOTDIR ? JM_ENOENT : JM_EPERM,
			"The guard's program %s cannot be used: %s.", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || access(path, X_OK))
		return jm_err_set(
			err, JM_EPERM, "The guard's program %s is not an executable file.", path);
	if (st.st_mode & S_IWOTH || (st.st_uid && st.st_uid != geteuid()))
		return jm_err_set(err, JM_EPERM,
			"The guard's program %s is not used, because it belongs to another user "
			"or everyone may write to it.",
			path);
	return 0;
}

static int take(const char *path, char *out, size_t size, struct jm_err *err)
{
	if ((size_t)snprintf(out, size, "%s", path) >= size)
		return jm_err_set(err, JM_ENOENT, "The path of the guard's program is too long.");
	return 0;
}

static int named_by_environment(const char *named, char *out, size_t size, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int rc;

	if (*named != '/')
		return jm_err_set(err, JM_EUSAGE,
			"JM_GUARD is '%s', but it must be the absolute path of the program "
			"joulemark.",
			named);
	rc = check(named, &why);
	if (rc)
		return jm_err_set(err, rc, "%s JM_GUARD names it; correct or unset it.", why.text);
	return take(named, out, size, err);
}

/* Of the shared object, or the program, that holds this code; with the last slash. */
static bool own_folder(char out[PATH_MAX])
{
	Dl_info info;
	char *slash;

	if (!dladdr((void *)(uintptr_t)&jm_guard_program, &info) || !info.dli_fname ||
		!realpath(info.dli_fname, out))
		return false;
	slash = strrchr(out, '/');
	if (slash)
		slash[1] = '\0';
	return slash;
}

/* One that this library was installed with. */
static int find_installed(char *out, size_t size, struct jm_err *err)
{
	static const char *const beside[] = {
		"joulemark", "../bin/joulemark", "../../bin/joulemark"};
	const int n = sizeof(beside) / sizeof(beside[0]);
	char folder[PATH_MAX], path[PATH_MAX + 32];
	int first = own_folder(folder) ? 0 : n, rc;

	for (int i = first; i <= n; i++) {
		snprintf(path, sizeof(path), "%s%s", i < n ? folder : jm_bindir,
			i < n ? beside[i] : "/joulemark");
		if (access(path, F_OK))
			continue;
		rc = check(path, err);
		return rc ? rc : take(path, out, size, err);
	}
	return jm_err_set(err, JM_ENOENT,
		"The program joulemark, which changes settings on behalf of this library, is "
		"neither in the folder of the library, %s, nor in %s. Install it, or set JM_GUARD "
		"to its path.",
		first ? "its folder" : folder, jm_bindir);
}

int jm_guard_program(const struct jm_ctx *ctx, char *out, size_t size, struct jm_err *err)
{
	const char *named = secure_getenv("JM_GUARD");

	if (named)
		return named_by_environment(named, out, size, err);
	if (ctx->guard_program)
		return take(ctx->guard_program, out, size, err);
	return find_installed(out, size, err);
}

/* In the child; only calls that are safe after fork. */
static _Noreturn void become_guard(
	int fd, const char *program, const void *refusal, size_t refusal_bytes)
{
	char *const argv[] = {(char *)"joulemark", (char *)"guard", NULL};
	sigset_t none;
	char asked;
	int null;

	setsid();
	if (fd == JM_WIRE_FD)
		fcntl(fd, F_SETFD, 0);
	else
		dup2(fd, JM_WIRE_FD);
	null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	close_range(JM_WIRE_FD + 1, ~0U, 0);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	execv(program, argv);
	if (recv(JM_WIRE_FD, &asked, sizeof(asked), 0) > 0 &&
		send(JM_WIRE_FD, refusal, refusal_bytes, MSG_NOSIGNAL) < 0)
		_exit(126);
	_exit(127);
}

int jm_guard_launch(const char *program, pid_t *ret_pid, int *ret_fd, struct jm_err *err)
{
	char refusal[sizeof(struct jm_wire_reply)] = "", text[PATH_MAX + 64];
	size_t bytes;
	int pair[2];
	pid_t pid;

	snprintf(text, sizeof(text), "The guard's program %s cannot be executed.", program);
	bytes = jm_wire_put_refusal(refusal, JM_EPERM, text);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return jm_err_set(err, JM_EIO, "Cannot start the guard: %s.", strerror(errno));
	pid = fork();
	if (!pid)
		become_guard(pair[1], program, refusal, bytes);
	close(pair[1]);
	if (pid < 0) {
		jm_err_set(err, JM_EIO, "Cannot start the guard: %s.", strerror(errno));
		close(pair[0]);
		return JM_EIO;
	}
	*ret_pid = pid;
	*ret_fd = pair[0];
	return 0;
}
