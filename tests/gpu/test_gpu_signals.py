# SPDX-License-Identifier: Apache-2.0
"""Signals of a GPU in the record other than its power: its module, its memory, activity, the time at the power cap."""
import csv
import json

import pytest

from fake_gpus import FakeGpus
from jm import jm

WAVE = "wave=square;low=100;high=600;period=0.1;duty=0.6;default=400;mem=0.25"


def measured(gpus, *args, seconds="1"):
    done = jm("measure", "--json", "-", *args, "--", "sleep", seconds, env=gpus.env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def signals(meter):
    return {s["quantity"]: s for s in meter["signals"]}


def test_time_at_the_cap_and_activity(tmp_path):
    """Above 400 W for 0.6 of the time; 400 W on average, of 700 W."""
    record = measured(FakeGpus(tmp_path, 1, WAVE + ";activity=1;nvlink=1000;heat=0.5"), "--source", "nvml:activity")
    gpu = signals(record["meters"][0])
    wall = record["wall_s"]
    # a counter is read ten times a second: an edge is known to a tenth of a second, or later on a busy machine
    assert gpu["power-cap-time"]["increase"] == pytest.approx(0.6 * wall, abs=0.2 + 0.2 * wall)
    assert gpu["thermal-time"]["increase"] == pytest.approx(0.5 * wall, abs=0.2 + 0.2 * wall)
    assert gpu["power-cap-time"]["mean"] is None
    assert gpu["reliability-time"]["increase"] == 0
    assert gpu["power"]["increase"] is None and gpu["energy"]["increase"] is None
    assert gpu["sm-activity"]["mean"] == pytest.approx(400 / 700, rel=0.2)
    assert gpu["tensor-activity"]["mean"] == pytest.approx(gpu["sm-activity"]["mean"] / 2, rel=0.01)
    assert gpu["nvlink-sent"]["last"] == pytest.approx(500 * 2**20)


def test_module_less_gpu_less_memory(tmp_path):
    record = measured(FakeGpus(tmp_path, 1, "power=400;mem=0.25;module=1.5;name=NVIDIA GH200 480GB"),
                      "--source", "nvml", "--residue")
    meters = {m["scope"]: m for m in record["meters"]}
    wall = record["wall_s"]
    assert meters["gpu-memory"]["covered_by"] == meters["gpu"]["id"]
    assert meters["gpu"]["covered_by"] == meters["module"]["id"]
    assert meters["gpu"]["rest_joules"] == pytest.approx(300 * wall, rel=0.05)
    assert meters["module"]["rest_joules"] == pytest.approx(200 * wall, rel=0.05)
    assert record["total"]["joules_measured"] == pytest.approx(600 * wall, rel=0.05)


def test_one_module_of_two_gpus(tmp_path):
    """Both GPUs of a socket lie in one module, which is counted once; the GPU of no socket has none."""
    for bus, node in ((0x1a, 1), (0x1b, 1)):
        folder = tmp_path / f"sys/bus/pci/devices/0000:{bus:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
    for path, text in (("node/node1/cpulist", "72-143"), ("cpu/cpu72/topology/physical_package_id", "1")):
        file = tmp_path / "sys/devices/system" / path
        file.parent.mkdir(parents=True)
        file.write_text(f"{text}\n")
    gpus = FakeGpus(tmp_path, 3, "power=300;module=3")
    gpus.env["JM_ROOT"] = str(tmp_path)
    record = measured(gpus, "--source", "nvml", seconds="0.5")
    (module,) = [m for m in record["meters"] if m["scope"] == "module"]
    inside = [m["covered_by"] == module["id"] for m in record["meters"] if m["scope"] == "gpu"]
    assert inside == [True, True, False]
    assert record["total"]["joules_measured"] == pytest.approx(1200 * record["wall_s"], rel=0.1)


def test_samples_of_the_drivers_buffer(tmp_path):
    """One each 20 ms at its own time: what the wave was then. 600 W in the first 0.6 of each 100 ms of CLOCK_MONOTONIC."""
    gpus = FakeGpus(tmp_path, 1, WAVE + ";samples=1;response=0")
    record = measured(gpus, "--source", "nvml:samples", "--csv", tmp_path / "trace")
    (power,) = [row for row in csv.DictReader((tmp_path / "trace/meters.csv").open()) if row["quantity"] == "power"
                and row["scope"] == "gpu"]
    assert power["stamped"] == "1" and float(power["refresh_s"]) == 0.02
    rows = [(float(row["t_s"]) + record["start_ns"] * 1e-9, float(row["value"]))
            for row in csv.DictReader((tmp_path / "trace/readings.csv").open()) if row["signal"] == power["signal"] and row["value"]]
    assert len(rows) >= 15 and rows[0][0] > record["start_ns"] * 1e-9 - 0.1
    for t, watts in rows:  # the stamps are those of the wall clock, in whole microseconds
        phase = t % 0.1
        if min(abs(phase - edge) for edge in (0, 0.06, 0.1)) > 0.002:
            assert watts == (600 if phase < 0.06 else 100)


def test_a_driver_without_such_samples(tmp_path):
    gpus = FakeGpus(tmp_path, 1, WAVE)
    done = jm("measure", "--json", "-", "--source", "nvml:samples", "--", "sleep", "0.3", env=gpus.env)
    assert done.returncode == 0 and "keeps no samples" in done.stderr
    assert "power" in signals(json.loads(done.stdout)["meters"][0])
