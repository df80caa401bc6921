/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include "store_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LINKS_MOST 40 /* that follow each other, as in Linux */

static int cannot(const char *path, int why, struct jm_err *err)
{
	int code = why == EACCES || why == EPERM || why == EROFS ? JM_EPERM : JM_EIO;

	const char *slash = strrchr(path, '/');

	if (why == ENOENT && slash && slash > path)
		return jm_err_set(err, code,
			"Cannot write %s: %s; make the folder %.*s first, or name another one.",
			path, strerror(why), (int)(slash - path), path);
	if (why == EISDIR)
		return jm_err_set(
			err, code, "Cannot write %s: it is a folder; name a file in it.", path);
	return jm_err_set(err, code, "Cannot write %s: %s.", path, strerror(why));
}

/* The file descriptor of our stdout or stderr if it refers to this file, such as "/dev/stdout" or a
 * file that the shell redirects it to; -1 = neither does. */
static int our_fd(const struct stat *st)
{
	struct stat own;

	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
		if (!fstat(fd, &own) && own.st_dev == st->st_dev && own.st_ino == st->st_ino)
			return fd;
	return -1;
}

bool jm_output_is_ours(const char *path)
{
	static const char *const names[] = {"-", "/dev/stdout", "/dev/stderr", "/dev/fd/1",
		"/dev/fd/2", "/proc/self/fd/1", "/proc/self/fd/2"};
	struct stat st;
	int fd = stat(path, &st) ? -1 : our_fd(&st);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(path, names[i]))
			return true;
	return fd >= 0 && (!S_ISCHR(st.st_mode) || isatty(fd));
}

/* A device, a pipe and our own output are written in place; anything else is replaced by a new
 * file. */
static bool in_place(const char *path)
{
	struct stat st;

	return !stat(path, &st) && (!S_ISREG(st.st_mode) || our_fd(&st) >= 0);
}

static bool is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* A new file that is to replace another one. */
struct beside {
	int fd;
	char real[PATH_MAX]; /* the file that is replaced: of a link its target */
	/* name of the new file; "" = none yet, so a killed process leaves no file */
	char temporary[PATH_MAX];
};

/* Of a link to a file that is not there: the path of that file. ret: PATH_MAX bytes. */
static bool follow(const char *path, char *ret)
{
	char target[PATH_MAX];
	bool followed = false;
	ssize_t n;

	snprintf(ret, PATH_MAX, "%s", path);
	for (int i = 0; i < LINKS_MOST && (n = readlink(ret, target, sizeof(target) - 1)) > 0;
		i++) {
		char *slash = strrchr(ret, '/');
		size_t folder = slash && *target != '/' ? (size_t)(slash + 1 - ret) : 0;

		if (folder + (size_t)n >= PATH_MAX)
			return false;
		memcpy(ret + folder, target, (size_t)n);
		ret[folder + (size_t)n] = '\0';
		followed = true;
	}
	return followed;
}

/* The file that is written, which need not be there: of a link its target. ret: PATH_MAX bytes;
 * false: the path is longer. */
static bool real_file(const char *path, char *ret)
{
	return realpath(path, ret) || follow(path, ret) ||
	       snprintf(ret, PATH_MAX, "%s", path) < PATH_MAX;
}

/* Its folder, with a '/' or as "."; ret: PATH_MAX bytes. */
static void folder_of(const char *file, char *ret)
{
	const char *slash = strrchr(file, '/');

	snprintf(ret, PATH_MAX, "%.*s", slash ? (int)(slash - file) + 1 : 1, slash ? file : ".");
}

/* The path without links, also of a file that is not there; ret: PATH_MAX bytes. */
static void resolve(const char *path, char *ret)
{
	char file[PATH_MAX], folder[PATH_MAX], real[PATH_MAX];
	const char *slash;

	real_file(path, file);
	if (realpath(file, ret))
		return;
	slash = strrchr(file, '/');
	folder_of(file, folder);
	if (!realpath(folder, real) ||
		snprintf(ret, PATH_MAX, "%s/%s", real, slash ? slash + 1 : file) >= PATH_MAX)
		snprintf(ret, PATH_MAX, "%s", file);
}

