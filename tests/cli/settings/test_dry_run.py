# SPDX-License-Identifier: Apache-2.0
"""set --dry-run: what it lists is what the kernel behind the files then gets, in the same order; it writes nothing itself."""
import json
import os
import re
import subprocess

import pytest

from fake_gpus import FakeGpus
from jm import BIN, FAILURE, USAGE, jm, sentence
from sysfs_machine import CPUFREQ, POWERCAP, Machine

WIDE = {"COLUMNS": "400"}


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def listed(text):
    return [f"{m[1]} {os.path.realpath(m[2])}" for m in re.finditer(r"^ +\d+\. write (\S+) to (\S+) \(", text, re.M)]


@pytest.mark.parametrize("words", [
    ["package.power=120W", "package.peak_power=200W"],
    ["module.power=500W"],
    ["cpu.clock=3600:3700MHz"],  # above what is found: the upper end first
    ["cpu.epp=performance", "cpu.clock=1200MHz"],
    ["cpu.governor@policy2=performance", "package.power=100.5W", "module.power=900W"],  # the last one is so already
])
def test_what_is_listed_is_what_is_written(machine, words, tmp_path):
    log, before = tmp_path / "log", machine.files("")
    dry = machine.run("set", "--dry-run", *words, "--", "true", JM_FAKE_KERNEL_LOG=log)
    assert dry.returncode == 0, dry.stderr
    assert not log.exists() and machine.files("") == before and not machine.state.exists()
    writes = listed(dry.stdout)
    assert machine.run("set", *words, JM_FAKE_KERNEL_LOG=log).returncode == 0
    assert writes and log.read_text(encoding="utf-8").splitlines() == writes
    journals = set(re.findall(r"write \S+/([^/ ]+\.journal), and sync it", dry.stdout))
    assert set(machine.journals()) <= journals  # one of a value that was so already ends with the session


def test_json_has_what_the_text_says(machine):
    words = ["cpu.governor@policy2=performance", "package.power=120W", "--", "true"]
    text = machine.run("set", "--dry-run", *words).stdout
    knobs = json.loads(machine.run("set", "--dry-run", "--json", *words).stdout)
    assert [f"{w['text']} {os.path.realpath(w['to'])}" for k in knobs for w in k["writes"]] == listed(text) != []
    assert all(w["allowed"] == ("this user may)" in text) for k in knobs for w in k["writes"])
    power = [k for k in knobs if k["knob"] == "package.power"]
    assert [(k["label"], k["found"], k["value"], k["restored"], k["unit"], k["ends"], k["holder_pid"]) for k in power] == [
        (f"package-{n}", 150.125, 120, 150.125, "W", "reboot", None) for n in (0, 1)]
    assert all(f"write {k['journal']}, and sync it: {k['knob']} of {k['label']}" in text for k in knobs)
    assert machine.run("set", "package.power=130W").returncode == 0
    kept = json.loads(machine.run("set", "--dry-run", "--json", "package.power=120W").stdout)
    assert [(k["found"], k["restored"]) for k in kept] == [(130, 150.125)] * 2
    assert sentence(machine.run("set", "--json", "package.power=120W"), USAGE)


def test_only_a_dry_run_has_results_for_a_file(machine, tmp_path):
    before = machine.files("")
    assert "--dry-run" in sentence(machine.run("set", "--output", tmp_path / "out", "package.power=120W"), USAGE)
    assert machine.files("") == before and not (tmp_path / "out").exists()
    assert machine.run("set", "--output", tmp_path / "out", "--dry-run", "package.power=120W").returncode == 0
    assert listed((tmp_path / "out").read_text(encoding="utf-8"))


def test_range_rights_and_what_restores_it(machine):
    text = machine.run("set", "--dry-run", "package.power=120W", "--", "true").stdout
    assert "package.power of package-0 (/sys/class/powercap/intel-rapl:0): 150.125W -> 120W, takes 1W to 205W" in text
    assert text.count("(this user may)") == 2 and "put back when the command ends" in text
    assert "package.power of package-1: 150.125W; a reboot ends the setting as well" in text
    assert machine.run("set", "package.power=130W").returncode == 0
    text = machine.run("set", "--dry-run", "package.power=120W").stdout
    assert "130W -> 120W" in text and "put back at 'joulemark restore':\npackage.power of package-0: 150.125W" in text


def test_what_would_be_refused_is_refused(machine):
    assert "takes 1W to 205W" in sentence(machine.run("set", "--dry-run", "package.power=300W"), USAGE)
    machine.put(f"{CPUFREQ}/policy0/energy_performance_preference", "133")
    machine.put(f"{CPUFREQ}/policy1/energy_performance_preference", "133")
    done = machine.run("set", "--dry-run", "cpu.epp=power")
    assert "could not be put back" in done.stderr and done.returncode == FAILURE
    assert not machine.state.exists()


def test_what_a_killed_joulemark_left_is_not_touched(machine):
    """By commands that write nothing; the next one puts it back."""
    before = machine.files("")
    machine.kill_while_set(["package.power=120W"], lambda: machine.get(
        f"{POWERCAP}/intel-rapl:1/constraint_0_power_limit_uw") == "120000000", "both").wait()
    left, journals = machine.files(""), machine.journals()
    assert left != before and len(journals) == 2
    for words in (["doctor"], ["set", "--dry-run", "package.power=100W"],
                  ["run", "--dry-run", "--set", "package.power=100W", "--", "true"]):
        done = machine.run(*words)
        assert done.returncode == 0 and machine.files("") == left and machine.journals() == journals, done.stderr
    assert machine.run("get").returncode == 0 and machine.files("") == before and not machine.journals()


def test_a_holder_is_named(machine):
    done = machine.run("set", "package.power=120W", "--", BIN, "set", "--dry-run", "package.power=100W")
    assert re.search(r"process \d+ holds it now, so that it would be refused", done.stdout), done.stderr


def test_calls_of_a_driver(tmp_path):
    gpus = FakeGpus(tmp_path, 1, "clocks=1")

    def dry(*words):
        return subprocess.run([BIN, "set", "--dry-run", *words], env={**os.environ, **WIDE, **gpus.env}, capture_output=True,
                              text=True, timeout=240, check=False)

    assert "cannot be read" in sentence(dry("gpu.clock=1200MHz"), FAILURE)
    done = dry("--found", "gpu.clock=unlocked", "gpu.clock=1200:1500MHz", "gpu.memory_clock=unlocked", "--found",
               "gpu.memory_clock=2619MHz", "gpu.power=300W")
    calls = re.findall(r"^ +\d+\. call (\w+)\(GPU-0000\S*?((?:, \d+)*)\) \(this user may", done.stdout, re.M)
    assert calls == [("nvmlDeviceSetPowerManagementLimit", ", 300000"), ("nvmlDeviceSetGpuLockedClocks", ", 1200, 1500"),
                     ("nvmlDeviceResetMemoryLockedClocks", "")], done.stdout + done.stderr
    assert "gpu.clock of GPU 0 NVIDIA H100 80GB HBM3 is unlocked, as stated" in done.stdout
    assert gpus.locks() == [0] and gpus.limits() == [700]


def test_a_simulated_node_and_nothing_else(tmp_path):
    done = jm("set", "--dry-run", "--device", "sim:h100x2", "gpu.power=300W", env={**WIDE, "JM_STATE": str(tmp_path / "state")})
    assert done.stdout.count("700W -> 300W") == 2 and not (tmp_path / "state" / "knobs").exists(), done.stderr
