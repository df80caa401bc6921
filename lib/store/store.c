/* SPDX-License-Identifier: Apache-2.0 */
/* The store's file: opening, checking, transactions. */
#include "store/store.h"
#include "store/store_db.h"
#include "store/store_schema.h"
#include "store/store_place.h"
#include "store/store_sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APPLICATION_ID 0x4a4f554c /* "JOUL", in the file's header; see file(1) */
#define SCHEMA_VERSION 1
#define BUSY_MS	       10000
#define BUSY_AGAIN_MS  1000	   /* of a writer that tries again */
#define CHECK_LIMIT    (256 << 20) /* larger files are not read as a whole when opened */

int jm__store_transaction(struct jm_store *s, struct jm_err *err)
{
	int rc;

	if (s->in_transaction)
		return 0;
	rc = jm__store_place_check(s, err);
	if (!rc)
		rc = jm__store_exec(s, "BEGIN IMMEDIATE", "starting a transaction", err);
	s->in_transaction = !rc;
	return rc;
}

void jm_store_rollback(struct jm_store *s)
{
	if (s->db && !sqlite3_get_autocommit(s->db))
		sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	s->in_transaction = false;
}

/* Moves what is committed from the log to the file: between two commits the log is then empty, and
 * whoever replaces or copies the file finds nothing of us beside it. Readers are not waited for,
 * the next commit does it then. */
static int empty_log(struct jm_store *s, struct jm_err *err)
{
	int rc;

	if (!s->watches_log)
		jm__store_place_note(s); /* the commit has written the file itself */
	rc = jm__store_place_check(s, err);
	if (rc || !s->watches_log)
		return rc;
	sqlite3_busy_timeout(s->db, 0);
	sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	sqlite3_busy_timeout(s->db, s->busy_ms);
	jm__store_place_note(s);
	return 0; /* where that failed, the log has it, on the disk */
}

int jm_store_commit(struct jm_store *s, struct jm_err *err)
{
	int rc;

	if (!s->in_transaction)
		return 0;
	rc = jm__store_place_check(s, err);
	if (!rc)
		rc = jm__store_exec(s, "COMMIT", "writing", err);
	jm_store_rollback(s);
	if (rc)
		return rc;
	s->is_used = true;
	return empty_log(s, err);
}

static int make_schema(struct jm_store *s, struct jm_err *err)
{
	char identity[96];
	char *schema = jm__store_schema(false);
	int rc = schema ? jm__store_transaction(s, err)
			: jm_err_set(err, JM_ENOMEM, "Out of memory for a store's tables.");

	snprintf(identity, sizeof(identity), "PRAGMA application_id=%d; PRAGMA user_version=%d",
		APPLICATION_ID, SCHEMA_VERSION);
	if (!rc)
		rc = jm__store_exec(s, schema, "making its tables", err);
	sqlite3_free(schema);
	if (!rc)
		rc = jm__store_exec(s, identity, "making its tables", err);
	if (!rc)
		rc = jm_store_commit(s, err);
	s->is_used = false; /* tables alone are nothing */
	return rc;
}

