# SPDX-License-Identifier: Apache-2.0
"""The script that examines a machine's sensors finds the configured properties of the fake NVML."""
import json
import os
import subprocess
import sys

import pytest

from fake_gpus import FakeGpus

from jm import SOURCE, jm

SCRIPT = SOURCE / "tests/hw/sensor.py"
H200 = SOURCE / "tests/data/h200"


@pytest.mark.parametrize("stamp", ["query", "sensor"])
def test_finds_refresh_and_stamps(tmp_path, stamp):
    # steps that differ from refresh to refresh, so that every refresh is seen as a change
    gpus = FakeGpus(tmp_path, 2, "wave=square;low=100;high=600;period=0.37;refresh=0.1;step=0.05;"
                                 f"window=0.025;stamp={stamp}")
    done = subprocess.run([sys.executable, SCRIPT, os.environ["JM_BIN"], "--seconds", "4", "--interval", "2ms",
                           "--keep", tmp_path / "kept"], env={**os.environ, **gpus.env}, capture_output=True,
                          text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    energy = [s for s in found["signals"] if s["quantity"] == "energy"]
    assert len(energy) == 2 and len(found["meters"]) >= 2
    for signal in energy:
        assert signal["stamps_are_the_sensors"] == (stamp == "sensor")
        assert signal["seen"]["median_s"] == pytest.approx(0.05, rel=0.1)
    assert (tmp_path / "kept/readings.csv").exists()


@pytest.mark.parametrize("name", ["idle", "steady", "square0.2", "square1", "square3.3"])
def test_finds_an_h200s_refresh(name):
    sys.path.insert(0, str(SCRIPT.parent))
    from sensor import look_at
    found = {s["quantity"]: s for s in look_at(H200 / name) if not s["meter"].endswith("/memory")}
    assert found["energy"]["seen"]["median_s"] == pytest.approx(0.1, abs=0.001)
    # the driver takes a new reading when it is asked 100 ms after the last one, or later; it may be equal
    assert found["power"]["seen"]["q1_s"] == pytest.approx(0.1, abs=0.005)
    assert found["power-average"]["seen"]["q1_s"] == pytest.approx(0.1, abs=0.005)
    assert not any(s["stamps_are_the_sensors"] for s in found.values())


def test_replays_an_h200():
    """The first seconds of a recording by the program, in real time, so that a busy machine reads some of it late;
    all of it, exactly: tests/unit/sources/test_h200.c."""
    rows = [line.split(",") for line in (H200 / "idle/readings.csv").read_text().splitlines()[1:]]
    counter = [(float(t), float(v)) for signal, t, v in rows if signal == "0" and float(t) < 3.2]
    counter = [b for a, b in zip(counter, counter[1:]) if b[1] != a[1]]  # its steps
    watts = (counter[-1][1] - counter[0][1]) / (counter[-1][0] - counter[0][0])
    done = jm("measure", "--source", f"replay:{H200 / 'idle'}", "--json", "-", "--", "sleep", "3")
    assert done.returncode == 0, done.stderr
    gpu = json.loads(done.stdout)["meters"][0]
    assert gpu["watts_mean"] == pytest.approx(watts, rel=0.03)
    assert gpu["joules_integrated"] == pytest.approx(gpu["joules_counter"], rel=0.03)
