/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's place: opening and locking its file, noticing that the file was removed, replaced or
 * overwritten under a writer, and leaving nothing behind there that would harm what lies there now.
 */
#include "store/store_place.h"
#include "base/files/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LOCK_TRIES    50
#define LOCK_PAUSE_US 20000
/* Far above what SQLite locks (PENDING_BYTE, 1 GiB), so that both kinds of lock keep apart. */
#define LOCK_OFFSET (INT64_C(1) << 40)
#define SHM_LOCKS   120 /* SQLite's locks in the index of its log: bytes 120 to 128 */
#define SHM_N_LOCKS 9

#ifndef LUSTRE_SUPER_MAGIC
#define LUSTRE_SUPER_MAGIC 0x0BD00BD0
#endif
#define GPFS_MAGIC   0x47504653
#define BEEGFS_MAGIC 0x19830326

bool jm__store_on_network(const struct jm_store *s)
{
	static const unsigned long network[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, CIFS_SUPER_MAGIC,
		SMB2_SUPER_MAGIC, AFS_SUPER_MAGIC, CEPH_SUPER_MAGIC, FUSE_SUPER_MAGIC, V9FS_MAGIC,
		CODA_SUPER_MAGIC, LUSTRE_SUPER_MAGIC, GPFS_MAGIC, BEEGFS_MAGIC};
	struct statfs fs;

	if (statfs(s->path, &fs))
		return false;
	for (size_t i = 0; i < sizeof(network) / sizeof(network[0]); i++)
		if ((unsigned long)fs.f_type == network[i])
			return true;
	return false;
}

/* ---- opening ---- */

static int open_failed(const char *path, enum jm_store_mode mode, struct jm_err *err)
{
	int e = errno;

	if (e == ENOENT && mode == JM_STORE_WRITE)
		return jm_err_set(err, JM_ENOENT,
			"The store '%s' cannot be created, because its folder does not exist; make "
			"the folder, or check the path.",
			path);
	if (e == ENOENT)
		return jm_err_set(err, JM_ENOENT, "There is no store '%s'; check the path.", path);
	if (e == EACCES || e == EPERM || e == EROFS)
		return jm_err_set(err, JM_EPERM,
			"The store '%s' cannot be opened: %s; check the permissions of the file "
			"and its folder, or give another file to --store.",
			path, strerror(e));
	return jm_err_set(err, e == ENOSPC ? JM_EIO : JM_EFORMAT,
		"The store '%s' cannot be opened: %s; give another file to --store.", path,
		strerror(e));
}

/* The file is empty, or its writer was killed before the first transaction was complete. */
int jm__store_nothing(const char *path, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOENT, "Nothing was stored in '%s'; it is empty.", path);
}

/* What is not an SQLite file is refused before SQLite touches it. */
static int check_magic(const char *path, int fd, enum jm_store_mode mode, struct jm_err *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return open_failed(path, mode, err);
	if (!S_ISREG(st.st_mode))
		return jm_err_set(err, JM_EUSAGE,
			"'%s' is not a regular file and cannot be a store; give another file to "
			"--store.",
			path);
	if ((!st.st_size && mode == JM_STORE_WRITE) || jm_store_is_fd(fd))
		return 0;
	if (!st.st_size)
		return jm__store_nothing(path, err);
	return jm_err_set(err, JM_EFORMAT,
		"'%s' is not a store of joulemark; it was not changed. Give another file to "
		"--store.",
		path);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Does the path still lead to the file that was opened? */
static bool is_in_place(const struct jm_store *s)
{
	struct stat own, there;

	return !fstat(s->lock_fd, &own) && !stat(s->path, &there) && same_file(&own, &there);
}

/* The lock lives as long as the descriptor; of an open file description, so that a close elsewhere
 * in this process does not drop it. */
static int take_lock(struct jm_store *s, struct jm_err *err)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_OFFSET, .l_len = 1};

	for (int i = 0; i < LOCK_TRIES; i++) {
		if (!fcntl(s->lock_fd, F_OFD_SETLK, &lock))
			return 0;
		if (errno != EAGAIN && errno != EACCES)
			return 0;      /* a file system without locks: SQLite's own must do */
		usleep(LOCK_PAUSE_US); /* children of a killed run may still be ending */
	}
	return jm_err_set(err, JM_EBUSY,
		"Another joulemark is writing to the store '%s'; wait for it, or give another file "
		"to "
		"--store.",
		s->path);
}

