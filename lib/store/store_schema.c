/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables and the documented views. Tables are named *_t and may change with the schema version
 * (PRAGMA user_version); the views stay.
 */
#include "store/store_db.h"

#include <string.h>

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

	/* what the signals of a record's trace are: meters as JSON, signals inside, in their order */
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
	"CREATE INDEX chunk_record ON chunk_t(record_n);"

	"CREATE VIEW cases AS"
	"  SELECT id AS case_id, parameters FROM case_t ORDER BY n;"

	"CREATE VIEW records AS"
	"  SELECT c.id AS case_id, r.repeat, r.status, r.attempt, r.started, r.record"
	"  FROM record_t r JOIN case_t c ON c.n = r.case_n"
	"  WHERE r.status <> 'running' ORDER BY c.n, r.repeat;";

/* The view `results`: what the view `records` has, three sums over lists, and each key of a record that is a
 * column. */
static const char results_head[] =
	"CREATE VIEW results AS SELECT case_id, repeat, status, started,"
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

char *jm__store_schema(void)
{
	sqlite3_str *sql = sqlite3_str_new(NULL);

	sqlite3_str_appendall(sql, tables);
	sqlite3_str_appendall(sql, results_head);
	jm_keys_columns(jm_record_keys, add_column, sql);
	sqlite3_str_appendall(sql, " FROM records;");
	return sqlite3_str_finish(sql);
}
