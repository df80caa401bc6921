# SPDX-License-Identifier: Apache-2.0
"""The knobs that are files of sysfs: limits of processor packages (rapl), their frequencies (cpufreq), and caps of NVIDIA
Grace (hwmon), on a tree behind which a kernel rounds, clamps and refuses. CI has none of them: the layouts are those of
the documents that the controls name."""
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fake_gpus import wait_for
from jm import BIN, BUILD, FAILURE, USAGE, sentence
from sysfs_machine import CPUFREQ, GOVERNORS, POWERCAP, PREFERENCES, Machine


@dataclass
class Knob:
    name: str
    files: tuple        # whose names end so
    value: str          # to set
    shown: object       # as `get --json` has it
    held: tuple         # what the kernel then has in these files
    found: object       # as `get --json` has it before
    kind: str
    devices: int = 2
    rounded: tuple = ()  # a value, and how it is shown
    bad: dict = field(default_factory=dict)
    follows: tuple = ()  # files that the kernel changes with it


KNOBS = [
    Knob("package.power", ("constraint_0_power_limit_uw",), "120W", 120.0, ("120000000",), 150.125, "number",
         rounded=("100.06W", 100.0),
         bad={"0.5W": "takes 1W to 205W, not 0.5W", "206W": "takes 1W to 205W", "-5W": "takes 1W", "1e308W": "takes 1W",
              "nanW": "'nanW'", "120": "no unit", "120MHz": "mW, W, kW", "100:120W": "no step", "unlocked": "number is"}),
    Knob("package.peak_power", ("constraint_1_power_limit_uw",), "0.2kW", 200.0, ("200000000",), 246.0, "number",
         rounded=("199.99W", 199.875), bad={"5000W": "takes 1W to 4095.875W"}),
    Knob("module.power", ("power1_cap",), "0.5kW", 500.0, ("500000000",), 900.0, "number", rounded=("499.99951W", 500.0),
         bad={"200W": "takes 250W to 1000W, not 200W", "1001W": "takes 250W to 1000W"}),
    Knob("cpu.clock", ("scaling_min_freq", "scaling_max_freq"), "1200:1500MHz", "1200:1500MHz", ("1200000", "1500000"),
         "900:3500MHz", "range",
         bad={"1500:1200MHz": "reversed", "700MHz": "takes 800MHz to 3800MHz, not 700MHz", "1:2": "no unit",
              "3000:4000MHz": "takes 800MHz to 3800MHz", "unlocked": "number is"}),
    Knob("cpu.governor", ("scaling_governor",), "performance", "performance", ("performance",), "powersave", "choice",
         follows=("energy_performance_preference",),
         bad={"schedutil": "no choice 'schedutil'; it has performance powersave", "1": "no choice '1'",
              "default": "default of cpu.governor"}),
    Knob("cpu.epp", ("energy_performance_preference",), "performance", "performance", ("performance",), "balance_power",
         "choice", bad={"fast": f"no choice 'fast'; it has {PREFERENCES}"}),
]
each = pytest.mark.parametrize("knob", KNOBS, ids=[k.name for k in KNOBS])


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def is_held(machine, knob):
    """Every package and policy has what was set; the zone "dram" is none of them."""
    held = dict(zip(knob.files, knob.held))
    return all(value == held[file.rsplit("/", 1)[1]] for file, value in machine.files(*knob.files).items()
               if ":0:0/" not in file and ":1:0/" not in file)


@each
def test_set_read_back_and_restore(machine, knob):
    before = machine.files("")
    rows = json.loads(machine.run("get", "--json", knob.name).stdout)
    assert len(rows) == knob.devices and all(r["accepted"] == r["enforced"] == knob.found for r in rows)
    assert {(r["kind"], r["ends"]) for r in rows} == {(knob.kind, "reboot")}
    done = machine.run("set", f"{knob.name}={knob.value}")
    assert done.returncode == 0, done.stderr
    assert {r["accepted"] for r in json.loads(machine.run("get", "--json", knob.name).stdout)} == {knob.shown}
    changed = {f for f, v in machine.files("").items() if before.get(f) != v}
    assert changed and all(f.endswith(knob.files + knob.follows) for f in changed) and is_held(machine, knob)
    done = machine.run("restore")
    assert done.returncode == 0, done.stderr
    assert machine.files("") == before and not machine.journals()


