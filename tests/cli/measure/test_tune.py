# SPDX-License-Identifier: Apache-2.0
"""joulemark tune: what it chooses, that nothing stays set after any kill, and what it says of work that it cannot tune."""
import json
import os
import re
import signal
import subprocess

import pytest

from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN, FAILURE, USAGE, jm, sentence

FOUND = [700.0, 700.0]
STEPS = "i=0; while [ $i -lt {n} ]; do i=$((i+1)); echo step $i; sleep 0.02; done"
COUNTED = ["--items-regex", "step", "--window", "0.1s", "--within", "3s"]
SIM = ["--device", "sim:h100x1", "--response", "llama3-8b-train"]


@pytest.fixture
def gpus(tmp_path):
    gpus = FakeGpus(tmp_path, 2)
    assert jm("get", env=gpus.env).returncode == 0
    assert gpus.limits() == FOUND
    return gpus


def steps(n):
    return ["sh", "-c", STEPS.format(n=n)]


def tune(gpus, tmp_path, *args):
    """Starts it; what it says is in the file tmp_path/said."""
    with open(tmp_path / "said", "w", encoding="utf-8") as said:
        return subprocess.Popen([BIN, "tune", *COUNTED, *args], env={**os.environ, **gpus.env},
                                stdout=subprocess.DEVNULL, stderr=said)


def said(tmp_path):
    return " ".join((tmp_path / "said").read_text(encoding="utf-8").split())


def moved(gpus):
    return wait_for(lambda: gpus.limits() != FOUND)


def restored(gpus):
    return wait_for(lambda: gpus.limits() == FOUND) and wait_for(lambda: not gpus.journals())


def tuned(path):
    return json.loads(path.read_text())["tune"]


def test_native_work_is_tuned_and_its_record_is_one(tmp_path):
    """What it chooses is for the test of the tuner in simulated time: here the machine's load moves the clock."""
    env = {"JM_STATE": str(tmp_path / "state")}
    record, store = tmp_path / "tune.json", tmp_path / "tune.db"
    done = jm("tune", "--device", "sim:h100x1", "--window", "0.2s", "--within", "4s", f"--json={record}", "--store", store,
              "--", BIN, "run", "sim", *SIM, "--real-time", "--seconds", "14", "--warmup", "0", "--step-items", "512", env=env)
    assert done.returncode == 0, done.stderr
    assert "by items and simulated energy" in " ".join(done.stderr.split())
    tune = tuned(record)
    assert tune["choice"] != "open" and tune["stopped"] is None and tune["progress"] == "items"
    assert tune["origin"] == "simulated" and tune["found"] == 700 and tune["unit"] == "W"
    assert {v["stage"] for v in tune["visits"]} >= {"coarse"} and tune["hold_s"] > 0
    # a busy GPU under a cap uses the cap, whatever the load of this machine is
    assert all(abs(v["joules"] / v["seconds"] / v["value"] - 1) < 0.05 for v in tune["visits"])
    assert {p["name"] for p in json.loads(record.read_text())["phases"]} >= {"tune.search", "tune.hold", "steady"}
    caps = json.loads(jm("get", "--device", "sim:h100x1", "--json", "gpu.power", env=env).stdout)
    assert [k["accepted"] for k in caps] == [700]
    text = jm("report", record, env=env).stdout
    assert "\nTuning\n" in text and "700.0 W (found)" in text
    # in a store it is another case than the command alone
    parameters = jm("query", "--format", "json", store, "SELECT parameters FROM cases", env=env).stdout
    assert json.loads(json.loads(parameters)[0]["parameters"])["options"] == {"tune": "edp"}


@pytest.mark.parametrize("victims", ["tuner", "guard", "both", "job"])
def test_a_kill_leaves_no_setting(gpus, tmp_path, victims):
    child = tune(gpus, tmp_path, "--", *steps(500))
    assert moved(gpus)
    guard = guard_of(child.pid)
    if victims in ("guard", "both"):
        kill(guard)
    if victims in ("tuner", "both"):
        kill(child.pid)
    if victims == "job":
        with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="ascii") as f:
            (job,) = {int(p) for p in f.read().split()} - {guard}
        kill(job)
    if victims == "guard":
        # joulemark itself restores, and the command goes on
        assert wait_for(lambda: "the setting found is in force" in said(tmp_path))
        assert restored(gpus) and child.poll() is None
        child.send_signal(signal.SIGTERM)
    child.wait(timeout=240)
    if victims == "both":
        assert jm("status", env=gpus.env).returncode == 0  # the next command restores
    assert restored(gpus)
    if victims == "job":
        assert child.returncode == 128 + signal.SIGKILL
        assert "The work ended before the search did." in said(tmp_path)


