# SPDX-License-Identifier: Apache-2.0
"""Processes that the command of a killed `run` has started are ended by the case's reaper or by the next joulemark; no
others are."""
import os
import signal
import subprocess
import time

import pytest

from fake_gpus import child_of, kill, wait_for
from jm import BIN, jm
from runs import COMMAND

# the command, a child in its group, one in a session of its own, and one whose parent has ended
FAMILY = ("echo $$ >> {0}; sleep 1000 & echo $! >> {0}; setsid sh -c 'echo $$ >> {0}; exec sleep 1000' & "
          "sh -c 'setsid sh -c \"echo \\$\\$ >> {0}; trap \\\"\\\" TERM; sleep 1000; sleep 1000\" &' ; sleep 1000")


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids(path):
    return [int(word) for word in path.read_text().split()] if path.exists() else []


@pytest.fixture
def family(tmp_path):
    """A run whose command has started three more processes."""
    path = tmp_path / "pids"
    run = subprocess.Popen([BIN, *COMMAND, "--", "sh", "-c", FAMILY.format(path)], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert wait_for(lambda: len(pids(path)) == 4 and all(map(runs, pids(path))))
    yield run, pids(path)
    run.kill()
    run.wait(20)
    for pid in pids(path):
        kill(pid)


def reaper_of(run):
    return child_of(run.pid, b"joulemark\0reaper\0")


def test_nothing_outlives_a_killed_run(family):
    run, left = family
    run.kill()
    assert wait_for(lambda: not any(map(runs, left))), [pid for pid in left if runs(pid)]
    assert "left behind" in run.communicate(timeout=240)[1]
    assert not os.listdir(os.path.join(os.environ["JM_STATE"], "cases"))


def test_next_start_ends_what_is_left_and_nothing_else(family):
    run, left = family
    mark = "JM_CASE=" + "0123456789abcdef" * 2
    others = [subprocess.Popen(["sleep", "1000"]),
              subprocess.Popen(["env", mark, "sleep", "1000"]),
              subprocess.Popen(["setsid", "sleep", "1000"])]
    try:
        reaper = reaper_of(run)
        kill(reaper, signal.SIGSTOP)
        run.kill()
        kill(reaper)
        run.communicate(timeout=240)
        time.sleep(0.3)
        assert any(map(runs, left[1:])), "nothing was left to be found"
        done = jm("list")
        assert not any(map(runs, left)), [pid for pid in left if runs(pid)]
        assert done.returncode == 0 and "left behind" in done.stderr and "sleep 1000" in done.stderr
        assert all(runs(other.pid) for other in others)
        assert "left behind" not in jm("list").stderr
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_resume_does_not_run_two_at_once(tmp_path):
    """A command that notes when another of its kind is still there."""
    store, lock, seen = tmp_path / "s.db", tmp_path / "lock", tmp_path / "seen"
    script = (f"exec 9>{lock}; flock -n 9 && echo alone >> {seen} || echo two >> {seen}; "
              f"test -e {tmp_path}/quick || {{ setsid sh -c \"trap '' TERM; sleep 1000; sleep 1000\" & sleep 1000; }}")
    args = [BIN, *COMMAND, "--store", str(store), "--", "sh", "-c", script]
    run = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_for(lambda: seen.exists() and seen.read_text() == "alone\n")
    time.sleep(0.2)
    run.kill()
    run.wait(20)
    (tmp_path / "quick").touch()
    done = jm("run", "--store", store, "--resume")
    assert done.returncode == 0, done.stderr
    assert seen.read_text() == "alone\nalone\n"


def test_a_killed_reaper_leaves_the_case_alone(family):
    run, left = family
    kill(reaper_of(run))
    time.sleep(0.1)
    assert jm("list").returncode == 0
    assert all(map(runs, left)) and run.poll() is None


def test_a_daemon_of_a_case_that_ended_may_stay(tmp_path):
    path = tmp_path / "pid"
    done = jm(*COMMAND, "--", "sh", "-c", f"setsid sleep 1000 & echo $! > {path}; sleep 0.1",
              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert done.returncode == 0
    (pid,) = pids(path)
    jm("list")
    assert runs(pid)
    kill(pid)
