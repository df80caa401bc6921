# SPDX-License-Identifier: Apache-2.0
"""Locked clocks of GPUs, which the driver takes and does not report: set only from a stated value, and put back to it. The
driver's own state is what is compared with."""
import json
import os
import signal
import subprocess

import pytest

from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN, FAILURE, USAGE, sentence

UNLOCKED = ["--found", "gpu.clock=unlocked"]


@pytest.fixture
def gpus(tmp_path):
    gpus = FakeGpus(tmp_path, 2, "clocks=1")
    assert run(gpus, "get").returncode == 0  # the driver is loaded
    return gpus


def run(gpus, *args, **env):
    return subprocess.run([BIN, *map(str, args)], env={**os.environ, "COLUMNS": "400", **gpus.env, **env},
                          capture_output=True, text=True, timeout=240, check=False)


def start(gpus, *args):
    return subprocess.Popen([BIN, *args], env=dict(os.environ, **gpus.env), stderr=subprocess.DEVNULL,
                            start_new_session=True)


def rows(gpus, knob, *args):
    return [r for r in json.loads(run(gpus, "get", "--json", *args).stdout) if r["knob"] == knob]


def test_what_there_is(gpus):
    for knob, low, high in (("gpu.clock", 345e6, 1980e6), ("gpu.memory_clock", 1593e6, 2619e6)):
        for row in rows(gpus, knob):
            assert row["kind"] == "range" and row["words"] == ["unlocked"] and row["ends"] == "driver"
            assert row["unit"] == "Hz" and (row["min"], row["max"]) == (low, high) and row["default"] == "unlocked"
            assert row["accepted"] is None and row["enforced"] is None
    text = " ".join(run(gpus, "doctor").stdout.split())
    assert "gpu.clock 345 to 1980 MHz, what is locked cannot be read, so state it: --found gpu.clock=..." in text


@pytest.mark.parametrize("config", ["clocks=0", "clocks=1;memmax=1593"])
def test_a_driver_that_cannot_lock(tmp_path, config):
    gpus = FakeGpus(tmp_path, 2, config)
    assert not rows(gpus, "gpu.memory_clock")
    assert len(rows(gpus, "gpu.power")) == 2


def test_an_old_driver_has_no_clocks(tmp_path):
    gpus = FakeGpus(tmp_path, 2, "clocks=1", old=True)
    assert {r["knob"] for r in json.loads(run(gpus, "get", "--json").stdout)} == {"gpu.power"}


def test_refused_without_a_statement(gpus):
    done = run(gpus, "set", "gpu.clock=1200MHz", "--", "true")
    assert "cannot be read, so it could not be put back; nothing was changed. If you know what it has, state it: " \
        "--found gpu.clock=unlocked" in sentence(done, FAILURE)
    assert gpus.locked() == [None, None] and not gpus.journals()


def test_what_the_driver_did_not_permit_is_not_put_back(gpus):
    """Nothing was written, so that the stated value need not be."""
    gpus.config("clocks=1;deny=all")
    done = run(gpus, "set", "--found", "gpu.clock=900:1000MHz", "gpu.clock=1200MHz", "--", "true")
    assert "only root may set it" in sentence(done, FAILURE) and "NOT back" not in done.stderr, done.stderr
    assert gpus.locks() == [0, 0] and not gpus.journals()


def test_unlocked_is_reset(gpus):
    done = run(gpus, "set", *UNLOCKED, "gpu.clock=1200:1500MHz", "--", BIN, "status")
    assert done.returncode == 0 and done.stdout.count("which will restore unlocked, as stated.") == 2, done.stdout
    assert "gpu.clock of GPU 0 NVIDIA H100 80GB HBM3: 1200:1500 MHz (was unlocked)" in done.stderr
    assert gpus.locked() == [None, None] and not gpus.journals()


def test_the_driver_has_it_while_the_command_runs(gpus):
    child = start(gpus, "set", *UNLOCKED, "--found", "gpu.memory_clock=unlocked", "gpu.clock@GPU-1=1200:1500MHz",
                  "gpu.memory_clock=1593MHz", "--", "sleep", "60")
    assert wait_for(lambda: gpus.locked() == [None, (1200, 1500)] and gpus.locked(memory=True) == [(1593, 1593)] * 2)
    child.terminate()
    child.wait(timeout=240)
    assert wait_for(lambda: gpus.locked() == [None, None] and gpus.locked(memory=True) == [None, None])


def test_a_stated_range_is_put_back(gpus):
    """Each GPU has another one."""
    done = run(gpus, "set", "--found", "gpu.clock@0=345:1500MHz", "--found", "gpu.clock@1=900MHz", "gpu.clock=1200MHz",
               "--", "true")
    assert done.returncode == 0, done.stderr
    assert gpus.locked() == [(345, 1500), (900, 900)] and not gpus.journals()