@pytest.mark.parametrize("knob", [k for k in KNOBS if k.rounded], ids=[k.name for k in KNOBS if k.rounded])
def test_what_the_kernel_rounds_is_told(machine, knob):
    asked, shown = knob.rounded
    before = machine.files("")
    done = machine.run("set", f"{knob.name}={asked}", "--", "true")
    assert f" {shown:g} W (was {knob.found:g} W), asked for {asked[:-1]} W" in done.stderr
    assert machine.files("") == before


@pytest.mark.parametrize("knob, value", [(k, v) for k in KNOBS for v in k.bad],
                         ids=[f"{k.name}-{v}" for k in KNOBS for v in k.bad])
def test_refused(machine, knob, value):
    before = machine.files("")
    done = machine.run("set", f"{knob.name}={value}", "--", "true")
    assert knob.bad[value] in done.stderr and done.returncode == USAGE
    assert machine.files("") == before and not machine.journals()


@each
def test_a_kernel_that_refuses_one_device_gets_all_back(machine, knob):
    """The last device of several refuses; the others had been set by then."""
    before = machine.files("")
    last = {"package": "intel-rapl:1/", "module": "ACPI000D:05/", "cpu": "policy3/"}[knob.name.split(".")[0]] + knob.files[0]
    done = machine.run("set", f"{knob.name}={knob.value}", "--", "true", JM_FAKE_KERNEL_REFUSES=last)
    assert knob.files[0] in sentence(done, FAILURE) and "not permitted" in done.stderr
    assert machine.files("") == before


@each
@pytest.mark.parametrize("victims", ["client", "guard", "both"])
def test_back_after_sigkill(machine, knob, victims):
    before = machine.files("")
    child = machine.kill_while_set([f"{knob.name}={knob.value}"], lambda: is_held(machine, knob), victims)
    if victims == "both":
        child.wait()
        assert is_held(machine, knob)
        assert machine.run("list").returncode == 0  # any command
    assert wait_for(lambda: machine.files("") == before)
    machine.end(child)
    assert wait_for(lambda: not machine.journals())


@each
def test_a_reboot_ends_it(machine, knob):
    assert machine.run("set", f"{knob.name}={knob.value}").returncode == 0
    machine.put("/proc/sys/kernel/random/boot_id", "second")
    after = machine.files("")
    done = machine.run("restore")
    assert done.returncode == 0 and "The machine has been restarted" in done.stderr
    assert machine.files("") == after and not machine.journals()


def test_what_another_machine_has_set_is_left_to_it(machine):
    """Two machines with one state folder: the other one's boot ids and devices say nothing here."""
    before = machine.files("")
    machine.put("/etc/machine-id", 32 * "a")
    assert machine.run("set", "package.power=120W", "cpu.governor=performance").returncode == 0
    after, records = machine.files("constraint_0_power_limit_uw", "scaling_governor"), machine.journals()
    machine.put("/etc/machine-id", 32 * "b")
    machine.put("/proc/sys/kernel/random/boot_id", "of the other")
    done = machine.run("restore")
    assert done.returncode == 0 and not json.loads(machine.run("status", "--json").stdout)["settings"]
    done = machine.run("set", "package.power=110W", "--", "true")
    assert "is set on another machine" in sentence(done, FAILURE) and 32 * "a" in done.stderr
    assert machine.files("constraint_0_power_limit_uw", "scaling_governor") == after and machine.journals() == records
    machine.put("/etc/machine-id", 32 * "a")
    machine.put("/proc/sys/kernel/random/boot_id", "first")
    assert "Restored 4" in machine.run("restore").stdout
    machine.put("/etc/machine-id", "")
    assert {k: v for k, v in machine.files("").items() if k != "etc/machine-id"} == before and not machine.journals()


def test_a_limit_that_is_switched_off_is_not_enforced(machine):
    machine.put(f"{POWERCAP}/intel-rapl:1/enabled", 0)
    rows = json.loads(machine.run("get", "--json", "package.power").stdout)
    assert [(r["accepted"], r["enforced"]) for r in rows] == [(150.125, 150.125), (150.125, "unlocked")]


