# SPDX-License-Identifier: Apache-2.0
"""run: Ctrl-C, SIGTERM and a hangup end all processes and leave a consistent state."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from fake_gpus import wait_for
from jm import BIN, jm
from runs import COMMAND, records


def test_interrupt(tmp_path):
    store = tmp_path / "s.db"
    args = [BIN, *COMMAND, "--repeat", "200", "--store", str(store), "--", "sleep", "0.2"]
    child = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    line = child.stderr.readline()
    assert "[  1/200]" in line, line
    os.kill(child.pid, signal.SIGINT)
    rest = child.communicate(timeout=240)[1]
    assert child.returncode == 130
    assert "--resume" in rest
    assert 1 <= len(records(store)) < 60
    assert all(r["status"] == "ok" for r in records(store))


def interrupt_while_it_is_stopped(store, asked, timeout):
    """The records, after Ctrl-C while a case is being stopped for its time."""
    child = subprocess.Popen([BIN, *COMMAND, "--repeat", "3", "--timeout", timeout, "--store", str(store), "--", "sh", "-c",
                              f"trap 'touch {asked}' TERM; trap '' INT; while :; do sleep 0.05; done"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # stopped for its time, but it does not listen; or its shell was late, and it ended each time
    assert wait_for(lambda: asked.exists() or child.poll() is not None)
    child.send_signal(signal.SIGINT)
    status = child.wait(timeout=240)
    found = records(store)
    assert status == 130 or found
    return found


def test_interrupt_while_a_case_is_being_stopped(tmp_path):
    """The case has no record. A busy machine may end it by --timeout before Ctrl-C, so the test tries several times."""
    for i in range(8):
        found = interrupt_while_it_is_stopped(tmp_path / f"{i}.db", tmp_path / f"asked{i}", f"{300 * 2 ** i}ms")
        assert all("--timeout" in r["reason"] for r in found)
        if not found:
            return
    pytest.fail("It had ended each time.")


def test_nohup(tmp_path):
    child = subprocess.Popen([BIN, *COMMAND, "--", "sleep", "1.5"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    time.sleep(0.7)
    os.kill(child.pid, signal.SIGHUP)
    assert child.wait(timeout=240) == 0


def second_interrupt(ready, script, pause):
    """The seconds from the second signal to the end; infinite where the machine was late and the program had ended before."""
    ready.unlink(missing_ok=True)
    child = subprocess.Popen([BIN, *COMMAND, "--", "sh", "-c", script.format(ready=ready)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_for(ready.exists)
    os.kill(child.pid, signal.SIGINT)
    time.sleep(pause)
    late = child.poll() is not None
    if not late:
        os.kill(child.pid, signal.SIGINT)
    began = time.monotonic()
    assert child.wait(timeout=240) == 130
    return time.monotonic() - began if not late else float("inf")


@pytest.mark.parametrize("script, pause", [
    # the command itself does not listen
    ("trap '' TERM INT; touch {ready}; sleep 30; sleep 30", 0.3),
    # it has ended by then; what it left behind has been asked to, and has two seconds
    ("setsid sh -c \"trap '' TERM INT; touch {ready}; sleep 30; sleep 30\" & sleep 30", 0.7),
    # neither listens
    ("trap '' TERM INT; setsid sh -c \"touch {ready}; sleep 30; sleep 30\" & sleep 30; sleep 30", 0.3),
])
def test_second_interrupt_does_not_wait(tmp_path, script, pause):
    """A program that waits is late in every attempt, a busy machine only in some."""
    assert any(second_interrupt(tmp_path / "ready", script, pause) < 1.2 for _ in range(8))


def test_interrupt_restores_the_knobs(tmp_path):
    before = jm("get", "--control", "sim:h100x4").stdout
    args = ["run", "sim", "--device", "sim:h100x4", "--real-time"]
    child = subprocess.Popen([BIN, *args, "--set", "gpu.power=300W", "--repeat", "60",
                              "--seconds", "500ms", "--warmup", "0"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_for(lambda: jm("get", "--control", "sim:h100x4").stdout != before)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(timeout=240) == 143
    assert jm("get", "--control", "sim:h100x4").stdout == before


WORK = ["run", "null", "--source", "null", "--step-time", "20ms", "--warmup", "0"]


def is_measured(pid):
    """Its measured phase has told of its progress, as `status` shows it."""
    rows = json.loads(jm("status", "--json").stdout)["running"]
    return any(row["pid"] == pid and row["phase"] == "steady" and row["share"] for row in rows)


def interrupted(*args):
    child = subprocess.Popen([BIN, *WORK, *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert wait_for(lambda: is_measured(child.pid))
    os.kill(child.pid, signal.SIGINT)
    err = child.communicate(timeout=240)[1]
    return child.returncode, err


@pytest.fixture(name="interrupted_work", scope="module")
def store_of_interrupted_work(tmp_path_factory):
    """The store of work that Ctrl-C ended, its exit status and its messages."""
    store = tmp_path_factory.mktemp("interrupted") / "s.db"
    return store, *interrupted("--seconds", "6", "--store", str(store))


def test_work_ends_after_its_step_with_a_record(interrupted_work):
    store, status, err = interrupted_work
    assert status == 130 and "the result is kept" in err and "--resume" in err
    [r] = records(store)
    assert r["steps"] > 5 and r["throughput"] > 0


def test_a_record_says_that_it_was_interrupted(interrupted_work):
    [r] = records(interrupted_work[0])
    assert r["interrupted"] is True and r["status"] != "ok"
    assert r["reason"].startswith(f"Interrupted after {r['steps']} steps")


def test_a_record_has_the_orders_that_ended_it(interrupted_work):
    [r] = records(interrupted_work[0])
    assert [(o["order"], o["text"]) for o in r["orders"]] == [("note", "Interrupted by Ctrl-C (SIGINT)."), ("stop", "")]
    assert 0 < r["orders"][0]["at_s"] < 20


def test_resume_repeats_work_that_was_interrupted(interrupted_work, tmp_path):
    """--resume does not take it for the case that was asked for."""
    store = shutil.copy(interrupted_work[0], tmp_path)
    [before] = records(store)
    assert jm("run", "--store", store, "--resume").returncode == 0
    [again] = records(store)
    assert again["status"] == "ok" and "interrupted" not in again and again["steps"] > before["steps"]


def test_ctrl_c_after_the_last_step_of_a_case_ends_the_sweep():
    """Steps of 1 ms: about half of the signals come between the last step of a case and its end."""
    for tenth in range(10):
        child = subprocess.Popen([BIN, "run", "null", "--source", "null", "--step-time", "1ms", "--steps", "1", "--warmup",
                                  "0", "--selftest", "0", "--repeat", "1000"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        assert "[   1/1000]" in child.stderr.readline()
        time.sleep(0.003 * tenth)
        os.kill(child.pid, signal.SIGINT)
        assert "[1000/1000]" not in child.communicate(timeout=240)[1] and child.returncode == 130


def test_sigterm_ends_work_at_once(tmp_path):
    store = tmp_path / "s.db"
    child = subprocess.Popen([BIN, *WORK, "--seconds", "3600", "--store", str(store)], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    assert wait_for(store.exists)  # signals have been handled since before
    time.sleep(0.5)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(timeout=240) == 143 and not records(store)


def stopped_within(store, *args):
    """What Ctrl-C says, soon after the case began."""
    child = subprocess.Popen([BIN, "run", "null", "--source", "null", "--selftest", "0", *args, "--store", str(store)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert wait_for(store.exists)  # signals have been handled since before
    time.sleep(0.7)
    os.kill(child.pid, signal.SIGINT)
    err = child.communicate(timeout=240)[1]
    assert child.returncode == 130
    return err


def test_interrupt_before_the_measured_phase_leaves_no_record(tmp_path):
    """The warm-up has told of its progress by then."""
    store = tmp_path / "s.db"
    err = stopped_within(store, "--step-time", "20ms", "--warmup", "30s", "--steps", "1")
    assert "the case ends before its measured phase, without a result" in err and not records(store)


def test_interrupt_in_the_first_measured_step_keeps_it(tmp_path):
    """Where a slow machine is not so far yet, there is no result, and that is said."""
    store = tmp_path / "s.db"
    err = stopped_within(store, "--step-time", "2s", "--warmup", "0", "--steps", "9")
    kept = "the result is kept" in err
    assert kept != ("without a result" in err) and [r["steps"] for r in records(store)] == [1] * kept
