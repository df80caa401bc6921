# SPDX-License-Identifier: Apache-2.0
"""The shim before NVML: --set runs from end to end, and the driver behind it (here the fake one) is never changed."""
import json
import os
import struct

import pytest

from fake_gpus import GPU_BYTES, FakeGpus
from jm import jm, sentence

SHIM = os.path.join(os.environ["JM_BUILD"], "tests", "peers", "libnvidia-ml-shim.so")


@pytest.fixture
def gpus(tmp_path):
    fake = FakeGpus(tmp_path, 2, "wave=const;power=450")
    fake.env.update(JM_NVML_SHIM_REAL=fake.env["JM_NVML_LIB"], JM_NVML_LIB=SHIM,
                    JM_NVML_SHIM_FILE=str(tmp_path / "limits"))
    return fake


def sets(gpus):
    """How often the driver behind the shim was set: in all, then of each GPU."""
    with open(gpus.state, "rb") as f:
        data = f.read()
    return [struct.unpack_from("<I", data, 4)[0]] + [
        struct.unpack_from("<I", data, 12 + i * GPU_BYTES)[0] for i in range(gpus.n)]


def test_a_sweep_of_limits_never_sets_the_driver(gpus, tmp_path):
    done = jm("run", "gemm", "--m", 32, "--n", 32, "--k", 32, "--device", "ref", "--seconds", 0.3, "--warmup", 0,
              "--source", "nvml", "--set", "gpu.power@0=500W,300W", "--json", "-", env=gpus.env)
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    limits = sorted(r["settings"][0]["requested"] or 0 for r in records if not r["case"]["reference"])
    assert limits == [300, 500]
    for r in records:
        setting = r["settings"][0] if r["settings"] else None
        own = next(m for m in r["meters"] if m["scope"] == "gpu" and "GPU 0" in m["label"])
        signals = {s["quantity"]: s for s in own["signals"]}
        # the edges of 0.3 s lie between readings, which come late on a busy machine: the record's own bound holds
        assert own["watts_mean"] == pytest.approx(450, abs=own["error_joules"] / own["covered_s"])
        if not r["case"]["reference"]:
            assert setting["accepted"] == setting["enforced"] == setting["requested"]
            assert signals["power-limit"]["last"] == setting["requested"]
        other = next(m for m in r["meters"] if m["scope"] == "gpu" and "GPU 1" in m["label"])
        assert {s["quantity"]: s for s in other["signals"]}["power-limit"]["last"] == 700
    assert gpus.limits() == [700, 700] and sets(gpus) == [0, 0, 0]
    kept = dict(line.split() for line in (tmp_path / "limits").read_text().splitlines())
    assert list(kept.values()) == ["700000"]  # put back, in the file


def test_what_the_driver_would_refuse_is_refused(gpus):
    assert "900" in sentence(jm("set", "gpu.power@0=900W", "--", "true", env=gpus.env))
    assert sets(gpus) == [0, 0, 0]


def test_without_a_file_nothing_can_be_set(gpus):
    del gpus.env["JM_NVML_SHIM_FILE"]
    assert "ermission" in sentence(jm("set", "gpu.power@0=500W", "--", "true", env=gpus.env))
    assert sets(gpus) == [0, 0, 0]


def test_versions_tell_of_the_shim(gpus):
    done = jm("doctor", env=gpus.env)
    assert "580.00.fake+shim" in done.stdout, done.stdout


def test_no_library_behind_it_is_no_driver(gpus, tmp_path):
    gpus.env["JM_NVML_SHIM_REAL"] = str(tmp_path / "nothing.so")
    done = jm("measure", "--source", "nvml", "--", "true", env=gpus.env)
    assert done.returncode == 125 and "modprobe" in sentence(done)