def test_the_same_as_stated_is_set_all_the_same(gpus):
    """The statement may be wrong: what the case asks for holds while it runs."""
    assert run(gpus, "set", *UNLOCKED, "gpu.clock=900MHz").returncode == 0  # left behind by somebody else
    for name in gpus.journals():
        os.remove(os.path.join(gpus.env["JM_STATE"], "knobs", name))
    child = start(gpus, "set", *UNLOCKED, "gpu.clock=unlocked", "--", "sleep", "60")
    assert wait_for(lambda: gpus.locked() == [None, None])
    os.killpg(child.pid, signal.SIGTERM)
    child.wait(timeout=240)


@pytest.mark.parametrize("words, text", [
    (["--found", "gpu.power=300W", "gpu.power=400W"], "What gpu.power of GPU 0 NVIDIA H100 80GB HBM3 has is read"),
    (["--found", "gpu.clock=1500:1200MHz", "gpu.clock=900MHz"], "reversed"),
    (["--found", "gpu.clock=100MHz", "gpu.clock=900MHz"], "takes 345MHz to 1980MHz or unlocked, not 100MHz"),
    (["--found", "gpu.clock=900,1200MHz", "gpu.clock=900MHz"], "states 2 values"),
    (["--found", "gpu.cluck=unlocked", "gpu.clock=900MHz"], "did you mean 'gpu.clock'"),
    (["--found", "gpu.clock", "gpu.clock=900MHz"], "knob=value"),
    ([*UNLOCKED, "gpu.clock=2000MHz"], "takes 345MHz to 1980MHz or unlocked, not 2000MHz"),
    ([*UNLOCKED, "gpu.clock=1200"], "no unit"),
    ([*UNLOCKED, "gpu.clock=1200W"], "Hz, kHz, MHz, GHz"),
    ([*UNLOCKED, "gpu.clock=free"], "number is expected"),
])
def test_bad_statements_and_values(gpus, words, text):
    done = run(gpus, "set", *words, "--", "true")
    assert text in sentence(done, USAGE)
    assert gpus.locked() == [None, None]


def test_partial_failure_rolls_back(gpus):
    gpus.config("clocks=1;deny=1")
    done = run(gpus, "set", *UNLOCKED, "gpu.clock=1200MHz", "gpu.power=400W", "--", "true")
    assert "only root may set it" in sentence(done, FAILURE)
    assert gpus.locked() == [None, None] and gpus.limits() == [700, 700]


@pytest.mark.parametrize("victims", ["client", "guard", "both"])
def test_back_after_sigkill(gpus, victims):
    child = start(gpus, "set", "--found", "gpu.clock=345:1500MHz", "gpu.clock=1200MHz", "--", "sleep", "60")
    assert wait_for(lambda: gpus.locked() == [(1200, 1200)] * 2)
    guard = guard_of(child.pid)
    if victims == "both":
        kill(guard, signal.SIGSTOP)
        os.killpg(child.pid, signal.SIGKILL)
        kill(guard)
        child.wait()
        assert gpus.locked() == [(1200, 1200)] * 2
        assert run(gpus, "list").returncode == 0  # any command
    else:
        kill(child.pid if victims == "client" else guard)
    assert wait_for(lambda: gpus.locked() == [(345, 1500)] * 2)
    if victims != "both":
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(timeout=240)
    assert wait_for(lambda: not gpus.journals())


def test_a_statement_does_not_stand_in_for_a_restore(gpus):
    """Of a session that was killed with its guard: what it found is written, whatever is stated now."""
    child = start(gpus, "set", *UNLOCKED, "gpu.clock=1200MHz", "--", "sleep", "60")
    assert wait_for(lambda: gpus.locked() == [(1200, 1200)] * 2)
    guard = guard_of(child.pid)
    kill(guard, signal.SIGSTOP)
    os.killpg(child.pid, signal.SIGKILL)
    kill(guard)
    child.wait()
    assert run(gpus, "set", *UNLOCKED, "gpu.clock@0=900MHz", "--", "true").returncode == 0
    assert gpus.locked() == [None, None] and not gpus.journals()


@pytest.fixture(name="kept")
def gpus_at_1200(gpus):
    """'set' has left 1200 MHz in place; 345 to 1500 MHz was stated to be found."""
    assert run(gpus, "set", "--found", "gpu.clock=345:1500MHz", "gpu.clock=1200MHz").returncode == 0
    return gpus


@pytest.mark.parametrize("words", [["set", "gpu.clock=900MHz"], ["run", "--source", "null", "--set", "gpu.clock=900MHz"]])
def test_what_set_left_in_place_needs_no_statement(kept, words):
    done = run(kept, *words, "--", "true")
    assert done.returncode == 0, done.stderr
    assert kept.locked() == [(1200, 1200)] * 2