def test_a_command_that_is_shorter_than_a_visit_has_items(gpus):
    done = jm("tune", "--items-regex", "step", "--window", "60s", "--within", "600s", "--", *steps(150), env=gpus.env)
    text = " ".join(done.stderr.split())
    assert done.returncode == 0 and "reported no items" not in text and "The work ended before the search did." in text, text


def test_a_command_without_items_is_not_tuned(gpus, tmp_path):
    record = tmp_path / "tune.json"
    done = jm("tune", f"--json={record}", "--", "sleep", "0.3", env=gpus.env)
    assert done.returncode == 0
    assert "reported no items" in " ".join(done.stderr.split())
    tune = tuned(record)
    assert tune["choice"] == "open" and tune["visits"] == [] and tune["objective_percent"] is None
    assert gpus.limits() == FOUND


def test_the_activity_of_a_gpu_stands_for_items_where_it_is_asked_for(tmp_path):
    env = {"JM_STATE": str(tmp_path / "state")}
    record = tmp_path / "tune.json"
    done = jm("tune", "--device", "sim:h100x1", "--progress", "gpu", "--window", "0.2s", "--within", "2s",
              f"--json={record}", "--", BIN, "run", "sim", *SIM, "--real-time", "--seconds", "3", "--warmup", "0",
              env=env)
    assert done.returncode == 0, done.stderr
    assert "busy cycles of the GPU (an estimate)" in " ".join(done.stderr.split())
    assert len(tuned(record)["visits"]) > 3


def test_another_program_that_moves_the_cap_ends_it(gpus, tmp_path):
    other = {**gpus.env, "JM_STATE": str(tmp_path / "other")}
    child = tune(gpus, tmp_path, "--", *steps(1500))
    assert moved(gpus)
    while "Another program changes gpu.power as well" not in said(tmp_path):
        assert child.poll() is None
        assert jm("set", "gpu.power=433W", env=other).returncode == 0
    child.send_signal(signal.SIGTERM)
    child.wait(timeout=240)


def test_a_driver_that_refuses_halfway_ends_it(tmp_path):
    """Of GPU 1 only, which is put back at the end, when its driver permits it again; the command goes on."""
    gpus, refuses = FakeGpus(tmp_path, 2, f"deny=1;denyfile={tmp_path}/refuses"), tmp_path / "refuses"
    assert jm("get", env=gpus.env).returncode == 0
    child = tune(gpus, tmp_path, f"--json={tmp_path}/tune.json", "--", *steps(1500))
    assert moved(gpus)
    refuses.touch()
    assert wait_for(lambda: "Tuning has ended" in said(tmp_path) and gpus.limits()[0] == 700) and child.poll() is None
    refuses.unlink()
    child.send_signal(signal.SIGTERM)
    child.wait(timeout=240)
    assert restored(gpus) and "GPU 1" in tuned(tmp_path / "tune.json")["stopped"]


JUMPS = """
i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo n $i; sleep 0.02; done       # even
echo n 1000000000; sleep 1; echo n 3; sleep 1.5                             # jumps, begins again, stands still
i=3; while [ $i -lt 200 ]; do i=$((i+1)); echo n $i; sleep 0.02; done
"""


@pytest.mark.parametrize("kind", ["total", "amount"])
def test_progress_that_jumps_and_stops_is_no_better_setting(gpus, tmp_path, kind):
    """No rate comes of it that is not a number, and what is held is what was found, or was compared with it."""
    record = tmp_path / "tune.json"
    done = jm("tune", "--items-regex", r"n (\d+)", "--items-kind", kind, "--window", "0.1s", "--within", "3s", f"--json={record}", "--", "sh", "-c",
              JUMPS, env=gpus.env)
    assert done.returncode == 0, done.stderr
    tune = tuned(record)
    assert all(v["items"] > 0 and v["seconds"] > 0 and v["joules"] > 0 for v in tune["visits"]) and tune["visits"]
    assert (tune["choice"] == "open") == bool(re.search(r"^ +value +visits +s +W ", done.stderr, re.M))  # what was seen so far
    if tune["choice"] != "open":
        assert (tune["choice"] == "better") == (not tune["chosen_found"]) and (tune["chosen_found"] or tune["objective_percent"] < 0)
    assert gpus.limits() == FOUND and not gpus.journals()


