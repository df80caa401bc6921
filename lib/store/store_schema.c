/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables and the documented views. Tables are named *_t and may change with the schema version
 * (PRAGMA user_version); the views stay. The views of a file are for other programs: joulemark
 * itself makes its own for a query, so that those of a file of unknown origin, or of an older
 * joulemark, do not matter.
 */
#include "store/store_schema.h"
#include "store/store_sql.h"

#include <stdio.h>
#include <string.h>

#include "base/printable.h"
#include "result/record_keys.h"

static const char tables[] =
	"CREATE TABLE plan_t ("
	"  n INTEGER PRIMARY KEY AUTOINCREMENT,"
	"  key TEXT NOT NULL UNIQUE,"
	"  plan TEXT NOT NULL);"

	/* n: the case's place in the order of all plans */
	"CREATE TABLE case_t ("
	"  n INTEGER PRIMARY KEY,"
	"  id TEXT NOT NULL UNIQUE,"
	"  parameters TEXT NOT NULL);"

	"CREATE TABLE record_t ("
	"  n INTEGER PRIMARY KEY,"
	"  case_n INTEGER NOT NULL REFERENCES case_t(n),"
	"  repeat INTEGER NOT NULL,"
	"  status TEXT NOT NULL CHECK (status IN ('running', 'ok', 'failed')),"
	"  attempt INTEGER NOT NULL,"
	"  started TEXT,"
	"  workload TEXT,"
	"  record TEXT,"
	"  UNIQUE (case_n, repeat));"
	"CREATE INDEX record_status ON record_t(status);"
	"CREATE INDEX record_started ON record_t(started);"
	"CREATE INDEX record_workload ON record_t(workload);"

	/* what the signals of a record's trace are: meters as JSON, signals inside, in their
	 * order */
	"CREATE TABLE trace_t ("
	"  record_n INTEGER PRIMARY KEY REFERENCES record_t(n),"
	"  meters TEXT NOT NULL);"

	/* a piece of one signal's readings, changes only; the code is described in trace.c */
	"CREATE TABLE chunk_t ("
	"  n INTEGER PRIMARY KEY,"
	"  record_n INTEGER NOT NULL REFERENCES record_t(n),"
	"  signal INTEGER NOT NULL,"
	"  t0_ns INTEGER NOT NULL,"
	"  t1_ns INTEGER NOT NULL,"
	"  readings INTEGER NOT NULL,"
	"  data BLOB NOT NULL);"
	"CREATE INDEX chunk_record ON chunk_t(record_n);";

static const char two_views[] =
	"CREATE %sVIEW cases AS"
	"  SELECT id AS case_id, parameters FROM case_t ORDER BY n;"

	"CREATE %sVIEW records AS"
	"  SELECT c.id AS case_id, r.repeat, r.status, r.attempt, r.started, r.record"
	"  FROM record_t r JOIN case_t c ON c.n = r.case_n"
	"  WHERE r.status <> 'running' ORDER BY c.n, r.repeat;";

/* The view `results`: what the view `records` has, three sums over lists, and each key of a record
 * that is a column. */
static const char results_head[] =
	"CREATE %sVIEW results AS SELECT case_id, repeat, status, started,"
	"  (SELECT group_concat(key || '=' || value, ' ')"
	"    FROM json_each(record, '$.case.parameters.options')) AS options,"
	"  (SELECT group_concat(key || '=' || value, ' ')"
	"    FROM json_each(record, '$.case.parameters.settings')) AS settings,"
	"  (SELECT group_concat(DISTINCT json_extract(value, '$.state'))"
	"    FROM json_each(record, '$.settings')) AS setting_state";

static void add_column(void *arg, const char *path, const struct jm_key *key)
{
	static const char *const there[] = {"case_id", "repeat", "status", "started"};
	sqlite3_str *sql = arg;

	for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++)
		if (!strcmp(there[i], key->column))
			return;
	sqlite3_str_appendf(sql, ", json_extract(record, '$.%s') AS %s", path, key->column);
}

char *jm__store_schema(bool own_views)
{
	const char *own = own_views ? "TEMP " : "";
	sqlite3_str *sql = sqlite3_str_new(NULL);

	if (!own_views)
		sqlite3_str_appendall(sql, tables);
	sqlite3_str_appendf(sql, two_views, own, own);
	sqlite3_str_appendf(sql, results_head, own);
	jm_keys_columns(jm_record_keys, add_column, sql);
	sqlite3_str_appendall(sql, " FROM records;");
	return sqlite3_str_finish(sql);
}

