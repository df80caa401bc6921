# SPDX-License-Identifier: Apache-2.0
"""Products in 8 bits of models that ranks share: each rank scales its own parts, and the losses are nearly those of one rank."""
import pytest

from runs import one

GPT = ["run", "gpt", "--layers", 4, "--hidden", 64, "--heads", 4, "--vocab", 257, "--context", 16, "--seq", 16, "--accumulate", 2,
       "--eval-every", 3, "--eval-batches", 1, "--warmup", 0, "--source", "null", "--selftest", 0, "--device", "cpu", "--steps", 9]
WAYS = {
    "tensor": ["--ranks", 2, "--tp", 2],
    "rows": ["--ranks", 2, "--tp", 2, "--sequence-parallel"],
    "chunks": ["--ranks", 2, "--pp", 2, "--pp-chunks", 2],
    "both": ["--ranks", 4, "--tp", 2, "--pp", 2],
}


def losses(precision, way=""):
    r = one(*GPT, "--precision", precision, "--batch", 8, *WAYS.get(way, []))
    assert r["verified"] is True
    return r["step_series"]["loss"] + [e["loss"] for e in r["evaluations"]]


@pytest.fixture(name="alone", scope="module")
def of_one_rank():
    return losses("fp8")


def test_scales_change_what_is_computed(alone):
    assert losses("bf16") != pytest.approx(alone, rel=2e-6)


@pytest.mark.parametrize("way", WAYS)
def test_losses_are_those_of_one_rank(alone, way):
    """Stages have the same products with the same scales, until an order of sums decides how a value is rounded to 8 bits; a part
    of a matrix has a maximum of its own."""
    shared = losses("fp8", way)
    assert shared == pytest.approx(alone, rel=3e-4)
    assert way != "chunks" or shared[:5] == pytest.approx(alone[:5], rel=1e-6)
    assert shared != pytest.approx(losses("bf16", way), rel=2e-6)  # 3e-4 is more than what 8 bits change
