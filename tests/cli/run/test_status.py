# SPDX-License-Identifier: Apache-2.0
"""status: what other processes of joulemark run now; their files, and files that are damaged or left behind."""
import json
import os
import re
import pty
import signal
import stat
import subprocess
import time

import pytest

from fake_gpus import FakeGpus, wait_for
from jm import BIN, jm, terminal

POWER = 210
SWEEP = ["run", "sim", "--device", "sim:h100x2", "--real-time", "--steps", "15", "--response", "resnet50,vit-l16",
         "--repeat", "3"]


@pytest.fixture(name="env")
def own_state(tmp_path):
    return {"JM_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}


def running(env):
    done = jm("status", "--json", env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["running"]


def start(env, *args):
    return subprocess.Popen([BIN, *map(str, args)], env={**os.environ, **env}, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def files(env):
    folder = os.path.join(env["JM_STATE"], "running")
    return [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []


def seen(env, child, what=lambda row: True):
    """The row of that process, once it says what is waited for."""
    rows = []

    def look():
        rows[:] = [row for row in running(env) if row["pid"] == child.pid and what(row)]
        return rows

    assert wait_for(look), running(env)
    return rows[0]


def shown(env, what, number, *args):
    """The row of a program that runs, the text of `status` then, and its number; `number` ends the program."""
    with start(env, *args) as child:
        try:
            return seen(env, child, what), jm("status", env=env).stdout, child.pid
        finally:
            child.send_signal(number)
            child.wait(timeout=240)


@pytest.fixture(name="measurement", scope="module")
def measurement_of_two_gpus(tmp_path_factory):
    """Environment, row, text and process of a measurement of the fake NVML."""
    gpus = FakeGpus(tmp_path_factory.mktemp("gpus"), 2, f"wave=const;power={POWER};mem=0")
    assert running(gpus.env) == []
    return gpus.env, *shown(gpus.env, lambda row: row["watts"] and row["joules"] and row["joules"] > 2 * POWER,
                            signal.SIGTERM, "measure", "--source", "nvml", "sleep", "60")


def test_shows_a_measurement_with_its_watts(measurement):
    """The watts are those of the fake NVML."""
    _, row, _, _ = measurement
    assert (row["command"], row["work"], row["origin"]) == ("measure", "sleep 60", "measured")
    assert row["watts"] == pytest.approx(2 * POWER, rel=0.05)


def test_what_a_measurement_does_not_have_is_null(measurement):
    _, row, _, _ = measurement
    assert {row[key] for key in ("case", "left_s", "items_per_s", "store")} == {None}


def test_the_text_names_a_measurement_and_its_process(measurement):
    _, _, text, pid = measurement
    assert "measure sleep 60: " in text and " W measured" in text and f"process {pid}" in text
    assert "Nothing is set by joulemark." in text


def test_nothing_is_left_of_a_measurement_that_has_ended(measurement):
    env, _, _, _ = measurement
    assert running(env) == [] and files(env) == []
    assert "No run or measurement is under way." in jm("status", env=env).stdout


@pytest.fixture(name="sweep", scope="module")
def sweep_of_two_works(tmp_path_factory):
    """Environment, row and text of a sweep, and the store."""
    folder = tmp_path_factory.mktemp("sweep")
    env, store = {"JM_STATE": str(folder / "state"), "HOME": str(folder)}, folder / "sweep.db"
    row, text, _ = shown(env, lambda row: row["case"] > 1 and row["items_per_s"] and row["watts"], signal.SIGINT, *SWEEP,
                         "--store", store)
    return env, row, text, store


def test_shows_where_a_sweep_is(sweep):
    _, row, _, _ = sweep
    assert row["command"] == "run" and row["work"].startswith("sim response=")
    assert row["cases"] == 6 and 2 <= row["case"] <= 6 and row["failed"] == 0
    assert 0 <= row["share"] <= 1 and row["left_s"] > 0


def test_shows_what_a_sweep_measures(sweep):
    _, row, _, store = sweep
    assert (row["origin"], row["unit"], row["store"]) == ("simulated", "image", str(store))


def test_the_text_names_the_cases_and_the_store_of_a_sweep(sweep):
    _, _, text, store = sweep
    assert "of 6, " in text and "image/s" in text and "left" in text and str(store) in text


def test_the_text_has_no_powers_of_ten(sweep):
    """121150 items/s, not 1.2115e+05."""
    _, _, text, _ = sweep
    assert not re.search(r"\de\+", text), text


def test_nothing_is_left_of_a_sweep_that_was_interrupted(sweep):
    env, _, _, _ = sweep
    assert running(env) == [] and files(env) == []


def test_names_the_model_that_is_trained(env):
    with start(env, "run", "gpt", "--layers", "1", "--hidden", "32", "--heads", "2", "--vocab", "256", "--seq", "16",
               "--device", "ref", "--source", "null", "--seconds", "60") as child:
        try:
            row = seen(env, child)
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(timeout=240)
    assert row["work"] == "train gpt"


def test_shows_the_items_and_the_watts_of_a_command(env):
    """Marks of a swept command: 5 items each 0.1 s or more."""
    script = f"while :; do {BIN} mark work --items 5; sleep 0.1; done"
    with start(env, "run", "--source", "sim:h100x2", "--", "sh", "-c", script) as child:
        try:
            row = seen(env, child, lambda row: row["items_per_s"])
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(timeout=240)
    assert row["phase"] == "command" and row["work"].startswith("sh -c while") and 0 < row["items_per_s"] <= 50
    assert row["watts"] == pytest.approx(150, rel=0.1) and row["origin"] == "simulated"


def test_what_runs_already_is_named(env):
    with start(env, "measure", "--source", "sim:h100x2", "--pid", os.getpid(), "--for", "60s") as child:
        try:
            row = seen(env, child)
        finally:
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=240) == 0
    assert row["work"].startswith(f"process {os.getpid()} (") and files(env) == []


def test_a_killed_program_is_not_shown_and_its_file_goes(env):
    with start(env, "measure", "--source", "sim:h100x2", "sleep", "60") as child:
        seen(env, child)
        assert len(files(env)) == 1
        child.kill()
        child.wait()
        assert running(env) == [] and files(env) == []


def test_the_next_run_removes_what_a_killed_one_left(env):
    with start(env, "measure", "--source", "sim:h100x2", "sleep", "60") as child:
        assert wait_for(lambda: files(env))
        child.kill()
        child.wait()
    left = files(env)
    assert len(left) == 1
    assert jm("run", "--source", "sim:h100x2", "--", "true", env=env).returncode == 0
    assert files(env) == []


def test_a_process_id_that_is_used_again_is_another_process(env):
    """The file of a dead process whose id this one has now: the start time differs."""
    with start(env, "measure", "--source", "sim:h100x2", "sleep", "60") as child:
        seen(env, child)
        path = files(env)[0]
        with open(path, encoding="utf-8") as f:
            status = json.load(f)
        child.terminate()
        child.wait()
    status["pid"] = os.getpid()
    parts = path.split("-")
    parts[-2] = str(os.getpid())
    with open("-".join(parts), "w", encoding="utf-8") as f:
        json.dump(status, f)
    assert running(env) == [] and files(env) == []


def test_a_host_whose_name_has_a_hyphen_is_named_as_it_is(env):
    """In a namespace of host names, as a machine of that name."""
    named = ["unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', "node-7"]
    if subprocess.run([*named, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("no namespace of host names may be made here")
    inside = {**os.environ, **env}
    with subprocess.Popen([*named, BIN, "measure", "--source", "sim:h100x2", "sleep", "60"], env=inside,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        seen(env, child)
        there = subprocess.run([*named, BIN, "status"], env=inside, capture_output=True, text=True, check=True).stdout
        elsewhere = jm("status", env=env).stdout
        child.kill()
        child.wait()
    subprocess.run([*named, BIN, "status"], env=inside, stdout=subprocess.DEVNULL, check=True)
    assert f"process {child.pid}" in there and "node" not in there
    assert f"process {child.pid} on node-7" in " ".join(elsewhere.split()) and files(env) == []


def test_the_file_is_for_its_user_alone(env):
    with start(env, "measure", "--source", "sim:h100x2", "sleep", "60") as child:
        seen(env, child)
        mode = stat.S_IMODE(os.stat(files(env)[0]).st_mode)
        folder = stat.S_IMODE(os.stat(os.path.dirname(files(env)[0])).st_mode)
        child.terminate()
        child.wait()
    assert (mode, folder) == ((0o644, 0o755) if os.geteuid() == 0 else (0o600, 0o700))


HOSTILE = {
    "terminal": lambda s: {**s, "work": "a\x1b]0;owned\x07\x1b[2Jb\r\nc", "phase": "\x9b31m", "store": "\x1b[1m"},
    "long": lambda s: {**s, "work": "w" * 2000, "phase": "p" * 2000, "host": "h" * 2000},
    "kinds": lambda s: {**s, "work": 7, "phase": [], "store": {}, "watts": "x", "case": -1, "number": -3,
                        "total": 10**18, "joules": None, "started_ns": "now", "written_ns": -2**63},
    "numbers": lambda s: {**s, "watts": -1e308, "items_per_s": 1e308, "left_s": 1e300, "number": 2**31 - 1,
                          "total": 2**31 - 1, "started_ns": 2**63 - 1, "written_ns": 2**63 - 1},
    "origin": lambda s: {**s, "origin": "sworn"},
    "empty": lambda s: {},
}
RAW = {"nothing": b"", "text": b"hello", "list": b"[1]", "torn": b'{"pid": 1, "wo', "deep": b"[" * 8000,
       "large": b" " * 100_000, "bytes": bytes(range(256))}


@pytest.mark.parametrize("damage", [*HOSTILE, *RAW])
def test_a_hostile_file_neither_confuses_the_terminal_nor_ends_status(env, damage):
    """The file bears the name of a process that runs, so that it is read."""
    with start(env, "measure", "--source", "sim:h100x2", "sleep", "60") as child:
        try:
            seen(env, child)
            path = files(env)[0]
            child.send_signal(signal.SIGSTOP)  # or it would write its file anew
            with open(path, "rb") as f:
                status = json.load(f)
            with open(path, "wb") as f:
                f.write(RAW[damage] if damage in RAW else json.dumps(HOSTILE[damage](status)).encode())
            done = jm("status", env=env)
            printed, code = terminal("status", columns=20, env=env)
            as_json = jm("status", "--json", env=env)
        finally:
            child.send_signal(signal.SIGCONT)
            child.send_signal(signal.SIGTERM)
            child.wait(timeout=240)
    assert done.returncode == 0 and code == 0 and as_json.returncode == 0
    assert not [c for c in done.stdout + done.stderr + printed if ord(c) < 32 and c != "\n" or 0x7f <= ord(c) < 0xa0]
    json.loads(as_json.stdout)
    if damage in RAW:
        assert "cannot be read" in done.stderr and not json.loads(as_json.stdout)["running"]
    assert damage != "terminal" or "a?]0;owned??[2Jb??c" in done.stdout
    assert damage != "kinds" or "nan" not in done.stdout
    assert damage != "origin" or "sworn" not in done.stdout


def test_a_pipe_or_a_link_in_the_folder_is_not_followed(env, tmp_path):
    with start(env, "measure", "--source", "sim:h100x2", "sleep", "60") as child:
        seen(env, child)
        path = files(env)[0]
        child.send_signal(signal.SIGSTOP)
        os.rename(path, tmp_path / "moved")
        for make in (lambda: os.mkfifo(path), lambda: os.symlink(tmp_path / "moved", path)):
            make()
            done = jm("status", "--json", env=env, timeout=240)
            assert done.returncode == 0 and json.loads(done.stdout)["running"] == [] and "cannot be read" in done.stderr
            os.unlink(path)
        child.send_signal(signal.SIGCONT)
        child.terminate()
        child.wait()


def test_no_folder_for_the_status_is_no_obstacle(tmp_path):
    """A file stands where the state folder should be."""
    (tmp_path / "state").write_text("")
    done = jm("measure", "--source", "estimate", "sleep", "1.3", env={"JM_STATE": str(tmp_path / "state")})
    assert done.returncode == 0, done.stderr


def test_a_short_command_writes_nothing(env):
    assert jm("measure", "--source", "sim:h100x2", "true", env=env).returncode == 0
    assert not os.path.exists(os.path.join(env["JM_STATE"], "running"))


def live_of(tmp_path, *options, script="echo first; sleep 2.5; echo last"):
    """What a terminal gets from a measured command whose output goes to a file; and that file."""
    out = tmp_path / "out"
    with open(out, "wb") as f:
        leader, follower = pty.openpty()
        with subprocess.Popen([BIN, "measure", *options, "--source", "sim:h100x2", "sh", "-c", script],
                              stdout=f, stderr=follower, stdin=follower,
                              env={**os.environ, "JM_STATE": str(tmp_path / "state")}) as child:
            os.close(follower)
            text = b""
            try:
                while more := os.read(leader, 4096):
                    text += more
            except OSError:
                pass
            assert child.wait(timeout=240) == 0
        os.close(leader)
    return text.decode(), out.read_text()


def test_the_live_line_of_a_command_stays_out_of_its_output(tmp_path):
    text, out = live_of(tmp_path)
    assert out == "first\nlast\n"
    assert "\r\x1b[K1 s  150" in text and " W " in text and " J simulated" in text
    drawn = text.split("\r\x1b[K")
    assert len(drawn) >= 4 and "simulated" in drawn[-2] and "\n" not in "".join(drawn[:-1]) and "\n" in drawn[-1]
    quiet, out = live_of(tmp_path, "--quiet")
    assert "\x1b[K" not in quiet and out == "first\nlast\n"


@pytest.mark.parametrize("words, unit", [((), "item"), (("--unit", "token"), "token")])
def test_the_live_line_of_a_command_tells_its_items(tmp_path, words, unit):
    """Two idle GPUs at 75 W each, and 5 items a second."""
    text, _ = live_of(tmp_path, *words, "--items-regex", "items ([0-9]+)", script="for i in 1 2 3; do echo items 5; sleep 1; done")
    found = re.findall(rf" ([\d.]+) W [\d.]+ J simulated  ([\d.]+) {unit}/s  ([\d.]+) J/{unit}", text)
    assert found, text
    for watts, rate, joules in found:
        assert float(joules) == pytest.approx(float(watts) / float(rate), rel=0.01)


def test_the_live_line_obeys_no_unit(tmp_path):
    text, _ = live_of(tmp_path, "--unit", "t\x1b]0;x\x07", "--items-regex", "n", script="for i in 1 2; do echo n; sleep 1; done")
    assert "/s" in text and "\x07" not in text and "\x1b]" not in text


def test_a_command_that_prints_to_the_terminal_has_no_live_line(tmp_path):
    printed, status = terminal("measure", "--source", "sim:h100x2", "sh", "-c", "echo first; sleep 1.5; echo last",
                               env={"JM_STATE": str(tmp_path / "state")})
    assert status == 0 and "first\nlast\n" in printed and "\x1b[K" not in printed


def test_writes_at_most_once_a_second(env):
    """By the inode, which every replacement changes."""
    with start(env, *SWEEP) as child:
        try:
            seen(env, child)
            inodes, end = set(), time.monotonic() + 3
            while time.monotonic() < end:
                for path in files(env):
                    if path.endswith(".json"):
                        try:
                            inodes.add(os.stat(path).st_mtime_ns)
                        except FileNotFoundError:
                            pass
                time.sleep(0.01)
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(timeout=240)
    assert 1 <= len(inodes) <= 5
