/* SPDX-License-Identifier: Apache-2.0 */
/* The store's file: opening, checking, locking, and SQLite's errors as sentences. */
#include "store/store.h"
#include "store/store_db.h"
#include "base/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define APPLICATION_ID 0x4a4f554c /* "JOUL", in the file's header; see file(1) */
#define SCHEMA_VERSION 1
#define BUSY_MS	       10000
#define LOCK_TRIES     50
#define LOCK_PAUSE_US  20000
/* Far above what SQLite locks (PENDING_BYTE, 1 GiB), so that both kinds of lock keep apart. */
#define LOCK_OFFSET (INT64_C(1) << 40)
#define CHECK_LIMIT (256 << 20) /* larger files are not read as a whole when opened */

#ifndef LUSTRE_SUPER_MAGIC
#define LUSTRE_SUPER_MAGIC 0x0BD00BD0
#endif
#define GPFS_MAGIC   0x47504653
#define BEEGFS_MAGIC 0x19830326

/* A write that failed half way: a full disk, a quota, a limit on files; SQLite keeps the errno of some only. */
static bool write_failed(struct jm_store *s, int rc)
{
	int extended = s->db ? sqlite3_extended_errcode(s->db) : rc;

	return (rc & 0xff) == SQLITE_IOERR &&
	       (extended == SQLITE_IOERR_WRITE || extended == SQLITE_IOERR_FSYNC ||
		       extended == SQLITE_IOERR_SHMSIZE || extended == SQLITE_IOERR_TRUNCATE);
}

int jm__store_fail(struct jm_store *s, int rc, const char *doing, struct jm_err *err)
{
	const char *text = s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc);

	if ((rc & 0xff) == SQLITE_FULL || write_failed(s, rc))
		return jm_err_set(err, JM_EIO,
			"%s the store '%s' (while %s); finished records are safe. Free some space "
			"and run the same command again: it continues there.",
			write_failed(s, rc) ? "The disk is full or failed under"
					    : "No space is left on the disk of",
			s->path, doing);
	switch (rc & 0xff) {
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return jm_err_set(err, JM_EFORMAT,
			"The store '%s' is damaged (%s, while %s). Nothing was changed. 'sqlite3 "
			"%s .recover' may recover what is readable; or give another file to "
			"--store.",
			s->path, text, doing, s->path);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return jm_err_set(err, JM_EBUSY,
			"The store '%s' is locked by another program (while %s); close that "
			"program and try again.",
			s->path, doing);
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
		return jm_err_set(err, JM_EPERM,
			"The store '%s' cannot be written (%s, while %s); check the permissions of "
			"the file and its folder, or give another file to --store.",
			s->path, text, doing);
	case SQLITE_NOMEM:
		return jm_err_set(
			err, JM_ENOMEM, "Out of memory in the store '%s', at %s.", s->path, doing);
	default:
		return jm_err_set(
			err, JM_EIO, "The store '%s' failed while %s: %s.", s->path, doing, text);
	}
}

int jm__store_exec(struct jm_store *s, const char *sql, const char *doing, struct jm_err *err)
{
	int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : jm__store_fail(s, rc, doing, err);
}

static int prepare(struct jm_store *s, sqlite3_stmt **ret, struct jm_err *err, const char *sql,
	const char *types, va_list ap)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(s->db, sql, -1, &stmt, NULL);

	for (int i = 0; types[i] && rc == SQLITE_OK; i++) {
		if (types[i] == 's')
			rc = sqlite3_bind_text(
				stmt, i + 1, va_arg(ap, const char *), -1, SQLITE_TRANSIENT);
		else
			rc = sqlite3_bind_int64(stmt, i + 1, va_arg(ap, sqlite3_int64));
	}
	if (rc == SQLITE_OK) {
		*ret = stmt;
		return 0;
	}
	rc = jm__store_fail(s, rc, "running a query", err);
	sqlite3_finalize(stmt);
	return rc;
}

int jm__store_prepare(struct jm_store *s, sqlite3_stmt **ret, struct jm_err *err, const char *sql,
	const char *types, ...)
{
	va_list ap;
	int rc;

	va_start(ap, types);
	rc = prepare(s, ret, err, sql, types, ap);
	va_end(ap);
	return rc;
}

