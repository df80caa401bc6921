/* SPDX-License-Identifier: Apache-2.0 */
/* Owner, type and mode are read from the open file, because its name may refer to another file by
 * then. */
#include "private_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int code_of(int number)
{
	if (number == ENOENT)
		return JM_ENOENT;
	if (number == ELOOP || number == ENOTDIR || number == ENXIO || number == EISDIR)
		return JM_EFORMAT;
	return number == EACCES || number == EPERM || number == EROFS ? JM_EPERM : JM_EIO;
}

static int failed(const char *what, const char *name, struct jm_err *err)
{
	int number = errno, code = code_of(number);

	return jm_err_set(err, code, "Cannot %s %s: %s.", what, name,
		number == ELOOP ? "it is a symbolic link" : strerror(number));
}

static int check_owner(const char *name, const struct stat *st, uid_t owner, struct jm_err *err)
{
	if (st->st_uid == owner)
		return 0;
	return jm_err_set(err, JM_EPERM,
		"%s belongs to user %ld, not to user %ld, so its content is not used.", name,
		(long)st->st_uid, (long)owner);
}

int jm_public_folder(const char *path, int *ret_fd, struct jm_err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return failed("open the folder", path, err);
	*ret_fd = fd;
	return 0;
}

int jm_private_folder(const char *path, mode_t mode, int *ret_fd, struct jm_err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc;
	struct stat st;

	if (fd < 0)
		return failed("open the folder", path, err);
	rc = fstat(fd, &st) ? failed("look at", path, err) : check_owner(path, &st, geteuid(), err);
	/* on a read-only file system the mode stays as it is, and what is known can still be
	 * read */
	if (!rc && (st.st_mode & 0777) != mode && fchmod(fd, mode) && errno != EROFS)
		rc = failed("set the permissions of", path, err);
	if (rc)
		close(fd);
	else
		*ret_fd = fd;
	return rc;
}

DIR *jm_private_list(int folder)
{
	int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = again < 0 ? NULL : fdopendir(again);

	if (!dir && again >= 0)
		close(again);
	return dir;
}

/* As its folder: of the same owner, and closed to others where that is. */
static int check_file(int folder, int fd, const char *name, struct jm_err *err)
{
	struct stat st, around;
	int rc;

	if (fstat(fd, &st) || fstat(folder, &around))
		return failed("look at", name, err);
	if (!S_ISREG(st.st_mode) || st.st_nlink > 1)
		return jm_err_set(err, JM_EFORMAT,
			"%s is %s, which joulemark never creates; find out who created it, and "
			"remove it.",
			name,
			S_ISREG(st.st_mode) ? "a file with a second name" : "not a plain file");
	rc = check_owner(name, &st, around.st_uid, err);
	if (!rc && (st.st_mode & 077) && !(around.st_mode & 077) && fchmod(fd, 0600) &&
		errno != EROFS)
		rc = failed("set the permissions of", name, err);
	return rc;
}

/* O_NONBLOCK: a pipe of that name must not keep us waiting for its other end. */
int jm_private_open(int folder, const char *name, int flags, int *ret_fd, struct jm_err *err)
{
	int fd = openat(folder, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600), rc;

	if (fd < 0)
		return failed("open", name, err);
	rc = check_file(folder, fd, name, err);
	if (rc)
		close(fd);
	else
		*ret_fd = fd;
	return rc;
}

static int read_whole(
	int fd, const char *name, size_t max, char **ret, size_t *ret_n, struct jm_err *err)
{
	struct stat st;
	size_t used = 0;
	char *text;
	ssize_t n = 1;

	if (fstat(fd, &st))
		return failed("look at", name, err);
	if (st.st_size < 0 || (size_t)st.st_size > max)
		return jm_err_set(err, JM_EFORMAT,
			"%s has %lld bytes, more than joulemark ever writes there.", name,
			(long long)st.st_size);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", name);
	while (used < (size_t)st.st_size && n > 0) {
		n = read(fd, text + used, (size_t)st.st_size - used);
		used += n > 0 ? (size_t)n : 0;
	}
	if (n < 0) {
		free(text);
		return failed("read", name, err);
	}
	text[used] = '\0';
	*ret = text;
	*ret_n = used;
	return 0;
}

int jm_private_read(
	int folder, const char *name, size_t max, char **ret, size_t *ret_n, struct jm_err *err)
{
	int fd = -1, rc = jm_private_open(folder, name, O_RDONLY, &fd, err);

	if (rc)
		return rc;
	rc = read_whole(fd, name, max, ret, ret_n, err);
	close(fd);
	return rc;
}

static int write_whole(int fd, const char *text, size_t n, mode_t mode, bool sync)
{
	while (n) {
		ssize_t k = write(fd, text, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -1;
		text += k;
		n -= (size_t)k;
	}
	return fchmod(fd, mode) || (sync && fsync(fd)) ? -1 : 0;
}

static int replace(int folder, const char *name, const char *text, size_t n, mode_t mode, bool sync,
	struct jm_err *err)
{
	char fresh[300];
	int fd, rc = 0;

	snprintf(fresh, sizeof(fresh), "%.250s.new", name);
	unlinkat(folder, fresh, 0); /* a kill may have left it */
	fd = openat(folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed("write", name, err);
	if (write_whole(fd, text, n, mode, sync) || renameat(folder, fresh, folder, name))
		rc = failed("write", name, err);
	if (rc)
		unlinkat(folder, fresh, 0);
	close(fd);
	return rc;
}

int jm_private_replace(
	int folder, const char *name, const char *text, size_t n, mode_t mode, struct jm_err *err)
{
	return replace(folder, name, text, n, mode, true, err);
}

int jm_private_publish(
	int folder, const char *name, const char *text, size_t n, mode_t mode, struct jm_err *err)
{
	return replace(folder, name, text, n, mode, false, err);
}
