/* SPDX-License-Identifier: Apache-2.0 */
/* Plans, cases and records in the store. */
#include "result/record_keys.h"
#include "base/text/keys_read.h"
#include "store/store_run.h"
#include "store/store.h"
#include "store/store_db.h"
#include "store/store_sql.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define DUMP (JSON_COMPACT | JSON_REAL_PRECISION(15))

/* sql takes the texts a, b (may be NULL) and the JSON, in this order. */
static int write_json(struct jm_store *s, const char *doing, const char *sql, const char *a,
	const json_t *json, struct jm_err *err)
{
	char *text = json_dumps(json, DUMP);
	int rc;

	if (!text)
		return jm_err_set(
			err, JM_ENOMEM, "Out of memory for %s in the store '%s'.", doing, s->path);
	rc = jm__store_do(s, doing, err, sql, "ss", a, text);
	free(text);
	return rc;
}

int jm_store_add_plan(struct jm_store *s, const char *key, const json_t *plan, struct jm_err *err)
{
	int rc = jm__store_transaction(s, err);

	if (rc)
		return rc;
	return write_json(s, "storing the plan",
		"INSERT OR REPLACE INTO plan_t(key, plan) VALUES (?, ?)", key, plan, err);
}

int jm_store_add_case(
	struct jm_store *s, const char *case_id, const json_t *parameters, struct jm_err *err)
{
	int rc = jm__store_transaction(s, err);

	if (rc)
		return rc;
	return write_json(s, "storing a case",
		"INSERT INTO case_t(id, parameters) VALUES (?, ?) ON CONFLICT DO NOTHING", case_id,
		parameters, err);
}

/* Parses column 0 of a row; reader: NULL = the text is no record. */
static int column_json(struct jm_store *s, sqlite3_stmt *stmt, struct jm_keys_reader *reader,
	json_t **ret, struct jm_err *err)
{
	const char *text = (const char *)sqlite3_column_text(stmt, 0);
	size_t n = (size_t)sqlite3_column_bytes(stmt, 0);
	json_t *json = NULL;

	if (text)
		json = reader ? jm_keys_read(reader, text, n) : json_loadb(text, n, 0, NULL);
	if (!json)
		return jm__store_fail(s, SQLITE_CORRUPT, "reading JSON", err);
	*ret = json;
	return 0;
}

static int one_json(struct jm_store *s, sqlite3_stmt *stmt, json_t **ret, struct jm_err *err)
{
	int rc = sqlite3_step(stmt);

	if (rc == SQLITE_ROW)
		rc = column_json(s, stmt, NULL, ret, err);
	else if (rc == SQLITE_DONE)
		rc = jm_err_set(err, JM_ENOENT,
			"The store '%s' holds no plan; give the whole command.", s->path);
	else
		rc = jm__store_fail(s, rc, "reading the plan", err);
	sqlite3_finalize(stmt);
	return rc;
}

int jm_store_last_plan(struct jm_store *s, json_t **ret_plan, struct jm_err *err)
{
	sqlite3_stmt *stmt;
	int rc = jm__store_prepare(
		s, &stmt, err, "SELECT plan FROM plan_t ORDER BY n DESC LIMIT 1", "");

	return rc ? rc : one_json(s, stmt, ret_plan, err);
}

int jm_store_plan(struct jm_store *s, const char *key, json_t **ret_plan, struct jm_err *err)
{
	sqlite3_stmt *stmt;
	int rc =
		jm__store_prepare(s, &stmt, err, "SELECT plan FROM plan_t WHERE key = ?", "s", key);

	return rc ? rc : one_json(s, stmt, ret_plan, err);
}

int jm_store_plans(struct jm_store *s, int (*fn)(void *arg, const json_t *plan, struct jm_err *err),
	void *arg, struct jm_err *err)
{
	sqlite3_stmt *stmt;
	int step, rc = jm__store_prepare(s, &stmt, err, "SELECT plan FROM plan_t ORDER BY n", "");

	if (rc)
		return rc;
	while (!rc && (step = sqlite3_step(stmt)) != SQLITE_DONE) {
		json_t *plan = NULL;

		rc = step == SQLITE_ROW ? column_json(s, stmt, NULL, &plan, err)
					: jm__store_fail(s, step, "reading the plans", err);
		if (!rc)
			rc = fn(arg, plan, err);
		json_decref(plan);
	}
	sqlite3_finalize(stmt);
	return rc;
}

