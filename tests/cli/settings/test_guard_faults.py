# SPDX-License-Identifier: Apache-2.0
"""Settings when journals are locked, damaged or missing, guards and drivers hang, or GPUs are lost. The truth is the state
of the fake driver; docs/settings.md names the test of each promise."""
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from fake_gpus import FakeGpus, child_of, guard_of, kill, wait_for
from jm import BIN, FAILURE, needs_another_user, sentence

FOUND = [700.0, 555.0, 700.0, 600.0]
STRANGER = 65534
CLAIM = "every setting is back as it was found"


@pytest.fixture
def gpus(tmp_path):
    for folder in [tmp_path, *tmp_path.parents][:3]:
        os.chmod(folder, 0o755)  # another user may have to come here
    gpus = FakeGpus(tmp_path, 4)
    assert run(gpus, "set", "gpu.power@GPU-1=555W", "gpu.power@GPU-3=600W").returncode == 0
    shutil.rmtree(gpus.env["JM_STATE"])
    assert gpus.limits() == FOUND
    return gpus


def run(gpus, *args, timeout=240, **more):
    return subprocess.run([BIN, *args], env={**os.environ, **gpus.env}, capture_output=True, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL, check=False, **more)


def start(gpus, *args, **more):
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([BIN, *args], env={**os.environ, **gpus.env}, text=True, **more)


def hold(gpus, **more):
    """A joulemark that holds 300 W on all GPUs, and its guard."""
    program = start(gpus, "set", "gpu.power=300W", "--", "sleep", "60", **more)
    assert wait_for(lambda: gpus.limits() == [300] * 4 and child_of(program.pid, b"sleep\x0060\0"))
    return program, guard_of(program.pid)


def crash(gpus):
    """300 W on all GPUs, and nobody there to put back what was found."""
    program, guard = hold(gpus, stderr=subprocess.DEVNULL)
    kill(guard, signal.SIGSTOP)  # else it might restore between the two kills
    kill(program.pid)
    kill(guard)
    program.wait(20)
    assert wait_for(lambda: not os.path.exists(f"/proc/{guard}"))
    assert gpus.limits() == [300] * 4


def files(gpus, folder="knobs", end=".journal"):
    path = os.path.join(gpus.env["JM_STATE"], folder)
    return sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(end))


def as_stranger():
    os.setgroups([])
    os.setresgid(STRANGER, STRANGER, STRANGER)
    os.setresuid(STRANGER, STRANGER, STRANGER)


# ---- the guard is killed, and its journals cannot be trusted

def end(program):
    """What it said, when its command is ended."""
    program.terminate()
    stderr = program.communicate(timeout=240)[1]
    return program.returncode, stderr


def test_guard_killed_while_all_is_locked(gpus):
    program, guard = hold(gpus)
    locks = [open(os.path.join(gpus.env["JM_STATE"], "knobs", name), "rb")
             for name in os.listdir(os.path.join(gpus.env["JM_STATE"], "knobs"))]
    kill(guard, signal.SIGSTOP)
    try:
        kill(guard)
        for lock in locks:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.0005)
        assert wait_for(lambda: gpus.limits() == FOUND), gpus.limits()
        status, stderr = end(program)
        assert status == FAILURE and CLAIM in stderr
    finally:
        for lock in locks:
            lock.close()


def test_guard_killed_while_the_state_folder_is_gone(gpus):
    program, guard = hold(gpus)
    shutil.rmtree(gpus.env["JM_STATE"])
    kill(guard)
    assert wait_for(lambda: gpus.limits() == FOUND), gpus.limits()
    status, stderr = end(program)
    assert status == FAILURE and CLAIM in stderr


@pytest.mark.parametrize("damage", ["emptied", "removed", "filled"])
def test_guard_killed_with_damaged_journals(gpus, damage):
    program, guard = hold(gpus)
    for path in files(gpus) + (files(gpus, "held") if os.path.isdir(gpus.env["JM_STATE"] + "/held") else []):
        if damage == "removed":
            os.remove(path)
        else:
            with open(path, "w", encoding="ascii") as f:
                f.write("" if damage == "emptied" else "nothing\nof it\n")
    kill(guard)
    assert wait_for(lambda: gpus.limits() == FOUND), gpus.limits()
    status, stderr = end(program)
    assert status == FAILURE and CLAIM in stderr
    assert "Nothing" in run(gpus, "restore").stdout


