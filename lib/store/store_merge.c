/* SPDX-License-Identifier: Apache-2.0 */
/* Records of one store into another, with their traces. */
#include "store/store_merge.h"
#include "store/store.h"
#include "store/store_trace.h"
#include "store/store_db.h"
#include "store/store_sql.h"

#include <string.h>

/* A run is the same whatever number its repeat got in a merged store. */
static int is_there(
	struct jm_store *to, const char *id, const char *record, bool *ret, struct jm_err *err)
{
	sqlite3_int64 n = 0;
	int rc = jm__store_number(to, &n, err,
		"SELECT count(*) FROM record_t r JOIN case_t c ON c.n = r.case_n WHERE c.id = ?"
		" AND CASE WHEN json_valid(r.record) THEN json_remove(r.record, '$.case.repeat')"
		" = json_remove(?, '$.case.repeat') ELSE 0 END",
		"ss", id, record);

	*ret = n > 0;
	return rc;
}

/* The same repeat if it is free, else the one after the last. */
static int free_repeat(
	struct jm_store *to, const char *id, sqlite3_int64 *repeat, struct jm_err *err)
{
	sqlite3_int64 there = 0;
	int rc = jm__store_number(to, &there, err,
		"SELECT max(r.repeat) + 1 FROM record_t r JOIN case_t c ON c.n = r.case_n"
		" WHERE c.id = ?1 AND EXISTS (SELECT 1 FROM record_t q WHERE q.case_n = c.n"
		" AND q.repeat = ?2)",
		"si", id, *repeat);

	if (!rc && there > 0)
		*repeat = there;
	return rc;
}

static int copy_chunks(
	struct jm_store *to, struct jm_store *from, sqlite3_int64 from_row, struct jm_err *err)
{
	sqlite3_stmt *stmt;
	int got, rc = jm__store_prepare(from, &stmt, err,
			 "SELECT signal, t0_ns, t1_ns, readings, data FROM chunk_t"
			 " WHERE record_n = ? ORDER BY n",
			 "i", from_row);

	if (rc)
		return rc;
	while (!rc && (got = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct jm_chunk chunk;

		jm__store_chunk(stmt, &chunk);
		rc = jm_store_add_chunk(to, &chunk, err);
	}
	if (!rc && got != SQLITE_DONE)
		rc = jm__store_fail(from, got, "reading a trace", err);
	sqlite3_finalize(stmt);
	return rc;
}

/* The signals as text, and the chunks as they are. */
static int copy_trace(
	struct jm_store *to, struct jm_store *from, sqlite3_int64 from_row, struct jm_err *err)
{
	sqlite3_stmt *stmt;
	int got, rc = jm__store_prepare(from, &stmt, err,
			 "SELECT meters FROM trace_t WHERE record_n = ?", "i", from_row);

	if (rc)
		return rc;
	got = sqlite3_step(stmt);
	if (got == SQLITE_ROW)
		rc = jm__store_do(to, "merging a trace", err,
			"INSERT INTO trace_t(record_n, meters) VALUES (?, ?)", "is", to->run,
			(const char *)sqlite3_column_text(stmt, 0));
	else if (got != SQLITE_DONE)
		rc = jm__store_fail(from, got, "reading a trace", err);
	sqlite3_finalize(stmt);
	return rc ? rc : copy_chunks(to, from, from_row, err);
}

enum { ROW, ID, PARAMETERS, REPEAT, STATUS, ATTEMPT, STARTED, WORKLOAD, RECORD };

static const char *text(sqlite3_stmt *row, int column)
{
	return (const char *)sqlite3_column_text(row, column);
}

static int copy_record(struct jm_store *to, struct jm_store *from, sqlite3_stmt *row,
	sqlite3_int64 repeat, struct jm_err *err)
{
	const char *id = text(row, ID);
	int rc = jm__store_do(to, "merging a case", err,
		"INSERT INTO case_t(id, parameters) VALUES (?, ?) ON CONFLICT DO NOTHING", "ss", id,
		text(row, PARAMETERS));

	if (!rc)
		rc = jm__store_do(to, "merging a record", err,
			"INSERT INTO record_t(case_n, repeat, status, attempt, started, workload,"
			" record) SELECT n, ?2, ?3, ?4, ?5, ?6, json_set(?7, '$.case.repeat', ?2)"
			" FROM case_t WHERE id = ?1",
			"sisisss", id, repeat, text(row, STATUS),
			sqlite3_column_int64(row, ATTEMPT), text(row, STARTED), text(row, WORKLOAD),
			text(row, RECORD));
	if (!rc)
		rc = jm__store_row(to, id, (int)repeat, &to->run, err);
	if (!rc)
		rc = copy_trace(to, from, sqlite3_column_int64(row, ROW), err);
	to->run = 0;
	return rc;
}

/* *ret_n counts what was copied, *ret_there what was there. */
static int merge_row(struct jm_store *to, struct jm_store *from, sqlite3_stmt *row, int *ret_n,
	int *ret_there, struct jm_err *err)
{
	sqlite3_int64 repeat = sqlite3_column_int64(row, REPEAT);
	bool there;
	int rc;

	if (!jm__store_record_is_good(from, text(row, RECORD), text(row, ID), (int)repeat))
		return 0;
	rc = is_there(to, text(row, ID), text(row, RECORD), &there, err);
	if (!rc && there) {
		++*ret_there;
		return 0;
	}
	if (!rc)
		rc = free_repeat(to, text(row, ID), &repeat, err);
	if (!rc)
		rc = copy_record(to, from, row, repeat, err);
	*ret_n += !rc;
	return rc;
}

int jm_store_merge(
	struct jm_store *to, struct jm_store *from, int *ret_n, int *ret_there, struct jm_err *err)
{
	sqlite3_stmt *row;
	int got, rc;

	rc = jm__store_prepare(from, &row, err,
		"SELECT r.n, c.id, c.parameters, r.repeat, r.status, r.attempt, r.started,"
		" r.workload, r.record FROM record_t r JOIN case_t c ON c.n = r.case_n"
		" WHERE r.status <> 'running' ORDER BY c.n, r.repeat",
		"");
	if (rc)
		return rc;
	rc = jm__store_transaction(to, err);
	while (!rc && (got = sqlite3_step(row)) == SQLITE_ROW)
		rc = merge_row(to, from, row, ret_n, ret_there, err);
	if (!rc && got != SQLITE_DONE)
		rc = jm__store_fail(from, got, "reading its records", err);
	sqlite3_finalize(row);
	if (!rc)
		return jm_store_commit(to, err);
	jm_store_rollback(to); /* half a record would count as there */
	return rc;
}
