/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables and the documented views. Tables are named *_t and may change with the schema version
 * (PRAGMA user_version); the views stay.
 */
#include "store/store_db.h"

const char jm__store_schema[] =
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
	"  WHERE r.status <> 'running' ORDER BY c.n, r.repeat;"

	"CREATE VIEW results AS SELECT case_id, repeat, status,"
	"  json_extract(record, '$.reason') AS reason,"
	"  json_extract(record, '$.workload') AS workload,"
	"  json_extract(record, '$.device') AS device,"
	"  json_extract(record, '$.precision') AS precision,"
	"  (SELECT group_concat(key || '=' || value, ' ')"
	"    FROM json_each(record, '$.case.parameters.options')) AS options,"
	"  (SELECT group_concat(key || '=' || value, ' ')"
	"    FROM json_each(record, '$.case.parameters.settings')) AS settings,"
	"  (SELECT group_concat(DISTINCT json_extract(value, '$.state'))"
	"    FROM json_each(record, '$.settings')) AS setting_state,"
	"  json_extract(record, '$.case.reference') AS reference,"
	"  json_extract(record, '$.case.block') AS block,"
	"  json_extract(record, '$.case.position') AS position,"
	"  json_extract(record, '$.case.seed') AS seed,"
	"  json_extract(record, '$.unit') AS unit,"
	"  json_extract(record, '$.items') AS items,"
	"  json_extract(record, '$.throughput') AS throughput_per_s,"
	"  json_extract(record, '$.throughput_per_device') AS throughput_per_device_per_s,"
	"  json_extract(record, '$.devices') AS devices,"
	"  json_extract(record, '$.wall_s') AS wall_s,"
	"  json_extract(record, '$.total.joules_measured') AS joules_measured,"
	"  json_extract(record, '$.total.joules_estimated') AS joules_estimated,"
	"  json_extract(record, '$.total.joules_simulated') AS joules_simulated,"
	"  json_extract(record, '$.loss_first') AS loss_first,"
	"  json_extract(record, '$.loss_last') AS loss_last,"
	"  json_extract(record, '$.verified') AS verified,"
	"  json_extract(record, '$.quality.grade') AS grade,"
	"  json_extract(record, '$.provenance.host') AS host,"
	"  started"
	"  FROM records;";