def test_a_wrong_statement_of_what_set_left_in_place_is_refused(kept):
    done = run(kept, "set", *UNLOCKED, "gpu.clock=900MHz", "--", "true")
    assert "has 1200MHz, which 'joulemark set' left in place" in sentence(done, USAGE)


def test_a_second_set_keeps_what_the_first_one_found(kept):
    assert run(kept, "set", "gpu.clock=900MHz").returncode == 0
    assert [r["accepted"] for r in rows(kept, "gpu.clock")] == [900e6] * 2
    state = json.loads(run(kept, "status", "--json").stdout)["settings"]
    assert {(s["found"], s["found_by"], s["state"]) for s in state} == {("345:1500MHz", "stated", "kept")}


def test_kept_until_restore(kept):
    assert run(kept, "restore").returncode == 0
    assert kept.locked() == [(345, 1500)] * 2 and not kept.journals()


def test_a_reboot_ends_it(gpus, tmp_path):
    boot = tmp_path / "root" / "proc" / "sys" / "kernel" / "random" / "boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("before\n", encoding="ascii")
    gpus.env["JM_ROOT"] = str(tmp_path / "root")
    assert run(gpus, "set", *UNLOCKED, "gpu.clock=900MHz").returncode == 0
    boot.write_text("after\n", encoding="ascii")
    assert run(gpus, "restore").returncode == 0
    assert not gpus.journals() and gpus.locked() == [(900, 900)] * 2  # a real driver has begun anew


def test_a_sweep_records_what_was_stated(gpus, tmp_path):
    """The reference has the stated value; the table has one row per range; a lower clock binds."""
    out = tmp_path / "records.json"
    done = run(gpus, "run", "--source", "nvml", *UNLOCKED, "--set", "gpu.clock=345:1500MHz,900MHz", f"--json={out}",
               "--", "sleep", "0.6")
    assert done.returncode == 0, done.stderr
    records = json.loads(out.read_text(encoding="utf-8"))
    seen = {r["case"]["parameters"]["settings"]["gpu.clock"]: r["settings"] for r in records}
    assert set(seen) == {"345:1500MHz", "900MHz", "as found"}
    for settings in seen.values():
        assert len(settings) == 2 and all(s["found"] == "stated" and s["enforced"] is None for s in settings)
    assert {s.get("value") for s in seen["345:1500MHz"]} == {"345:1500MHz"}
    assert {(s["requested"], s["accepted"], s["state"]) for s in seen["900MHz"]} == {(900e6, 900e6, "binding")}
    assert {(s["requested"], s.get("value")) for s in seen["as found"]} == {(None, "unlocked")}
    assert gpus.locked() == [None, None] and not gpus.journals()
    text = run(gpus, "report", out).stdout
    assert "345:1500MHz" in text and "900 MHz" in text, text


def test_a_memory_clock_is_not_judged_by_that_of_the_cores(gpus, tmp_path):
    """The cores run at 1980 MHz, which is no violation of a memory clock of 1593 MHz."""
    out = tmp_path / "records.json"
    done = run(gpus, "run", "--source", "nvml", "--found", "gpu.memory_clock=unlocked", "--set", "gpu.memory_clock=1593MHz",
               f"--json={out}", "--", "sleep", "0.6")
    assert done.returncode == 0, done.stderr
    rows = [s for r in json.loads(out.read_text(encoding="utf-8")) for s in r["settings"]]
    assert {(s["accepted"], s["state"]) for s in rows} == {(1593e6, "unknown"), (None, "unknown")}


def test_a_sweep_without_a_statement_runs_nothing(gpus, tmp_path):
    mark = tmp_path / "ran"
    done = run(gpus, "run", "--source", "null", "--set", "gpu.clock=900MHz", "--", "touch", str(mark))
    assert "--found gpu.clock=unlocked" in sentence(done, FAILURE)
    assert not mark.exists() and gpus.locked() == [None, None]


def test_a_guard_killed_in_a_sweep_is_told_again(gpus):
    child = start(gpus, "run", "--source", "null", "--repeat", "2", *UNLOCKED, "--set", "gpu.clock=900MHz", "--",
                  "sleep", "1")
    assert wait_for(lambda: gpus.locked() == [(900, 900)] * 2)
    kill(guard_of(child.pid))
    assert wait_for(lambda: gpus.locked() == [None, None])
    assert wait_for(lambda: gpus.locked() == [(900, 900)] * 2)
    assert child.wait(timeout=240) == 0
    assert gpus.locked() == [None, None] and not gpus.journals()


def test_what_is_stated_needs_a_setting(gpus):
    done = run(gpus, "run", "--source", "null", "--found", "gpu.clock=unlocked", "--", "true")
    assert "give --set" in sentence(done, USAGE)
