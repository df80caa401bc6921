/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/guard_program.h"

#include "base/ctx.h"
#include "base/member.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
		return jm_err_set(err, JM_EPERM,
			"The guard's program %s is not a file that may be executed.", path);
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
			"JM_GUARD is '%s', but it must be the whole path of the program "
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
		"neither beside it in %s nor in %s. Install it, or set JM_GUARD to its path.",
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
