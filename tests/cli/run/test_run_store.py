# SPDX-License-Identifier: Apache-2.0
"""run: stores and files that are full, not joulemark's, damaged, of another plan, or in a missing folder."""
import json
import os
import pathlib
import shlex
import signal
import sqlite3
import subprocess
import tempfile
import time

import pytest

from jm import BIN, FAILURE, USAGE, jm, sentence
from runs import COMMAND, NULL, comparable, limit_files, query, records, sweep


def test_full_disk_loses_nothing(tmp_path):
    whole, store = tmp_path / "whole.db", tmp_path / "s.db"
    assert sweep(whole).returncode == 0
    done = sweep(store, preexec_fn=limit_files(150_000))
    text = sentence(done, FAILURE)
    assert "finished records are safe" in text
    kept = len(records(store))
    assert 0 < kept < 12
    assert sweep(store).returncode == 0
    assert [comparable(r) for r in records(store)] == [comparable(r) for r in records(whole)]
    assert query(store, "SELECT sum(attempt) FROM records")[0][0] <= 13


def test_full_disk_leaves_the_old_json(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("[1]\n")
    text = sentence(jm(*NULL, "--json", path, preexec_fn=limit_files(1000)), FAILURE)
    assert str(path) in text and path.read_text() == "[1]\n"
    assert os.listdir(tmp_path) == ["r.json"]


def test_full_file_system(tmp_path):
    """The same on a real file system without room; only root may mount one."""
    whole, mount = tmp_path / "whole.db", tmp_path / "small"
    mount.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=500k", "none", mount],
                                      capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small file system")
    try:
        store, ballast = mount / "s.db", mount / "ballast"
        assert sweep(whole).returncode == 0
        ballast.write_bytes(b"x" * 150_000)
        text = sentence(sweep(store), FAILURE)
        assert "finished records are safe" in text
        kept = len(records(store))
        assert 0 < kept < 12
        ballast.unlink()
        done = sweep(store)
        if done.returncode:  # still too small: more room
            subprocess.run(["mount", "-o", "remount,size=4m", mount], check=True)
            done = sweep(store)
        assert done.returncode == 0, done.stderr
        assert [comparable(r) for r in records(store)] == [comparable(r) for r in records(whole)]
    finally:
        subprocess.run(["umount", mount], check=False)


def test_closed_descriptors(tmp_path):
    """What is printed goes nowhere, above all not into the store."""
    store = tmp_path / "s.db"
    script = f'exec "{BIN}" "$@" --store "{store}" <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", script, "sh", "run", "null", "--source", "null", "--steps", "1",
                           "--step-time", "1ms", "--warmup", "0", "--repeat", "100"], timeout=240, check=False)
    assert done.returncode == FAILURE  # for the table could not be printed
    assert len(records(store)) == 100 and query(store, "PRAGMA integrity_check") == [("ok",)]


