# SPDX-License-Identifier: Apache-2.0
"""A store that is removed, replaced, overwritten, truncated, full, locked or of unknown origin: every record is in it or
in a JSON file beside it, which the message names, and nothing is written into what took its place."""
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from damage import make_store
from jm import BIN, FAILURE, jm, sentence
from runs import NULL, limit_files, query, records

SOURCE = ["--source", "estimate:0,20"]
# what may happen to the store d.db in the folder a, beside which lies other.db
HARMS = {
    "removed": "rm -f d.db d.db-wal d.db-shm", "file removed": "rm -f d.db", "replaced": "mv copy.db d.db",
    "overwritten": "cp other.db d.db", "truncated": ": > d.db", "renamed": "mv d.db e.db",
    "removed and made again": "rm -f d.db d.db-wal d.db-shm; cp other.db d.db", "folder renamed": "mv ../a ../b",
    "folder removed": "rm -rf ../a",
}


@pytest.fixture(name="folder")
def a_folder(tmp_path, monkeypatch):
    """With the store d.db and another one; the current folder is the one above."""
    folder = tmp_path / "a"
    folder.mkdir()
    make_store(folder / "other.db")
    shutil.copy(folder / "other.db", folder / "copy.db")
    monkeypatch.chdir(tmp_path)
    return folder


def kept(done):
    """The records in the file that the message names, which `report` reads."""
    name = re.search(r" in (\S+\.json)\b", done.stderr).group(1)
    found = json.loads(jm("report", "--format", "json", name).stdout)
    with open(name, encoding="utf-8") as file:
        content = json.load(file)
    content = content if isinstance(content, list) else [content]
    assert len(found["cases"]) == len(content) > 0
    return content


def logs(folder):
    return [name for name in os.listdir(folder) if name.startswith("d.db-")]


def untouched(folder, harm):
    """What lies in the store's place is what was put there, with no log of another beside it."""
    if not folder.exists():
        return
    assert not logs(folder)
    wanted = {"truncated": b""}.get(harm, (folder / "other.db").read_bytes())
    if (folder / "d.db").exists():
        assert (folder / "d.db").read_bytes() == wanted


@pytest.mark.parametrize("harm", HARMS)
def test_run_keeps_its_records_when_its_store_is(folder, harm):
    """The second of three cases does it; its record and the first are kept, and the third is not begun."""
    script = f"echo x >>../ran; test $(wc -l <../ran) != 2 || {{ {HARMS[harm]}; }}"
    done = jm("run", *SOURCE, "--repeat", "3", "--store", "a/d.db", "--", "sh", "-c", f"cd a && {script}")
    assert done.returncode == FAILURE and "'a/d.db' was " in sentence(done), done.stderr
    assert (folder.parent / "ran").read_text() == "x\nx\n"
    assert [(r["case"]["repeat"], r["status"]) for r in kept(done)] == [(1, "ok"), (2, "ok")]
    assert "report a/d.db " not in done.stderr and "--resume" not in done.stderr
    untouched(folder, harm)


