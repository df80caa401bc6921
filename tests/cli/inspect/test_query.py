# SPDX-License-Identifier: Apache-2.0
"""joulemark query: SELECT on the views of a store gives the result of sqlite3, and nothing is written."""
import csv
import hashlib
import io
import json
import sqlite3

import pytest

from jm import FAILURE, USAGE, jm, sentence


@pytest.fixture(scope="module", name="store")
def make_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("query") / "a.db"
    done = jm("run", "sim", "--device", "sim:h100x2", "--seconds", 1, "--set", "gpu.power=300W,400W", "--repeat", 2,
              "--store", path)
    assert done.returncode == 0, done.stderr
    return path


QUERIES = [
    "SELECT case_id, settings, throughput_per_s, joules_simulated, grade FROM results ORDER BY case_id, repeat",
    "SELECT settings, count(*) AS n, avg(throughput_per_s) FROM results GROUP BY settings ORDER BY settings",
    "SELECT case_id, json_extract(record, '$.case.position') AS position FROM records ORDER BY 1, 2;  ",
    "SELECT c.parameters, r.repeat FROM cases c JOIN records r USING (case_id) ORDER BY 1, 2",
    "WITH t AS (SELECT * FROM results) SELECT max(items), NULL AS missing FROM t",
    "SELECT * FROM results WHERE status = 'failed'",
]


@pytest.mark.parametrize("sql", QUERIES)
def test_rows_are_those_of_sqlite(store, sql):
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as db:
        cursor = db.execute(sql)
        want, names = cursor.fetchall(), [d[0] for d in cursor.description]
    got = json.loads(jm("query", "--format", "json", store, sql).stdout)
    assert len(got) == len(want)
    for row, values in zip(got, want):
        assert list(row) == names
        assert list(row.values()) == [pytest.approx(v) if isinstance(v, float) else v for v in values]
    rows = list(csv.reader(io.StringIO(jm("query", "--format", "csv", store, sql).stdout)))
    assert rows[0] == names and len(rows) == 1 + len(want)
    for row, values in zip(rows[1:], want):
        assert [float(x) if isinstance(v, float) else x for x, v in zip(row, values)] == [
            pytest.approx(v) if isinstance(v, float) else "" if v is None else str(v) for v in values]
    table = jm("query", store, sql)
    assert table.returncode == 0 and names[0] in table.stdout.splitlines()[0]


@pytest.mark.parametrize("sql, said", [
    ("DELETE FROM record_t", "other than SELECT"), ("UPDATE results SET grade = 'A'", ""),
    ("DROP VIEW results", "other than SELECT"), ("PRAGMA user_version = 99", "other than SELECT"),
    ("ATTACH 'other.db' AS o", "other than SELECT"), ("CREATE TABLE x(y)", "other than SELECT"),
    ("SELECT * FROM record_t", "table record_t"), ("SELECT load_extension('x')", "load_extension"),
    ("SELECT 1; DELETE FROM record_t", "more than one"), ("SELECT 1; SELECT 2", "more than one"),
    ("SELECT nothing FROM results", "nothing"), ("SELEC 1", "SELEC"), ("", "not a SELECT"), ("VACUUM", ""),
    ("SELECT json_extract('{', '$.a')", "failed"), ("SELECT * FROM runs", "the views are 'results', 'records' and 'cases'"),
])
def test_all_else_is_refused_and_changes_nothing(store, tmp_path, sql, said):
    before = hashlib.sha256(store.read_bytes()).hexdigest()
    done = jm("query", store, sql, cwd=tmp_path)
    assert said in sentence(done, USAGE) and done.stdout == ""
    assert hashlib.sha256(store.read_bytes()).hexdigest() == before and not list(tmp_path.iterdir())


def test_what_is_no_store(tmp_path):
    (tmp_path / "x").write_text("x")
    sentence(jm("query", tmp_path / "x", "SELECT 1"), FAILURE)
    sentence(jm("query", tmp_path / "none.db", "SELECT 1"), FAILURE)
    assert not (tmp_path / "none.db").exists()
