/* SPDX-License-Identifier: Apache-2.0 */
/* Traces in the store: what the signals are, and chunks of their readings. */
#include "store/store_trace.h"
#include "store/store.h"
#include "store/store_db.h"
#include "store/store_sql.h"

#include "meter/meters_json.h"

#include <stdlib.h>

static int no_run(struct jm_err *err)
{
	return jm_err_set(err, JM_EBUG, "A trace was stored before its run was begun.");
}

int jm_store_add_signals(struct jm_store *s, const struct jm_meters *set, struct jm_err *err)
{
	json_t *json;
	char *text;
	int rc;

	if (!s->run)
		return no_run(err);
	json = jm_meters_to_json(set);
	text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
	json_decref(json);
	if (!text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the signals of a trace.");
	rc = jm__store_transaction(s, err);
	if (!rc)
		rc = jm__store_do(s, "storing the signals of a trace", err,
			"INSERT OR REPLACE INTO trace_t(record_n, meters) VALUES (?, ?)", "is",
			s->run, text);
	free(text);
	return rc;
}

int jm_store_add_chunk(struct jm_store *s, const struct jm_chunk *chunk, struct jm_err *err)
{
	sqlite3_stmt *stmt = s->insert_chunk;
	int rc;

	if (!s->run)
		return no_run(err);
	rc = jm__store_transaction(s, err);
	if (!rc && !stmt)
		rc = jm__store_prepare(s, &s->insert_chunk, err,
			"INSERT INTO chunk_t(record_n, signal, t0_ns, t1_ns, readings, data)"
			" VALUES (?, ?, ?, ?, ?, ?)",
			"");
	if (rc)
		return rc;
	stmt = s->insert_chunk;
	sqlite3_bind_int64(stmt, 1, s->run);
	sqlite3_bind_int(stmt, 2, chunk->signal);
	sqlite3_bind_int64(stmt, 3, chunk->t0_ns);
	sqlite3_bind_int64(stmt, 4, chunk->t1_ns);
	sqlite3_bind_int64(stmt, 5, chunk->n);
	sqlite3_bind_blob64(stmt, 6, chunk->data, chunk->bytes, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	rc = rc == SQLITE_DONE ? 0 : jm__store_fail(s, rc, "storing a part of a trace", err);
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return rc;
}

static int read_meters(
	struct jm_store *s, sqlite3_int64 row, struct jm_meters *ret, struct jm_err *err)
{
	sqlite3_stmt *stmt;
	json_t *json = NULL;
	int rc = jm__store_prepare(
		s, &stmt, err, "SELECT meters FROM trace_t WHERE record_n = ?", "i", row);

	if (rc)
		return rc;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_DONE) {
		rc = jm_err_set(
			err, JM_ENOENT, "The store '%s' holds no trace of this record.", s->path);
	} else if (rc == SQLITE_ROW) {
		json = json_loads((const char *)sqlite3_column_text(stmt, 0), 0, NULL);
		rc = jm_meters_from_json(json, ret, err);
	} else {
		rc = jm__store_fail(s, rc, "reading a trace", err);
	}
	json_decref(json);
	sqlite3_finalize(stmt);
	return rc;
}

void jm__store_chunk(sqlite3_stmt *row, struct jm_chunk *ret)
{
	*ret = (struct jm_chunk){.signal = sqlite3_column_int(row, 0),
		.t0_ns = sqlite3_column_int64(row, 1),
		.t1_ns = sqlite3_column_int64(row, 2),
		.n = (uint32_t)sqlite3_column_int64(row, 3),
		.data = sqlite3_column_blob(row, 4),
		.bytes = (size_t)sqlite3_column_bytes(row, 4)};
}

/* Row of a record that must be there. */
static int find_row(
	struct jm_store *s, const char *case_id, int repeat, sqlite3_int64 *ret, struct jm_err *err)
{
	int rc = jm__store_row(s, case_id, repeat, ret, err);

	if (!rc && !*ret)
		rc = jm_err_set(err, JM_ENOENT, "The store '%s' has no repeat %d of case %s.",
			s->path, repeat, case_id);
	return rc;
}

int jm_store_signals(struct jm_store *s, const char *case_id, int repeat,
	struct jm_meters *ret_meters, struct jm_err *err)
{
	sqlite3_int64 row;
	int rc = find_row(s, case_id, repeat, &row, err);

	return rc ? rc : read_meters(s, row, ret_meters, err);
}

int jm_store_chunks(struct jm_store *s, const char *case_id, int repeat,
	const struct jm_chunk_reader *reader, struct jm_err *err)
{
	sqlite3_stmt *stmt;
	sqlite3_int64 row;
	int rc = find_row(s, case_id, repeat, &row, err), got;

	if (!rc)
		rc = jm__store_prepare(s, &stmt, err,
			"SELECT signal, t0_ns, t1_ns, readings, data FROM chunk_t"
			" WHERE record_n = ? ORDER BY n",
			"i", row);
	if (rc)
		return rc;
	while (!rc && (got = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct jm_chunk chunk;

		if (reader->wants && !reader->wants(reader->arg, sqlite3_column_int(stmt, 0)))
			continue;
		jm__store_chunk(stmt, &chunk);
		rc = reader->take(reader->arg, &chunk, err);
	}
	if (!rc && got != SQLITE_DONE)
		rc = jm__store_fail(s, got, "reading a trace", err);
	sqlite3_finalize(stmt);
	return rc;
}

static int add_chunk(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	return jm_trace_add_chunk(arg, chunk, err);
}

int jm_store_trace(struct jm_store *s, const char *case_id, int repeat,
	struct jm_meters *ret_meters, struct jm_trace **ret_trace, struct jm_err *err)
{
	struct jm_chunk_reader reader = {.take = add_chunk};
	struct jm_trace *trace;
	int rc = jm_store_signals(s, case_id, repeat, ret_meters, err);

	if (rc)
		return rc;
	reader.arg = trace = jm_trace_new(ret_meters, err);
	rc = trace ? jm_store_chunks(s, case_id, repeat, &reader, err) : err->code;
	if (rc) {
		jm_trace_free(trace);
		jm_meters_done(ret_meters);
		return rc;
	}
	*ret_trace = trace;
	return 0;
}
