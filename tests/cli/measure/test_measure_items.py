# SPDX-License-Identifier: Apache-2.0
"""joulemark measure: phases and items by marks, and by the output of the command."""
import fcntl
import json
import os
import pathlib
import subprocess
import tempfile
import time

import pytest

from jm import BIN, FAILURE, jm, sentence
from measured import check, record_of


def test_marks_become_phases():
    script = (f"sleep 0.2; '{BIN}' mark train; sleep 0.5; '{BIN}' mark save --items 100; sleep 0.2")
    record = record_of("--source", "estimate:0,20", "--", "sh", "-c", script)
    phases = {p["name"]: p for p in record["phases"]}
    assert set(phases) == {"command", "train", "save"}
    train, whole = phases["train"], phases["command"]
    length = train["end_s"] - train["start_s"]
    assert 0.45 < length < whole["end_s"] - whole["start_s"] - 0.39 and train["items"] == 100  # two sleeps are outside
    assert train["total"]["joules_estimated"] == pytest.approx(20 * length, rel=0.1)
    assert record["items"] == 100
    assert record["throughput"] == pytest.approx(100 / length, rel=0.01)
    assert phases["save"]["items"] is None


def test_a_phase_that_counts_itself_ends_with_its_last_count():
    script = f"'{BIN}' mark settle; sleep 0.2; '{BIN}' mark settle --items 5; sleep 0.8; '{BIN}' mark end"
    record = record_of("--source", "estimate:0,20", "--", "sh", "-c", script)
    names = [p["name"] for p in record["phases"]]
    assert names[:3] == ["command", "mark.settle", "end"]  # "settle" is a phase of joulemark's own
    phase = record["phases"][1]
    assert phase["items"] == 5 and phase["end_s"] - phase["start_s"] < record["wall_s"] - 0.7


def test_report_of_marks_speaks_of_one_stretch(tmp_path):
    """Items, seconds and joules of the report are all those of the whole command, of which marks tell a part."""
    path = tmp_path / "r.json"
    script = f"sleep 0.3; '{BIN}' mark train; sleep 0.3; '{BIN}' mark save --items 100; sleep 0.3"
    done = jm("measure", "--source", "estimate:0,20", "--json", path, "--", "sh", "-c", script)
    assert "100 items" in done.stderr and "/s between the first mark and the last" in done.stderr
    record = check(json.loads(path.read_text()))
    assert record["phase"] == "command" and record["throughput"] > 1.5 * 100 / record["wall_s"]
    whole = record["phases"][0]
    seconds, joules = whole["end_s"] - whole["start_s"], whole["total"]["joules_estimated"]
    assert whole["items"] == 100 and record["total"]["joules_estimated"] == joules
    (case,) = json.loads(jm("report", "--format", "json", path).stdout)["cases"]
    values = case["values"]
    assert values["items_per_joule"] == pytest.approx(100 / joules)
    assert values["throughput"] == pytest.approx(100 / seconds)
    assert values["watts_mean"] == pytest.approx(joules / seconds)
    assert values["edp"] == pytest.approx(joules / 100 * seconds / 100)


