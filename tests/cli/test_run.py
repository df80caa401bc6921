# SPDX-License-Identifier: Apache-2.0
"""run: single cases, sweeps in blocks, failures that stay visible, resuming."""
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import time

import pytest

from jm import BIN, FAILURE, NOT_FOUND, SOURCE, USAGE, jm, sentence

FAILED = 1
SIM = ["run", "sim", "--device", "sim:h100x4", "--seconds", "2"]
NULL = ["run", "null", "--source", "null", "--step-time", "5ms", "--warmup", "0", "--steps", "3"]
COMMAND = ["run", "--source", "null"]


def records(path):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return [json.loads(row[0]) for row in db.execute("SELECT record FROM records")]
    finally:
        db.close()


def query(path, sql):
    db = sqlite3.connect(path)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def comparable(record):
    """Without what names the moment."""
    return {k: v for k, v in record.items() if k not in ("started", "provenance")}


def one(*args, status=0, **more):
    args = list(args)
    at = args.index("--") if "--" in args else len(args)
    done = jm(*args[:at], "--json", "-", *args[at:], **more)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


# ---- single cases


def test_single_workload():
    r = one(*NULL)
    assert r["schema"] == "joulemark.run/1" and r["status"] == "ok" and r["reason"] is None
    assert (r["workload"], r["steps"], r["items"], r["unit"]) == ("null", 3, 3, "wait")
    assert r["warmup_steps"] == 0 and r["verified"] is True and r["clock"] == "real"
    assert 3 / r["throughput"] >= 3 * 0.005
    assert r["phase"] == "steady"
    names = [p["name"] for p in r["phases"]]
    assert names == ["setup", "warmup", "steady", "verify"]
    assert r["total"]["joules_measured"] is None  # unknown is null, never 0
    assert len(r["case"]["id"]) == 32 and r["id"] == r["case"]["id"]
    assert r["provenance"]["kernel"] == os.uname().release
    assert "user" not in json.dumps(r["provenance"]).lower()


def test_record_follows_the_schema():
    jsonschema = pytest.importorskip("jsonschema")
    path = SOURCE / "docs" / "record.schema.json"
    if not path.exists():
        pytest.skip("no schema yet")
    schema = json.loads(path.read_text())
    for args in (NULL, SIM, [*COMMAND, "--", "true"]):
        jsonschema.validate(one(*args), schema)
    jsonschema.validate(one(*COMMAND, "--", "false", status=FAILED), schema)


def test_id_depends_on_parameters_alone():
    a, b = one(*NULL), one(*NULL, "--seed", "5", "--interval", "30ms")
    assert a["id"] == b["id"]
    assert one(*NULL, "--step-time", "6ms")["id"] != a["id"]
    assert one("run", "null", "--source", "null", "--step-time", "0.005s", "--warmup", "0", "--steps",
               "3")["id"] == a["id"]


def test_simulated_device_in_simulated_time():
    began = time.monotonic()
    r = one("run", "sim", "--device", "sim:h100x4", "--seconds", "600")
    assert r["clock"] == "simulated" and r["wall_s"] > 600 and time.monotonic() - began < 60
    assert r["devices"] == 4 and len(r["meters"]) >= 4
    assert r["total"]["joules_measured"] is None and r["total"]["joules_simulated"] > 0
    assert abs(r["throughput"] / 4 - r["throughput_per_device"]) < 1e-6 * r["throughput"]


def test_sources_with_numbers_in_a_list():
    for how in (["--source", "null,estimate:5,20"], ["--source", "null", "--source", "estimate:5,20"]):
        r = one("run", "null", *how, "--step-time", "5ms", "--warmup", "0", "--steps", "1")
        assert {m["source"] for m in r["meters"]} == {"null", "estimate"}


def test_outside_command_passes_its_output_on():
    done = jm(*COMMAND, "--items-regex", "items ([0-9]+)", "--", "sh", "-c",
              "echo items 3; sleep 0.05; echo items 4; echo talk >&2")
    assert done.returncode == 0 and done.stdout.startswith("items 3\nitems 4\n")
    assert "talk" in done.stderr


def test_broken_pipe_inside_a_command():
    done = jm(*COMMAND, "--", "sh", "-c", "yes | head -n 1; echo end")
    assert done.returncode == 0 and done.stdout.startswith("y\nend\n")
    assert "roken pipe" not in done.stderr


def test_throughput_of_a_command():
    r = one(*COMMAND, "--items-json", "done.tokens", "--unit", "token", "--", "sh", "-c",
            "sleep 0.1; echo '{\"done\": {\"tokens\": 40}}'")
    assert r["items"] == 40 and r["unit"] == "token" and r["exit_status"] == 0
    assert 0 < r["throughput"] < 400 and r["command"][0] == "sh" and r["phase"] == "command"


