# SPDX-License-Identifier: Apache-2.0
"""Knobs that decide about one another, and values found that could not be put back. Truth: the files of sysfs, behind which a
kernel refuses a preference under the governor performance, and changes it with the governor."""
import json

import pytest

from fake_gpus import wait_for
from jm import FAILURE, USAGE, sentence
from sysfs_machine import CPUFREQ, POWERCAP, Machine

FASTEST = ["cpu.governor=performance", "cpu.epp=performance"]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def found(machine, governor, epp):
    for cpu in range(4):
        machine.put(f"{CPUFREQ}/policy{cpu}/scaling_governor", governor)
        machine.put(f"{CPUFREQ}/policy{cpu}/energy_performance_preference", epp)
    return machine.files("")


CHANGES = [  # what is found, what is set
    (("powersave", "balance_power"), FASTEST),
    (("powersave", "balance_power"), ["cpu.epp=power", "cpu.governor=performance"]),  # refused
    (("powersave", "performance"), ["cpu.epp=power"]),
    (("performance", "performance"), ["cpu.epp=power", "cpu.governor=powersave"]),
    (("performance", "performance"), ["cpu.governor=powersave"]),
]
each = pytest.mark.parametrize("state, words", CHANGES)


@each
def test_governor_and_preference_are_back(machine, state, words):
    before = found(machine, *state)
    done = machine.run("set", *words, "--", "true")
    refused = "cpu.epp=power" in words and "cpu.governor=performance" in words
    assert done.returncode == (FAILURE if refused else 0), done.stderr
    assert ("Device or resource busy" in done.stderr) == refused and "NOT back" not in done.stderr
    assert machine.files("") == before and not machine.journals()


@pytest.mark.parametrize("victims", ["client", "guard", "both"])
@pytest.mark.parametrize("state, words", [CHANGES[0], CHANGES[3]])
def test_governor_and_preference_are_back_after_sigkill(machine, state, words, victims):
    """The preference under the other governor is what the kernel takes last."""
    before = found(machine, *state)
    child = machine.kill_while_set(words, lambda: all(
        machine.get(f"{CPUFREQ}/policy3/{file}") == dict(word.split("=") for word in words)[knob] for file, knob in
        (("scaling_governor", "cpu.governor"), ("energy_performance_preference", "cpu.epp"))), victims)
    if victims == "both":
        child.wait()
        done = machine.run("restore")
        assert done.returncode == 0 and "Nothing" not in done.stdout, done.stderr
    assert wait_for(lambda: machine.files("") == before)
    machine.end(child)
    assert wait_for(lambda: not machine.journals())


def test_what_set_left_is_restored_in_one_call(machine):
    before = machine.files("")
    assert machine.run("set", "cpu.epp=power").returncode == 0
    assert machine.run("set", *FASTEST).returncode == 0
    done = machine.run("restore")
    assert done.returncode == 0 and "NOT back" not in done.stderr
    assert machine.files("") == before and not machine.journals()


def test_a_sweep_does_not_depend_on_the_case_before(machine, tmp_path):
    """--set names the preference first: the governor is set before it all the same. What the kernel refuses is a failed case."""
    out, before = tmp_path / "records.json", machine.files("")
    done = machine.run("run", "--source", "null", "--repeat", "2", "--set", "cpu.epp=power,performance", "--set",
                       "cpu.governor=performance,powersave", f"--json={out}", "--", "true")
    assert done.returncode == 1, done.stderr
    ok = {}
    for record in json.loads(out.read_text(encoding="utf-8")):
        wish = record["case"]["parameters"]["settings"]
        ok.setdefault((wish["cpu.governor"], wish["cpu.epp"]), set()).add(record["status"])
    assert len(ok) >= 4 and all(states == ({"failed"} if case == ("performance", "power") else {"ok"})
                                for case, states in ok.items()), ok
    assert machine.files("") == before