bool jm_output_same(const char *a, const char *b)
{
	char real[2][PATH_MAX];

	resolve(a, real[0]);
	resolve(b, real[1]);
	return !strcmp(real[0], real[1]);
}

/* Opens a file without a name, which it gets later through /proc; -1: the file system or /proc does
 * not support this. */
static int open_unnamed(const char *real)
{
	char folder[PATH_MAX];

	if (access("/proc/self/fd", X_OK))
		return -1;
	folder_of(real, folder);
	return open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

static int open_named(struct beside *b)
{
	mode_t mask;
	int fd;

	if (snprintf(b->temporary, sizeof(b->temporary), "%s.XXXXXX", b->real) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(b->temporary, O_CLOEXEC);
	if (fd < 0)
		return -1;
	mask = umask(0);
	umask(mask);
	fchmod(fd, 0666 & ~mask);
	return fd;
}

/* The file to be replaced is no store. */
static int open_beside(struct beside *b, const char *path, struct jm_err *err)
{
	if (jm_store_is(path))
		return jm_err_set(err, JM_EUSAGE,
			"%s is a store and would be overwritten; name another file.", path);
	if (!real_file(path, b->real))
		return cannot(path, ENAMETOOLONG, err);
	*b->temporary = '\0';
	b->fd = open_unnamed(b->real);
	if (b->fd < 0)
		b->fd = open_named(b);
	return b->fd < 0 ? cannot(b->real, errno, err) : 0;
}

/* Gives the file that name, unless there is one of that name; errno. */
static int link_as(int fd, const char *name)
{
	char own[64];

	snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, own, AT_FDCWD, name, AT_SYMLINK_FOLLOW) ? errno : 0;
}

/* Gives the file a unique name in the folder of the other file. Returns 0 or errno. */
static int link_beside(struct beside *b)
{
	int e = EEXIST;

	for (int i = 0; e == EEXIST && i < 1000; i++) {
		if (snprintf(b->temporary, PATH_MAX, "%s.%d-%d", b->real, (int)getpid(), i) >=
			PATH_MAX)
			e = ENAMETOOLONG;
		else
			e = link_as(b->fd, b->temporary);
	}
	if (e)
		*b->temporary = '\0';
	return e;
}

/* Replaces the other file, in one step, by the new one, which is complete and on the disk; returns
 * errno. */
static int put_in_place(struct beside *b)
{
	int e = 0;

	if (!*b->temporary) {
		e = link_as(b->fd, b->real);
		if (e != EEXIST)
			return e;
		e = link_beside(b);
	}
	return !e && rename(b->temporary, b->real) ? errno : e;
}

/* Bytes of the file, or of the files of the folder; 0 = there is none. */
static double size_at(const char *path)
{
	struct stat st;
	struct dirent *entry;
	double sum = 0;
	DIR *dir;

	if (!is_folder(path))
		return stat(path, &st) ? 0 : (double)st.st_size;
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (!fstatat(dirfd(dir), entry->d_name, &st, 0) && S_ISREG(st.st_mode))
			sum += (double)st.st_size;
	if (dir)
		closedir(dir);
	return sum;
}

/* The file system of the path; false: none is known, or it is no file. */
static bool file_system_of(const char *path, struct statvfs *ret, dev_t *ret_id)
{
	char file[PATH_MAX], folder[PATH_MAX];
	struct stat st;

	if (!strcmp(path, "-") || (in_place(path) && !is_folder(path)))
		return false;
	real_file(path, file);
	folder_of(file, folder);
	if (is_folder(path))
		snprintf(folder, sizeof(folder), "%s", path);
	if (statvfs(folder, ret) || !ret->f_blocks || stat(folder, &st))
		return false;
	*ret_id = st.st_dev;
	return true;
}

/* More than now, by the writes before this one on its file system. ret_other: another path of
 * them, or NULL; ret_twice: is its own one of them? */
static double used_before(
	const struct jm_output_write *all, int i, dev_t id, const char **ret_other, bool *ret_twice)
{
	double used = 0;

	*ret_other = NULL;
	*ret_twice = false;
	for (int k = 0; k < i; k++) {
		double old = size_at(all[k].path);
		struct statvfs fs;
		dev_t of;

		if (!file_system_of(all[k].path, &fs, &of) || of != id)
			continue;
		for (int j = 0; j < k; j++)
			if (!strcmp(all[j].path, all[k].path))
				old = (double)all[j].bytes;
		used += (double)all[k].bytes - old;
		if (!strcmp(all[k].path, all[i].path))
			*ret_twice = true;
		else
			*ret_other = all[k].path;
	}
	return used;
}

static int check_room(const struct jm_output_write *all, int i, struct jm_err *err)
{
	const char *other;
	struct statvfs fs;
	double left, used;
	bool twice;
	dev_t id;

	if (!file_system_of(all[i].path, &fs, &id))
		return 0;
	left = (double)(geteuid() ? fs.f_bavail : fs.f_bfree) * (double)fs.f_frsize;
	used = used_before(all, i, id, &other, &twice);
	if (left >= used + (double)all[i].bytes)
		return 0;
	return jm_err_set(err, JM_EIO,
		"Cannot write %s: it needs at least %.3g GB%s%s%s%s, and only %.3g GB are free on "
		"its file system; free some there, or name a path on another file system.",
		all[i].path, (used + (double)all[i].bytes) / 1e9, other ? " with " : "",
		other ? other : "", other ? ", which is written before it" : "",
		twice ? " (an older file stays until the next one is complete)" : "", left / 1e9);
}

int jm_output_room(const struct jm_output_write *all, int n, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < n && !code; i++)
		code = check_room(all, i, err);
	return code;
}