def test_guard_killed_and_nothing_can_be_set(gpus):
    """Then it must not be said that all is back."""
    gpus.config(f"deny=all;denyfile={gpus.state}.deny")
    program, guard = hold(gpus)
    open(gpus.state + ".deny", "w", encoding="ascii").close()
    kill(guard)
    time.sleep(0.5)
    status, stderr = end(program)
    assert status == FAILURE and CLAIM not in stderr and "is not back" in stderr and "555" in stderr, stderr
    assert gpus.limits() == [300] * 4
    os.remove(gpus.state + ".deny")
    assert run(gpus, "restore").returncode == 0 and gpus.limits() == FOUND


def test_a_sweep_whose_guard_is_killed_while_it_looks(gpus):
    """It has changed nothing yet; another guard takes its place."""
    stuck = hang(gpus, "getlag")
    program = start(gpus, "run", "null", "--source", "null", "--step-time", "1ms", "--steps", "1", "--warmup", "0",
                    "--set", "gpu.power=300W", stdout=subprocess.DEVNULL)
    assert wait_for(lambda: guard_of(program.pid))
    time.sleep(0.5)
    kill(guard_of(program.pid))
    os.remove(stuck)
    stderr = program.communicate(timeout=240)[1]
    assert program.returncode == 0, stderr
    assert gpus.limits() == FOUND


def test_a_sweep_whose_guard_is_killed_after_the_last_case(gpus):
    """All cases are complete, and the program puts back what the guard could not: that is no failure."""
    gpus.config("setlatency=150000")
    program = start(gpus, "run", "null", "--source", "null", "--step-time", "1ms", "--steps", "1", "--warmup", "0",
                    "--set", "gpu.power=300W", "--seed", "1", stdout=subprocess.DEVNULL)
    said = ""
    while "[2/2]" not in said:
        said += program.stderr.readline() or pytest.fail(said)
    assert gpus.limits() != FOUND
    kill(guard_of(program.pid))
    stderr = program.communicate(timeout=240)[1]
    assert gpus.limits() == FOUND and not gpus.journals()
    assert "was killed; restoring in its place." in stderr and CLAIM in stderr
    assert program.returncode == 0, stderr


def test_a_guard_killed_while_it_opens_is_replaced(gpus):
    gpus.config("latency=50000")
    program = start(gpus, "set", "gpu.power@GPU-0=300W", "--", "true")
    assert wait_for(lambda: guard_of(program.pid))
    time.sleep(0.3)
    kill(guard_of(program.pid))
    stderr = program.communicate(timeout=240)[1]
    assert program.returncode == 0, stderr
    assert gpus.limits() == FOUND


def test_blocked_stderr_does_not_delay_the_restore(gpus):
    reader, writer = os.pipe()
    program, guard = hold(gpus, stderr=writer)
    os.set_blocking(writer, False)
    for size in (4096, 1):
        try:
            while True:
                os.write(writer, b"x" * size)
        except BlockingIOError:
            os.set_blocking(writer, True)
            os.set_blocking(writer, size == 1)
    kill(guard)
    try:
        assert wait_for(lambda: gpus.limits() == FOUND), gpus.limits()
    finally:
        os.close(writer)
        os.close(reader)
        program.kill()
        program.wait(20)


# ---- other users

@needs_another_user
def test_journals_and_locks_are_their_owners(gpus):
    program, _ = hold(gpus)
    try:
        state = gpus.env["JM_STATE"]
        for folder, _, names in os.walk(os.path.join(state, "knobs")):
            for name in names:
                done = subprocess.run(["cat", os.path.join(folder, name)], preexec_fn=as_stranger,
                                      capture_output=True, check=False)
                assert done.returncode != 0, name
        status = run(gpus, "status", preexec_fn=as_stranger)
        assert status.returncode == 0, status.stderr
        assert status.stdout.count(f"held by process {program.pid}") == 4 and "555 W" in status.stdout
        assert not status.stderr  # nothing of another user has to be restored
        shutil.rmtree(os.path.join(state, "held"))
        assert "It is unknown what is set" in sentence(run(gpus, "status", preexec_fn=as_stranger), FAILURE)
    finally:
        end(program)
    assert gpus.limits() == FOUND