def test_two_tuners_of_one_gpu_are_one(gpus, tmp_path):
    child = tune(gpus, tmp_path, "--", *steps(150))
    assert moved(gpus)
    text = sentence(jm("tune", *COUNTED, "--", "true", env=gpus.env), FAILURE)
    assert str(child.pid) in text
    assert child.wait(timeout=240) == 0 and gpus.limits() == FOUND


@pytest.mark.parametrize("share", ["equal", "marginal"])
def test_limits_are_never_above_the_budget(gpus, tmp_path, share):
    """Read from the driver at any moment, from the start of the command until it is ended. The record has the same ones."""
    command = ["sh", "-c", f"touch {tmp_path}/begun; " + STEPS.format(n=1500)]
    child = tune(gpus, tmp_path, "--budget", "901W", "--share", share, f"--json={tmp_path}/tune.json", "--", *command)
    assert wait_for((tmp_path / "begun").exists)
    seen = set()  # the limits of both GPUs
    assert not wait_for(lambda: seen.add(tuple(gpus.limits())) or max(map(sum, seen)) > 901, 5)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=240) == 128 + signal.SIGTERM
    assert restored(gpus)
    assert {sum(limits) for limits in seen} == {901} if share == "equal" else len(seen) > 2
    assert f"901 W, {share}, of gpu.power" in said(tmp_path)
    budget = json.loads((tmp_path / "tune.json").read_text())["budget"]
    noted = [tuple(change["watts"]) for change in budget["changes"]]
    assert seen <= set(noted) and max(map(sum, noted)) == budget["enforced_most_watts"] <= 901


@pytest.mark.parametrize("args, words", [
    (["--"], "No command"),
    (["--budget", "1000W", "--objective", "edp", "--", "true"], "rate of items"),
    (["--share", "equal", "--", "true"], "without --budget"),
    (["--objective", "speed", "--", "true"], "no objective"),
    (["--objective", "slowdown:5", "--", "true"], "slowdown"),
    (["--window", "10s", "--within", "20s", "--", "true"], "no time for 10 windows"),
    (["--progress", "gpu", "--items-regex", "x", "--", "true"], "omit it"),
    (["--knob", "gpu.powre", "--", "true"], "did you mean"),
    (["--knob", "gpu.power=300W,400W", "--", "true"], "at least 5"),
    (["--knob", "gpu.power@0", "--knob", "gpu.power", "--", "true"], "given twice for one device"),
    (["--knob", "gpu.power@0", "--knob", "gpu.power@1", "--knob", "gpu.clock", "--", "true"], "at most 2 knobs"),
    (["--budget", "1000W", "--knob", "gpu.power@0", "--knob", "gpu.power@1", "--", "true"], "give one --knob"),
    (["--knob", "gpu.power@0", "--knob", "gpu.power@1", "--window", "3s", "--within", "60s", "--", "true"], "for 25 windows"),
])
def test_bad_input_is_refused_before_the_command_runs(gpus, args, words):
    text = sentence(jm("tune", *args, env=gpus.env), USAGE)
    assert words in text
    assert gpus.limits() == FOUND and not gpus.journals()


def test_a_clock_is_tuned_where_its_value_is_stated(tmp_path):
    gpus = FakeGpus(tmp_path, 1, "clocks=1")
    args = ["--knob", "gpu.clock=900:1980+60MHz", *COUNTED]
    refused = sentence(jm("tune", *args, "--", "touch", tmp_path / "ran", env=gpus.env), FAILURE)
    assert "--found gpu.clock=unlocked" in refused and not (tmp_path / "ran").exists()
    record = tmp_path / "tune.json"
    done = jm("tune", *args, "--found", "gpu.clock=unlocked", f"--json={record}", "--", *steps(200), env=gpus.env)
    assert done.returncode == 0, done.stderr
    values = {(v["found"], v["value"]) for v in tuned(record)["visits"]}
    assert (True, None) in values and (False, 1.56e9) in values
    assert gpus.locked() == [None] and not gpus.journals()