int jm__store_do(struct jm_store *s, const char *doing, struct jm_err *err, const char *sql,
	const char *types, ...)
{
	sqlite3_stmt *stmt = NULL;
	va_list ap;
	int rc;

	va_start(ap, types);
	rc = prepare(s, &stmt, err, sql, types, ap);
	va_end(ap);
	if (rc)
		return rc;
	do {
		rc = sqlite3_step(stmt);
	} while (rc == SQLITE_ROW);
	rc = rc == SQLITE_DONE ? 0 : jm__store_fail(s, rc, doing, err);
	sqlite3_finalize(stmt);
	return rc;
}

int jm__store_transaction(struct jm_store *s, struct jm_err *err)
{
	int rc;

	if (s->in_transaction)
		return 0;
	rc = jm__store_exec(s, "BEGIN IMMEDIATE", "starting a transaction", err);
	s->in_transaction = !rc;
	return rc;
}

int jm_store_commit(struct jm_store *s, struct jm_err *err)
{
	int rc;

	if (!s->in_transaction)
		return 0;
	rc = jm__store_exec(s, "COMMIT", "writing", err);
	if (rc && !sqlite3_get_autocommit(s->db))
		sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	s->in_transaction = false;
	return rc;
}

static int pragma_number(struct jm_store *s, const char *sql, int *ret, struct jm_err *err)
{
	sqlite3_stmt *stmt;
	int rc = jm__store_prepare(s, &stmt, err, sql, "");

	if (rc)
		return rc;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int(stmt, 0);
	rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : jm__store_fail(s, rc, "opening it", err);
	sqlite3_finalize(stmt);
	return rc;
}

/* On a network file system the shared memory of a write-ahead log does not work between nodes. */
static bool network_file_system(const char *path)
{
	static const unsigned long network[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, CIFS_SUPER_MAGIC,
		SMB2_SUPER_MAGIC, AFS_SUPER_MAGIC, CEPH_SUPER_MAGIC, FUSE_SUPER_MAGIC, V9FS_MAGIC,
		CODA_SUPER_MAGIC, LUSTRE_SUPER_MAGIC, GPFS_MAGIC, BEEGFS_MAGIC};
	struct statfs fs;

	if (statfs(path, &fs))
		return false;
	for (size_t i = 0; i < sizeof(network) / sizeof(network[0]); i++)
		if ((unsigned long)fs.f_type == network[i])
			return true;
	return false;
}

static int make_schema(struct jm_store *s, struct jm_err *err)
{
	char identity[96];
	char *schema = jm__store_schema();
	int rc = schema ? jm__store_transaction(s, err)
			: jm_err_set(err, JM_ENOMEM, "Out of memory for a store's tables.");

	snprintf(identity, sizeof(identity), "PRAGMA application_id=%d; PRAGMA user_version=%d",
		APPLICATION_ID, SCHEMA_VERSION);
	if (!rc)
		rc = jm__store_exec(s, schema, "making its tables", err);
	sqlite3_free(schema);
	if (!rc)
		rc = jm__store_exec(s, identity, "making its tables", err);
	return rc ? rc : jm_store_commit(s, err);
}

static int check_identity(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err)
{
	int application = 0, version = 0, tables = 0, rc;

	rc = pragma_number(s, "PRAGMA application_id", &application, err);
	if (!rc)
		rc = pragma_number(s, "PRAGMA user_version", &version, err);
	if (!rc)
		rc = pragma_number(s, "SELECT count(*) FROM sqlite_schema", &tables, err);
	if (rc)
		return rc;
	if (!application && !version && !tables && mode == JM_STORE_WRITE)
		return make_schema(s, err);
	if (application != APPLICATION_ID)
		return jm_err_set(err, JM_EFORMAT,
			"'%s' is an SQLite file, but not a store of joulemark; it was not changed. "
			"Give another file to --store.",
			s->path);
	if (version > SCHEMA_VERSION)
		return jm_err_set(err, JM_EVERSION,
			"The store '%s' was made by a newer joulemark (schema %d; this one, %s, "
			"reads %d); it was not changed. Use that joulemark, or give another file "
			"to --store.",
			s->path, version, JM_VERSION, SCHEMA_VERSION);
	return 0;
}

/* A sweep takes hours, therefore damage is detected before it starts. */
static int check_whole(struct jm_store *s, struct jm_err *err)
{
	sqlite3_stmt *stmt;
	struct stat st;
	int rc;

	if (stat(s->path, &st) || st.st_size > CHECK_LIMIT)
		return 0;
	rc = jm__store_prepare(s, &stmt, err, "PRAGMA quick_check(1)", "");
	if (rc)
		return rc;
	rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW)
		rc = jm__store_fail(s, rc, "checking it", err);
	else if (strcmp((const char *)sqlite3_column_text(stmt, 0), "ok") != 0)
		rc = jm__store_fail(s, SQLITE_CORRUPT, "checking it", err);
	else
		rc = 0;
	sqlite3_finalize(stmt);
	return rc;
}

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
	return jm_err_set(err, JM_EFORMAT,
		"'%s' is not a store of joulemark; it was not changed. Give another file to "
		"--store.",
		path);
}

