# SPDX-License-Identifier: Apache-2.0
"""Knobs and their restoration: set, get, status, restore; and the guard after a kill of any process."""
import json
import os
import random
import re
import signal
import subprocess
import time

import pytest

from fake_gpus import FakeGpus, child_of, guard_of, kill, wait_for
from jm import BIN, FAILURE, USAGE, jm, sentence

FOUND = [700.0, 555.0, 700.0, 600.0]


@pytest.fixture
def gpus(tmp_path):
    """Four GPUs with limits that are not the default, set by somebody else than joulemark."""
    gpus = FakeGpus(tmp_path, 4)
    assert run(gpus, "set", "gpu.power@GPU-1=555W", "gpu.power@GPU-3=600W").returncode == 0
    for name in gpus.journals():
        os.remove(os.path.join(gpus.env["JM_STATE"], "knobs", name))
    assert gpus.limits() == FOUND
    return gpus


def run(gpus, *args, **kwargs):
    env = dict(os.environ, **gpus.env)
    return subprocess.run([BIN, *args], env=env, capture_output=True, text=True, timeout=240, **kwargs)


def start(gpus, *args):
    env = dict(os.environ, **gpus.env)
    return subprocess.Popen([BIN, *args], env=env, stderr=subprocess.DEVNULL)


def test_held_while_a_command_runs(gpus):
    done = run(gpus, "set", "gpu.power=300W", "--", BIN, "get", "--json", "gpu.power")
    assert done.returncode == 0
    assert [k["accepted"] for k in json.loads(done.stdout)] == [300] * 4
    assert gpus.limits() == FOUND and not gpus.journals()


@pytest.mark.parametrize("command, status", [
    (["sh", "-c", "exit 7"], 7),
    (["sh", "-c", "kill -TERM $$"], 143),
    (["/nowhere/nothing"], 127),
    (["/etc/passwd"], 126),
])
def test_status_is_the_commands(gpus, command, status):
    assert run(gpus, "set", "gpu.power=300W", "--", *command).returncode == status
    assert gpus.limits() == FOUND


def test_a_small_change_is_one(gpus):
    """555 W and 600 W become 554 and 601, and are put back."""
    done = run(gpus, "set", "gpu.power@GPU-1=554W", "gpu.power@GPU-3=601W", "--", BIN, "get", "--json", "gpu.power")
    assert [k["accepted"] for k in json.loads(done.stdout)] == [700, 554, 700, 601]
    assert gpus.limits() == FOUND


def test_a_control_is_named_once(gpus):
    done = run(gpus, "get", "--control", "nvml,sim:h100x1,nvml")
    assert "given twice" in sentence(done, USAGE)


def test_the_guard_of_a_killed_command_may_finish(gpus):
    """It belongs to a joulemark that was killed with its case, and needs longer than anybody else is given."""
    gpus.config("setlatency=650000")
    child = start(gpus, "run", "--source", "null", "--", BIN, "set", "gpu.power=300W", "--", "sleep", "60")
    assert wait_for(lambda: gpus.limits() == [300] * 4)
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=240) == 130
    assert wait_for(lambda: gpus.limits() == FOUND)


def test_a_changed_journal_is_not_believed(gpus):
    """The value comes from the copy; what somebody has changed is kept aside and told of."""
    assert run(gpus, "set", "gpu.power@GPU-1=300W").returncode == 0
    (name,) = gpus.journals()
    path = os.path.join(gpus.env["JM_STATE"], "knobs", name)
    with open(path, encoding="ascii") as f:
        text = f.read()
    assert "\t555\t" in text
    with open(path, "w", encoding="ascii") as f:
        f.write(text.replace("\t555\t", "\t556\t") + "\n")
    done = run(gpus, "restore")
    assert "damaged" in done.stderr and gpus.limits() == FOUND
    assert os.path.exists(path + ".damaged")


