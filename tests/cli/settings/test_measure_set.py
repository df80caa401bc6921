# SPDX-License-Identifier: Apache-2.0
"""`measure --set`: the value in the driver while the command runs, what the record says of it, and its restoration."""
import contextlib
import json
import os
import signal
import subprocess

import jsonschema
import pytest

from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN, FAILURE, NOT_FOUND, USAGE, jm, sentence
from measured import SCHEMA

FOUND = [700.0, 700.0]


@pytest.fixture
def gpus(tmp_path):
    gpus = FakeGpus(tmp_path, 2, "clocks=1")
    gpus.tmp = tmp_path
    assert run(gpus, "get").returncode == 0 and gpus.limits() == FOUND  # the driver is loaded
    return gpus


def run(gpus, *args, **env):
    return jm(*args, env={**gpus.env, **env})


def measure(gpus, *args, **env):
    return run(gpus, "measure", "--source", "nvml", "--json", gpus.tmp / "record.json", *args, **env)


def record(gpus):
    one = json.loads((gpus.tmp / "record.json").read_text())
    jsonschema.validate(one, SCHEMA)
    return one


def is_back(gpus):
    return gpus.limits() == FOUND and gpus.locked() == [None, None] and not gpus.journals()


def start(gpus, *args):
    """A measurement whose command sleeps, at 300 W and locked clocks."""
    child = subprocess.Popen(
        [BIN, "measure", "--source", "nvml", "--set", "gpu.power=300W", "--found", "gpu.clock=unlocked",
         "--set", "gpu.clock@GPU-1=1200:1500MHz", "--json", gpus.tmp / "record.json", *args, "--", "sh", "-c", "touch $0; exec sleep 60", gpus.tmp / "started"],
        env={**os.environ, "COLUMNS": "400", **gpus.env}, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True)
    assert wait_for((gpus.tmp / "started").exists), child.communicate()
    assert gpus.limits() == [300.0, 300.0] and gpus.locked() == [None, (1200, 1500)]
    return child


def test_the_record_has_what_the_driver_held(gpus):
    state = gpus.tmp / "driver"
    done = measure(gpus, "--set", "gpu.power@GPU-1=300W", "--", "cp", state, gpus.tmp / "during")
    gpus.state, state = str(gpus.tmp / "during"), gpus.state
    assert done.returncode == 0 and gpus.limits() == [700.0, 300.0], done.stderr
    gpus.state = state
    assert is_back(gpus)
    (row,) = record(gpus)["settings"]
    assert row["knob"] == "gpu.power" and row["device"].startswith("GPU-1")
    assert (row["requested"], row["accepted"], row["enforced"]) == (300, 300, 300)
    assert row["state"] in ("binding", "not reached", "violated", "unknown")
    assert "Setting gpu.power of GPU 1 NVIDIA H100 80GB HBM3: 300 W, " in " ".join(done.stderr.split()), done.stderr


@pytest.mark.parametrize("victim", ["command", "interrupt", "client", "client and guard"])
def test_all_is_back_however_it_ends(gpus, victim):
    child = start(gpus)
    guard = guard_of(child.pid)
    if victim == "client and guard":
        kill(guard, signal.SIGSTOP)  # so that it restores nothing before it is killed
        kill(child.pid)
        kill(guard)
        child.wait(timeout=240)
        assert gpus.limits() == [300.0, 300.0]
        assert run(gpus, "get").returncode == 0  # any command restores what was left
    elif victim == "client":
        kill(child.pid)
    else:
        os.kill(child.pid, signal.SIGTERM if victim == "command" else signal.SIGINT)
        child.wait(timeout=240)
        assert {s["knob"]: s.get("found") for s in record(gpus)["settings"]} == \
            {"gpu.power": None, "gpu.clock": "stated"}
    assert wait_for(lambda: is_back(gpus)), (gpus.limits(), gpus.locked(), gpus.journals())
    with contextlib.suppress(ProcessLookupError):  # the command of a killed client
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate(timeout=240)