@pytest.mark.parametrize("file, value, setting", [
    ("energy_performance_preference", "133", "cpu.epp=power"),
    ("scaling_governor", "My-Own", "cpu.governor=performance"),
    ("scaling_max_freq", "4200000", "cpu.clock=1200MHz"),
    ("power1_cap", "1200000000", "module.power=500W"),
])
@pytest.mark.parametrize("how", ["set", "run"])
def test_a_value_that_could_not_be_put_back_is_not_changed(machine, file, value, setting, how):
    for path in machine.files(file):
        machine.put(path, value)
    before = machine.files("")
    words = ["set", setting] if how == "set" else ["run", "--source", "null", "--set", setting]
    done = machine.run(*words, "--", "true")
    assert "could not be put back" in sentence(done, FAILURE) and "othing was changed" in done.stderr
    assert machine.files("") == before and not machine.journals()


def test_a_limit_above_fifteen_bits_is_put_back(machine):
    """Newer processors have more than 15 bits of 1/8 W."""
    for package in range(2):
        machine.put(f"{POWERCAP}/intel-rapl:{package}/constraint_0_power_limit_uw", 5000000000)
    before = machine.files("")
    assert machine.run("set", "package.power=120W", "--", "true").returncode == 0
    assert machine.files("") == before


def test_a_kernel_that_refuses_fails_the_case_and_not_the_sweep(machine, tmp_path):
    out = tmp_path / "records.json"
    done = machine.run("run", "--source", "null", "--set", "cpu.epp=power,balance_performance", f"--json={out}", "--",
                       "true", JM_FAKE_KERNEL_BUSY="policy0/energy_performance_preference=power")
    assert done.returncode == 1, done.stderr
    records = json.loads(out.read_text(encoding="utf-8"))
    assert {(r["case"]["parameters"]["settings"]["cpu.epp"], r["status"]) for r in records} >= {
        ("power", "failed"), ("balance_performance", "ok")}


def test_the_preference_default_can_be_set(machine):
    before = machine.files("")
    done = machine.run("set", "cpu.epp=default", "--", "true")
    assert "balance_performance (was balance_power), asked for default" in done.stderr and done.returncode == 0
    assert machine.files("") == before
    row = json.loads(machine.run("get", "--json", "cpu.epp").stdout)[0]
    assert row["default"] == "default" and "default" in row["words"]


def test_the_governor_userspace_gets_its_speed_back(machine):
    for cpu in range(4):
        machine.put(f"{CPUFREQ}/policy{cpu}/scaling_available_governors", "userspace performance powersave ")
        machine.put(f"{CPUFREQ}/policy{cpu}/scaling_governor", "userspace")
        machine.put(f"{CPUFREQ}/policy{cpu}/scaling_setspeed", 1500000)
    before = machine.files("")
    assert {r["accepted"] for r in json.loads(machine.run("get", "--json", "cpu.governor").stdout)} == {"userspace_1500000"}
    child = machine.kill_while_set(["cpu.governor=powersave"], lambda: machine.get(
        f"{CPUFREQ}/policy3/scaling_setspeed") == "<unsupported>", "both")
    child.wait()
    assert machine.run("list").returncode == 0
    assert machine.files("") == before and not machine.journals()
    assert machine.run("set", "cpu.governor=userspace_900000", "--", "true").returncode == USAGE


def test_a_long_interval_of_a_power_meter_is_not_waited_for(machine):
    for path in machine.files("power1_average_interval"):
        machine.put(path, 3600000)
    assert machine.run("set", "module.power=500W", "--", "true").returncode == 0


def test_a_device_that_is_gone_at_the_end_fails_the_run(machine):
    """With its setting, which stays in the journal."""
    folder = machine.root / "sys/class/hwmon"
    done = machine.run("run", "--source", "null", "--order", "given", "--set", "module.power=500W", "--", "sh", "-c",
                       f"if grep -q 900000000 {folder}/hwmon4/power1_cap; then rm -r {folder}; fi")
    assert "No such file" in done.stderr and done.returncode == FAILURE, done.stderr
    assert len(machine.journals()) == 2


def test_the_reason_why_a_driver_is_not_there_is_told(machine):
    """Other knobs are there, so that it is the driver of this one that matters."""
    done = machine.run("set", "gpu.power=300W", "--", "true", JM_NVML_LIB="/no/such.so")
    assert "gpu.power cannot be set here: Cannot load NVIDIA's library (/no/such.so" in sentence(done, FAILURE)
    done = machine.run("set", "gpu.powr=300W", "--", "true", JM_NVML_LIB="/no/such.so")
    assert "no knob 'gpu.powr' here; available: package.power" in sentence(done, USAGE)
