/* SPDX-License-Identifier: Apache-2.0 */
/* The policy's file: nobody but root may have written it. */
#include "policy_file.h"
#include "policy.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mode == b->st_mode && a->st_uid == b->st_uid &&
	       is_same_time(&a->st_mtim, &b->st_mtim) && is_same_time(&a->st_ctim, &b->st_ctim);
}

static int refuse(const char *path, const char *why, struct jm_err *err)
{
	return jm_err_set(err, JM_EPERM, "%s is not used, because %s.", path, why);
}

/* Root's, and nobody else may write in it. */
static int check_owner(const char *path, const struct stat *st, struct jm_err *err)
{
	if (st->st_uid)
		return refuse(path, "it, or its folder, does not belong to root", err);
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		return refuse(path,
			"users other than root may write in it, or in its folder; 'chmod go-w' "
			"helps",
			err);
	return 0;
}

static int open_file(const char *path, int *ret_fd, struct jm_err *err)
{
	char folder[PATH_MAX], name[PATH_MAX];
	struct stat st;
	int at, fd, rc;

	snprintf(folder, sizeof(folder), "%s", path);
	snprintf(name, sizeof(name), "%s", path);
	at = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0)
		return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EPERM,
			"The folder of %s cannot be opened: %s.", path, strerror(errno));
	rc = fstat(at, &st) ? refuse(path, strerror(errno), err) : check_owner(path, &st, err);
	fd = rc ? -1 : openat(at, basename(name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (!rc && fd < 0)
		rc = jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EPERM,
			"%s cannot be opened: %s.", path,
			errno == ELOOP ? "it is a link" : strerror(errno));
	close(at);
	*ret_fd = fd;
	return rc;
}

int jm_policy_check_file(const char *path, struct jm_err *err)
{
	struct stat st;
	int fd, rc = open_file(path, &fd, err);

	if (rc)
		return rc;
	rc = fstat(fd, &st) ? refuse(path, strerror(errno), err) : check_owner(path, &st, err);
	if (!rc && !S_ISREG(st.st_mode))
		rc = refuse(path, "it is not a plain file", err);
	close(fd);
	return rc;
}

/* Reads `size` bytes and finds the end there. */
static int read_all(const char *path, int fd, char *text, size_t size, struct jm_err *err)
{
	size_t got = 0;
	ssize_t n = 0;
	char more;

	while (got < size && (n = read(fd, text + got, size - got)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return jm_err_set(err, JM_EIO, "The policy %s cannot be read: %s.", path,
				strerror(errno));
		got += (size_t)n;
	}
	if (got < size || read(fd, &more, 1) > 0)
		return jm_err_set(err, JM_EFORMAT,
			"The policy %s changed while it was read; it is read again.", path);
	return 0;
}

/* Until fd is closed nobody can open the file for writing (fcntl(2), F_SETLEASE): the times of a
 * file do not show a write that is under way. The process ignores SIGIO, which says that a writer
 * waits. On file systems without this only the times are compared. */
static int keep_writers_out(const char *path, int fd, struct jm_err *err)
{
	if (fcntl(fd, F_SETLEASE, F_RDLCK) && errno == EAGAIN)
		return jm_err_set(err, JM_EFORMAT,
			"The policy %s is open for writing in another process; it is read again "
			"when that one has closed it.",
			path);
	return 0;
}

static int read_policy(const char *path, int fd, struct jm_policy *ret, struct jm_err *err)
{
	struct stat before, after;
	char *text;
	int rc = keep_writers_out(path, fd, err);

	if (rc)
		return rc;
	if (fstat(fd, &before))
		return refuse(path, strerror(errno), err);
	rc = check_owner(path, &before, err);
	if (rc)
		return rc;
	if (!S_ISREG(before.st_mode))
		return refuse(path, "it is not a plain file", err);
	if (before.st_size > JM_POLICY_MAX)
		return jm_err_set(err, JM_EFORMAT, "The policy %s is larger than %d bytes.", path,
			JM_POLICY_MAX);
	text = malloc((size_t)before.st_size + 1);
	if (!text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the policy.");
	rc = read_all(path, fd, text, (size_t)before.st_size, err);
	if (!rc && (fstat(fd, &after) || !is_same(&before, &after)))
		rc = jm_err_set(err, JM_EFORMAT,
			"The policy %s changed while it was read; it is read again.", path);
	if (!rc)
		rc = jm_policy_parse(text, (size_t)before.st_size, ret, err);
	if (!rc)
		ret->file = before;
	free(text);
	return rc;
}

int jm_policy_load(const char *path, struct jm_policy *policy, struct jm_err *err)
{
	struct stat now;
	int fd, rc;

	if (policy->file.st_ino && !lstat(path, &now) && is_same(&now, &policy->file))
		return 0;
	jm_policy_done(policy);
	rc = open_file(path, &fd, err);
	if (rc)
		return rc;
	rc = read_policy(path, fd, policy, err);
	close(fd);
	return rc;
}