def test_mark(tmp_path):
    r = one(*COMMAND, "--", "sh", "-c",
            f"'{BIN}' mark load; '{BIN}' mark work --items 0; sleep 0.1; '{BIN}' mark end --items 12")
    assert r["items"] == 12 and {"load", "work"} <= {p["name"] for p in r["phases"]}


def test_energy_speaks_of_the_same_stretch_as_throughput(tmp_path):
    """What comes before the first mark and after the last has neither items nor a part in their energy."""
    work = "for i in 1 2 3 4 5 6; do timeout 0.1 sh -c 'while :; do :; done'; done"
    words = ("run", "--source", "estimate:5,20", "--unit", "image", "--", "sh", "-c")
    one_phase = f"sleep 0.6; '{BIN}' mark work; {work}; '{BIN}' mark end --items 12; sleep 0.6"
    two_phases = f"sleep 0.6; '{BIN}' mark a; {work}; '{BIN}' mark b --items 6; {work}; '{BIN}' mark end --items 6"
    for script, phase, names in ((one_phase, "work", {"work"}), (two_phases, "marked", {"a", "b"})):
        r = one(*words, script)
        phases = {p["name"]: p for p in r["phases"]}
        assert r["phase"] == phase and names <= phases.keys()
        p = phases[phase]
        assert p["start_s"] == min(phases[n]["start_s"] for n in names)
        assert p["end_s"] == max(phases[n]["end_s"] for n in names) and p["items"] == 12
        assert r["throughput"] == pytest.approx(12 / (p["end_s"] - p["start_s"]), rel=1e-6)
        joules = r["total"]["joules_estimated"]
        assert joules == pytest.approx(sum(phases[n]["total"]["joules_estimated"] for n in names), rel=0.02)
        assert joules < 0.9 * phases["command"]["total"]["joules_estimated"]


@pytest.mark.parametrize("name, phase", [("settle", "mark.settle"), ("command", "mark.command"),
                                         ("marked", "marked")])
def test_marks_named_like_phases_of_ours(name, phase):
    between = f"'{BIN}' mark b --items 6; sleep 0.2; " if name == "marked" else ""
    script = f"sleep 0.2; '{BIN}' mark {name}; sleep 0.2; {between}'{BIN}' mark end --items 6; sleep 0.2"
    r = one("run", "--source", "estimate:5,20", "--", "sh", "-c", script)
    names = [p["name"] for p in r["phases"]]
    assert r["phase"] == phase and names.count(phase) == 1 and f"mark.{name}" in names
    p = r["phases"][names.index(phase)]
    assert r["throughput"] == pytest.approx(r["items"] / (p["end_s"] - p["start_s"]), rel=1e-6)


@pytest.mark.skipif(os.geteuid() != 0, reason="rights can be given up by root only")
def test_under_sudo_the_work_is_the_user_s(tmp_path):
    os.chmod(tmp_path, 0o777)
    env = {"SUDO_UID": "65534", "SUDO_GID": "65534", "JM_STATE": str(tmp_path / "state")}
    store, json_file = tmp_path / "s.db", tmp_path / "r.json"
    done = jm(*COMMAND, "--store", store, "--json", json_file, "--", "sh", "-c",
              "id -u; id -g; id -G; echo $HOME", env=env)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split("\n")
    assert words[:3] == ["65534", "65534", "65534"] and words[3] != os.environ["HOME"]
    assert store.stat().st_uid == 65534 and json_file.stat().st_uid == 65534
    done = jm(*COMMAND, "--", "id", "-u", env={**env, "SUDO_GID": "0"})  # root's group is one like others
    assert done.stdout.startswith("65534\n")
    done = jm(*COMMAND, "--", "id", "-u", env={**env, "SUDO_UID": "3000000000"})  # a directory's users
    assert done.stdout.startswith("3000000000\n")


# ---- failures stay visible


