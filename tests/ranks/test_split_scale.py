# SPDX-License-Identifier: Apache-2.0
"""fp16 with --tp and --pp: all ranks of a model see the same overflow, skip the same steps and go on with the same loss scale."""
import pytest

from gangs import devices
from runs import one
from split_models import language_models

WORK = [*language_models("--accumulate", 4)[1], "--precision", "fp16", "--loss-scale", "dynamic:1e8"]
WAYS = {
    "tensor": ["--ranks", 2, "--tp", 2],
    "rows": ["--ranks", 2, "--tp", 2, "--sequence-parallel"],
    "stages": ["--ranks", 2, "--pp", 2, "--pp-chunks", 2],
    "both": ["--ranks", 8, "--tp", 2, "--pp", 2],
}


def train(way, *more, device="ref", steps=20, **kwargs):
    batch = 2 if way == "both" else 4
    r = one(*WORK, *WAYS.get(way, []), "--batch", batch, "--device", device, "--steps", steps, *more, **kwargs)
    assert r["status"] == "ok" and len(r["step_series"]["loss"]) == steps
    return r


@pytest.fixture(name="alone", scope="module")
def of_one_rank():
    """On a device that works by itself the outcome of a step is known one step later, as it is to several ranks."""
    r = train("", device="later:0", env=devices(1))
    assert 3 < r["loss_scale"]["steps_skipped"] < 15  # the scale is too large at first
    return r


@pytest.mark.parametrize("way", WAYS)
def test_skips_the_steps_of_one_rank(alone, way):
    shared = train(way)
    assert shared["loss_scale"] == alone["loss_scale"]
    assert shared["step_series"]["loss"] == pytest.approx(alone["step_series"]["loss"], rel=2e-3)


def test_by_nccl(alone):
    """A fake one, which knows NCCL's number of the type."""
    names = ",".join(f"later:{i}" for i in range(8))
    shared = train("both", device=names, env=devices(8))
    assert shared["communication"]["transport"] == "nccl" and shared["loss_scale"] == alone["loss_scale"]


@pytest.mark.parametrize("way", ["rows", "stages"])
def test_a_checkpoint_has_the_scale(way, tmp_path):
    """Behind the steps that were skipped: a checkpoint waits for the outcome of a step, which is known later without one."""
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    a = train(way, "--checkpoint", whole)
    train(way, "--checkpoint", first, steps=17)
    b = train(way, "--continue", first, "--checkpoint", second, steps=3)
    assert b["step_series"]["loss"] == a["step_series"]["loss"][17:]
    assert b["loss_scale"]["last"] == a["loss_scale"]["last"] and second.read_bytes() == whole.read_bytes()
