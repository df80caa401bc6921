# SPDX-License-Identifier: Apache-2.0
"""Settings of single phases: the value in the driver during a phase, its record, and its restoration."""
import json
import os
import re
import signal
import subprocess
import threading
import time

import jsonschema
import pytest

import page_data
from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN, USAGE, jm, sentence
from measured import SCHEMA

FOUND = [700.0, 650.0]

# Marks phases, and waits in each until the driver holds the limits that are given for it: "prefill=700,650". Another
# run after one that succeeded, which is the reference, fails at once.
COMMAND = """\
import os, pathlib, struct, subprocess, sys, time
done = pathlib.Path(sys.argv[0] + ".done")
if done.exists():
    sys.exit("the reference")
def limits():
    with open(os.environ["JM_FAKE_NVML_STATE"], "rb") as f:
        data = f.read()
    return [struct.unpack_from("<I", data, 8 + i * (16 + 256 * 24))[0] / 1000 for i in range(2)]
for word in sys.argv[1:]:
    name, want = word.split("=")
    subprocess.run([os.environ["JM"], "mark", name, "--items", "5"], check=True)
    want, end = [float(w) for w in want.split(",")], time.monotonic() + 20
    while limits() != want:
        if time.monotonic() > end:
            sys.exit(f"{name}: the driver holds {limits()}")
        time.sleep(0.002)
    time.sleep(0.4)  # longer than a change takes on a busy machine
done.touch()
"""


@pytest.fixture
def gpus(tmp_path):
    """Two GPUs, one with a limit that is not the default, set by somebody else than joulemark."""
    gpus = FakeGpus(tmp_path, 2)
    assert run(gpus, "set", "gpu.power@GPU-1=650W").returncode == 0
    for name in gpus.journals():
        os.remove(os.path.join(gpus.env["JM_STATE"], "knobs", name))
    (tmp_path / "phases.py").write_text(COMMAND)
    gpus.script = tmp_path / "phases.py"
    assert gpus.limits() == FOUND
    return gpus


def environment(gpus):
    return dict(os.environ, COLUMNS="400", JM=os.path.abspath(BIN), **gpus.env)


def run(gpus, *args):
    return subprocess.run([BIN, *map(str, args)], env=environment(gpus), capture_output=True, text=True, timeout=240,
                          check=False)


