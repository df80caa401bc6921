# SPDX-License-Identifier: Apache-2.0
"""Measured phases of a training: only steady phases count, and items by their time, however the length is given."""
import json
import struct

import pytest

from jm import jm

TINY = ("--device", "ref", "--layers", 1, "--hidden", 16, "--heads", 2, "--ffn", 32)
GPT_OF_ANY_BATCH = ("train", "--model", "gpt", *TINY, "--seq", 16, "--vocab", 256, "--positions", "learned", "--lr", 0.01)
GPT = (*GPT_OF_ANY_BATCH, "--batch", 2)
VIT = ("train", "--model", "vit", *TINY, "--batch", 2, "--image", 16, "--patch", 8, "--classes", 5)


def run(tmp_path, *words):
    file = tmp_path / "record.json"
    done = jm("run", *words, "--json", file)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"The quick brown fox jumps over the lazy dog. " * 19)
    return ("--text", file)


def rate(phases):
    return sum(p["items"] for p in phases) / sum(p["end_s"] - p["start_s"] for p in phases)


def check(r, warmup_steps, items_per_step):
    """Throughput and the phases must tell the same story."""
    phases = {p["name"]: p for p in r["phases"]}
    steady = phases["steady"]
    assert r["phase"] == "steady" and r["items"] == steady["items"] == r["steps"] * items_per_step
    assert r["throughput"] == pytest.approx(rate([steady]), rel=0.1)  # to begin and end a phase takes time too
    assert r["throughput_per_device"] == r["throughput"]
    assert r["warmup_steps"] >= warmup_steps
    assert phases["warmup"]["items"] == r["warmup_steps"] * items_per_step
    assert phases["setup"]["end_s"] <= phases["warmup"]["start_s"]
    assert phases["warmup"]["end_s"] <= steady["start_s"] and steady["end_s"] <= phases["verify"]["start_s"]
    assert not phases["setup"]["items"] and not phases["verify"]["items"]
    return phases


def test_steps_with_warm_up(tmp_path, text):
    r = run(tmp_path, *GPT, *text, "--steps", 60, "--warmup", 5)
    assert (r["steps"], r["warmup_steps"]) == (60, 5)
    check(r, 5, 32)


def test_fixed_minutes(tmp_path, text):
    r = run(tmp_path, *GPT, *text, "--seconds", "0.02min", "--warmup", "300ms")
    phases = check(r, 1, 32)
    lasted = phases["steady"]["end_s"] - phases["steady"]["start_s"]
    assert lasted >= 1.2 and lasted - 1.2 < 0.5 + 3 * lasted / r["steps"]
    assert phases["warmup"]["end_s"] - phases["warmup"]["start_s"] >= 0.3


def test_no_epoch_is_a_warm_up_on_request(tmp_path, text):
    r = run(tmp_path, *GPT_OF_ANY_BATCH, *text, "--batch", 8, "--epochs", 3, "--epoch-steps", 5, "--warmup", 0)
    names = [p["name"] for p in r["phases"] if p["name"].startswith("epoch")]
    assert (r["steps"], r["warmup_steps"]) == (15, 0) and names == ["epoch 1", "epoch 2", "epoch 3"]


def test_epochs_without_the_first(tmp_path, text):
    r = run(tmp_path, *GPT_OF_ANY_BATCH, *text, "--batch", 8, "--epochs", 4, "--epoch-steps", 20)
    phases = check(r, 20, 128)
    epochs = [p for name, p in phases.items() if name.startswith("epoch")]
    assert (r["steps"], r["warmup_steps"], len(epochs)) == (60, 20, 3)
    assert "epoch 1" not in phases
    assert r["throughput"] == pytest.approx(rate(epochs), rel=0.1)
    assert sum(p["items"] for p in epochs) == r["items"]


def test_accumulation_counts_all_micro_steps(tmp_path, text):
    check(run(tmp_path, *GPT, *text, "--accumulate", 3, "--steps", 20, "--warmup", 2), 2, 96)


@pytest.mark.parametrize("images", ["once", "fresh"])
def test_images(tmp_path, images):
    """Next to no learning: the loss is that of the batch, which is the same or another one each time."""
    r = run(tmp_path, *VIT, "--images", images, "--steps", 40, "--warmup", 2, "--lr", 1e-8,
            "--weight-decay", 0, "--optimizer", "sgd")
    check(r, 2, 2)
    assert (abs(r["loss_last"] - r["loss_first"]) > 0.01) == (images == "fresh")


def test_megatron(tmp_path):
    tokens = [i * 7 % 250 for i in range(400)]
    (tmp_path / "set.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    (tmp_path / "set.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3) + struct.pack("<2i", 150, 250)
        + struct.pack("<2q", 0, 300) + struct.pack("<3q", 0, 1, 2))
    r = run(tmp_path, *GPT, "--text", tmp_path / "set", "--steps", 60, "--warmup", 5)
    check(r, 5, 32)
    assert r["loss_last"] < r["loss_first"] and "set" in r["detail"]