static void close_file(struct jm_store *s)
{
	close(s->lock_fd);
	s->lock_fd = -1;
	s->made = false;
}

static int was_changed(const struct jm_store *s, const char *how, struct jm_err *err)
{
	return jm_err_set(err, JM_EIO,
		"The store '%s' was %s while the command ran; nothing is written there.", s->path,
		how);
}

/* Opens the file, or makes it. */
static int open_file(struct jm_store *s, struct jm_err *err)
{
	bool must_be_there = s->was && s->was->fd >= 0;
	struct stat before, now;

	s->lock_fd = open(s->path, O_RDWR | O_CLOEXEC);
	if (s->lock_fd < 0 && errno == ENOENT && must_be_there)
		return was_changed(s, "removed", err);
	if (s->lock_fd < 0 && errno == ENOENT) {
		s->lock_fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		s->made = s->lock_fd >= 0;
		if (s->lock_fd < 0 && errno == EEXIST) /* made meanwhile, or a link to nothing */
			s->lock_fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	}
	if (s->lock_fd < 0)
		return open_failed(s->path, JM_STORE_WRITE, err);
	if (must_be_there && (fstat(s->was->fd, &before) || fstat(s->lock_fd, &now) ||
				     !same_file(&before, &now)))
		return was_changed(s, "replaced by another file", err);
	return 0;
}

/* A file that nothing was stored in is removed by who made it, maybe while this process waits for
 * the lock. */
static int open_locked(struct jm_store *s, struct jm_err *err)
{
	int rc = JM_EBUSY;

	for (int i = 0; i < LOCK_TRIES; i++) {
		rc = open_file(s, err);
		if (!rc)
			rc = check_magic(s->path, s->lock_fd, JM_STORE_WRITE, err);
		if (!rc)
			rc = take_lock(s, err);
		if (rc || (is_in_place(s) && realpath(s->path, s->file)))
			return rc;
		close_file(s);
	}
	return jm_err_set(err, JM_EBUSY,
		"The store '%s' is removed and made again all the time by another program; give "
		"another file to --store.",
		s->path);
}

int jm__store_place_open(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err)
{
	int fd, rc;

	if (mode == JM_STORE_WRITE)
		return open_locked(s, err);
	fd = open(s->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return open_failed(s->path, mode, err);
	rc = check_magic(s->path, fd, mode, err);
	close(fd);
	return rc;
}

/* May a file be made there? */
static int try_folder(const char *path, struct jm_err *err)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/');

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 2,
		slash ? path : "./");
	return access(folder, W_OK | X_OK) ? open_failed(path, JM_STORE_WRITE, err) : 0;
}

int jm__store_place_try(
	const char *path, struct jm_store_file *ret, bool *ret_empty, struct jm_err *err)
{
	struct stat st;
	int rc = 0;

	*ret_empty = true;
	ret->fd = -1;
	if (stat(path, &st))
		return errno == ENOENT ? try_folder(path, err)
				       : open_failed(path, JM_STORE_WRITE, err);
	*ret_empty = S_ISREG(st.st_mode) && !st.st_size;
	if (!S_ISREG(st.st_mode)) /* which jm_store_open refuses */
		return 0;
	ret->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (ret->fd < 0 || access(path, W_OK))
		rc = open_failed(path, JM_STORE_WRITE, err);
	return rc;
}

/* ---- whether it is still ours ---- */

static void name_beside(const struct jm_store *s, const char *suffix, char *out)
{
	snprintf(out, PATH_MAX, "%.4000s%s", s->file, suffix);
}

static void look_beside(const struct jm_store *s, const char *suffix, struct stat *ret)
{
	char name[PATH_MAX];

	name_beside(s, suffix, name);
	if (stat(name, ret))
		*ret = (struct stat){.st_nlink = 0};
}