def test_mark_outside():
    env = {k: v for k, v in os.environ.items() if k != "JM_PROGRESS"}
    done = subprocess.run([BIN, "mark", "x"], env=env, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "measure" in sentence(done, FAILURE)


def test_marks_out_of_order():
    """Of several senders the later one may come first; phases still follow each other."""
    script = """
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
t = time.monotonic_ns()
time.sleep(0.15)
for after, name in ((120, "a"), (60, "b"), (140, "c")):
    s.sendto(f"jm1 {t + after * 1000000} mark {name} 5".encode(), os.environ["JM_PROGRESS"])
"""
    record = record_of("--source", "estimate", "--", "/usr/bin/python3", "-c", script)
    assert all(p["end_s"] >= p["start_s"] for p in record["phases"])


def test_nobody_listens(tmp_path):
    """measure ... 2>&1 | head: the record is there, the status is the command's, which itself may be killed so."""
    path = tmp_path / "r.json"
    read, write = os.pipe()
    os.close(read)
    done = jm("measure", "--source", "estimate", "--json", path, "--", "sh", "-c", "exit 3", stderr=write)
    os.close(write)
    assert done.returncode == 3 and check(json.loads(path.read_text()))["exit_status"] == 3
    record = record_of("--source", "estimate", "--", "sh", "-c", "kill -PIPE $$", status=141)
    assert record["signal"] == 13


def test_items_from_output():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "r.json"
        done = jm("measure", "--source", "estimate", "--json", path, "--items-regex",
                  "([0-9]+) tokens", "--", "sh", "-c", "sleep 0.3; echo 40 tokens; echo 20 tokens")
        assert done.stdout == "40 tokens\n20 tokens\n"
        record = check(json.loads(path.read_text()))
        assert record["items"] == 60
        assert record["throughput"] == pytest.approx(60 / record["wall_s"], rel=0.01)
        done = jm("measure", "--source", "estimate", "--json", path, "--items-json",
                  "result.tokens", "--", "echo", '{"result": {"tokens": 7}}')
        assert check(json.loads(path.read_text()))["items"] == 7


def test_items_of_the_output_reach_phases():
    """Those printed during a phase are its own; what marks tell of the same work is not added."""
    script = (f"echo 5 tokens; sleep 0.3; '{BIN}' mark train; sleep 0.3; echo 40 tokens; sleep 0.2; echo 20 tokens; sleep 0.3; "
              f"'{BIN}' mark save --items 1000; sleep 0.2")
    done = jm("measure", "--source", "estimate", "--json", "/dev/stderr", "--items-regex", "([0-9]+) tokens",
              "--output", os.devnull, "sh", "-c", script)
    record = check(json.loads(done.stderr[done.stderr.index("{"):]))
    items = {p["name"]: p["items"] for p in record["phases"]}
    assert items["command"] == 65 and items["train"] == 60 and items["save"] is None


@pytest.mark.parametrize("args, words", [
    (["--items-json", "tokns"], "did you mean 'tokens'?"),
    (["--items-json", "result.token"], "did you mean 'tokens'?"),
    (["--items-json", "speed"], "found no items"),
    (["--items-regex", "([0-9]+) steps"], "found no items"),
])
def test_items_that_are_not_there(args, words):
    for command in (["measure", "--source", "estimate"], ["run", "--source", "null"]):
        done = jm(*command, *args, "--", "echo", '{"tokens": 7, "result": {"tokens": 7}}')
        assert done.returncode == 0 and words in done.stderr, done.stderr
        assert args[1] in done.stderr


def test_scanned_items_lie_within_the_command(tmp_path):
    """What it printed last still waits for a slow reader when it has ended."""
    path, (out, to) = tmp_path / "r.json", os.pipe()
    fcntl.fcntl(to, fcntl.F_SETPIPE_SZ, 4096)
    child = subprocess.Popen([BIN, "measure", "--source", "estimate", "--json", path, "--items-regex",
                              "([0-9]+) item", "--", "sh", "-c",
                              "echo 1 item; sleep 0.3; yes '1 item' | head -n 8000"],
                             stdout=to, stderr=subprocess.DEVNULL)
    os.close(to)
    time.sleep(0.6)
    while os.read(out, 4096):
        time.sleep(0.02)
    os.close(out)
    assert child.wait(timeout=240) == 0
    record = check(json.loads(path.read_text()))
    phases = {p["name"]: p for p in record["phases"]}
    command, marked = phases["command"], phases["marked"]
    assert record["items"] == 8001
    assert command["start_s"] <= marked["start_s"] <= marked["end_s"] <= command["end_s"]


# ---- files


def test_a_unit_controls_no_terminal(tmp_path):
    """The record has the unit as it was given."""
    unit, file = "a\x1b[31mb\nc", tmp_path / "record.json"
    done = jm("measure", "--source", "estimate:0,20", "--items-regex", "n=([0-9]+)", "--unit", unit, "--json", file, "--",
              "echo", "n=5")
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr and "5 a?[31mb cs" in done.stderr
    assert json.loads(file.read_text())["unit"] == unit
