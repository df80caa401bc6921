# SPDX-License-Identifier: Apache-2.0
"""run --pp: ranks with stages of one model train like a single one."""
import pytest

from gangs import devices
from runs import FAILED, one
from split_models import STEPS, falling_losses as losses, language_models

GPT, LLAMA = language_models()
F64 = ["--precision", "f64"]
STREAM = 2 * 16 * 32 * 4  # bytes: what a stage sends of two sequences in f32


def train(work, ranks=1, tp=1, pp=1, *more, accumulate=4, batch=2, device="cpu", status=0, **kwargs):
    """The samples of a step are four times two, whatever the ranks."""
    parts = ["--ranks", ranks, "--tp", tp, "--pp", pp] if ranks > 1 else []
    work = [*work, "--batch", batch * tp * pp // ranks, "--accumulate", accumulate, "--steps", STEPS, "--device", device]
    return one(*work, *parts, *more, status=status, **kwargs)


@pytest.fixture(name="gpt", scope="module")
def gpt_of_one_rank():
    return train(GPT)


@pytest.mark.parametrize("transport", ["auto", "net"])
def test_losses_are_those_of_one_rank(gpt, transport):
    """With a table that the first and the last stage train; clipped, so that a wrong norm shows."""
    shared = train(GPT, 2, 1, 2, "--transport", transport)
    assert losses(shared) == pytest.approx(losses(gpt), rel=2e-6)
    assert shared["items"] == gpt["items"] and shared["plan"]["parameters"] == gpt["plan"]["parameters"]
    assert shared["flops_model_per_item"] == pytest.approx(gpt["flops_model_per_item"], rel=1e-12)


def test_what_is_sent_and_waited_for():
    """Of three borders each micro-step passes each in both directions; the record's bubble is that of the schedule."""
    alone, shared = train(LLAMA), train(LLAMA, 4, 1, 4)
    found = shared["communication"]
    assert losses(shared) == pytest.approx(losses(alone), rel=2e-6)
    assert (found["pp"], found["pp_chunks"], found["micro_steps"]) == (4, 1, 4)
    assert found["pp_bytes_per_step"] == 2 * 3 * 4 * STREAM and found["bubble"] == pytest.approx(3 / 7)
    for r in found["ranks"]:
        assert 0 < r["stage_s"] < r["step_s"] and r["compute_s"] == pytest.approx(r["step_s"] - r["stage_s"], rel=1e-6)
    assert found["bubble_measured"] == pytest.approx(sum(r["stage_s"] / r["step_s"] for r in found["ranks"]) / 4, rel=1e-6)


@pytest.mark.parametrize("ranks, tp, more", [(4, 1, []), (4, 2, ["--sequence-parallel"]), (8, 2, [])],
                         ids=["models", "tensor", "all"])
def test_with_other_kinds_of_ranks(ranks, tp, more):
    clip = [*F64, "--optimizer", "sgd", "--lr", "0.1", "--clip", "0.1"]
    alone, shared = train(GPT, 1, 1, 1, *clip, device="ref"), train(GPT, ranks, tp, 2, *clip, *more, device="ref")
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-12)
    assert shared["items"] == alone["items"]


@pytest.mark.parametrize("work, more", [(GPT, []), (LLAMA, ["--tied", "yes"]), (GPT, ["--dropout", "0.1", "--recompute"])],
                         ids=["gpt", "llama", "dropout"])
def test_in_turns_through_several_chunks(work, more):
    alone = train(work, 1, 1, 1, *more, *F64, device="ref")
    shared = train(work, 2, 1, 2, "--pp-chunks", "2", *more, *F64, device="ref")
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-12)
    assert shared["communication"]["bubble"] == pytest.approx(1 / 9)
    table = 256 * 32 * 8  # whose gradient both ends send
    assert shared["communication"]["pp_bytes_per_step"] == 2 * 3 * 4 * 2 * STREAM + 2 * table


@pytest.mark.parametrize("ranks, pp, last", [(2, 2, 1), (3, 3, 1), (4, 2, 3)], ids=["3-1", "2-1-1", "models-1-3"])
def test_stages_of_unequal_size(ranks, pp, last):
    """Of four blocks; also where their number does not divide, and with a part of the update on each of two models."""
    more = [*F64, "--optimizer", "sgd", "--lr", "0.1", "--clip", "0.1"]
    alone, shared = train(GPT, 1, 1, 1, *more, device="ref"), train(GPT, ranks, 1, pp, "--pp-last", last, *more, device="ref")
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-12)
    assert shared["items"] == alone["items"] and shared["plan"]["parameters"] == alone["plan"]["parameters"]


@pytest.mark.parametrize("precision", ["bf16", "bf16-true"])
def test_in_narrow_types(precision):
    more = ["--precision", precision]
    alone, shared = train(LLAMA, 1, 1, 1, *more), train(LLAMA, 2, 1, 2, *more)
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-3)


def test_a_single_micro_step():
    assert losses(train(GPT, 2, 1, 2, accumulate=1)) == pytest.approx(losses(train(GPT, accumulate=1)), rel=2e-6)


@pytest.mark.parametrize("ranks", [2, 4])
def test_on_the_queue_of_devices(gpt, ranks):
    """By the fake NCCL, whose transfers take time: what follows has to wait for them."""
    names = ",".join(f"later:{i}" for i in range(ranks))
    r = train(GPT, ranks, 1, 2, device=names, env={**devices(ranks), "JM_FAKE_NCCL_US": "500"})
    assert r["communication"]["transport"] == "nccl"
    assert losses(r) == pytest.approx(losses(gpt), rel=2e-6)


@pytest.mark.parametrize("work, ranks, tp, pp, more, reason", [
    (LLAMA, 3, 1, 2, [], "--pp 2 does not divide 3 ranks into models"),
    (LLAMA, 6, 2, 2, [], "--pp 2 with --tp does not divide 6 ranks into models; --ranks has to be a multiple of 4"),
    (LLAMA, 5, 1, 5, [], "--pp 5 makes 5 parts, and the model has 4 blocks; give fewer"),
    (LLAMA, 2, 1, 2, ["--pp-chunks", "4"], "--pp 2 with --pp-chunks makes 8 parts, and the model has 4 blocks; give fewer"),
    (LLAMA, 3, 1, 3, ["--pp-last", "3"], "--pp-last 3 leaves 1 of the 4 blocks of the model to the other 2 parts of --pp 3; give fewer"),
    (LLAMA, 2, 2, 1, ["--pp-last", "2"], "--pp-last 2 needs --pp of at least 2"),
    (LLAMA, 4, 1, 4, ["--precision", "fp8", "--continue", "c"], "--pp 4 does not go with --precision fp8 with a checkpoint"),
    (LLAMA, 2, 2, 1, ["--pp-chunks", "2"], "--pp-chunks 2 needs --pp of at least 2"),
    (LLAMA, 2, 1, 2, ["--freeze", "h0.*"], "--pp 2 does not go with --freeze"),
    (["run", "resnet18", "--image", "32", "--classes", "10"], 2, 1, 2, [], "Model resnet cannot be divided by --pp"),
], ids=lambda x: x[0] if isinstance(x, list) and x else str(x))
def test_what_cannot_be_divided_is_refused(work, ranks, tp, pp, more, reason):
    r = train(work, ranks, tp, pp, *more, status=FAILED)
    assert reason in r["reason"] and r["reason"].endswith(".")