@pytest.mark.parametrize("script, words, exit_status", [
    ("echo early >&2; echo oops >&2; exit 3", ["status 3", "oops"], 3),
    ("kill -SEGV $$", ["signal 11"], 139),
    ("kill -KILL $PPID; sleep 5", ["worker", "signal 9"], None),
])
def test_failing_command(tmp_path, script, words, exit_status):
    store = tmp_path / "s.db"
    args = [*COMMAND, "--repeat", "2", "--store", store, "--", "sh", "-c", script]
    done = jm(*args)
    assert done.returncode == FAILED and done.stderr.count("FAILED") >= 2
    kept = records(store)
    assert [r["status"] for r in kept] == ["failed"] * 2
    for r in kept:
        assert all(word in r["reason"] for word in words), r["reason"]
        assert r["exit_status"] == exit_status
        assert r["total"]["joules_measured"] is None
    assert "FAILED" not in jm(*args).stderr  # not again by itself, but still:
    assert jm(*args).returncode == FAILED
    again = jm("run", "--store", store, "--resume", "--retry")
    assert again.returncode == FAILED and again.stderr.count("FAILED") >= 2
    assert query(store, "SELECT attempt FROM records") == [(2,), (2,)]


def test_one_failure_among_others(tmp_path):
    """The sweep goes on; the good ones count."""
    store, flag = tmp_path / "s.db", tmp_path / "flag"
    script = f"[ -e '{flag}' ] || {{ touch '{flag}'; exit 9; }}"
    done = jm(*COMMAND, "--repeat", "3", "--store", store, "--", "sh", "-c", script)
    assert done.returncode == FAILED
    assert [r["status"] for r in records(store)] == ["failed", "ok", "ok"]
    done = jm("run", "--store", store, "--resume", "--retry")
    assert done.returncode == 0 and [r["status"] for r in records(store)] == ["ok"] * 3


def test_fail_fast(tmp_path):
    store = tmp_path / "s.db"
    done = jm(*COMMAND, "--repeat", "3", "--fail-fast", "--store", store, "--", "false")
    assert done.returncode == FAILED and len(records(store)) == 1


def test_timeout():
    began = time.monotonic()
    r = one(*COMMAND, "--timeout", "300ms", "--", "sleep", "60", status=FAILED)
    assert "0.3 s" in r["reason"] and "--timeout" in r["reason"]
    assert time.monotonic() - began < 8


@pytest.mark.parametrize("script", [
    "sleep {0}; true",
    # sessions of their own, whose parents have gone
    "(setsid sh -c '(setsid sleep {0} &) ; sleep {0}' &) ; sleep {0}",
    # that ignore SIGTERM
    "(setsid sh -c 'trap \"\" TERM; sleep {0}; sleep {0}' &) ; sleep {0}",
])
def test_nothing_of_a_stopped_command_is_left(script):
    name = f"3{random.randrange(10**6):06d}.25"
    one(*COMMAND, "--timeout", "500ms", "--", "sh", "-c", script.format(name), status=FAILED)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                assert name.encode() not in f.read()
        except (FileNotFoundError, ProcessLookupError):
            pass


def test_missing_command():
    assert "no-such-command" in sentence(jm(*COMMAND, "--", "no-such-command"), NOT_FOUND)
    assert "/etc/passwd" in sentence(jm(*COMMAND, "--", "/etc/passwd"), NOT_FOUND)
    no_gpu = {"JM_NVML_LIB": "/nowhere/libnvidia-ml.so"}
    sentence(jm(*COMMAND, "--set", "gpu.power=300W", "--", "true", env=no_gpu), FAILURE)
    sentence(jm(*COMMAND, "--store", "/nowhere/s.db", "--", "true"), FAILURE)


# ---- sweeps


def sweep(store, *more, **kwargs):
    return jm(*SIM, "--set", "gpu.power=300W,400W,700W", "--repeat", "4", "--store", store, *more,
              **kwargs)


def test_blocks(tmp_path):
    store = tmp_path / "s.db"
    done = sweep(store)
    assert done.returncode == 0, done.stderr
    kept = records(store)
    assert len(kept) == 12
    blocks = {}
    for r in kept:
        blocks.setdefault(r["case"]["block"], {})[r["case"]["position"]] = r
    assert sorted(blocks) == [1, 2, 3, 4]
    orders = set()
    for block in blocks.values():
        assert sorted(block) == [1, 2, 3]
        assert [r["case"]["reference"] for r in block.values()].count(True) == 1
        orders.add(tuple(block[i]["case"]["parameters"]["settings"]["gpu.power"] for i in (1, 2, 3)))
    assert len(orders) > 1
    # 700 W is what was found: that point is the reference, none is added
    assert {r["case"]["parameters"]["settings"]["gpu.power"] for r in kept if r["case"]["reference"]} \
        == {"700W"}
    assert {r["case"]["seed"] for r in kept} == {1, 2, 3, 4}