@needs_another_user
def test_control_characters_of_file_names_are_escaped(gpus):
    """A copy whose name has control characters, or is no text, is a row in the table and in the JSON."""
    program, _ = hold(gpus)
    try:
        for name in (b"\x1b[2Jknob@gpu.journal", b"\xff\xfe@\xff.journal"):
            with open(os.path.join(os.fsencode(gpus.env["JM_STATE"]), b"held", name), "wb") as f:
                f.write(b"2\tfound")
        for words in (["status"], ["status", "--json"]):
            done = run(gpus, *words, preexec_fn=as_stranger)
            sentence(done, FAILURE)
            assert not set(done.stdout + done.stderr) & set("\x1b\x07\xff")
        states = [row["state"] for row in json.loads(done.stdout)["settings"]]
        assert sorted(states) == ["damaged", "damaged", "held", "held", "held", "held"]
    finally:
        end(program)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_strangers_journal_is_not_believed(gpus):
    """Somebody who can make files in the folder must not have root set what they say."""
    crash(gpus)
    path = files(gpus)[0]
    os.chown(path, STRANGER, STRANGER)
    done = run(gpus, "restore")
    assert gpus.limits() in (FOUND, [300] + FOUND[1:])
    assert "belongs to user 65534" in done.stderr


def test_links_and_pipes_are_refused(gpus):
    run(gpus, "set", "gpu.power=300W", "--", "true")
    folder = os.path.join(gpus.env["JM_STATE"], "knobs")
    os.mkfifo(os.path.join(folder, "gpu.power@pipe-00000000.journal"))
    done = run(gpus, "status")
    assert done.returncode == FAILURE and "not a plain file" in done.stdout + done.stderr
    os.remove(os.path.join(folder, "gpu.power@pipe-00000000.journal"))
    os.symlink("/etc/passwd", os.path.join(folder, "gpu.power@a-00000000.journal"))
    done = run(gpus, "status")
    assert done.returncode == FAILURE and "symbolic link" in done.stderr


# ---- damage

def flip(path, old, new):
    with open(path, encoding="ascii") as f:
        text = f.read()
    assert old in text
    with open(path, "w", encoding="ascii") as f:
        f.write(text.replace(old, new))