int jm_output_try(const char *path, struct jm_err *err)
{
	struct beside b;
	int rc;

	if (!strcmp(path, "-"))
		return 0;
	if (in_place(path)) {
		if (is_folder(path))
			return cannot(path, EISDIR, err);
		if (access(path, W_OK))
			return cannot(path, errno, err);
		return 0;
	}
	rc = open_beside(&b, path, err);
	if (rc)
		return rc;
	close(b.fd);
	if (*b.temporary)
		unlink(b.temporary);
	return 0;
}

static bool put_json(const void *value, FILE *f)
{
	return !json_dumpf(value, f, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) &&
	       fputc('\n', f) >= 0;
}

static bool put_text(const void *text, FILE *f)
{
	return fputs(text, f) >= 0;
}

static int put_all(
	jm_output_fn *put, const void *what, FILE *f, const char *path, struct jm_err *err)
{
	errno = 0;
	if (!put(what, f) || fflush(f))
		return cannot(path, errno ? errno : EIO, err);
	return 0;
}

struct jm_output {
	struct beside b;
	FILE *f;
};

int jm_output_begin(const char *path, struct jm_output **ret, struct jm_err *err)
{
	struct jm_output *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for file %s.", path);
	rc = open_beside(&o->b, path, err);
	if (rc) {
		free(o);
		return rc;
	}
	o->f = fdopen(o->b.fd, "w");
	*ret = o;
	return 0;
}

int jm_output_fill(struct jm_output *o, jm_output_fn *put, const void *what, struct jm_err *err)
{
	int rc = o->f ? put_all(put, what, o->f, o->b.real, err)
		      : jm_err_set(err, JM_ENOMEM, "Out of memory for file %s.", o->b.real);

	return !rc && fsync(o->b.fd) ? cannot(o->b.real, errno, err) : rc;
}

int jm_output_place(struct jm_output *o, struct jm_err *err)
{
	int e = put_in_place(&o->b);

	if (e)
		return cannot(o->b.real, e, err);
	*o->b.temporary = '\0';
	return 0;
}

void jm_output_end(struct jm_output *o)
{
	if (!o)
		return;
	if (*o->b.temporary)
		unlink(o->b.temporary);
	if (o->f)
		fclose(o->f);
	else
		close(o->b.fd);
	free(o);
}

static int replace(const char *path, jm_output_fn *put, const void *what, struct jm_err *err)
{
	struct jm_output *o = NULL;
	int rc = jm_output_begin(path, &o, err);

	if (!rc)
		rc = jm_output_fill(o, put, what, err);
	if (!rc)
		rc = jm_output_place(o, err);
	jm_output_end(o);
	return rc;
}