int jm__store_row(
	struct jm_store *s, const char *case_id, int repeat, sqlite3_int64 *ret, struct jm_err *err)
{
	*ret = 0;
	return jm__store_number(s, ret, err,
		"SELECT r.n FROM record_t r JOIN case_t c ON c.n = r.case_n"
		" WHERE c.id = ? AND r.repeat = ?",
		"si", case_id, (sqlite3_int64)repeat);
}

int jm_store_begin(struct jm_store *s, const char *case_id, int repeat, struct jm_err *err)
{
	const char *const doing = "starting a run";
	sqlite3_int64 row = 0;
	int rc = jm__store_transaction(s, err);

	s->run = 0;
	if (!rc)
		rc = jm__store_do(s, doing, err,
			"INSERT INTO record_t(case_n, repeat, status, attempt)"
			" SELECT n, ?2, 'running', 1 FROM case_t WHERE id = ?1"
			" ON CONFLICT DO UPDATE SET status = 'running', attempt = attempt + 1",
			"si", case_id, (sqlite3_int64)repeat);
	if (!rc)
		rc = jm__store_row(s, case_id, repeat, &row, err);
	if (!rc && !row)
		rc = jm_err_set(err, JM_EBUG, "The case %s was run before it was stored.", case_id);
	if (!rc)
		rc = jm__store_do(
			s, doing, err, "DELETE FROM chunk_t WHERE record_n = ?", "i", row);
	if (!rc)
		rc = jm__store_do(
			s, doing, err, "DELETE FROM trace_t WHERE record_n = ?", "i", row);
	if (!rc)
		rc = jm_store_commit(s, err);
	if (!rc)
		s->run = row;
	return rc;
}

int jm_store_last_repeat(
	struct jm_store *s, const char *case_id, int *ret_repeat, struct jm_err *err)
{
	sqlite3_int64 repeat = 0;
	int rc = jm__store_number(s, &repeat, err,
		"SELECT coalesce(max(r.repeat), 0) FROM record_t r"
		" JOIN case_t c ON c.n = r.case_n WHERE c.id = ?",
		"s", case_id);

	if (!rc)
		*ret_repeat = (int)repeat;
	return rc;
}

int jm_store_add_run(struct jm_store *s, const char *case_id, int *ret_repeat, struct jm_err *err)
{
	int repeat = 0, rc = jm__store_transaction(s, err);

	s->run = 0;
	if (!rc)
		rc = jm_store_last_repeat(s, case_id, &repeat, err);
	repeat++;
	if (!rc)
		rc = jm__store_do(s, "starting a run", err,
			"INSERT INTO record_t(case_n, repeat, status, attempt)"
			" SELECT n, ?2, 'running', 1 FROM case_t WHERE id = ?1",
			"si", case_id, (sqlite3_int64)repeat);
	if (!rc)
		rc = jm__store_row(s, case_id, repeat, &s->run, err);
	if (!rc)
		*ret_repeat = repeat;
	return rc;
}