def test_the_limit_found_may_lie_above_the_maximum(machine):
    """Firmware often leaves it so; it is restored, and a sweep can go back to it."""
    machine.put(f"{POWERCAP}/intel-rapl:0/constraint_0_power_limit_uw", 4095875000)
    done = machine.run("run", "--source", "null", "--set", "package.power=120W", "--", "true")
    assert done.returncode == 0, done.stderr
    assert machine.get(f"{POWERCAP}/intel-rapl:0/constraint_0_power_limit_uw") == "4095875000"


def test_a_default_that_is_unknown_does_not_stop_the_others(machine):
    """Of damaged journals: packages have no default, a simulated GPU has."""
    controls = ["--control", "rapl,sim:h100x1"]
    done = machine.run("set", *controls, "package.power=120W", "gpu.power=300W")
    assert done.returncode == 0, done.stderr
    for path in Path(machine.env["JM_STATE"]).rglob("*.journal"):
        path.write_text("?\n", encoding="utf-8")
    done = machine.run("restore", "--default", *controls)
    assert done.returncode == FAILURE and "Set 1 knob" in done.stdout
    assert all(f"The default of package.power on package-{i} is not known" in done.stderr for i in range(2))
    rows = json.loads(machine.run("get", "--json", *controls).stdout)
    assert {r["knob"]: r["accepted"] for r in rows}["gpu.power"] == 700


LAST_LIMIT = f"{POWERCAP}/intel-rapl:1/constraint_0_power_limit_uw"


def test_a_kernel_that_takes_a_value_and_ignores_it(machine, tmp_path):
    """It is told what the device has, which no number that was asked for stands in for."""
    before, ignores = machine.files(""), {"JM_FAKE_KERNEL_IGNORES": LAST_LIMIT}
    done = machine.run("set", "package.power=120W", "--", "true", **ignores)
    assert done.returncode == 0 and "150.125 W (was 150.125 W), asked for 120 W" in done.stderr, done.stderr
    out = tmp_path / "record.json"
    done = machine.run("measure", "--source", "null", "--set", "package.power=120W", f"--json={out}", "--", "true", **ignores)
    assert [s["accepted"] for s in json.loads(out.read_text(encoding="utf-8"))["settings"]] == [120, 150.125], done.stderr
    assert machine.files("") == before and not machine.journals()


@pytest.mark.parametrize("knob, file, other", [
    ("package.power", LAST_LIMIT, "133000000"), ("module.power", "/sys/devices/acpi/ACPI000D:05/power1_cap", "533000000")])
def test_another_program_that_changes_the_same_knob_is_reported(machine, knob, file, other):
    before, watts = machine.files(""), int(other) / 1e6
    done = machine.run("set", f"{knob}=500W" if knob == "module.power" else f"{knob}=120W", "--", "sh", "-c", f"echo {other} >{machine.root}{file}")
    assert done.returncode == 0 and f"{watts:g}W in the end" in done.stderr and done.stderr.count("something else has changed it") == 1, done.stderr
    assert machine.files("") == before


def test_a_device_that_changes_its_range_while_it_is_set(machine):
    """The value found is outside of it then: it is not back, which is said, and the journal stays until it can be."""
    most = "/sys/devices/acpi/ACPI000D:05/power1_cap_max"
    before = machine.files("")
    done = machine.run("set", "module.power=500W", "--", "sh", "-c", f"echo 800000000 >{machine.root}{most}")
    assert done.returncode == FAILURE and "NOT back at 900W" in done.stderr, done.stderr
    assert machine.get(most.removesuffix("_max")) == "500000000" and len(machine.journals()) == 1
    assert "takes 250W to 800W" in machine.run("set", "module.power=900W", "--", "true").stderr
    machine.put(most, 1000000000)
    assert machine.run("restore").returncode == 0 and machine.files("") == before and not machine.journals()


def test_a_full_disk_changes_nothing(machine):
    """Files that may not grow any more stand for one: the value found could not be synced, so no knob is written."""
    before = machine.files("")
    done = subprocess.run(["sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh", BIN, "set", "package.power=120W", "--", "true"],
                          env={**os.environ, **machine.env}, capture_output=True, text=True, timeout=240, check=False)
    assert "Cannot write package.power@" in sentence(done, FAILURE), done.stderr
    assert machine.files("") == before and not machine.journals()


