# SPDX-License-Identifier: Apache-2.0
"""joulemark merge and check: several stores in one, and an exit status by grade."""
import shutil
import sqlite3

import pytest

from damage import make_store
from jm import FAILURE, USAGE, jm, sentence
from reports import records, summary, write


def run_sim(store, *words):
    done = jm("run", "sim", "--device", "sim:h100x1", "--seconds", 1, "--store", store, *words)
    assert done.returncode == 0, done.stderr


def rows(store, sql):
    db = sqlite3.connect(store)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


TRACE = ("SELECT c.id, k.signal, k.t0_ns, k.t1_ns, k.readings, hex(k.data) FROM chunk_t k JOIN record_t r ON r.n = "
         "k.record_n JOIN case_t c ON c.n = r.case_n ORDER BY 1, 2, 3, 6")
METERS = ("SELECT c.id, t.meters FROM trace_t t JOIN record_t r ON r.n = t.record_n JOIN case_t c ON c.n = r.case_n "
          "ORDER BY 1, 2")


def test_records_and_traces_of_both_are_there(tmp_path):
    a, b, out = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "out.db"
    run_sim(a, "--set", "gpu.power=300W", "--repeat", 2)
    run_sim(b, "--set", "gpu.power=400W", "--repeat", 3)
    done = jm("merge", out, a, b)
    assert done.returncode == 0 and "10 records added, 0 already there" in done.stdout, done.stderr
    for sql in (TRACE, METERS):
        assert rows(out, sql) == sorted(rows(a, sql) + rows(b, sql)) and rows(out, sql)
    assert rows(out, "PRAGMA integrity_check") == [("ok",)]
    both = summary(a, b)
    assert summary(out)["cases"] and len(summary(out)["cases"]) == len(both["cases"])


def test_a_refused_store_leaves_no_result_behind(tmp_path):
    """Of another version, of another program, or not there: nothing is made."""
    good, newer, foreign, out = (tmp_path / n for n in ("good.db", "newer.db", "foreign.db", "out.db"))
    make_store(good)
    shutil.copy(good, newer)
    for path, statement in ((newer, "PRAGMA user_version = 999"), (foreign, "CREATE TABLE other (a)")):
        db = sqlite3.connect(path)
        db.execute(statement)
        db.commit()
        db.close()
    for path, words in ((newer, "newer joulemark"), (foreign, "not a store"), (tmp_path / "none.db", "is not there")):
        before = sorted(p.name for p in tmp_path.iterdir())
        assert words in sentence(jm("merge", out, good, path))
        assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_copy_counts_once(tmp_path):
    a, copy, out = tmp_path / "a.db", tmp_path / "copy.db", tmp_path / "out.db"
    make_store(a)
    n = len(rows(a, "SELECT 1 FROM records"))
    shutil.copy(a, copy)
    assert f"{n} records added, {n} already there" in jm("merge", out, a, copy).stdout
    assert f"0 records added, {2 * n} already there" in jm("merge", out, a, copy).stdout
    assert rows(out, "SELECT * FROM records") == rows(a, "SELECT * FROM records")


def test_another_run_of_the_same_case_is_one_more_repeat(tmp_path):
    a, b, out = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "out.db"
    run_sim(a)
    shutil.copy(a, b)
    db = sqlite3.connect(b)
    db.execute("UPDATE record_t SET record = json_set(record, '$.started', '2001-02-03T04:05:06.000Z')")
    db.commit()
    db.close()
    for _ in range(2):  # the second time finds both, though one has another number now
        assert jm("merge", out, a, b).returncode == 0
        assert rows(out, "SELECT repeat, json_extract(record, '$.case.repeat') FROM records") == [(1, 1), (2, 2)]
    assert rows(out, "SELECT count(*) FROM trace_t") == [(2,)]


def test_a_damaged_record_is_not_merged(tmp_path):
    a, out = tmp_path / "a.db", tmp_path / "out.db"
    make_store(a)
    n = len(rows(a, "SELECT 1 FROM records"))
    db = sqlite3.connect(a)
    db.execute("UPDATE record_t SET record = substr(record, 1, 40) WHERE n = 2")
    db.commit()
    db.close()
    done = jm("merge", out, a)
    assert done.returncode == 1 and f"{n - 1} records added" in done.stdout and "Omitted: " in done.stderr


def test_merge_refuses_what_is_no_store(tmp_path):
    a, text = tmp_path / "a.db", tmp_path / "text"
    make_store(a)
    text.write_text("x")
    before = a.read_bytes()
    assert "not a store" in sentence(jm("merge", text, a), USAGE) and text.read_text() == "x"
    assert "not a store" in sentence(jm("merge", tmp_path / "o.db", text), FAILURE)
    assert "not there" in sentence(jm("merge", tmp_path / "o.db", tmp_path / "none.db"), FAILURE)
    assert "both" in sentence(jm("merge", a, a), USAGE)
    assert not (tmp_path / "o.db").exists() and a.read_bytes() == before


@pytest.mark.parametrize("grade, wanted, status", [
    ("A", None, 0), ("C", None, 0), ("D", None, 1), ("none", None, 1), ("B", "A", 1), ("B", "B", 0), ("none", "none", 0),
])
def test_check_tells_by_the_grade(tmp_path, grade, wanted, status):
    r = records(n=7)[-1]
    r.update(status="ok", reason=None, quality={"grade": grade, "reasons": ["The meter is slow."]})
    done = jm("check", write(tmp_path, [r]), *(["--at-least", wanted] if wanted else []))
    assert done.returncode == status and f"grade {grade}" in done.stdout and "The meter is slow." in done.stdout


def test_check_fails_for_the_worst_of_several(tmp_path):
    several = records(n=3)
    for r, grade in zip(several, "ABD"):
        r.update(status="ok", quality={"grade": grade, "reasons": []})
    assert jm("check", write(tmp_path, several)).returncode == 1
    assert jm("check", write(tmp_path, several[:2])).returncode == 0
    several[0].update(status="failed", reason="It broke.")
    done = jm("check", write(tmp_path, several[:2]))
    assert done.returncode == 1 and "It broke." in done.stdout and "1 of 2 records" in done.stdout
    several[0]["meters"] = 3
    assert jm("check", write(tmp_path, several[:2])).returncode == 1
    assert "no record" in sentence(jm("check", write(tmp_path, [])), FAILURE)
