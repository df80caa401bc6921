/* SPDX-License-Identifier: Apache-2.0 */
/* Statements of the store, and SQLite's errors as sentences. */
#include "store/store_sql.h"

#include <stdarg.h>

/* A write that failed half way: a full disk, a quota, a limit on files; SQLite keeps the errno of
 * some only. */
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

int jm__store_number(struct jm_store *s, sqlite3_int64 *ret, struct jm_err *err, const char *sql,
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
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int64(stmt, 0);
	rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : jm__store_fail(s, rc, "reading it", err);
	sqlite3_finalize(stmt);
	return rc;
}
