# SPDX-License-Identifier: Apache-2.0
"""The script that looks at a machine's sensors finds what the false NVML was told to be."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

from fake_gpus import FakeGpus

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "hw/sensor.py"


@pytest.mark.parametrize("stamp", ["query", "sensor"])
def test_finds_refresh_and_stamps(tmp_path, stamp):
    # steps that differ from refresh to refresh, so that every refresh is seen as a change
    gpus = FakeGpus(tmp_path, 2, "wave=square;low=100;high=600;period=0.37;refresh=0.1;step=0.05;"
                                 f"window=0.025;stamp={stamp}")
    done = subprocess.run([sys.executable, SCRIPT, os.environ["JM_BIN"], "--seconds", "4", "--interval", "2ms",
                           "--keep", tmp_path / "kept"], env={**os.environ, **gpus.env}, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    energy = [s for s in found["signals"] if s["quantity"] == "energy"]
    assert len(energy) == 2 and len(found["meters"]) >= 2
    for signal in energy:
        assert signal["stamps_are_the_sensors"] == (stamp == "sensor")
        assert signal["seen"]["median_s"] == pytest.approx(0.05, rel=0.1)
    assert (tmp_path / "kept/readings.csv").exists()
