# SPDX-License-Identifier: Apache-2.0
"""Phases end when the device has finished: a fake device whose clock is 40e-6 fast, a host that wakes up late, and the
true times in a file. Its events tell each rank where the time of a step went."""
import json
import os
import pathlib
import re
import sqlite3

import pytest

from gangs import GPT, devices
from jm import jm
from runs import one

BUILD = pathlib.Path(os.environ["JM_BUILD"])
LATE_S = 0.030


@pytest.fixture
def env(tmp_path):
    (tmp_path / "cuda.so").symlink_to(BUILD / "tests/peers/later.so")
    return {"JM_BACKENDS": str(tmp_path), "JM_FAKE_LATER_US": "0", "JM_FAKE_LATER_LOG": str(tmp_path / "log"),
            "JM_FAKE_LATER_NOTICE_US": str(round(LATE_S * 1e6))}


def run(env, *words):
    done = jm("run", *words, "--device", "cuda:0", "--source", "sim:h100x1", "--json", "-", env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def end_of(record, name):
    phase = next(p for p in record["phases"] if p["name"] == name)
    return record["start_ns"] + 1e9 * phase["end_s"]


def stamps(env):
    with open(env["JM_FAKE_LATER_LOG"]) as f:
        return [int(line) for line in f]


GEMM = ["gemm", "--m", 32, "--n", 32, "--k", 32]


def test_phases_end_by_the_devices_clock(env):
    record = run(env, *GEMM, "--warmup", 4, "--steps", 12)
    aligned, truth = record["alignment"], stamps(env)
    assert len(truth) == 4 + 12 and aligned["anchors"] == 3
    slack = aligned["error_ns"] + 100
    assert abs(end_of(record, "warmup") - truth[3]) <= slack
    assert abs(end_of(record, "steady") - truth[15]) <= slack
    assert aligned["noticed_late_ns"] >= 1e9 * LATE_S
    # 200 looks at two clocks of one machine: the closest is near
    assert aligned["error_ns"] < 1e6
    steady = next(p for p in record["phases"] if p["name"] == "steady")
    assert record["throughput"] == pytest.approx(record["items"] / (steady["end_s"] - steady["start_s"]), rel=1e-3)


def test_drift_is_found(env):
    record = run(env, *GEMM, "--warmup", 1, "--steps", 30)
    between = 1e-9 * (stamps(env)[-1] - stamps(env)[0])
    assert record["alignment"]["drift_ppm"] == pytest.approx(
        40, abs=0.5 + 2e-3 * record["alignment"]["error_ns"] / between)


def test_training_too(env):
    model = "gpt --layers 1 --hidden 16 --heads 2 --ffn 16 --context 8 --seq 8 --batch 1 --vocab 256".split()
    record = run(env, *model, "--warmup", 2, "--steps", 5)
    truth = stamps(env)  # and one of the verification
    assert len(truth) == 2 + 5 + 1
    assert abs(end_of(record, "steady") - truth[6]) <= record["alignment"]["error_ns"] + 100


def test_epochs_end_by_it(env):
    record = run(env, *GEMM, "--epochs", 3, "--epoch-steps", 4)
    truth, slack = stamps(env), record["alignment"]["error_ns"] + 100
    assert abs(end_of(record, "epoch 2") - truth[7]) <= slack
    assert abs(end_of(record, "epoch 3") - truth[11]) <= slack


def test_a_device_without_a_clock_has_no_alignment():
    done = jm("run", *GEMM, "--device", "ref", "--steps", 2, "--warmup", 1, "--source", "sim:h100x1", "--json", "-")
    assert done.returncode == 0 and "alignment" not in json.loads(done.stdout)


def accounted(record):
    """Mean seconds of a step by the clock of the host; what each rank says about a step."""
    end, ranks = record["step_series"]["end_s"], record["communication"]["ranks"]
    for rank in ranks:
        assert rank["compute_s"] > 0 and rank["compute_s"] + rank["exposed_s"] == pytest.approx(rank["step_s"])
    assert ranks[0]["exposed_s"] == record["communication"]["exposed_s_per_step"]
    return (end[-1] - end[0]) / (len(end) - 1), ranks


def test_each_rank_says_where_the_time_of_a_step_went():
    step, ranks = accounted(one("run", "resnet18", "--image", "32", "--classes", "10", "--warmup", "0", "--source", "null",
                                "--device", "cpu", "--ranks", "2", "--batch", "8", "--steps", "8"))
    assert [rank["step_s"] for rank in ranks] == pytest.approx([step, step], rel=0.3)


def test_events_of_devices_tell_how_long_transfers_were_waited_for():
    """Each transfer takes 20 ms longer, of which a step of a millisecond hides next to nothing."""
    step, ranks = accounted(one(*GPT, "--device", "later:0,later:1", "--ranks", "2", "--batch", "1", "--steps", "12",
                                "--transport", "nccl", "--shard-update", "off",
                                env={**devices(2), "JM_FAKE_LATER_US": "0", "JM_FAKE_NCCL_US": "20000"}))
    for rank in ranks:
        assert rank["step_s"] == pytest.approx(step, rel=0.3)
        assert rank["exposed_s"] > 0.015


def step_of(us, *more, ranks=2, work=GPT):
    """Of rank 0, of devices whose events tell what is programmed: 100 us for each job, `us` for each transfer."""
    names = ",".join(f"later:{i}" for i in range(ranks))
    env = {**devices(ranks), "JM_FAKE_LATER_EXACT": "1", "JM_FAKE_LATER_US": "100", "JM_FAKE_NCCL_US": str(us)}
    return one(*work, "--device", names, "--ranks", ranks, "--batch", 1, "--steps", 8, "--transport", "nccl", *more,
               env=env)["communication"]


@pytest.mark.parametrize("more", [["--shard-update", "off"], ["--shard-update", "off", "--bucket", "0.05"], []], ids=str)
def test_kinds_of_transfers_are_those_of_a_step(more):
    """A step whose transfers take no time is the computation of one whose transfers do."""
    free, found = step_of(0, *more), step_of(3000, *more)
    compute, rank = free["ranks"][0]["step_s"], found["ranks"][0]
    kinds = {kind["kind"]: kind for kind in rank["kinds"]}
    gathers = 0 if "off" in more else 2  # of norms, of parameters
    assert kinds["sum"]["busy_s"] == pytest.approx(0.003 * found["buckets"])
    assert kinds.get("gather", {"busy_s": 0})["busy_s"] == pytest.approx(0.003 * gathers)
    assert rank["compute_s"] == pytest.approx(compute) and rank["exposed_s"] == pytest.approx(rank["step_s"] - compute)
    assert sum(kind["exposed_s"] for kind in kinds.values()) == pytest.approx(rank["exposed_s"])
    for kind in kinds.values():
        assert kind["overlapped_s"] == pytest.approx(kind["busy_s"] - kind["exposed_s"]) and kind["overlapped_s"] > 0
    assert rank["overlapped_s"] == pytest.approx(sum(kind["overlapped_s"] for kind in kinds.values()))
    shares = [r["overlapped_s"] / r["step_s"] for r in found["ranks"]]
    assert found["concurrent_share"] == pytest.approx(sum(shares) / 2)


LLAMA = ["run", "llama", "--layers", "2", "--hidden", "32", "--heads", "4", "--kv-heads", "2", "--ffn", "48", "--vocab", "256",
         "--context", "16", "--seq", "16", "--warmup", "0", "--source", "null"]


@pytest.mark.parametrize("more, kinds", [([], {"tp-sum", "tp-gather"}), (["--sequence-parallel"], {"tp-sum", "tp-scatter", "tp-gather"})], ids=str)
def test_kinds_of_ranks_that_share_a_model(more, kinds):
    found = step_of(3000, "--tp", 2, *more, work=LLAMA)
    for rank in found["ranks"]:
        assert {kind["kind"] for kind in rank["kinds"]} == kinds
        assert sum(kind["exposed_s"] for kind in rank["kinds"]) == pytest.approx(rank["tp_exposed_s"])
        assert all(kind["busy_s"] >= 0.003 for kind in rank["kinds"])


def test_transfers_of_processors_are_exposed():
    sums = one("run", "resnet18", "--image", "32", "--classes", "10", "--warmup", "0", "--source", "null", "--device", "cpu", "--ranks", "2",
               "--batch", "8", "--steps", "3")["communication"]
    assert sums["concurrent_share"] == 0
    for rank in sums["ranks"]:
        assert [kind["busy_s"] for kind in rank["kinds"]] == [kind["exposed_s"] for kind in rank["kinds"]]
        assert sum(kind["exposed_s"] for kind in rank["kinds"]) == pytest.approx(rank["exposed_s"])


def test_without_accounts_nothing_is_said():
    found = step_of(500, "--account", "off")
    assert found["concurrent_share"] is None and found["exposed_s_per_step"] is None
    assert all(rank["kinds"] == [] and rank["step_s"] is None for rank in found["ranks"])


def test_report_has_the_parts_of_a_step(tmp_path):
    store = tmp_path / "s.db"
    env = {**devices(2), "JM_FAKE_LATER_EXACT": "1", "JM_FAKE_LATER_US": "100", "JM_FAKE_NCCL_US": "3000"}
    done = jm(*GPT, "--device", "later:0,later:1", "--ranks", 2, "--batch", "1,2", "--steps", 4, "--transport", "nccl", "--store", store, env=env)
    assert done.returncode == 0, done.stderr
    records = [json.loads(r[0]) for r in sqlite3.connect(store).execute("SELECT record FROM records")]
    for form, cut in (("table", " {2,}"), ("md", r" *\| *")):
        text = jm("report", store, "--format", form, "--width", 200).stdout
        rows = [re.split(cut, line.strip("| ")) for line in text.splitlines()]
        for record in records:
            rank, batch = record["communication"]["ranks"][0], record["options"]["batch"]
            parts = [rank["step_s"], rank["compute_s"] - rank["overlapped_s"], rank["overlapped_s"], rank["exposed_s"]]
            behind = rows[[row[0] for row in rows].index("setting"):]
            assert [float(x) for x in [row for row in behind if row[0] == batch][0][1:5]] == pytest.approx([1e3 * x for x in parts], rel=0.01)
            kinds = [row for row in behind if row[0] == batch and len(row) == 5]
            assert [row[1] for row in kinds] == [kind["kind"] for kind in rank["kinds"]]