static int check_identity(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err)
{
	sqlite3_int64 application = 0, version = 0, tables = 0;
	int rc = jm__store_number(s, &application, err, "PRAGMA application_id", "");

	if (!rc)
		rc = jm__store_number(s, &version, err, "PRAGMA user_version", "");
	if (!rc)
		rc = jm__store_number(s, &tables, err, "SELECT count(*) FROM sqlite_schema", "");
	if (rc)
		return rc;
	if (!application && !version && !tables)
		return mode == JM_STORE_WRITE ? make_schema(s, err)
					      : jm__store_nothing(s->path, err);
	if (application != APPLICATION_ID)
		return jm_err_set(err, JM_EFORMAT,
			"'%s' is an SQLite file, but not a store of joulemark; it was not changed. "
			"Give another file to --store.",
			s->path);
	if (version > SCHEMA_VERSION)
		return jm_err_set(err, JM_EVERSION,
			"The store '%s' was made by a newer joulemark (schema %lld; this one, %s, "
			"reads %d); it was not changed. Use that joulemark, or give another file "
			"to --store.",
			s->path, (long long)version, JM_VERSION, SCHEMA_VERSION);
	return jm__store_check_schema(s, mode, err);
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

/* SQLite needs to make a log beside the file, but has no permission. */
static bool is_read_only(int rc)
{
	return (rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_READONLY;
}

/* Of a file of unknown origin no trigger runs, and no function that a schema should not call. */
static int be_careful(struct jm_store *s, struct jm_err *err)
{
	int rc = sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	return rc == SQLITE_OK ? 0 : jm__store_fail(s, rc, "opening it", err);
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

	if (rc == SQLITE_OK && mode != JM_STORE_WRITE) {
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
	sqlite3_busy_timeout(s->db, s->busy_ms);
	return be_careful(s, err);
}

static int choose_journal(struct jm_store *s, struct jm_err *err)
{
	sqlite3_stmt *stmt;
	int rc = jm__store_prepare(s, &stmt, err,
		jm__store_on_network(s) ? "PRAGMA journal_mode=DELETE" : "PRAGMA journal_mode=WAL",
		"");

	if (rc)
		return rc;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		s->watches_log = !strcmp((const char *)sqlite3_column_text(stmt, 0), "wal");
	rc = rc == SQLITE_ROW ? 0 : jm__store_fail(s, rc, "choosing its journal", err);
	sqlite3_finalize(stmt);
	sqlite3_wal_autocheckpoint(s->db, 0); /* empty_log does it */
	return rc;
}

static int open_store(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err)
{
	int rc = jm__store_place_open(s, mode, err);

	if (!rc)
		rc = open_database(s, mode, err);
	if (!rc)
		rc = check_identity(s, mode, err);
	if (rc || mode != JM_STORE_WRITE)
		return rc;
	rc = check_whole(s, err);
	if (!rc)
		rc = choose_journal(s, err);
	/* FULL: a finished record survives a power failure too */
	if (!rc)
		rc = jm__store_exec(s, "PRAGMA synchronous=FULL", "opening it", err);
	jm__store_place_note(s);
	return rc ? rc : empty_log(s, err);
}

/* was: NULL = any file */
static int open_path(const char *path, enum jm_store_mode mode, const struct jm_store_file *was,
	int busy_ms, struct jm_store **ret, struct jm_err *err)
{
	struct jm_store *s = calloc(1, sizeof(*s));
	/* ":memory:" and "file:a.db" are files' names, too, but not to SQLite */
	bool special = *path == ':' || !strncmp(path, "file:", 5);
	int rc;

	if (!s || asprintf(&s->path, "%s%s", special ? "./" : "", path) < 0) {
		free(s);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the store '%s'.", path);
	}
	s->lock_fd = -1;
	s->busy_ms = busy_ms;
	s->was = was;
	rc = open_store(s, mode, err);
	if (rc) {
		jm_store_close(s, NULL);
		return rc;
	}
	*ret = s;
	return 0;
}

static bool is_stdout(const char *path, struct jm_err *err)
{
	return !strcmp(path, "-") &&
	       jm_err_set(err, JM_EUSAGE,
		       "A store is a file, not the standard output '-'; name a file, or ./- for "
		       "one of that name.");
}

int jm_store_open(
	const char *path, enum jm_store_mode mode, struct jm_store **ret, struct jm_err *err)
{
	if (mode == JM_STORE_WRITE && is_stdout(path, err))
		return JM_EUSAGE;
	return open_path(path, mode, NULL, mode == JM_STORE_TRY ? 0 : BUSY_MS, ret, err);
}

int jm_store_open_again(const char *path, const struct jm_store_file *was, struct jm_store **ret,
	struct jm_err *err)
{
	return open_path(path, JM_STORE_WRITE, was, BUSY_AGAIN_MS, ret, err);
}

int jm_store_try(const char *path, struct jm_store_file *ret, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	struct jm_store *s = NULL;
	bool empty;
	int rc;

	ret->fd = -1;
	if (is_stdout(path, err))
		return JM_EUSAGE;
	rc = jm__store_place_try(path, ret, &empty, err);
	if (rc || empty)
		return rc;
	rc = jm_store_open(path, JM_STORE_TRY, &s, &why);
	jm_store_close(s, NULL);
	return !rc || rc == JM_EBUSY ? 0 : jm_err_set(err, rc, "%s", why.text);
}

void jm_store_file_done(struct jm_store_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
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
	if (!rc && s->db)
		rc = jm__store_place_check(s, err);
	sqlite3_finalize(s->insert_chunk);
	if (s->db && (s->is_lost || (s->made && !s->is_used)))
		sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	if (sqlite3_close(s->db) != SQLITE_OK)
		rc = jm_err_set(err, JM_EBUG, "The store '%s' was closed while in use.", s->path);
	jm__store_place_leave(s);
	free(s->path);
	free(s);
	return rc;
}