def test_set_to_default_and_status_agree(tmp_path):
    """Kept where default is not what was found; where it is, nothing is left to restore, and both say so."""
    gpus = FakeGpus(tmp_path, 1)
    done = run(gpus, "set", "gpu.power=default")
    assert "nothing to restore" in done.stderr and "Nothing is set" in run(gpus, "status").stdout
    admin = {**gpus.env, "JM_STATE": str(tmp_path / "other")}
    assert jm("set", "gpu.power=600W", env=admin).returncode == 0
    done = run(gpus, "set", "gpu.power=default")
    assert gpus.limits() == [700] and "until 'joulemark restore'" in done.stderr
    assert "restores 600 W" in run(gpus, "status").stdout
    assert run(gpus, "restore").returncode == 0 and gpus.limits() == [600]


def test_a_device_by_its_number(tmp_path):
    """Its id is what is kept and shown: numbers change."""
    gpus = FakeGpus(tmp_path, 3)
    assert run(gpus, "set", "gpu.power@1=300W").returncode == 0 and gpus.limits() == [700, 300, 700]
    assert "GPU-10000001" in run(gpus, "status").stdout
    assert [k["device"][:12] for k in json.loads(run(gpus, "get", "--json", "gpu.power@2").stdout)] == ["GPU-20000002"]
    assert "begins with '3'" in sentence(run(gpus, "set", "gpu.power@3=300W"), USAGE)
    assert run(gpus, "restore").returncode == 0


def test_the_command_of_set_needs_no_dashes(tmp_path):
    gpus = FakeGpus(tmp_path, 1)
    done = run(gpus, "set", "gpu.power=300W", "echo", "--width", "x=1")
    assert done.stdout == "--width x=1\n" and gpus.limits() == [700]
    done = run(gpus, "set", "gpu.power=300W", "no-such-command")
    assert done.returncode == 127 and "was 700" not in done.stderr  # refused before anything is set


def test_kept_until_restore(gpus):
    assert run(gpus, "set", "gpu.power=300W").returncode == 0
    assert "restore" in run(gpus, "status").stdout  # another start does not undo it
    assert gpus.limits() == [300] * 4
    assert "4 settings" in run(gpus, "restore").stdout
    assert gpus.limits() == FOUND


def test_after_a_command_what_was_kept_is_back(gpus):
    assert run(gpus, "set", "gpu.power=300W").returncode == 0
    assert run(gpus, "set", "gpu.power=400W", "--", "true").returncode == 0
    assert gpus.limits() == [300] * 4


def test_a_restore_leaves_nothing_to_restore(gpus):
    assert run(gpus, "set", "gpu.power=300W").returncode == 0
    assert run(gpus, "restore").returncode == 0
    for command in ("restore", "status"):
        assert "Nothing" in run(gpus, command).stdout


def test_settings_are_restored_in_the_order_of_the_gpus(tmp_path):
    gpus = FakeGpus(tmp_path, 4)
    assert run(gpus, "set", "gpu.power=300W").returncode == 0
    lines = run(gpus, "restore").stderr.splitlines()
    assert [re.search(r"GPU (\d) .* is back at 700W; .* had left it at 300W\.", line).group(1) for line in lines] \
        == ["0", "1", "2", "3"]


def test_second_sweeper_is_told_who_holds(gpus):
    first = start(gpus, "set", "gpu.power=300W", "--", "sleep", "60")
    try:
        assert wait_for(lambda: gpus.limits() == [300] * 4)
        second = run(gpus, "set", "gpu.power=400W", "--", "true")
        assert f"process {first.pid}" in sentence(second, FAILURE)
        assert gpus.limits() == [300] * 4
        held = json.loads(run(gpus, "status", "--json").stdout)["settings"]
        assert {h["state"] for h in held} == {"held"} and {h["pid"] for h in held} == {first.pid}
    finally:
        first.terminate()
    assert first.wait(20) == 128 + signal.SIGTERM
    assert gpus.limits() == FOUND