def test_one_writer(tmp_path):
    store = tmp_path / "s.db"
    child = subprocess.Popen([BIN, *COMMAND, "--store", str(store), "--", "sleep", "30"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while not store.exists() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.2)
        assert "Another joulemark" in sentence(jm(*NULL, "--store", store), FAILURE)
    finally:
        os.kill(child.pid, signal.SIGINT)
        child.wait(timeout=240)


def make_newer(path):
    assert jm(*NULL, "--store", path).returncode == 0
    query(path, "PRAGMA user_version = 99")


def make_foreign(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE mine (x)")
    db.commit()
    db.close()


def make_damaged(path):
    assert jm(*NULL, "--store", path).returncode == 0
    with open(path, "r+b") as f:
        f.seek(4096)
        f.write(b"\xa5" * 8192)


@pytest.mark.parametrize("make, words", [
    (make_newer, "newer joulemark"),
    (make_foreign, "not a store of joulemark"),
    (make_damaged, "is damaged"),
    (lambda path: path.write_text("my notes\n"), "not a store of joulemark"),
    (lambda path: path.mkdir(), "give another file"),
])
def test_bad_store_is_left_alone(tmp_path, make, words):
    store = tmp_path / "s.db"
    make(store)
    before = store.read_bytes() if store.is_file() else None
    assert words in sentence(jm(*NULL, "--store", store), FAILURE)
    if before is not None:
        assert store.read_bytes() == before


def test_a_store_that_others_may_only_read():
    """In their folder a colleague or a snapshot allows no file to be made."""
    other = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        store = pathlib.Path(folder, "s.db")
        assert jm(*NULL, "--store", store).returncode == 0
        store.chmod(0o444)
        os.chmod(folder, 0o555)
        before = store.read_bytes()
        try:
            done = jm("report", store, env={"HOME": "/nowhere"}, **other)
        except PermissionError:
            pytest.skip("this program is not for other users: it lies in a folder of ours")
        finally:
            os.chmod(folder, 0o755)
        assert done.returncode == 0 and done.stdout.startswith("null on cpu"), done.stderr
        assert os.listdir(folder) == ["s.db"] and store.read_bytes() == before


def test_json_never_replaces_a_store(tmp_path):
    store = tmp_path / "s.db"
    assert jm(*NULL, "--store", store).returncode == 0
    before = store.read_bytes()
    for words in (NULL, [*NULL, "--store", tmp_path / "other.db"], ["measure", "--source", "null"],
                  ["describe", "resnet18"]):
        end = ["--", "true"] if words[0] == "measure" else []
        assert "is a store" in sentence(jm(*words, "--json", store, *end), USAGE)
        assert store.read_bytes() == before


@pytest.mark.parametrize("words", [
    ["--steps", "9"], ["--seconds", "1"], ["--seed", "1"], ["--device", "ref"], ["--source", "null"], ["--timeout", "1"],
    ["--set", "gpu.power=300W"], ["--real-time"], ["--interval", "1s"], ["--batch", "3"], ["null"], ["--", "true"]])
def test_resume_takes_the_plan_as_it_is(tmp_path, words):
    """What it would not heed is refused, not ignored."""
    store = tmp_path / "s.db"
    assert jm(*NULL, "--store", store).returncode == 0
    before = records(store)
    text = sentence(jm("run", "--store", store, "--resume", *words), USAGE)
    assert "--resume takes the plan from the store" in text and records(store) == before


@pytest.mark.parametrize("words", [["run", "null", "--source", "null", "--steps", 1, "--store", "-"], ["merge", "-", "a.db"],
                                   ["measure", "--source", "null", "--store", "-", "--", "true"]])
def test_a_store_is_no_standard_output(tmp_path, words):
    assert jm("run", "null", "--source", "null", "--steps", 1, "--store", "a.db", cwd=tmp_path).returncode == 0
    assert "not the standard output '-'" in sentence(jm(*words, cwd=tmp_path), USAGE) and not (tmp_path / "-").exists()


def test_a_store_without_a_folder_is_refused(tmp_path):
    path = tmp_path / "none" / "a.db"
    assert "its folder does not exist" in sentence(jm(*NULL, "--store", path), FAILURE)
    assert f"There is no store '{path}'" in sentence(jm("query", path, "SELECT 1"), FAILURE)


def test_resume_makes_no_store(tmp_path):
    store = tmp_path / "s.db"
    assert str(store) in sentence(jm("run", "--store", store, "--resume"), FAILURE)
    sentence(jm("run", "--store", store, "--resume", "null"), FAILURE)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["plain-1.db", "a b.db", "it's.db", "$HOME.db", "--x.db", "ü.db"])
def test_what_to_do_next_can_be_pasted(tmp_path, name):
    path = f"./{name}" if name.startswith("-") else name
    done = jm(*NULL, "--store", path, cwd=tmp_path)
    line = next(line for line in done.stderr.splitlines() if line.startswith("  joulemark report "))
    assert shlex.split(line) == ["joulemark", "report", path, "--html", "report.html"]
    assert ("'" in line) == (name not in ("plain-1.db", "--x.db"))


def test_unwritable_places():
    assert "/nowhere/s.db" in sentence(jm(*NULL, "--store", "/nowhere/s.db"), FAILURE)
    assert "is a folder" in sentence(jm(*NULL, "--json", "/tmp"), FAILURE)
    assert "/nowhere/r.json" in sentence(jm(*NULL, "--json", "/nowhere/r.json"), FAILURE)


def test_wrong_usage_makes_no_files(tmp_path):
    store, record = tmp_path / "s.db", tmp_path / "r.json"
    for args in (["run", "nul"], ["run", "null", "--step-tim", "1s"], ["run"]):
        sentence(jm(*args, "--store", store, "--json", record), USAGE)
        assert not store.exists() and not record.exists()


@pytest.mark.parametrize("wrong", [
    ["--set", "gpu.powr=300W"], ["--set", "gpu.power=10W"], ["--set", "gpu.power=200:700:100"], ["--nodes", "3"]])
def test_a_refused_call_leaves_no_store(tmp_path, wrong):
    done = jm("run", "sim", "--device", "sim:h100x2", *wrong, "--store", tmp_path / "s.db")
    assert done.returncode == USAGE and os.listdir(tmp_path) == []
    if ":" in wrong[1]:
        assert "did you mean '200:700+100W'" in sentence(done)


def test_a_refused_call_leaves_a_store_that_was_there(tmp_path):
    path = tmp_path / "s.db"
    assert jm("run", "null", "--source", "null", "--store", path).returncode == 0
    before = path.read_bytes()
    done = jm("run", "sim", "--device", "sim:h100x2", "--set", "gpu.powr=300W", "--store", path)
    assert done.returncode == USAGE and path.read_bytes() == before


def test_reading_leaves_no_files(tmp_path):
    """SQLite's log and its index, which a connection that may only read does not remove."""
    path = tmp_path / "s.db"
    assert jm("run", "null", "--source", "null", "--store", path).returncode == 0
    assert os.listdir(tmp_path) == ["s.db"]
    before = path.read_bytes()
    assert jm("report", path).returncode == 0
    assert os.listdir(tmp_path) == ["s.db"] and path.read_bytes() == before


def test_run_takes_a_command_by_its_first_word(tmp_path):
    done = jm("run", "--source", "null", "--json", "-", "echo", "--epochs", "3")
    record = json.loads(done.stdout)
    assert done.returncode == 0 and record["command"] == ["echo", "--epochs", "3"]
    assert "did you mean 'gpt-117m'" in sentence(jm("run", "gpt-117n"), USAGE)
    assert "no workload, model or command 'no-such-command'" in sentence(jm("run", "no-such-command"), USAGE)


def test_caps_of_several_simulated_nodes(tmp_path):
    """Each case sets and records the GPUs of its own node; each node has its reference, and all are restored."""
    path, nodes = tmp_path / "s.db", ("sim:h100x2", "sim:h200x1")
    command = ["run", "sim", "--device", ",".join(nodes), "--set", "gpu.power=300W,500W", "--store", path, "--json", "-"]
    done = jm(*command)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 6  # two caps and what was found, on each
    for r in rows:
        wanted = {"as found": 700}.get(r["case"]["parameters"]["settings"]["gpu.power"])
        wanted = wanted or float(r["case"]["parameters"]["settings"]["gpu.power"].removesuffix("W"))
        assert {s["device"] for s in r["settings"]} == {f"{r['device']}/gpu{i}" for i in range(int(r["device"][-1]))}
        assert {s["enforced"] for s in r["settings"]} == {wanted} and r["case"]["reference"] == (wanted == 700)
    knobs = [k for k in json.loads(jm("get", "--control", ",".join(nodes), "--json").stdout) if k["knob"] == "gpu.power"]
    assert len(knobs) == 3 and {k["enforced"] for k in knobs} == {700}
    assert json.loads(jm("run", "--store", path, "--resume", "--json", "-").stdout) == rows
    assert "simulated nodes and real devices" in sentence(jm(
        "run", "null", "--device", "cpu,sim:h100x2", "--control", nodes[0], "--set", "gpu.power=300W"), USAGE)