/* The lock lives as long as the descriptor; of an open file description, so that a close elsewhere in
 * this process does not drop it. */
static int take_lock(struct jm_store *s, int fd, struct jm_err *err)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_OFFSET, .l_len = 1};

	s->lock_fd = fd;
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (!fcntl(fd, F_OFD_SETLK, &lock))
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

static int prepare_file(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err)
{
	int flags = mode == JM_STORE_WRITE ? O_RDWR | O_CREAT : O_RDONLY;
	int fd = open(s->path, flags | O_CLOEXEC, 0666), rc;

	if (fd < 0)
		return open_failed(s->path, mode, err);
	rc = check_magic(s->path, fd, mode, err);
	if (rc || mode == JM_STORE_READ) {
		close(fd);
		return rc;
	}
	return take_lock(s, fd, err);
}

/* SQLite needs to make a log beside the file, but has no permission. */
static bool is_read_only(int rc)
{
	return (rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_READONLY;
}

/* A reader that may write opens it so, too: the last connection to close then removes the log and
 * its index, which a read-only one does not. A store where nothing may be written is read without
 * locks and log, if no log is left. */
static int open_database(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err)
{
	bool may_write = mode == JM_STORE_WRITE || !access(s->path, W_OK);
	int flags = may_write ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
	char *uri, *wal;
	int rc = sqlite3_open_v2(s->path, &s->db, flags, NULL);

	if (rc == SQLITE_OK && mode == JM_STORE_READ) {
		rc = sqlite3_exec(s->db, "PRAGMA query_only=1; SELECT count(*) FROM sqlite_schema",
			NULL, NULL, NULL);
		wal = sqlite3_mprintf("%s-wal", s->path);
		uri = sqlite3_mprintf("file:%s?immutable=1", s->path);
		if (is_read_only(rc) && wal && uri && access(wal, F_OK) &&
			!strpbrk(s->path, "?#%")) {
			sqlite3_close(s->db);
			rc = sqlite3_open_v2(
				uri, &s->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
		}
		sqlite3_free(wal);
		sqlite3_free(uri);
	}
	if (rc != SQLITE_OK)
		return jm__store_fail(s, rc, "opening it", err);
	sqlite3_busy_timeout(s->db, BUSY_MS);
	return 0;
}

static int open_store(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err)
{
	int rc = prepare_file(s, mode, err);

	if (!rc)
		rc = open_database(s, mode, err);
	if (!rc)
		rc = check_identity(s, mode, err);
	if (rc || mode == JM_STORE_READ)
		return rc;
	rc = check_whole(s, err);
	if (!rc)
		rc = jm__store_exec(s,
			network_file_system(s->path) ? "PRAGMA journal_mode=DELETE"
						     : "PRAGMA journal_mode=WAL",
			"choosing its journal", err);
	/* FULL: a finished record survives a power failure too */
	return rc ? rc : jm__store_exec(s, "PRAGMA synchronous=FULL", "opening it", err);
}

int jm_store_open(
	const char *path, enum jm_store_mode mode, struct jm_store **ret, struct jm_err *err)
{
	struct jm_store *s = calloc(1, sizeof(*s));
	int rc;

	/* ":memory:" is a file's name too, but not to SQLite */
	if (!s || asprintf(&s->path, "%s%s", *path == ':' ? "./" : "", path) < 0) {
		free(s);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the store '%s'.", path);
	}
	s->lock_fd = -1;
	rc = open_store(s, mode, err);
	if (rc) {
		jm_store_close(s, NULL);
		return rc;
	}
	*ret = s;
	return 0;
}

const char *jm_store_path(const struct jm_store *s)
{
	return s->path;
}

int jm_store_close(struct jm_store *s, struct jm_err *err)
{
	int rc = 0;

	if (!s)
		return 0;
	if (s->db)
		rc = jm_store_commit(s, err);
	sqlite3_finalize(s->insert_chunk);
	if (sqlite3_close(s->db) != SQLITE_OK)
		rc = jm_err_set(err, JM_EBUG, "The store '%s' was closed while in use.", s->path);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	free(s->path);
	free(s);
	return rc;
}