def test_two_knobs_are_moved_together_and_restored(tmp_path):
    gpus = FakeGpus(tmp_path, 1, "clocks=1")
    record = tmp_path / "tune.json"
    done = jm("tune", *COUNTED, "--knob", "gpu.power=200:700+100W", "--knob", "gpu.clock=900:1980+60MHz",
              "--found", "gpu.clock=unlocked", f"--json={record}", "--", *steps(300), env=gpus.env)
    assert done.returncode == 0, done.stderr
    assert "gpu.power and gpu.clock of 1 device" in " ".join(done.stderr.split())
    tune = tuned(record)
    seen = {(v["value"], v["second"]) for v in tune["visits"] if not v["found"]}
    # the grid from its end: the cap at its highest value, with clocks at the middle and at the lowest
    assert {(700, 1.44e9), (700, 0.9e9)} <= seen and len({cap for cap, _ in seen}) > 1
    assert all(v["second"] is None for v in tune["visits"] if v["found"])
    second = tune["second"]
    assert (second["knob"], second["unit"], second["min"], second["max"], second["found"]) == ("gpu.clock", "Hz", 0.9e9, 1.98e9, None)
    assert gpus.limits() == FOUND[:1] and gpus.locked() == [None] and not gpus.journals()
    assert "no limit" in jm("report", record, env=gpus.env).stdout


def test_two_knobs_of_one_name_are_told_apart_by_their_devices(gpus):
    done = jm("tune", *COUNTED, "--knob", "gpu.power@0", "--knob", "gpu.power@1", "--", *steps(20), env=gpus.env)
    said, (first, second) = " ".join(done.stderr.split()), [row["device"] for row in json.loads(jm("get", "--json", env=gpus.env).stdout)]
    assert done.returncode == 0 and first != second and f"Tuned gpu.power of {first} and gpu.power of {second} for the least" in said, said


def test_a_budget_below_the_least_limits_is_refused(gpus):
    assert "below the sum of the least limits" in sentence(jm("tune", "--budget", "300W", "--", "true", env=gpus.env), USAGE)
    assert gpus.limits() == FOUND and not gpus.journals()


def test_the_status_is_that_of_the_command(gpus):
    assert jm("tune", "--", "sh", "-c", "exit 7", env=gpus.env).returncode == 7
    assert jm("tune", "--", "/nowhere/nothing", env=gpus.env).returncode == 127
    assert gpus.limits() == FOUND


MIX = """\
i=0
while [ $i -lt 8 ]; do
    for p in product stream all-gather; do
        {jm} mark $p
        env -u JM_PROGRESS {jm} run sim --device sim:h100x1 --response $p --real-time --warmup 0 --seconds 0.01 \\
            --source null --step-items $(test $p = all-gather && echo 90 || echo 200) >/dev/null || exit 9
        {jm} mark $p --items 1
    done
    i=$((i+1))
done
"""


def test_each_class_of_phases_has_its_cap(tmp_path):
    """The choice is for the test of the search: here the machine's load moves the clock. Which cap is in force in a
    phase is seen here."""
    env = {"JM_STATE": str(tmp_path / "state")}
    record, policy, script = tmp_path / "tune.json", tmp_path / "policy.yaml", tmp_path / "mix.sh"
    script.write_text(MIX.format(jm=os.path.abspath(BIN)))
    done = jm("tune", "--device", "sim:h100x1", "--per-phase", "--objective", "energy", "--class",
              "all-gather=mixed", f"--json={record}", "--policy", policy, "--", "sh", script, env=env)
    # eight cycles are no search: nothing is written, and that is said
    assert done.returncode == 125 and "no phase has a value of its own" in " ".join(done.stderr.split()), done.stderr
    found = json.loads(record.read_text())
    p = found["policy"]
    assert {(q["name"], q["class"], q["class_by"]) for q in p["phases"]} == {
        ("product", "compute", "name"), ("stream", "memory", "name"), ("all-gather", "mixed", "stated")}
    # no mark ends the last one
    assert {q["name"]: q["occurrences"] for q in p["phases"]} == {"product": 8, "stream": 8, "all-gather": 7}
    assert p["switches"] > 0 and p["latency_s"] > 0 and p["stopped"] is None
    assert "by phases for the least energy" in " ".join(done.stderr.split())
    # a busy GPU under a cap uses no more than the cap
    for q in p["phases"]:
        assert all(c["joules"] <= 1.05 * c["value"] * c["seconds"] for c in q["curve"] if c["visits"] and not c["found"])
    caps = json.loads(jm("get", "--device", "sim:h100x1", "--json", "gpu.power", env=env).stdout)
    assert [k["accepted"] for k in caps] == [700]
    assert p["choice"] == "open" and not policy.exists()