/* The log keeps its number as long as the store is open. */
static void note_beside(const struct jm_store *s, const char *suffix, struct stat *noted)
{
	struct stat now;

	look_beside(s, suffix, &now);
	if (!noted->st_nlink || same_file(&now, noted))
		*noted = now;
}

void jm__store_place_note(struct jm_store *s)
{
	if (fstat(s->lock_fd, &s->left))
		s->left = (struct stat){.st_nlink = 0};
	if (!s->watches_log)
		return;
	note_beside(s, "-wal", &s->log);
	note_beside(s, "-shm", &s->index);
}

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Only this process writes the file, in checkpoints, so that anything else that was written there
 * is not a store's. */
static bool was_overwritten(const struct jm_store *s)
{
	struct stat now;

	return s->watches_log && !fstat(s->lock_fd, &now) && !is_unchanged(&now, &s->left);
}

static bool lost_its_log(const struct jm_store *s)
{
	struct stat log;

	if (!s->watches_log || !s->log.st_nlink)
		return false;
	look_beside(s, "-wal", &log);
	return !log.st_nlink || !same_file(&log, &s->log);
}

static const char *what_happened(const struct jm_store *s)
{
	struct stat there;

	if (stat(s->path, &there))
		return "was removed or renamed";
	if (!is_in_place(s))
		return "was replaced by another file";
	if (was_overwritten(s))
		return "was overwritten by another program";
	return lost_its_log(s) ? "lost its journal (-wal), which was removed" : NULL;
}

int jm__store_place_check(struct jm_store *s, struct jm_err *err)
{
	const char *what = s->lock_fd < 0 ? NULL : what_happened(s);

	if (!what)
		return 0;
	s->is_lost = true;
	return jm_err_set(err, JM_EIO,
		"The store '%s' %s while it was in use; nothing more is written there.", s->path,
		what);
}

/* ---- leaving ---- */

/* Removes the file of that name if it is the one that was seen there. */
static void remove_own(const struct jm_store *s, const char *suffix, const struct stat *own)
{
	char name[PATH_MAX];
	struct stat now;

	name_beside(s, suffix, name);
	if (own->st_nlink && !stat(name, &now) && same_file(&now, own))
		unlink(name);
}

/* What took the store's place may be open elsewhere, and then shares our log. Holds the locks of
 * its users until the descriptor in *ret_fd (-1 = none) is closed. */
static bool log_is_unused(const struct jm_store *s, int *ret_fd)
{
	struct flock lock = {.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = SHM_LOCKS,
		.l_len = SHM_N_LOCKS};
	char name[PATH_MAX];

	name_beside(s, "-shm", name);
	*ret_fd = open(name, O_RDWR | O_CLOEXEC);
	return *ret_fd < 0 || !fcntl(*ret_fd, F_SETLK, &lock);
}

/* A log of ours that readers of the old file still need is not empty, and must not stay beside the
 * new one; they have it open. */
static bool log_is_full(const struct jm_store *s)
{
	struct stat log;

	look_beside(s, "-wal", &log);
	return log.st_size > 0 && same_file(&log, &s->log) && is_unchanged(&log, &s->log);
}

static void remove_log(const struct jm_store *s)
{
	int fd;

	if (log_is_unused(s, &fd) || log_is_full(s)) {
		remove_own(s, "-wal", &s->log);
		remove_own(s, "-shm", &s->index);
	}
	if (fd >= 0)
		close(fd);
}

static void remove_all(const struct jm_store *s)
{
	static const char *const suffix[] = {"-wal", "-shm", "-journal", ""};
	char name[PATH_MAX];

	for (size_t i = 0; i < sizeof(suffix) / sizeof(suffix[0]); i++) {
		name_beside(s, suffix[i], name);
		unlink(name);
	}
}

void jm__store_place_leave(struct jm_store *s)
{
	if (s->lock_fd < 0)
		return;
	if (s->is_lost)
		remove_log(s);
	else if (s->made && !s->is_used && is_in_place(s))
		remove_all(s);
	close_file(s);
}
