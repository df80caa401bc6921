# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs through fake libraries: layouts by version, two dies counted once, MI300A beside hsmp, missing functions."""
import json
import pathlib

import pytest

from amd_gpus import surroundings
from hsmp_firmware import Firmware
from jm import jm, sentence


def measure(env, seconds=1, source="amdsmi"):
    done = jm("measure", "--json", "-", "--interval", "20ms", "--source", source, "--", "sleep", seconds, env=env)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    return record, record["meters"], done.stderr


def quantities(meter):
    return {s["quantity"] for s in meter["signals"]}


@pytest.mark.parametrize("version", [23, 24, 25, 26])
@pytest.mark.parametrize("kind,watts,power", [("x", 500, "power"), ("a", 250, "power-average")])
def test_power_by_generation_and_version(tmp_path, version, kind, watts, power):
    record, (meter,), _ = measure(surroundings(tmp_path, version, kind))
    assert meter["joules"] == pytest.approx(watts * record["wall_s"], rel=0.03)
    assert quantities(meter) >= {"energy", power, "power-limit", "clock", "memory-clock", "temperature", "utilisation"}
    assert ("power" in quantities(meter)) == (power == "power")
    assert meter["watts_max"] == pytest.approx(watts, rel=0.2)


@pytest.mark.parametrize("version", [22, 99])
def test_an_unknown_version_gives_energy_only(tmp_path, version):
    """A layout that is not known is not guessed."""
    record, (meter,), said = measure(surroundings(tmp_path, version, "x"))
    assert meter["joules"] == pytest.approx(500 * record["wall_s"], rel=0.03)
    assert not quantities(meter) & {"power", "power-average"} and "unknown layout" in said


@pytest.mark.parametrize("version", [23, 26])
def test_reasons_of_throttling(tmp_path, version):
    """From half a second on at the power limit and hot; an MI300 does not tell, and its reasons are unknown, not none."""
    record, (hot, cold, newer), _ = measure(surroundings(tmp_path, version, "tax"))
    why = {m["id"]: next((s for s in m["signals"] if s["quantity"] == "throttle"), None) for m in record["meters"]}
    assert why[hot["id"]]["max"] == 1 | 2 and why[cold["id"]]["max"] == 0 and why[newer["id"]] is None
    assert any("heat" in reason for reason in record["quality"]["reasons"]), record["quality"]


def test_two_dies_are_counted_once(tmp_path):
    record, meters, _ = measure(surroundings(tmp_path, 24, "dsds"))
    assert len(meters) == 2
    assert record["total"]["joules_measured"] == pytest.approx(800 * record["wall_s"], rel=0.03)
    assert all("second die" in m["label"] for m in meters)


def test_the_older_library(tmp_path):
    record, meters, _ = measure(surroundings(tmp_path, 5, "ads", smi=None, rocm="rocm-smi-fake"))
    assert [m["id"] for m in meters] == ["amdsmi:000000000000abc0", "amdsmi:000000000000abc1"]
    assert record["total"]["joules_measured"] == pytest.approx(650 * record["wall_s"], rel=0.03)


def test_half_a_library(tmp_path):
    """One function is missing: the older library takes its place, or the sentence names the function."""
    record, (meter,), _ = measure(surroundings(tmp_path, 24, "a", smi="amd-smi-fake-half", rocm="rocm-smi-fake"))
    assert meter["joules"] == pytest.approx(250 * record["wall_s"], rel=0.03)
    env = surroundings(tmp_path, 24, "a", smi="amd-smi-fake-half")
    assert "amdsmi_get_energy_count" in sentence(jm("measure", "--source", "amdsmi", "--", "true", env=env))


@pytest.mark.skipif(pathlib.Path("/sys/module/amdgpu").exists(), reason="this machine has the driver")
def test_libraries_are_not_looked_for_without_the_driver():
    """Looking for them takes 0.3 ms of each measurement; a library that the user names is loaded all the same."""
    said = sentence(jm("measure", "--source", "amdsmi", "--", "true"))
    assert "/sys/module/amdgpu is missing" in said


def test_no_library_and_a_guest(tmp_path):
    env = surroundings(tmp_path, 24, "x", smi=None)
    assert "ROCm" in sentence(jm("measure", "--source", "amdsmi", "--", "true", env=env))
    env = surroundings(tmp_path, 24, "v")
    assert "virtual" in sentence(jm("measure", "--source", "amdsmi", "--", "true", env=env))


def test_a_counter_that_steps_back(tmp_path):
    """Power readings carry the energy on."""
    record, (meter,), _ = measure(surroundings(tmp_path, 26, "b"), 1.5)
    assert meter["joules"] is None or meter["joules"] == pytest.approx(500 * record["wall_s"], rel=0.05)


def test_a_gpu_that_is_lost(tmp_path):
    record, meters, _ = measure(surroundings(tmp_path, 26, "lx"), 2)
    assert meters[0]["joules"] is None
    assert meters[1]["joules"] == pytest.approx(500 * record["wall_s"], rel=0.03)


def test_an_mi300a_is_counted_once_beside_hsmp(tmp_path):
    firmware = Firmware(tmp_path)
    firmware.start()
    record, meters, _ = measure(surroundings(tmp_path, 26, "AA"), 1, "hsmp,amdsmi")
    firmware.over.set()
    firmware.join()
    ours = [m for m in meters if m["id"].startswith("amdsmi:")]
    assert [m["covered_by"] for m in ours] == ["hsmp:socket0/socket", "hsmp:socket1/socket"]
    assert record["total"]["joules_measured"] == pytest.approx(1000 * record["wall_s"], rel=0.06)