DAMAGES = {
    "flipped": lambda path: flip(path, "gpu.power", "gpu.qower"),
    "emptied": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, os.path.getsize(path) // 2),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_journal_is_made_good_by_its_copy(gpus, damage):
    crash(gpus)
    for path in files(gpus):
        DAMAGES[damage](path)
    done = run(gpus, "restore")
    assert gpus.limits() == FOUND and "damaged" in done.stderr and done.returncode == 0, done.stderr
    assert len(files(gpus, end=".damaged")) == 4


def damage_both(gpus, damage):
    for path in files(gpus) + (files(gpus, "held") if os.path.isdir(gpus.env["JM_STATE"] + "/held") else []):
        if "GPU-1" in path:
            DAMAGES[damage](path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_loud_and_keeps_the_file(gpus, damage):
    assert run(gpus, "set", "gpu.power@GPU-1=300W").returncode == 0
    damage_both(gpus, damage)
    sweep = ["run", "null", "--source", "null", "--step-time", "1ms", "--steps", "1", "--warmup", "0"]
    for words in (["status"], ["restore"], ["set", "gpu.power@GPU-1=400W"],
                  ["set", "gpu.power=400W", "--", "true"], [*sweep, "--set", "gpu.power=400W"]):
        text = sentence(run(gpus, *words), FAILURE)
        assert "GPU-1" in text or "GPU 1" in text, (words, text)
        assert gpus.limits() == [700, 300, 700, 600] and len(files(gpus)) == 1
    other = run(gpus, "list")
    assert other.returncode == 0 and "warning" in other.stderr
    assert run(gpus, "set", "gpu.power@GPU-0=400W", "--", "true").returncode == 0


def test_default_helps_out_of_damage(gpus):
    assert run(gpus, "set", "gpu.power@GPU-1=300W").returncode == 0
    damage_both(gpus, "flipped")
    done = run(gpus, "restore", "--default")
    assert done.returncode == 0 and "vendor's default" in done.stdout + done.stderr
    assert gpus.limits() == [700, 700, 700, 600]
    assert "Nothing is set" in run(gpus, "status").stdout
    assert len(files(gpus, end=".damaged")) == 1


def test_journals_do_not_grow(gpus):
    assert run(gpus, "set", "gpu.power@GPU-1=300W").returncode == 0
    size = os.path.getsize(files(gpus)[0])
    for _ in range(10):
        assert run(gpus, "set", "gpu.power@GPU-1=400W", "--", "true").returncode == 0
    assert os.path.getsize(files(gpus)[0]) <= size + 30


def test_restore_counts_what_it_restored(gpus):
    crash(gpus)
    assert "Restored 4 settings" in run(gpus, "restore").stdout
    assert gpus.limits() == FOUND


@pytest.mark.parametrize("locks", ["there", "gone"])
def test_read_only_state_does_not_block_the_restore(gpus, locks):
    crash(gpus)
    for lock in files(gpus, end=".lock") if locks == "gone" else []:
        os.remove(lock)
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" restore'
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", gpus.env["JM_STATE"], os.path.abspath(BIN)],
                          env={**os.environ, **gpus.env}, capture_output=True, text=True, timeout=240, check=False)
    if "ermission" in done.stderr and "joulemark" not in done.stderr:
        pytest.skip("no mount namespaces here")
    assert gpus.limits() == FOUND, done.stderr
    assert "Read-only" in done.stderr and "NOT back" not in done.stderr


# ---- guards and drivers that hang

WAITS = "Waiting up to"  # said by whoever waits for a guard


def test_a_stopped_guard_is_named_and_keeps_nobody(gpus):
    program, guard = hold(gpus)
    kill(guard, signal.SIGSTOP)
    kill(program.pid)
    program.wait(20)
    try:
        for words in ["list"], ["get"], ["status"], ["help"]:
            done = run(gpus, *words)
            assert done.returncode == 0 and WAITS not in done.stderr, (words, done.stderr)
            if words == ["status"]:
                assert f"process {guard}" in done.stdout and "stopped" in done.stdout
        done = run(gpus, "set", "gpu.power=400W", "--", "true")
        assert f"process {guard}" in sentence(done, FAILURE)
        assert f"{WAITS} 10 s for gpu.power" in done.stderr and "kill -CONT" in done.stderr
    finally:
        kill(guard, signal.SIGCONT)
    assert wait_for(lambda: gpus.limits() == FOUND)


def test_marks_do_not_wait_for_a_guard(gpus):
    program, guard = hold(gpus)
    kill(guard, signal.SIGSTOP)
    kill(program.pid)
    program.wait(20)
    try:
        done = run(gpus, "measure", "--source", "null", "--", BIN, "mark", "here")
        assert done.returncode == 0 and "here" in done.stdout + done.stderr and WAITS not in done.stderr, done.stderr
        assert WAITS not in run(gpus, "mark", "nobody").stderr
    finally:
        kill(guard, signal.SIGCONT)
    assert wait_for(lambda: gpus.limits() == FOUND)


def hang(gpus, what):
    """GPU 2's driver does not return while the file is there."""
    stuck = gpus.state + ".stuck"
    open(stuck, "w", encoding="ascii").close()
    gpus.config(f"{what}=2:1e9;lagfile={stuck}")
    return stuck


def second_signal(gpus):
    """The seconds from the second signal to the end."""
    stuck = hang(gpus, "setlag")
    program = start(gpus, "run", "null", "--source", "null", "--step-time", "10ms", "--steps", "2", "--warmup",
                    "0", "--set", "gpu.power=300W", stdout=subprocess.DEVNULL)
    assert wait_for(lambda: gpus.limits()[0] == 300)
    guard = guard_of(program.pid)
    time.sleep(1.5)
    program.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert program.poll() is None
    program.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert program.wait(timeout=240) in (130, FAILURE)
    took = time.monotonic() - began
    stderr = program.communicate(timeout=240)[1]  # a guard that stays gives it up
    assert "Waiting for the guard" in stderr and "NOT restored" in stderr and f"process {guard}" in stderr, stderr
    os.remove(stuck)  # the driver returns, and the guard goes on
    assert wait_for(lambda: gpus.limits() == FOUND), gpus.limits()
    return took


def test_second_signal_ends_the_wait_for_a_driver(gpus):
    """A program that waits is late in every attempt, a busy machine only in some."""
    assert any(second_signal(gpus) < 3 for _ in range(4))


def test_a_driver_that_does_not_return_keeps_no_other_gpu(gpus):
    stuck = hang(gpus, "setlag")
    done = run(gpus, "set", "gpu.power=300W", "--", "true")
    assert "GPU 2" in sentence(done, FAILURE) and "does not return" in done.stderr
    assert gpus.limits() == FOUND
    rows = json.loads(run(gpus, "status", "--json").stdout)["settings"]  # its guard stays for what may still happen
    assert [row["state"] for row in rows] == ["being restored"] and "GPU-2" in rows[0]["device"]
    os.remove(stuck)  # what GPU 2's driver was told may now happen, and is put back
    assert wait_for(lambda: run(gpus, "get").returncode == 0 and gpus.limits() == FOUND and not gpus.journals())


# ---- one lost GPU

def test_one_lost_gpu_is_a_row_with_its_reason(gpus):
    gpus.config("lostlimit=1")
    done = run(gpus, "get", "--json", "gpu.power")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["accepted"] for row in rows] == [700, None, 700, 600] and "lost" in rows[1]["reason"]
    assert "lost" in run(gpus, "get").stdout
    assert "lost" in sentence(run(gpus, "get", "gpu.power@GPU-1"), FAILURE)
    done = run(gpus, "set", "gpu.power@GPU-0=300W", "--", "true")
    assert done.returncode == 0, done.stderr
    done = run(gpus, "run", "null", "--source", "null", "--step-time", "10ms", "--steps", "2", "--warmup", "0",
               "--set", "gpu.power@GPU-0=300W")
    assert done.returncode == 0, done.stderr
    assert "lost" in sentence(run(gpus, "set", "gpu.power=300W", "--", "true"), FAILURE)
    assert gpus.limits() == FOUND


