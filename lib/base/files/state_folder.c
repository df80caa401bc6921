/* SPDX-License-Identifier: Apache-2.0 */
/* Where the state folder is, and making it. */
#include "base/ctx.h"
#include "state_folder.h"
#include "base/text/number.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OF_ROOT "/var/lib/joulemark"

/* The state folder's path. Fails when no variable says where. */
static int find_base(const struct jm_ctx *ctx, char *out, size_t size)
{
	const char *state = secure_getenv("JM_STATE"), *xdg = secure_getenv("XDG_STATE_HOME");
	const char *home = secure_getenv("HOME");
	int n;

	if (state && *state)
		n = snprintf(out, size, "%s", state);
	else if (geteuid() == 0)
		n = snprintf(out, size, "%s" OF_ROOT, ctx->root);
	else if (xdg && *xdg == '/')
		n = snprintf(out, size, "%s/joulemark", xdg);
	else if (home && *home == '/')
		n = snprintf(out, size, "%s/.local/state/joulemark", home);
	else
		return -1;
	return n < 0 || (size_t)n >= size ? -1 : 0;
}

/* mkdir -p; the folders are for their owner to write and for all to read. */
static int make_folders(char *path)
{
	for (char *slash = path; slash; *slash = '/') {
		slash = strchr(slash + 1, '/');
		if (slash)
			*slash = '\0';
		if (mkdir(path, 0755) && errno != EEXIST) {
			int saved = errno;

			if (slash)
				*slash = '/';
			return saved;
		}
		if (!slash)
			break;
	}
	return 0;
}

/* Journals name what root sets again: whoever writes in this folder could set it. One that is not
 * there is no danger. */
static int refuse_foreign(const char *base, struct jm_err *err)
{
	struct stat st;

	if (geteuid() || stat(base, &st))
		return 0;
	if (st.st_uid)
		return jm_err_set(err, JM_EPERM,
			"The state folder %s belongs to user %u, who could change what root "
			"restores; 'chown root %s' after a look at what is in it, or set JM_STATE "
			"to a folder of root.",
			base, (unsigned int)st.st_uid, base);
	if (st.st_mode & S_IWOTH || (st.st_mode & S_IWGRP && st.st_gid))
		return jm_err_set(err, JM_EPERM,
			"Users other than root can write in the state folder %s and could change "
			"what root restores; 'chmod go-w %s' after a look at what is in it, or set "
			"JM_STATE to a folder of root.",
			base, base);
	return 0;
}

int jm_state_path(
	const struct jm_ctx *ctx, const char *sub, char *out, size_t size, struct jm_err *err)
{
	char base[PATH_MAX - 64], path[PATH_MAX];
	int n;

	if (find_base(ctx, base, sizeof(base)))
		return jm_err_set(err, JM_ENOENT,
			"There is no folder for joulemark's state, because HOME is not set; set "
			"JM_STATE to a folder.");
	n = refuse_foreign(base, err);
	if (n)
		return n;
	n = snprintf(path, sizeof(path), "%s%s%s", base, *sub ? "/" : "", sub);
	if (n < 0 || (size_t)n >= sizeof(path) || (size_t)n >= size)
		return jm_err_set(err, JM_EUSAGE,
			"The state folder's path is too long; set JM_STATE to a shorter one.");
	memcpy(out, path, strlen(path) + 1);
	return 0;
}

bool jm_state_path_of_root(const struct jm_ctx *ctx, const char *sub, char *out, size_t size)
{
	char own[PATH_MAX];
	int n = snprintf(out, size, "%s" OF_ROOT "/%s", ctx->root, sub);

	return n >= 0 && (size_t)n < size && !secure_getenv("JM_STATE") &&
	       !jm_state_path(ctx, sub, own, sizeof(own), NULL) && strcmp(own, out) != 0;
}

int jm_state_folder(
	const struct jm_ctx *ctx, const char *sub, char *out, size_t size, struct jm_err *err)
{
	char path[PATH_MAX];
	int rc = jm_state_path(ctx, sub, path, size < sizeof(path) ? size : sizeof(path), err);

	if (rc)
		return rc;
	rc = make_folders(path);
	if (rc)
		return jm_err_set(err,
			rc == EACCES || rc == EPERM || rc == EROFS ? JM_EPERM : JM_EIO,
			"Cannot make the state folder %s: %s; set JM_STATE to a folder that you "
			"can write.",
			path, strerror(rc));
	memcpy(out, path, strlen(path) + 1);
	return 0;
}

/* A number of an environment variable; -1 = it is not one. */
static long number_of(const char *variable)
{
	const char *text = secure_getenv(variable);
	uint64_t value;

	/* -1 is no valid uid */
	return text && jm_number_whole(text, UINT32_MAX - 1, &value) ? (long)value : -1;
}

bool jm_sudo_caller(uid_t *ret_uid, gid_t *ret_gid)
{
	long uid = number_of("SUDO_UID"), gid = number_of("SUDO_GID");

	if (geteuid() || uid <= 0 || gid < 0)
		return false;
	*ret_uid = (uid_t)uid;
	*ret_gid = (gid_t)gid;
	return true;
}