/* Opens for appending. A file that our own output goes to is written through that descriptor, so
 * that other processes that share the descriptor, such as the shell, continue after this text. */
static FILE *open_in_place(const char *path)
{
	struct stat st;
	int ours = !stat(path, &st) && S_ISREG(st.st_mode) ? our_fd(&st) : -1, fd;
	FILE *f;

	if (ours < 0)
		return fopen(path, "ae");
	fd = fcntl(ours, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return NULL;
	lseek(fd, 0, SEEK_END);
	f = fdopen(fd, "w");
	if (!f)
		close(fd);
	return f;
}

int jm_output_by(const char *path, jm_output_fn *put, const void *what, struct jm_err *err)
{
	FILE *f;
	int rc;

	if (!strcmp(path, "-"))
		return put_all(put, what, stdout, "standard output", err);
	if (!in_place(path))
		return replace(path, put, what, err);
	f = open_in_place(path);
	if (!f)
		return cannot(path, errno, err);
	rc = put_all(put, what, f, path, err);
	if (fclose(f) && !rc)
		rc = cannot(path, errno, err);
	return rc;
}

int jm_output_json(const char *path, const json_t *value, struct jm_err *err)
{
	return jm_output_by(path, put_json, value, err);
}

/* Makes the file PREFIX.N.json. */
static int open_new(const char *prefix, char *name)
{
	int fd = -1;

	errno = EEXIST;
	for (int i = 1; fd < 0 && errno == EEXIST; i++) {
		if (snprintf(name, PATH_MAX, "%s.%d.json", prefix, i) >= PATH_MAX)
			errno = ENAMETOOLONG;
		else
			fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	}
	return fd;
}

static int write_new(const char *prefix, const json_t *value, char *name, struct jm_err *err)
{
	int fd = open_new(prefix, name), rc;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (fd < 0)
		return cannot(name, errno, err);
	rc = f ? put_all(put_json, value, f, name, err) : cannot(name, errno, err);
	if (!rc && fsync(fd))
		rc = cannot(name, errno, err);
	if (f)
		fclose(f);
	else
		close(fd);
	if (rc)
		unlink(name);
	return rc;
}

int jm_output_json_beside(const char *path, const json_t *value, char *ret_name, struct jm_err *err)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const char *set = secure_getenv("TMPDIR");
	const char *const folders[] = {"", set && *set ? set : "/tmp", "/tmp"};
	struct jm_err other = JM_ERR_INIT;
	char prefix[PATH_MAX];
	int rc = write_new(path, value, ret_name, err);

	for (size_t i = 0; rc && i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(prefix, sizeof(prefix), "%.2000s%s%.1000s", folders[i],
			*folders[i] ? "/" : "", name);
		if (!write_new(prefix, value, ret_name, &other)) {
			*err = (struct jm_err)JM_ERR_INIT;
			rc = 0;
		}
	}
	return rc;
}

int jm_output_text(const char *path, const char *text, struct jm_err *err)
{
	return jm_output_by(path, put_text, text, err);
}

int jm_output_folder(const char *path, struct jm_err *err)
{
	char part[PATH_MAX];

	if ((size_t)snprintf(part, sizeof(part), "%s", path) >= sizeof(part))
		return cannot(path, ENAMETOOLONG, err);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(part, 0777) && errno != EEXIST)
			return cannot(part, errno, err);
		*slash = '/';
	}
	if (mkdir(part, 0777) && errno != EEXIST)
		return cannot(path, errno, err);
	if (!is_folder(path))
		return cannot(path, ENOTDIR, err);
	return 0;
}

size_t jm_output_folder_new(const char *path)
{
	size_t all = strlen(path);
	char part[PATH_MAX];

	for (size_t n = 1; n <= all && n < sizeof(part); n++) {
		if (path[n] && path[n] != '/')
			continue;
		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		if (access(part, F_OK) && errno == ENOENT)
			return n;
	}
	return 0;
}

void jm_output_folder_drop(const char *path, size_t topmost)
{
	char part[PATH_MAX];

	for (size_t n = topmost ? strlen(path) : 0; n >= topmost && n; n--) {
		if (path[n] && path[n] != '/')
			continue;
		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		if (rmdir(part) && errno != ENOENT)
			return;
	}
}