def test_reference_as_found(tmp_path):
    store = tmp_path / "s.db"
    assert jm(*SIM, "--set", "gpu.power=300W", "--store", store).returncode == 0
    kept = {r["case"]["parameters"]["settings"]["gpu.power"]: r for r in records(store)}
    assert set(kept) == {"300W", "as found"} and kept["as found"]["case"]["reference"]
    assert {s["requested"] for s in kept["as found"]["settings"]} == {700}
    assert {s["state"] for s in kept["300W"]["settings"]} == {"binding"}


def test_states_of_settings(tmp_path):
    """The MI300X takes caps under 400 W and does not keep them, as published."""
    store = tmp_path / "s.db"
    done = jm("run", "sim", "--device", "sim:mi300xx2", "--response", "llama3-8b-infer", "--seconds",
              "5", "--set", "gpu.power=300W,500W", "--store", store)
    assert done.returncode == 0, done.stderr
    states = {r["case"]["parameters"]["settings"]["gpu.power"]: {s["state"] for s in r["settings"]}
              for r in records(store)}
    assert states["300W"] == {"violated"} and states["500W"] == {"binding"}


def test_options_are_axes(tmp_path):
    store = tmp_path / "s.db"
    done = jm("run", "null", "--source", "null", "--warmup", "0", "--steps", "1", "--step-time",
              "1ms,2ms,3ms", "--device", "cpu,ref", "--store", store)
    assert done.returncode == 0, done.stderr
    assert {(r["options"]["step-time"], r["device"]) for r in records(store)} == {
        (t, d) for t in ("0.001s", "0.002s", "0.003s") for d in ("cpu", "ref")}
    assert all(r["precision"] is None for r in records(store))  # waiting has none