def test_repeated_runs_are_stored_later_where_the_store_is_locked_meanwhile(folder):
    """By the second run, until the third begins: each run is stored once, in its order."""
    lock = "import sqlite3, time; db = sqlite3.connect('a/d.db'); db.execute('BEGIN IMMEDIATE'); open('locked', 'w'); time.sleep(9)"
    script = ("echo x >>ran; case $(wc -l <ran) in "
              f"2) {shlex.quote(sys.executable)} -c {shlex.quote(lock)} >/dev/null 2>&1 & echo $! >pid; until test -e locked; do sleep 0.01; done;; "
              "3) kill $(cat pid);; esac; sleep 0.3")
    done = jm("measure", *SOURCE, "--repeat", "4", "--store", "a/d.db", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    found = records(folder / "d.db")
    assert [r["case"]["repeat"] for r in found] == [1, 2, 3, 4]
    assert sorted(r["started"] for r in found) == [r["started"] for r in found] and len({r["started"] for r in found}) == 4


# nothing of measure is open while the command runs: what is written into the file meanwhile is the store then
@pytest.mark.parametrize("harm", [harm for harm in HARMS if harm not in ("overwritten", "truncated")])
def test_measure_keeps_its_record_when_its_store_is(folder, harm):
    shutil.copy(folder / "other.db", folder / "d.db")
    done = jm("measure", *SOURCE, "--store", "a/d.db", "--", "sh", "-c", f"cd a && {HARMS[harm]}")
    assert done.returncode == FAILURE and "The store 'a/d.db' " in sentence(done), done.stderr
    assert [r["exit_status"] for r in kept(done)] == [0]
    untouched(folder, harm)


def test_a_removed_log_is_noticed(folder):
    done = jm("run", *SOURCE, "--repeat", "2", "--store", "a/d.db", "--", "rm", "a/d.db-wal", "a/d.db-shm")
    assert done.returncode == FAILURE and "lost its journal" in sentence(done)
    assert len(kept(done)) == 1 and query(folder / "d.db", "PRAGMA integrity_check") == [("ok",)]


def test_a_reader_of_the_old_store_does_not_leave_its_log(folder):
    """A long read keeps the log full; what takes the store's place must not get it."""
    assert jm("run", *SOURCE, "--store", "a/d.db", "--", "true").returncode == 0
    reader = sqlite3.connect(folder / "d.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM records").fetchone()
    done = jm("run", *SOURCE, "--repeat", "2", "--store", "a/d.db", "--", "sh", "-c",
              "echo x >>ran; test $(wc -l <ran) != 2 || mv a/copy.db a/d.db")
    assert done.returncode == FAILURE, done.stderr
    untouched(folder, "replaced")
    assert reader.execute("SELECT count(*) FROM records").fetchone() == (1,)
    reader.close()
    untouched(folder, "replaced")


def test_nothing_of_us_lies_beside_an_idle_store(folder):
    """Between two commits the log is empty, so that what replaces the store then, or a copy of it, is whole."""
    go_on = folder / "go"
    child = subprocess.Popen([BIN, "run", *SOURCE, "--store", "a/d.db", "--", "sh", "-c",
                              f"sleep 1.5; touch {folder}/reached; while ! test -e {go_on}; do sleep 0.05; done"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (folder / "reached").exists():
        time.sleep(0.05)
    sizes = [(folder / "d.db-wal").stat().st_size for _ in range(20) if not time.sleep(0.01)]
    os.kill(child.pid, signal.SIGKILL)
    child.wait(timeout=240)
    go_on.touch()
    assert sorted(sizes)[10] == 0  # a commit may be under way in some


def test_32_measurements_at_once(tmp_path):
    """And the ranks of a job: every one stores its record, as a repeat of its own."""
    store = tmp_path / "t.db"
    children = [subprocess.Popen([BIN, "measure", *SOURCE, "--store", str(store), "--", "sleep", "0.5"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(32)]
    for child in children:
        text = child.communicate(timeout=240)[1]
        assert child.returncode == 0, text
    assert sorted(r["case"]["repeat"] for r in records(store)) == list(range(1, 33))
    assert query(store, "SELECT count(DISTINCT record_n) FROM chunk_t") == [(32,)]
    assert os.listdir(tmp_path) == ["t.db"]


@pytest.fixture(name="locked")
def a_locked_store(tmp_path):
    """By a program with SQLite, which has a transaction open."""
    store = tmp_path / "t.db"
    make_store(store)
    db = sqlite3.connect(store, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    yield store, db
    db.close()


def test_a_lock_delays_no_command(locked, tmp_path):
    """The command starts at once; its record waits, told, and is stored when the lock is gone."""
    store, db = locked
    child = subprocess.Popen([BIN, "measure", *SOURCE, "--store", str(store), "--", "touch", str(tmp_path / "ran")],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = child.stderr.readline()
    assert "Waiting for the store" in said and (tmp_path / "ran").exists()
    before = len(records(store))
    db.execute("COMMIT")
    assert child.wait(timeout=240) == 0
    child.stderr.close()
    assert len(records(store)) == before + 1


def test_a_lock_that_stays_loses_no_record(locked, tmp_path):
    store, _ = locked
    began = time.monotonic()
    done = jm("measure", *SOURCE, "--store", store, "--", "true")
    assert done.returncode == FAILURE and "is locked by another program" in sentence(done)
    assert 8 < time.monotonic() - began
    assert [r["exit_status"] for r in kept(done)] == [0] and (tmp_path / "t.db.1.json").exists()


def test_ctrl_c_ends_the_wait_and_loses_no_record(locked):
    store, _ = locked
    child = subprocess.Popen([BIN, "measure", *SOURCE, "--store", str(store), "--", "true"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert "Waiting" in child.stderr.readline()
    child.send_signal(signal.SIGINT)
    text = child.communicate(timeout=240)[1]
    assert child.returncode == FAILURE and f"The record is in {store}.1.json" in text


@pytest.mark.parametrize("size", [0, 8192, 20_000, 50_000])
@pytest.mark.parametrize("words", [["merge"], NULL, ["measure", *SOURCE]])
def test_a_full_disk_leaves_no_half_store(tmp_path, words, size):
    """Neither an empty file nor SQLite's files alone; the record of a command is in JSON where that fits."""
    store, other = tmp_path / "s.db", tmp_path / "other"
    other.mkdir()
    make_store(other / "o.db")
    words = [*words, store, other / "o.db"] if words == ["merge"] else [*words, "--store", store]
    words = [*words, "--", "true"] if words[0] == "measure" else words
    done = jm(*words, preexec_fn=limit_files(size), cwd=tmp_path, env={"TMPDIR": tmp_path})
    assert done.returncode == FAILURE and "full" in sentence(done), done.stderr
    left = set(os.listdir(tmp_path)) - {"other"}
    assert left == ({"s.db.1.json"} if words[0] == "measure" and size else set())


def test_merge_adds_a_store_whole_or_not_at_all(tmp_path):
    """A store whose trace cannot be read leaves no record without its trace."""
    store, out = tmp_path / "a.db", tmp_path / "out.db"
    make_store(store)
    make_store(out)
    db = sqlite3.connect(store)
    db.execute("UPDATE record_t SET record = json_set(record, '$.started', '2001-02-03T04:05:06.000Z')")
    root, = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'trace_t'").fetchone()
    size, = db.execute("PRAGMA page_size").fetchone()
    db.commit()
    db.close()
    before = query(out, "SELECT * FROM records")
    with open(store, "r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xa5" * size)
    assert jm("merge", out, store).returncode == FAILURE
    assert query(out, "SELECT * FROM records") == before


TRIGGER = "CREATE TRIGGER evil AFTER {} ON record_t BEGIN DELETE FROM record_t WHERE n <> new.n; END"


@pytest.mark.parametrize("statements, said", [
    ([TRIGGER.format("UPDATE")], "its trigger 'evil' was added"),
    ([TRIGGER.format("INSERT")], "its trigger 'evil' was added"),
    (["CREATE INDEX one ON record_t(attempt)"], "its index 'one' was added"),
    (["DROP INDEX record_status"], "its index 'record_status' is missing"),
    (["ALTER TABLE record_t ADD COLUMN mine GENERATED ALWAYS AS (1)"], "its table 'record_t' is another one"),
    (["ALTER TABLE plan_t RENAME TO other", "CREATE VIEW plan_t AS SELECT * FROM other"], "its table 'plan_t' is another one"),
])
def test_a_store_that_others_have_changed_is_not_written(tmp_path, statements, said):
    store = tmp_path / "s.db"
    make_store(store)
    db = sqlite3.connect(store)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()
    before = store.read_bytes()
    for words in (["measure", *SOURCE, "--store", store, "--", "touch", tmp_path / "ran"], [*NULL, "--store", store]):
        assert said in sentence(jm(*words), FAILURE)
    assert store.read_bytes() == before and os.listdir(tmp_path) == ["s.db"]


def test_what_is_read_of_a_changed_store_is_true(tmp_path):
    """Triggers do not run, and views of the file are not used: neither false ones nor those of an older joulemark."""
    store, out = tmp_path / "s.db", tmp_path / "out.db"
    make_store(store)
    truth = jm("query", store, "SELECT status, grade, workload FROM results").stdout
    db = sqlite3.connect(store)
    db.execute(TRIGGER.format("INSERT"))
    db.execute("DROP VIEW results")
    db.execute("CREATE VIEW results AS SELECT 'A' AS grade, 'ok' AS status, 'x' AS workload")
    db.execute("CREATE VIEW mine AS SELECT 1 AS one")
    db.commit()
    db.close()
    assert jm("query", store, "SELECT status, grade, workload FROM results").stdout == truth and "sim" in truth
    assert "uses table mine" in sentence(jm("query", store, "SELECT one FROM mine"))
    assert jm("merge", out, store).returncode == 0
    assert query(out, "SELECT count(*) FROM record_t") == query(store, "SELECT count(*) FROM record_t")


def test_a_record_beside_replaces_no_other(locked, tmp_path):
    store, _ = locked
    (tmp_path / "t.db.1.json").write_text("mine")
    child = subprocess.Popen([BIN, "measure", *SOURCE, "--store", str(store), "--", "true"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    child.stderr.readline()
    child.send_signal(signal.SIGINT)
    assert f"{store}.2.json" in child.communicate(timeout=240)[1]
    assert (tmp_path / "t.db.1.json").read_text() == "mine"
