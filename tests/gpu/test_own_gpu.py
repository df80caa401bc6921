# SPDX-License-Identifier: Apache-2.0
"""Energy of the GPU that computes: four GPUs of the fake NVML, and a fake backend that numbers them in
another order and reports their UUIDs. GPU i draws 100 (i + 1) W, constantly."""
import json
import os
import pathlib

import pytest

from fake_gpus import FakeGpus
from jm import jm

BUILD = pathlib.Path(os.environ["JM_BUILD"])
ORDER = [2, 0, 3, 1]  # NVML's number of the backend's device 0, 1, 2, 3


def uuid(gpu):
    return f"GPU-{0x10000000 * gpu + gpu:08x}-fa4e-4000-8000-00000000{gpu:04x}"


def watts(gpu):
    return 100 * (gpu + 1)


@pytest.fixture
def gpus(tmp_path):
    fake = FakeGpus(tmp_path)
    # each GPU sees the wave one step further: four levels, one after the other, for a day each
    fake.config("wave=steps;steps=100*86400/200*86400/300*86400/400*86400;shift=86400;phase=-%d;response=0" % aligned())
    folder = tmp_path / "backends"
    folder.mkdir()
    (folder / "cuda.so").symlink_to(BUILD / "tests/peers/later.so")
    fake.env.update(JM_BACKENDS=str(folder), JM_FAKE_LATER_US="0",
                    JM_FAKE_LATER_IDS=",".join(uuid(i) for i in ORDER))
    return fake


def aligned():
    """CLOCK_MONOTONIC now, less some seconds: the wave's period begins there."""
    with open("/proc/uptime") as f:
        return int(float(f.read().split()[0])) - 3600


def run(gpus, device, **more):
    done = jm("run", "gemm", "--m", 32, "--n", 32, "--k", 32, "--device", device, "--seconds", 0.5, "--warmup", 0,
              "--source", "nvml", "--json", "-", env={**gpus.env, **more})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def gpu_meters(record):
    return {m["device"]: m for m in record["meters"] if m["scope"] == "gpu"}


@pytest.mark.parametrize("index", range(4))
def test_counts_only_the_gpu_that_computes(gpus, index):
    record, _ = run(gpus, f"cuda:{index}")
    own, meters = ORDER[index], gpu_meters(record)
    assert len(meters) == 4
    for gpu in range(4):
        m = meters[uuid(gpu)]
        # which GPU it is: levels are 100 W apart, and half a second on a busy machine has few readings
        assert m["watts_mean"] == pytest.approx(watts(gpu), abs=40)
        assert m.get("elsewhere", False) == (gpu != own)
    assert record["ran_on"]["uuid"] == uuid(own) and record["ran_on"]["meter"] == meters[uuid(own)]["id"]
    assert not record["ran_on"]["slice"]
    assert record["total"]["joules_measured"] == pytest.approx(meters[uuid(own)]["joules"])
    idle = [meters[uuid(gpu)] for gpu in range(4) if gpu != own]
    assert record["idle_gpus"] == {
        "n": 3, "watts": pytest.approx(sum(m["watts_mean"] for m in idle)), "joules": pytest.approx(sum(m["joules"] for m in idle)),
        "joules_with": pytest.approx(sum(m["joules"] for m in meters.values()))}
    assert not any(f"GPU {gpu}" in reason for gpu in range(4) if gpu != own for reason in record["quality"]["reasons"])
    for phase in record["phases"]:
        joules = {m["id"]: m["joules"] for m in phase["meters"]}[meters[uuid(own)]["id"]]
        assert phase["total"]["joules_measured"] == pytest.approx(joules)


def test_hidden_gpus_do_not_shift_the_order(gpus):
    """CUDA_VISIBLE_DEVICES hides all but two; the backend's order is still its own."""
    record, _ = run(gpus, "cuda:1", CUDA_VISIBLE_DEVICES="3,1", JM_FAKE_LATER_IDS=f"{uuid(3)},{uuid(1)}")
    assert set(gpu_meters(record)) == {uuid(1), uuid(3)}
    assert record["total"]["joules_measured"] == pytest.approx(gpu_meters(record)[uuid(1)]["joules"])


def test_part_of_a_gpu_is_known_by_its_bus_address(gpus):
    record, text = run(gpus, "cuda:0", JM_FAKE_LATER_IDS="MIG-11111111-2222-3333-4444-555555555555/0000:1c:00.0")
    assert record["ran_on"]["slice"] and record["ran_on"]["meter"] == "nvml:" + uuid(2)
    assert record["total"]["joules_measured"] == pytest.approx(gpu_meters(record)[uuid(2)]["joules"])
    assert "MIG" in text and "whole GPU" in text


def test_total_is_unknown_when_no_meter_reads_the_gpu(gpus):
    record, text = run(gpus, "cuda:0", JM_FAKE_LATER_IDS="GPU-99999999-0000-0000-0000-000000000000/0000:99:00.0")
    assert record["ran_on"]["meter"] is None and record["total"]["joules_measured"] is None
    assert record["quality"]["grade"] == "none" and "No meter reads" in text
    assert all(m["elsewhere"] for m in gpu_meters(record).values())


def test_all_gpus_count_for_a_device_without_a_uuid(gpus):
    record, _ = run(gpus, "cpu" if (BUILD / "backends/cpu.so").exists() else "ref", JM_BACKENDS=str(BUILD / "backends"))
    assert "ran_on" not in record
    assert record["total"]["joules_measured"] == pytest.approx(sum(m["joules"] for m in gpu_meters(record).values()))


def test_gpus_of_all_ranks_count(gpus):
    """Two ranks on two of the four GPUs: their energy is the total, once, and none of the others'."""
    done = jm("run", "gpt", "--layers", 1, "--hidden", 32, "--heads", 2, "--vocab", 256, "--context", 16, "--seq", 16,
              "--batch", 1, "--device", "cuda:0,cuda:3", "--ranks", 2, "--seconds", 0.5, "--warmup", 0,
              "--source", "nvml", "--json", "-", env={**gpus.env, "JM_NCCL_LIB": str(BUILD / "tests/peers/libnccl-fake.so")})
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    own, meters = {ORDER[0], ORDER[3]}, gpu_meters(record)
    assert {gpu for gpu in range(4) if not meters[uuid(gpu)].get("elsewhere")} == own
    assert record["total"]["joules_measured"] == pytest.approx(sum(meters[uuid(gpu)]["joules"] for gpu in own))
    assert record["devices"] == 2 and record["communication"]["transport"] == "nccl"
    assert [r["uuid"] for r in record["gang"]["ranks"]] == [uuid(ORDER[0]), uuid(ORDER[3])]
    assert record["throughput_per_device"] == pytest.approx(record["throughput"] / 2)