def test_devices_are_axes(tmp_path):
    """Each device is measured by its own sensors."""
    store = tmp_path / "s.db"
    done = jm("run", "sim", "--device", "sim:h100x1,sim:mi300xx2", "--seconds", "1", "--store", store)
    assert done.returncode == 0, done.stderr
    kept = {r["device"]: r for r in records(store)}
    assert [len(kept[d]["meters"]) // kept[d]["devices"] * kept[d]["devices"] for d in sorted(kept)] \
        == [len(kept[d]["meters"]) for d in sorted(kept)]
    for device, record in kept.items():
        assert all(m["id"].startswith(device) for m in record["meters"])


def test_knobs_are_as_before(tmp_path):
    before = jm("get", "--control", "sim:h100x4").stdout
    assert sweep(tmp_path / "s.db").returncode == 0
    assert jm("get", "--control", "sim:h100x4").stdout == before


def test_trace_is_kept(tmp_path):
    store = tmp_path / "s.db"
    assert jm(*SIM, "--store", store).returncode == 0
    (meters,), = query(store, "SELECT meters FROM trace_t")
    signals = sum(len(m["signals"]) for m in json.loads(meters))
    (n, readings), = query(store, "SELECT count(DISTINCT signal), sum(readings) FROM chunk_t")
    assert n == signals and readings > 100


# ---- resuming


def test_same_command_again_does_nothing(tmp_path):
    store = tmp_path / "s.db"
    first = sweep(store)
    before = query(store, "SELECT record FROM records")
    again = sweep(store)
    assert again.returncode == 0 and again.stdout == first.stdout
    assert query(store, "SELECT record FROM records") == before
    assert query(store, "SELECT max(attempt) FROM records") == [(1,)]


def test_more_repeats_go_on(tmp_path):
    store = tmp_path / "s.db"
    assert jm(*NULL, "--store", store).returncode == 0
    before = records(store)
    assert jm(*NULL, "--repeat", "3", "--store", store).returncode == 0
    after = records(store)
    assert after[0] == before[0] and [r["case"]["repeat"] for r in after] == [1, 2, 3]


def killed_on_the_way(args, rng, kills):
    """Runs again after each kill until it ends by itself; returns how often it was killed."""
    while True:
        child = subprocess.Popen([BIN, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert child.wait(timeout=rng.uniform(0.01, 0.2) if kills < 15 else 60) == 0
            return kills
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            kills += 1


def test_resumed_equals_uninterrupted(tmp_path):
    """Killed at random moments again and again, a store ends up with the same figures."""
    whole = tmp_path / "whole.db"
    reference = sweep(whole)
    assert reference.returncode == 0
    rng, kills, stores = random.Random(7), 0, 0
    while kills < 8:
        parts, stores = tmp_path / f"parts{stores}.db", stores + 1
        args = [*SIM, "--set", "gpu.power=300W,400W,700W", "--repeat", "4", "--store", str(parts)]
        kills = killed_on_the_way(args, rng, kills)
        done = jm(*args)
        assert done.returncode == 0 and done.stdout == reference.stdout
        assert [comparable(r) for r in records(parts)] == [comparable(r) for r in records(whole)]
        assert query(parts, "PRAGMA integrity_check") == [("ok",)]


def test_interrupt(tmp_path):
    store = tmp_path / "s.db"
    args = [BIN, *COMMAND, "--repeat", "50", "--store", str(store), "--", "sleep", "0.2"]
    child = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    line = child.stderr.readline()
    assert "[ 1/50]" in line, line
    os.kill(child.pid, signal.SIGINT)
    began = time.monotonic()
    rest = child.communicate(timeout=20)[1]
    assert child.returncode == 130 and time.monotonic() - began < 3
    assert "--resume" in rest
    assert 1 <= len(records(store)) < 10
    assert all(r["status"] == "ok" for r in records(store))


def test_interrupt_while_a_case_is_being_stopped(tmp_path):
    store = tmp_path / "s.db"
    child = subprocess.Popen([BIN, *COMMAND, "--repeat", "3", "--timeout", "300ms", "--store", str(store),
                              "--", "sh", "-c", "trap '' TERM INT; sleep 30; sleep 30"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1.5)  # stopped for its time, but it does not listen
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(timeout=4) == 130
    assert not records(store)


def test_nohup(tmp_path):
    child = subprocess.Popen([BIN, *COMMAND, "--", "sleep", "1.5"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    time.sleep(0.7)
    os.kill(child.pid, signal.SIGHUP)
    assert child.wait(timeout=20) == 0


def test_second_interrupt_does_not_wait(tmp_path):
    ready = tmp_path / "ready"
    script = f"trap '' TERM INT; touch {ready}; sleep 30; sleep 30"
    child = subprocess.Popen([BIN, *COMMAND, "--", "sh", "-c", script], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not ready.exists() and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGINT)
    time.sleep(0.3)
    assert child.poll() is None
    os.kill(child.pid, signal.SIGINT)
    began = time.monotonic()
    assert child.wait(timeout=20) == 130 and time.monotonic() - began < 3


def test_notes_and_warnings_are_told_once():
    done = jm(*SIM, "--repeat", "3")
    assert done.returncode == 0 and done.stderr.count("note: ") == 1


def test_interrupt_restores_the_knobs(tmp_path):
    before = jm("get", "--control", "sim:h100x4").stdout
    args = ["run", "sim", "--device", "sim:h100x4", "--real-time"]
    child = subprocess.Popen([BIN, *args, "--set", "gpu.power=300W", "--repeat", "60",
                              "--seconds", "500ms", "--warmup", "0"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while jm("get", "--control", "sim:h100x4").stdout == before and time.monotonic() < end:
        time.sleep(0.02)
    assert jm("get", "--control", "sim:h100x4").stdout != before
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(timeout=20) == 143
    assert jm("get", "--control", "sim:h100x4").stdout == before


def test_seed_of_a_begun_plan(tmp_path):
    store = tmp_path / "s.db"
    assert jm(*NULL, "--seed", "3", "--store", store).returncode == 0
    assert "--seed 3" in sentence(jm(*NULL, "--seed", "4", "--store", store), USAGE)
    assert jm(*NULL, "--repeat", "2", "--store", store).returncode == 0
    assert [r["case"]["seed"] for r in records(store)] == [3, 4]


# ---- the store when things are bad


def limit_files(size):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit


def test_full_disk_loses_nothing(tmp_path):
    whole, store = tmp_path / "whole.db", tmp_path / "s.db"
    assert sweep(whole).returncode == 0
    done = sweep(store, preexec_fn=limit_files(400_000))
    text = sentence(done, FAILURE)
    assert "what was finished before is safe" in text
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
        assert "what was finished before is safe" in text
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
                           "--step-time", "1ms", "--warmup", "0", "--repeat", "100"], timeout=60, check=False)
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
        child.wait(timeout=20)


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


def test_unwritable_places():
    assert "/nowhere/s.db" in sentence(jm(*NULL, "--store", "/nowhere/s.db"), FAILURE)
    assert "directory" in sentence(jm(*NULL, "--json", "/tmp"), FAILURE)
    assert "/nowhere/r.json" in sentence(jm(*NULL, "--json", "/nowhere/r.json"), FAILURE)


def test_wrong_usage_makes_no_files(tmp_path):
    store, record = tmp_path / "s.db", tmp_path / "r.json"
    for args in (["run", "nul"], ["run", "null", "--step-tim", "1s"], ["run"]):
        sentence(jm(*args, "--store", store, "--json", record), USAGE)
        assert not store.exists() and not record.exists()