def start(gpus, *args):
    return subprocess.Popen([BIN, *map(str, args)], env=environment(gpus), stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def plan(gpus, text):
    path = gpus.script.parent / "plan.yaml"
    path.write_text(text)
    return path


def recorded(gpus, *args, status=0):
    out = gpus.script.parent / "out.json"
    done = run(gpus, "run", "--json", out, *args)
    assert done.returncode == status, done.stderr
    found = json.loads(out.read_text())
    return found if isinstance(found, list) else [found]


def of_settings(records, **settings):
    return next(r for r in records if r["case"]["parameters"]["settings"] == settings)


def test_a_run_without_settings_comes_after_the_way_back(gpus):
    """What one run of a plan sets does not stay for the next."""
    path = plan(gpus, f"""
source: "null"
runs:
  - {{name: capped, command: "true", set: {{gpu.power: [700W, 300W]}}, order: given}}
  - {{name: free, command: "python3 {gpus.script} x=700,650"}}
""")
    records = recorded(gpus, path)
    assert [r["status"] for r in records if r["case"]["run"] == "free"] == ["ok"] and gpus.limits() == FOUND


def test_phases_that_a_command_marks(gpus):
    path = plan(gpus, f"""
command: python3 {gpus.script} prefill=600,600 decode=300,300 prefill=600,600 decode=300,300
set: {{gpu.power: 600W, decode/gpu.power: [300W, 400W]}}
exclude: {{decode/gpu.power: 400W}}
order: given
source: nvml
""")
    records = recorded(gpus, path, status=1)  # in the reference the driver holds what was found
    r = of_settings(records, **{"gpu.power": "600W", "decode/gpu.power": "300W"})
    assert r["status"] == "ok", r["reason"]
    jsonschema.validate(r, SCHEMA)
    marked = [p for p in r["phases"] if p["name"] in ("prefill", "decode")]
    assert [(p["name"], p["settings"]) for p in marked] == 2 * [("prefill", {"gpu.power": "600W"}),
                                                                 ("decode", {"gpu.power": "300W"})]
    assert "settings_from_s" not in marked[0]
    for p in marked[1:]:
        assert p["start_s"] <= p["settings_from_s"] < p["end_s"] - 0.1
    want = [(name, watts) for name, watts in (("decode", 300), ("prefill", 600), ("decode", 300)) for _ in range(2)]
    assert [(c["phase"], c["requested"]) for c in r["changes"]] == want
    assert all(c["accepted"] == c["enforced"] == c["requested"] for c in r["changes"])
    for change, p in zip(r["changes"][::2], marked[1:]):
        assert p["start_s"] <= change["at_s"] <= p["settings_from_s"]
    assert [(s["knob"], s.get("phase"), s["requested"]) for s in r["settings"]] == \
        2 * [("gpu.power", None, 600)] + 2 * [("decode/gpu.power", "decode", 300)]
    assert gpus.limits() == FOUND and not gpus.journals()


def test_a_device_of_its_own_and_a_knob_that_the_case_leaves(gpus):
    """Without a value of its own for the rest, the case has there what was found."""
    r = of_settings(recorded(gpus, "--source", "null", "--order", "given", "--set", "decode/gpu.power@GPU-1=400W", "--", "python3",
                             gpus.script, "prefill=700,650", "decode=700,400", "end=700,650", status=1),
                    **{"decode/gpu.power@GPU-1": "400W"})
    assert r["status"] == "ok", r["reason"]
    assert [(s["knob"], s["requested"]) for s in r["settings"]] == [("decode/gpu.power", 400)]
    assert [(c["phase"], c["requested"]) for c in r["changes"]] == [("decode", 400), ("end", 650)]
    assert gpus.limits() == FOUND


def watch(gpus, child):
    """The limits of the first GPU, one after the other, until the child has ended."""
    seen = []

    def look():
        while child.poll() is None:
            now = gpus.limits()[0]
            if now not in seen[-1:]:
                seen.append(now)
            time.sleep(0.002)

    thread = threading.Thread(target=look)
    thread.start()
    child.wait(timeout=240)
    thread.join()
    return seen


def test_phases_of_a_workload(gpus):
    out = gpus.script.parent / "out.json"
    child = start(gpus, "run", "null", "--source", "null", "--step-time", "20ms", "--warmup", "300ms", "--seconds",
                  "0.3", "--order", "given", "--set", "warmup/gpu.power=500W", "--set", "steady/gpu.power=300W",
                  "--json", out)
    seen = watch(gpus, child)
    assert child.returncode == 0
    assert [w for w in seen if w != 700] == [500, 300], seen  # and the reference, 700 W throughout
    assert gpus.limits() == FOUND and not gpus.journals()
    r = of_settings(json.loads(out.read_text()), **{"warmup/gpu.power": "500W", "steady/gpu.power": "300W"})
    phases = {p["name"]: p for p in r["phases"] if "settings" in p}
    assert {name: p["settings"]["gpu.power"] for name, p in phases.items()} == {
        "warmup": "500W", "steady": "300W", "verify": "as found"}
    at = {(c["phase"], c["device"][:5]): (c["at_s"], c["accepted"]) for c in r["changes"]}
    assert [at[p, "GPU-1"][1] for p in ("warmup", "steady", "verify")] == [500, 300, 650]
    for name in ("warmup", "steady", "verify"):  # native work waits: the whole phase has its settings
        assert at[name, "GPU-0"][0] <= phases[name]["start_s"]


def test_states_are_judged_in_their_phases(tmp_path):
    """500 W bind the warm-up, and 300 W the measured phase, of work that would take more."""
    out = tmp_path / "out.json"
    done = subprocess.run([BIN, "run", "sim", "--device", "sim:h100x2", "--seconds", "3", "--warmup", "2s", "--set",
                           "gpu.power=600W", "--set", "warmup/gpu.power=500W", "--set", "steady/gpu.power=300W",
                           "--json", out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "steady/gpu.power" in done.stdout
    r = of_settings(json.loads(out.read_text()), **{"gpu.power": "600W", "warmup/gpu.power": "500W",
                                                    "steady/gpu.power": "300W"})
    assert {s["knob"]: s["state"] for s in r["settings"]} == {
        "gpu.power": "unknown", "warmup/gpu.power": "binding", "steady/gpu.power": "binding"}
    assert r["total"]["joules_simulated"] / next(p["end_s"] - p["start_s"] for p in r["phases"] if p["name"] == "steady") \
        == pytest.approx(600, rel=0.03)


def test_tables_name_the_setting_of_each_phase(tmp_path):
    store, page = tmp_path / "s.db", tmp_path / "page.html"
    assert jm("run", "sim", "--device", "sim:h100x2", "--seconds", "1", "--set", "gpu.power=600W", "--set",
              "steady/gpu.power=300W", "--store", store).returncode == 0
    shown = jm("report", "--phases", store).stdout
    assert re.search(r"^warmup +gpu.power=600W +\d", shown, re.M) and re.search(r"^steady +gpu.power=300W +\d", shown, re.M)
    assert jm("report", "--html", page, store).returncode == 0
    (details,) = page_data.of(page.read_text())["details"]  # of one run, the reference
    table = details["phase_table"]
    settings = {row[0]: row[table["titles"].index("settings")] for row in table["rows"]}
    assert settings["warmup"] == settings["steady"] == "gpu.power=as found"


def test_back_after_sigkill_in_a_phase(gpus):
    child = start(gpus, "run", "--source", "null", "--order", "given", "--set", "decode/gpu.power=300W", "--", "python3",
                  gpus.script, "decode=300,300", "decode2=1,1")
    assert wait_for(lambda: gpus.limits() == [300, 300])
    child.kill()
    child.wait()
    assert wait_for(lambda: gpus.limits() == FOUND)


def test_a_guard_killed_in_a_phase_costs_the_case_only(gpus):
    """Its values came back with it, so the case is run again, with the settings of its phases."""
    out = gpus.script.parent / "out.json"
    child = start(gpus, "run", "--source", "null", "--order", "given", "--set", "decode/gpu.power=300W", "--json", out, "--", "python3",
                  gpus.script, "prefill=700,650", "decode=300,300", "end=700,650")
    assert wait_for(lambda: gpus.limits() == [300, 300])
    kill(guard_of(child.pid), signal.SIGKILL)
    child.wait(timeout=240)
    r = of_settings(json.loads(out.read_text()), **{"decode/gpu.power": "300W"})
    assert r["status"] == "ok", r["reason"]
    assert [c["requested"] for c in r["changes"]] == [300, 300, 700, 650] and gpus.limits() == FOUND


def test_a_setting_that_the_driver_refuses_fails_the_case(gpus):
    gpus.config("nosets=1")
    r = of_settings(recorded(gpus, "--source", "null", "--order", "given", "--set", "decode/gpu.power=300W", "--", "python3", gpus.script,
                             "decode=700,650", status=1), **{"decode/gpu.power": "300W"})
    assert r["status"] == "failed" and r["failure"] == "device"
    assert r["reason"].startswith("The settings of the phase 'decode' could not be made: "), r["reason"]
    assert gpus.limits() == FOUND


def test_a_phase_that_was_never_marked_fails_the_case(gpus):
    r = of_settings(recorded(gpus, "--source", "null", "--order", "given", "--set", "decode/gpu.power=300W", "--", "python3", gpus.script,
                             "prefill=700,650", status=1), **{"decode/gpu.power": "300W"})
    assert "marked no phase 'decode'" in r["reason"] and r["failure"] == "command", r["reason"]


@pytest.mark.parametrize("lines, line, words", [
    ("work: \"null\"\nset: {decode/gpu.power: 300W}\n", 2, "a workload has no phase 'decode'; it has warmup"),
    ("work: \"null\"\nset:\n  steady/gpu.power: 2kW\n", 3, "takes 200W to 700W"),
    ("work: \"null\"\nset: {steady/gpu.pow: 300W}\n", 2, "did you mean 'gpu.power'"),
    ("work: \"null\"\nset: {/gpu.power: 300W}\n", 2, "has 1 to 63 bytes"),
    ("command: \"true\"\nset: {command/gpu.power: 300W}\n", 2, "not a phase that a command marks"),
    ("work: \"null\"\nset: [steady/gpu.power=300W, steady/gpu.power=400W]\n", 2, "--set steady/gpu.power is given twice"),
])
def test_refused_with_its_line(gpus, lines, line, words):
    path = plan(gpus, "source: \"null\"\nruns:\n" + "".join(
        ("  - " if i == 0 else "    ") + text + "\n" for i, text in enumerate(lines.splitlines())))
    text = sentence(run(gpus, "run", path), USAGE)
    assert words in text and text.startswith(f"{path}:{line + 2}"), text