@pytest.mark.parametrize("value", ["3600:3700MHz", "800:850MHz", "800:3800MHz", "default"])
def test_no_reversed_range_in_between(machine, value):
    """The kernel refuses one: above the range found, below it, around it; and on the way back."""
    before = machine.files("")
    done = machine.run("set", f"cpu.clock={value}", "--", "true")
    assert done.returncode == 0, done.stderr
    assert machine.files("") == before


def test_policies_that_differ_are_not_set(machine):
    machine.put(f"{CPUFREQ}/policy3/scaling_governor", "performance")
    before = machine.files("")
    assert "cpu.governor is not the same for policy2 and policy3" in machine.run("get", "cpu.governor").stdout
    assert "make them equal first" in sentence(machine.run("set", "cpu.governor=performance", "--", "true"), FAILURE)
    assert machine.run("set", "cpu.governor@policy0=performance", "--", "true").returncode == 0
    assert machine.files("") == before


@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize("words, file, found", [("cpu.governor=performance", "scaling_governor", "powersave"),
                                                ("cpu.clock=1200:1500MHz", "scaling_max_freq", "3500000")])
def test_a_processor_that_is_taken_offline_keeps_no_other_from_being_put_back(machine, words, file, found, gone):
    policy, away = (machine.root / f"{CPUFREQ}/policy{gone}"[1:], machine.root / "away")
    done = machine.run("set", f"{words}", "--", "mv", policy, away)
    assert done.returncode == FAILURE and f"policy{gone}" in done.stderr
    assert {machine.get(f"{CPUFREQ}/policy{n}/{file}") for n in {0, 1, 2, 3} - {gone}} == {found}
    assert machine.journals()
    away.rename(policy)  # as it was when it went
    assert machine.get(f"{CPUFREQ}/policy{gone}/{file}") != found
    assert machine.run("restore").returncode == 0
    assert machine.get(f"{CPUFREQ}/policy{gone}/{file}") == found and not machine.journals()


def test_processors_of_two_kinds_are_two_devices(machine):
    for cpu in (1, 3):
        machine.put(f"{CPUFREQ}/policy{cpu}/cpuinfo_max_freq", 3600000)
    rows = json.loads(machine.run("get", "--json", "cpu.clock").stdout)
    assert [(r["device"], r["max"]) for r in rows] == [("policy0", 3.8e9), ("policy1", 3.6e9), ("policy2", 3.8e9),
                                                       ("policy3", 3.6e9)]


def test_doctor_tells_and_writes_nothing(machine):
    before = machine.files("")
    text = " ".join(machine.run("doctor").stdout.split())
    assert "yes rapl: package-1: package.power 1 to 205 W over 0.02 s, now 150.125W, enforced 150.125W" in text
    assert "cpu.clock, now 900:3500MHz, of 2 policies; this user may set it" in text
    assert machine.files("") == before


def test_a_sweep_over_two_knobs(machine, tmp_path):
    out = tmp_path / "records.json"
    before = machine.files("")
    done = machine.run("run", "--source", "null", "--set", "cpu.governor=performance,powersave", "--set",
                       "cpu.clock=1200:1500MHz", f"--json={out}", "--", "true")
    assert done.returncode == 0, done.stderr
    seen = {tuple(sorted((s["knob"], s["value"]) for s in r["settings"] if s["device"] == "policy0"))
            for r in json.loads(out.read_text(encoding="utf-8"))}
    assert {(("cpu.clock", "1200:1500MHz"), ("cpu.governor", g)) for g in GOVERNORS.split()} <= seen
    assert machine.files("") == before


def test_the_contract(machine):
    """Every control against the contract, with these files behind it."""
    done = subprocess.run([str(BUILD / "tests" / "test_contract")], env={**os.environ, **machine.env}, cwd=str(Path(BUILD)),
                          capture_output=True, text=True, timeout=240, check=False)
    for count in ("rapl: 4 knobs", "cpufreq: 6 knobs", "hwmon: 2 knobs", "[       OK ] contract_controls"):
        assert count in done.stdout, done.stdout + done.stderr
