/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the tests of the store share. */
#include "store_case.h"
#include "store/store_run.h"

#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

char store_path[256];

int store_new_path(void **state)
{
	static int n;
	const char *folder = getenv("TMPDIR");

	(void)state;
	snprintf(store_path, sizeof(store_path), "%s/jm-store-%d-%d.db", folder ? folder : "/tmp",
		getpid(), n++);
	unlink(store_path);
	return 0;
}

int store_remove_files(void **state)
{
	char other[300];

	(void)state;
	unlink(store_path);
	snprintf(other, sizeof(other), "%s-wal", store_path);
	unlink(other);
	snprintf(other, sizeof(other), "%s-shm", store_path);
	unlink(other);
	return 0;
}

struct jm_store *store_opened(enum jm_store_mode mode)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_store *s = NULL;
	int rc = jm_store_open(store_path, mode, &s, &err);

	assert_ok(rc, err);
	return s;
}

void store_closed(struct jm_store *s)
{
	struct jm_err err = JM_ERR_INIT;
	int rc = jm_store_close(s, &err);

	assert_ok(rc, err);
}

void store_add_case(struct jm_store *s, const char *id)
{
	struct jm_err err = JM_ERR_INIT;
	json_t *parameters = json_pack("{s:s}", "workload", "null");
	int rc = jm_store_add_case(s, id, parameters, &err);

	assert_ok(rc, err);
	json_decref(parameters);
}

void store_add_record(
	struct jm_store *s, const char *id, int repeat, const char *status, double value)
{
	struct jm_err err = JM_ERR_INIT;
	json_t *record = json_pack("{s:s, s:s, s:f, s:{s:s, s:i}}", "status", status, "started",
		"2026-01-01T00:00:00.000Z", "throughput", value, "case", "id", id, "repeat",
		repeat);
	int rc = jm_store_begin(s, id, repeat, &err);

	assert_ok(rc, err);
	rc = jm_store_finish(s, record, &err);
	assert_ok(rc, err);
	json_decref(record);
}

/* What the file says, read without the store's code; "none" where it has no such run. */
const char *store_state_of(const char *id, int repeat)
{
	static char text[32];
	sqlite3_stmt *stmt;
	sqlite3 *db;

	assert_int_equal(sqlite3_open_v2(store_path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db,
				 "SELECT r.status FROM record_t r JOIN case_t c ON c.n = r.case_n"
				 " WHERE c.id = ? AND r.repeat = ?",
				 -1, &stmt, NULL),
		SQLITE_OK);
	sqlite3_bind_text(stmt, 1, id, -1, SQLITE_STATIC);
	sqlite3_bind_int(stmt, 2, repeat);
	snprintf(text, sizeof(text), "%s",
		sqlite3_step(stmt) == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0)
						 : "none");
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return text;
}

int store_write_order(void *arg, json_t *record, struct jm_err *err)
{
	char *text = arg;
	const json_t *c = json_object_get(record, "case");

	(void)err;
	snprintf(text + strlen(text), 256 - strlen(text), "%s%d ",
		json_string_value(json_object_get(c, "id")),
		(int)json_integer_value(json_object_get(c, "repeat")));
	return 0;
}