def test_a_gpu_that_was_lost_before_is_told(gpus):
    """The driver does not even tell its id, so it is no row."""
    gpus.config("lost=1@1e-6")
    done = run(gpus, "get", "--json", "gpu.power")
    assert [row["accepted"] for row in json.loads(done.stdout)] == [700, 700, 600]
    assert "GPU 1" in done.stderr and "GPU is lost" in done.stderr
    assert run(gpus, "set", "gpu.power=300W", "--", "true").returncode == 0
    assert gpus.limits() == FOUND


@pytest.mark.skipif(os.geteuid() != 0, reason="another owner needs root")
@pytest.mark.parametrize("owner, mode, why", [
    (STRANGER, 0o755, f"belongs to user {STRANGER}"), (0, 0o777, "Users other than root can write"),
    (0, 0o1777, "Users other than root can write")])
def test_root_refuses_a_state_folder_that_others_write(gpus, owner, mode, why):
    """A journal that a stranger wrote would be restored by root: nothing is set, and nothing restored from it."""
    folder = gpus.env["JM_STATE"]
    crash(gpus)
    os.chown(folder, owner, -1)
    os.chmod(folder, mode)
    for words in (["set", "gpu.power=400W", "--", "true"], ["restore"]):
        done = run(gpus, *words)
        assert done.returncode == FAILURE and why in done.stderr and sentence(done), done.stderr
        assert gpus.limits() == [300] * 4
    os.chown(folder, 0, -1)
    os.chmod(folder, 0o755)
    assert run(gpus, "restore").returncode == 0 and gpus.limits() == FOUND