def test_a_killed_guard_fails_the_measurement(gpus):
    child = start(gpus, "--store", gpus.tmp / "store.db")
    kill(guard_of(child.pid))
    os.kill(child.pid, signal.SIGTERM)
    _, err = child.communicate(timeout=240)
    assert child.returncode == 128 + signal.SIGTERM and "was killed" in err and is_back(gpus), err
    one = record(gpus)
    assert one["status"] == "failed" and "was killed" in one["reason"]
    assert all(s["accepted"] is None and s["enforced"] is None and s["state"] == "unknown" for s in one["settings"])
    assert "was killed" in run(gpus, "query", gpus.tmp / "store.db", "select record from records").stdout


def test_another_value_is_another_case(gpus):
    for words in (["--set", "gpu.power=300W"], ["--set", "gpu.power=400W"], []):
        assert measure(gpus, "--store", gpus.tmp / "s.db", *words, "--", "true").returncode == 0
    cases = json.loads(run(gpus, "query", "--format", "json", gpus.tmp / "s.db", "select distinct case_id from records").stdout)
    assert len(cases) == 3 and is_back(gpus)
    text = run(gpus, "report", gpus.tmp / "s.db").stdout
    assert "300 W" in text and "400 W" in text, text


@pytest.mark.parametrize("words, status, why", [
    (["--set", "gpu.power=99W"], USAGE, "takes 200W to 700W, not 99W"),
    (["--set", "gpu.power=300W,400W"], USAGE, "'joulemark run --set gpu.power=300W,400W' sweeps them"),
    (["--set", "gpu.power=300W", "--set", "gpu.power=400W"], USAGE, "--set gpu.power is given twice"),
    (["--set", "gpu.clock=1200MHz"], FAILURE, "--found gpu.clock=unlocked"),
    (["--found", "gpu.clock=unlocked"], USAGE, "--found has no effect without --set"),
    (["--for", "1s", "--set", "gpu.power=300W"], USAGE, "give the command"),
])
def test_refused_before_anything_is_set(gpus, words, status, why):
    before = (gpus.tmp / "driver").read_bytes()
    done = measure(gpus, *words, *([] if "--for" in words else ["--", "touch", gpus.tmp / "ran"]))
    assert why in sentence(done, status)
    assert (gpus.tmp / "driver").read_bytes() == before and not (gpus.tmp / "ran").exists()


def test_a_command_that_is_not_there_sets_nothing(gpus):
    before = (gpus.tmp / "driver").read_bytes()
    done = measure(gpus, "--set", "gpu.power=300W", "--", "/nonexistent")
    assert "was not found" in sentence(done, NOT_FOUND) and (gpus.tmp / "driver").read_bytes() == before


def test_without_rights_nothing_runs(gpus):
    """The driver refuses, and there is no joulemarkd."""
    gpus.config("clocks=1;deny=1")
    done = measure(gpus, "--set", "gpu.power=300W", "--", "touch", gpus.tmp / "ran")
    assert done.returncode == FAILURE and is_back(gpus) and not (gpus.tmp / "ran").exists(), done.stderr


@pytest.mark.parametrize("watts, status", [(200, "failed"), (300, "ok")])
def test_a_cap_that_another_program_changes_is_a_failure(gpus, watts, status):
    """The other program has a state folder of its own, so that it does not see the lock."""
    other = ["env", f"JM_STATE={gpus.tmp / 'other'}", BIN, "set", "--control", "nvml", f"gpu.power@GPU-1={watts}W"]
    done = measure(gpus, "--set", "gpu.power=300W", "--", *other)
    assert done.returncode == (0 if status == "ok" else FAILURE), done.stderr
    assert is_back(gpus)
    one = record(gpus)
    assert one.get("status", "ok") == status and [s["accepted"] for s in one["settings"]] == [300, 300]
    assert status == "ok" or "had 300W when the work began, and 200W at its end" in one["reason"]