@pytest.mark.parametrize("victim", ["program", "guard", "both"])
def test_one_of_two_programs_is_killed(gpus, victim):
    """Each has its own guard: only the killed one's GPUs are restored, and the other may take them then."""
    killed = start(gpus, "set", "gpu.power@GPU-0=300W", "gpu.power@GPU-1=310W", "--", "sleep", "3")
    other = start(gpus, "set", "gpu.power@GPU-2=320W", "gpu.power@GPU-3=330W", "--", "sleep", "60")
    assert wait_for(lambda: gpus.limits() == [300, 310, 320, 330])
    assert guard_of(killed.pid) != guard_of(other.pid)
    if victim != "program":
        kill(guard_of(killed.pid))
    if victim != "guard":
        kill(killed.pid)
    if victim == "both":  # the next joulemark of any kind
        end(killed)
        assert run(gpus, "get").returncode == 0
    assert wait_for(lambda: gpus.limits() == [*FOUND[:2], 320, 330]), gpus.limits()
    assert wait_for(lambda: len(gpus.journals()) == 2)
    held = json.loads(run(gpus, "status", "--json").stdout)["settings"]
    assert {(h["state"], h["pid"]) for h in held} == {("held", other.pid)}
    assert run(gpus, "set", "gpu.power@GPU-0=340W", "--", "true").returncode == 0
    assert gpus.limits() == [*FOUND[:2], 320, 330]
    other.terminate()
    assert other.wait(20) == 128 + signal.SIGTERM
    assert gpus.limits() == FOUND and not gpus.journals()
    end(killed)


@pytest.mark.parametrize("words, code, text", [
    (["gpu.power=900W"], USAGE, "200W to 700W"),
    (["gpu.power=300"], USAGE, "unit"),
    (["gpu.pover=300W"], USAGE, "did you mean 'gpu.power'"),
    (["gpu.power=200:400+100W"], USAGE, "run --set"),
    (["gpu.power@GPU-7=300W"], USAGE, "GPU-7"),
    ([], USAGE, "knob=value"),
    (["--control", "nvmll", "gpu.power=300W"], USAGE, "did you mean 'nvml'"),
])
def test_bad_settings(gpus, words, code, text):
    assert text in sentence(run(gpus, "set", *words), code)
    assert gpus.limits() == FOUND


@pytest.mark.parametrize("words, text", [
    (["gpu.pover"], "did you mean 'gpu.power'"),
    (["gpu.power", "gpu.fan"], "gpu.fan"),
    (["--json", "gpu.fan"], "gpu.fan"),
    (["gpu.power@GPU-7"], "GPU-7"),
])
def test_bad_gets(gpus, words, text):
    done = run(gpus, "get", *words)
    assert text in sentence(done, USAGE) and done.stdout == ""


def test_restore_talks_into_a_closed_pipe(gpus):
    assert run(gpus, "set", "gpu.power=300W").returncode == 0
    reader, writer = os.pipe()
    os.close(reader)
    subprocess.run([BIN, "restore"], env=dict(os.environ, **gpus.env), stdout=writer, stderr=writer,
                   timeout=240, check=False)
    os.close(writer)
    assert gpus.limits() == FOUND


def test_no_permission_rolls_back(gpus):
    gpus.config("deny=2")
    assert "root" in sentence(run(gpus, "set", "gpu.power=300W", "--", "true"), FAILURE)
    assert gpus.limits() == FOUND and not gpus.journals()


def test_enforced_is_told(gpus):
    gpus.config("enforce=1:250")
    assert "enforced 250 W" in run(gpus, "set", "gpu.power@GPU-1=400W", "--", "true").stderr


def test_unwritable_state(gpus):
    gpus.env["JM_STATE"] = "/proc/nowhere"
    assert "/proc/nowhere" in sentence(run(gpus, "set", "gpu.power=300W", "--", "true"), FAILURE)
    assert gpus.limits() == FOUND


def test_only_this_jobs_gpus(gpus):
    gpus.env["CUDA_VISIBLE_DEVICES"] = "1,GPU-2"
    assert len(json.loads(run(gpus, "get", "--json", "gpu.power").stdout)) == 2
    assert run(gpus, "set", "gpu.power=300W").returncode == 0
    assert gpus.limits() == [700, 300, 300, 600]
    gpus.env["CUDA_VISIBLE_DEVICES"] = "0"  # a later job restores them nevertheless
    assert run(gpus, "restore").returncode == 0
    assert gpus.limits() == FOUND