int jm_store_finish(struct jm_store *s, const json_t *record, struct jm_err *err)
{
	const char *status = json_string_value(json_object_get(record, "status"));
	const char *started = json_string_value(json_object_get(record, "started"));
	const char *workload = json_string_value(json_object_get(record, "workload"));
	char *text;
	int rc;

	if (!s->run || !status || (strcmp(status, "ok") && strcmp(status, "failed")))
		return jm_err_set(err, JM_EBUG, "A record without a run or a status was stored.");
	text = json_dumps(record, DUMP);
	if (!text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a record.");
	rc = jm__store_transaction(s, err);
	if (!rc)
		rc = jm__store_do(s, "storing a record", err,
			"UPDATE record_t SET status = ?, started = ?, workload = ?, record = ?"
			" WHERE n = ?",
			"ssssi", status, started, workload, text, s->run);
	free(text);
	s->run = 0;
	return rc ? rc : jm_store_commit(s, err);
}

/* record: NULL = it is not JSON */
static int check_record(const struct jm_store *s, const char *case_id, int repeat,
	const json_t *record, struct jm_err *err)
{
	char what[PATH_MAX + 64];

	snprintf(what, sizeof(what), "the record of case %.32s, repeat %d, in the store '%s'",
		case_id ? case_id : "?", repeat, s->path);
	if (!record)
		return jm_err_set(err, JM_EFORMAT, "The store is damaged: %s is not JSON.", what);
	return jm_record_check(record, what, err);
}

bool jm__store_record_is_good(struct jm_store *s, const char *text, const char *case_id, int repeat)
{
	struct jm_err damage = JM_ERR_INIT;
	json_t *record = text ? json_loads(text, 0, NULL) : NULL;
	bool good = !check_record(s, case_id, repeat, record, &damage);

	json_decref(record);
	if (!good && s->damaged)
		s->damaged(s->damaged_arg, &damage);
	return good;
}

void jm_store_skip_damaged(
	struct jm_store *s, void (*fn)(void *arg, struct jm_err *damage), void *arg)
{
	s->damaged = fn;
	s->damaged_arg = arg;
}

/* Reads the row; *ret_record is NULL for one that is damaged and passed over. */
static int read_record(struct jm_store *s, sqlite3_stmt *stmt, struct jm_keys_reader *reader,
	json_t **ret_record, struct jm_err *err)
{
	const char *id = (const char *)sqlite3_column_text(stmt, 1);
	int repeat = sqlite3_column_int(stmt, 2), rc;
	struct jm_err damage = JM_ERR_INIT;

	*ret_record = NULL;
	if (!s->damaged) {
		rc = column_json(s, stmt, reader, ret_record, err);
		return rc ? rc : check_record(s, id, repeat, *ret_record, err);
	}
	if (column_json(s, stmt, reader, ret_record, &damage))
		damage = (struct jm_err)JM_ERR_INIT;
	if (!check_record(s, id, repeat, *ret_record, &damage))
		return 0;
	s->damaged(s->damaged_arg, &damage);
	json_decref(*ret_record);
	*ret_record = NULL;
	return 0;
}

static int each_record(struct jm_store *s, sqlite3_stmt *stmt, struct jm_keys_reader *reader,
	int (*fn)(void *arg, json_t *record, struct jm_err *err), void *arg, struct jm_err *err)
{
	int rc = 0, got;

	while ((got = sqlite3_step(stmt)) == SQLITE_ROW && !rc) {
		json_t *record;

		rc = read_record(s, stmt, reader, &record, err);
		if (!rc && record)
			rc = fn(arg, record, err);
		json_decref(record);
	}
	if (!rc && got != SQLITE_DONE)
		rc = jm__store_fail(s, got, "reading its records", err);
	return rc;
}

int jm_store_records(struct jm_store *s, bool brief,
	int (*fn)(void *arg, json_t *record, struct jm_err *err), void *arg, struct jm_err *err)
{
	struct jm_keys_reader *reader;
	sqlite3_stmt *stmt;
	int rc = jm__store_prepare(s, &stmt, err,
		"SELECT r.record, c.id, r.repeat FROM record_t r JOIN case_t c ON c.n = r.case_n"
		" WHERE r.status <> 'running' ORDER BY c.n, r.repeat",
		"");

	if (rc)
		return rc;
	reader = jm_keys_reader_new(jm_record_keys, brief);
	if (reader)
		rc = each_record(s, stmt, reader, fn, arg, err);
	else
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for reading records.");
	jm_keys_reader_free(reader);
	sqlite3_finalize(stmt);
	return rc;
}

int jm_store_record(struct jm_store *s, const char *case_id, int repeat, json_t **ret_record,
	struct jm_err *err)
{
	sqlite3_stmt *stmt;
	int rc = jm__store_prepare(s, &stmt, err,
		"SELECT r.record, c.id, r.repeat FROM record_t r JOIN case_t c ON c.n = r.case_n"
		" WHERE c.id = ? AND r.repeat = ? AND r.status <> 'running'",
		"si", case_id, (sqlite3_int64)repeat);

	*ret_record = NULL;
	if (rc)
		return rc;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		rc = read_record(s, stmt, NULL, ret_record, err);
	else
		rc = rc == SQLITE_DONE ? 0 : jm__store_fail(s, rc, "reading a record", err);
	sqlite3_finalize(stmt);
	return rc;
}