@pytest.mark.parametrize("args, words", [
    (["--policy", "x", "--", "true"], "without --per-phase"),
    (["--per-phase", "--budget", "900W", "--", "true"], "one --knob"),
    (["--per-phase", "--items-regex", "x", "--", "true"], "omit --items-regex"),
    (["--per-phase", "--class", "train=fast", "--", "true"], "compute, memory, link"),
    (["--per-phase", "--class", "=compute", "--", "true"], "PHASE=CLASS"),
])
def test_bad_input_of_phases_is_refused_before_the_command_runs(gpus, args, words):
    assert words in sentence(jm("tune", *args, env=gpus.env), USAGE)
    assert gpus.limits() == FOUND and not gpus.journals()


def test_a_command_that_marks_nothing_has_no_policy(gpus, tmp_path):
    record = tmp_path / "tune.json"
    assert jm("tune", "--per-phase", f"--json={record}", "--", "sleep", "0.3", env=gpus.env).returncode == 0
    p = json.loads(record.read_text())["policy"]
    assert p["choice"] == "open" and p["phases"] == [] and p["why"] == "The work marked no phase."
    assert gpus.limits() == FOUND


def marks(names, seconds, times):
    """A command that marks these phases in turns."""
    lines = "; ".join(f"{os.path.abspath(BIN)} mark {name}; sleep {seconds}" for name in names)
    return ["sh", "-c", f"i=0; while [ $i -lt {times} ]; do i=$((i+1)); {lines}; done"]


def test_a_search_without_time_chooses_nothing_and_its_plan_has_no_values(tmp_path):
    env = {"JM_STATE": str(tmp_path / "state")}
    record, policy = tmp_path / "tune.json", tmp_path / "policy.yaml"
    done = jm("tune", "--device", "sim:h100x2", "--knob", "gpu.power@0", "--per-phase", "--within", "1s", f"--json={record}",
              "--policy", policy, "--", *marks("ab", 0.2, 6), env=env)
    assert done.returncode == 0, done.stderr
    p, plan = json.loads(record.read_text())["policy"], policy.read_text()
    assert p["choice"] == "unclear" and not p["held"] and "seen under all values" in p["why"]
    assert "of gpu.power@0 " in plan and "No values were held" in plan and "set:" not in plan
    assert jm("run", policy, "--dry-run", env=env).returncode == 0


def test_a_phase_shorter_than_the_refresh_of_the_sensor_is_not_switched(tmp_path):
    env, record = {"JM_STATE": str(tmp_path / "state")}, tmp_path / "tune.json"
    done = jm("tune", "--device", "sim:h100x1", "--per-phase", f"--json={record}", "--", *marks("ab", 0.02, 15), env=env)
    assert done.returncode == 0, done.stderr
    p = json.loads(record.read_text())["policy"]
    # the energy counter is refreshed each 0.1 s; a busy machine may make the phases longer
    assert all(q["too_short"] > 0 for q in p["phases"] if q["seconds"] < 0.09), p


def test_a_phase_without_a_place_in_the_search_has_the_setting_found(gpus):
    """32 names are told apart: gemm and those that --class names."""
    classes = [arg for i in range(31) for arg in ("--class", f"p{i}=mixed")]
    script = "J mark gemm; sleep 1; J mark p0; sleep 1; J mark gemm; read a; J mark another; read a; exit 7"
    script = script.replace("J", os.path.abspath(BIN))
    tuner = subprocess.Popen([BIN, "tune", "--per-phase", *classes, "--", "sh", "-c", script], env={**os.environ, **gpus.env},
                             stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    try:
        assert moved(gpus)
        tuner.stdin.write("\n")
        tuner.stdin.flush()
        assert wait_for(lambda: gpus.limits() == FOUND) and tuner.poll() is None
    finally:
        tuner.stdin.close()
        tuner.wait()
    assert tuner.returncode == 7 and restored(gpus)