def test_guard_is_not_for_the_command_line(gpus):
    assert run(gpus, "guard").returncode == USAGE


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_reach_the_command(gpus, sig):
    program = start(gpus, "set", "gpu.power=300W", "--", "sleep", "60")
    assert wait_for(lambda: child_of(program.pid, b"sleep\x0060\0"))
    assert gpus.limits() == [300] * 4
    program.send_signal(sig)
    assert program.wait(20) == 128 + sig
    assert gpus.limits() == FOUND and not gpus.journals()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_guard_ended_politely(gpus, sig):
    program = start(gpus, "set", "gpu.power=300W", "--", "sleep", "60")
    assert wait_for(lambda: gpus.limits() == [300] * 4)
    kill(guard_of(program.pid), sig)
    assert wait_for(lambda: gpus.limits() == FOUND)
    program.terminate()
    assert program.wait(20) == FAILURE


def test_a_lost_gpu_is_not_a_killed_guard(gpus):
    gpus.config("lost=1@1.0")
    done = run(gpus, "run", "null", "--source", "null", "--step-time", "100ms", "--steps", "3", "--warmup",
               "0", "--set", "gpu.power=300W", "--repeat", "4")
    failures = [line for line in done.stderr.splitlines() if "FAILED" in line]
    assert failures and all("lost" in line for line in failures), done.stderr
    assert "run again" not in done.stderr and done.returncode == 1
    assert [w for i, w in enumerate(gpus.limits()) if i != 1] == [w for i, w in enumerate(FOUND) if i != 1]
    assert len(gpus.journals()) == 1


def test_a_nested_set_whose_case_is_stopped(gpus, tmp_path):
    """Its guard is adopted by the run that stops the case, and puts all back before that ends."""
    gpus.config("setlatency=100000")
    seen = tmp_path / "seen.json"
    command = f"trap '' TERM; '{BIN}' get --json > {seen}; while :; do sleep 0.1; done"
    done = run(gpus, "run", "--source", "null", "--timeout", "3s", "--", BIN, "set", "gpu.power=300W", "--",
               "sh", "-c", command)
    assert done.returncode == 1 and "--timeout" in done.stdout + done.stderr
    assert [k["accepted"] for k in json.loads(seen.read_text())] == [300] * 4
    assert gpus.limits() == FOUND and not gpus.journals()


def end(program):
    """The command of a killed joulemark lives on; it ends by itself."""
    program.wait(20)


def test_kill_of_the_guard_is_mended_at_once(gpus):
    program = start(gpus, "set", "gpu.power=300W", "--", "sleep", "60")
    assert wait_for(lambda: gpus.limits() == [300] * 4)
    kill(guard_of(program.pid))
    assert wait_for(lambda: gpus.limits() == FOUND)
    program.terminate()
    assert program.wait(20) == FAILURE
    assert not gpus.journals()


@pytest.mark.parametrize("victim", ["program", "guard", "both"])
def test_random_kills(gpus, victim):
    """Sets take 16 ms here, so that kills fall before, between and after them; and while restoring."""
    gpus.config("setlatency=4000")
    rng = random.Random(victim)
    for _ in range(int(os.environ.get("JM_KILLS", "15"))):
        program = start(gpus, "set", "gpu.power=300W", "--", "sleep", "0.05")
        time.sleep(rng.uniform(0, 0.12))
        guard = guard_of(program.pid)
        if victim != "program" and guard:
            kill(guard)
        if victim != "guard":
            kill(program.pid)
        end(program)
        if victim == "both":  # the next joulemark of any kind
            assert run(gpus, "get").returncode == 0
            assert gpus.limits() == FOUND and not gpus.journals()
        else:
            assert wait_for(lambda: gpus.limits() == FOUND and not gpus.journals()), gpus.limits()