/* ---- the schema of a file of unknown origin ---- */

static int differs(const struct jm_store *s, const char *what, const char *type, const char *name,
	struct jm_err *err)
{
	char known[80];

	snprintf(known, sizeof(known), "%s", name);
	jm_text_tame(known);
	return jm_err_set(err, JM_EFORMAT,
		"The store '%s' is not as joulemark makes it: its %s '%s' %s. It was not changed; "
		"give another file to --store, or find out in 'sqlite3 %s .schema' who changed it.",
		s->path, type, known, what, s->path);
}

/* One row of sqlite_schema. */
struct part {
	const char *type, *name, *table, *sql;
};

static struct part part_of(sqlite3_stmt *row)
{
	const char *text[4];

	for (int i = 0; i < 4; i++) {
		text[i] = (const char *)sqlite3_column_text(row, i);
		text[i] = text[i] ? text[i] : "";
	}
	return (struct part){text[0], text[1], text[2], text[3]};
}

#define PARTS "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type <> 'view'"

/* The part of the file of that name is exactly this one. */
static int check_own(struct jm_store *s, const struct part *own, struct jm_err *err)
{
	sqlite3_stmt *row;
	int rc = jm__store_prepare(s, &row, err,
		"SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name = ? COLLATE NOCASE",
		"s", own->name);
	struct part there;

	if (rc)
		return rc;
	rc = sqlite3_step(row);
	if (rc != SQLITE_ROW) {
		rc = rc == SQLITE_DONE ? differs(s, "is missing", own->type, own->name, err)
				       : jm__store_fail(s, rc, "reading its schema", err);
	} else {
		there = part_of(row);
		rc = strcmp(there.type, own->type) || strcmp(there.table, own->table) ||
				     strcmp(there.sql, own->sql)
			     ? differs(s, "is another one", own->type, own->name, err)
			     : 0;
	}
	sqlite3_finalize(row);
	return rc;
}

static bool is_one_of(sqlite3_stmt *own, const char *name)
{
	bool found = false;

	sqlite3_reset(own);
	while (!found && sqlite3_step(own) == SQLITE_ROW)
		found = !strcmp(part_of(own).name, name);
	return found;
}

/* A trigger, or an index of our tables, that this program does not make would act when it
 * writes. */
static int check_others(struct jm_store *s, sqlite3_stmt *own, struct jm_err *err)
{
	sqlite3_stmt *row;
	int got, rc = jm__store_prepare(s, &row, err, PARTS " AND sql IS NOT NULL", "");

	if (rc)
		return rc;
	while (!rc && (got = sqlite3_step(row)) == SQLITE_ROW) {
		struct part there = part_of(row);

		if (!strcmp(there.type, "trigger") ||
			(!strcmp(there.type, "index") && is_one_of(own, there.table) &&
				!is_one_of(own, there.name)))
			rc = differs(
				s, "was added by another program", there.type, there.name, err);
	}
	if (!rc && got != SQLITE_DONE)
		rc = jm__store_fail(s, got, "reading its schema", err);
	sqlite3_finalize(row);
	return rc;
}

static int check_parts(
	struct jm_store *s, sqlite3_stmt *own, enum jm_store_mode mode, struct jm_err *err)
{
	int rc = 0;

	while (!rc && sqlite3_step(own) == SQLITE_ROW) {
		struct part part = part_of(own);

		if (strncmp(part.name, "sqlite_", 7) != 0)
			rc = check_own(s, &part, err);
	}
	if (!rc && mode != JM_STORE_READ)
		rc = check_others(s, own, err);
	return rc;
}

int jm__store_check_schema(struct jm_store *s, enum jm_store_mode mode, struct jm_err *err)
{
	sqlite3_stmt *own = NULL;
	sqlite3 *db = NULL;
	int rc = sqlite3_open(":memory:", &db);

	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, tables, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v2(db, PARTS, -1, &own, NULL);
	if (rc == SQLITE_OK)
		rc = check_parts(s, own, mode, err);
	else
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the schema of a store.");
	sqlite3_finalize(own);
	sqlite3_close(db);
	return rc;
}
