# SPDX-License-Identifier: Apache-2.0
"""run --tp: ranks that share a model train like a single one."""
import time

import pytest

from gangs import ENDS_S, devices
from runs import FAILED, one
from split_models import STEPS, falling_losses as losses, language_models

GPT, LLAMA = language_models(layers=2)
NORMS = 2 * 4 / 2  # bytes: of each rank one in f32 is gathered


def train(work, ranks, tp, *more, device="cpu", status=0, steps=STEPS, **kwargs):
    """The samples of a step are four, whatever the ranks."""
    shared = ["--ranks", ranks, "--tp", tp] if ranks > 1 else []
    work = [*work, "--batch", 4 * tp // ranks, "--steps", steps, "--device", device, *shared]
    return one(*work, *more, status=status, **kwargs)


@pytest.fixture(name="llama", scope="module")
def llama_of_one_rank():
    return train(LLAMA, 1, 1)


@pytest.mark.parametrize("transport", ["auto", "net"])
def test_losses_are_those_of_one_rank(llama, transport):
    shared = train(LLAMA, 2, 2, "--transport", transport)
    assert losses(shared) == pytest.approx(losses(llama), rel=2e-6)
    assert shared["items"] == llama["items"]
    assert shared["flops_model_per_item"] == pytest.approx(llama["flops_model_per_item"], rel=1e-12)
    assert shared["plan"]["parameters"] == llama["plan"]["parameters"]


def test_a_rank_keeps_and_sends_its_part(llama):
    """Parameter and two moments of f32: the matrices of blocks are halved, tables and norms are not."""
    shared, blocks, whole = train(LLAMA, 2, 2), 2 * 32 * (8 * 8 + 32 + 3 * 48), 32 * (2 * 256 + 5)
    saved = llama["plan"]["persistent_bytes"] - shared["plan"]["persistent_bytes"]
    assert llama["plan"]["parameters"] == blocks + whole and saved == pytest.approx(12 * blocks / 2, rel=0.01)
    assert shared["communication"]["tp"] == 2
    assert shared["communication"]["tp_bytes_per_step"] == 2 * 4 * (4 * 16 * 32) * 4 + NORMS


def test_rows_between_products_are_divided(llama):
    """Of each block four gathers and four sums of parts, and two gathers again; of the network two gathers; gains of norms."""
    plain, rows = (train(LLAMA, 2, 2, *more) for more in ([], ["--sequence-parallel"]))
    assert losses(rows) == pytest.approx(losses(llama), rel=2e-6)
    assert rows["communication"]["tp_bytes_per_step"] == (2 * 10 + 2) / 2 * (4 * 16 * 32) * 4 + 5 * 32 * 4 + NORMS
    assert rows["plan"]["peak_bytes"] < plain["plan"]["peak_bytes"]


def test_divided_rows_of_several_models():
    more = ["--precision", "f64", "--optimizer", "sgd", "--lr", "0.1", "--clip", "0.1", "--accumulate", "2"]
    alone, shared = train(GPT, 1, 1, *more, device="ref"), train(GPT, 4, 2, *more, "--sequence-parallel", device="ref")
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-12)


def test_in_f64_they_agree_to_its_rounding():
    """With dropout: its random numbers are those of one rank."""
    more = ["--precision", "f64", "--dropout", "0.1", "--init", "xavier-uniform"]
    alone, shared = (train(GPT, n, n, *more, device="ref") for n in (1, 4))
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-12)


def test_models_of_shared_ranks_sum_their_gradients():
    """Each step is clipped, so that a wrong global norm shows."""
    more = ["--optimizer", "sgd", "--lr", "0.1", "--clip", "0.1", "--freeze", "h0.attn.out.*"]
    alone, shared = train(GPT, 1, 1, *more), train(GPT, 4, 2, *more)
    assert losses(shared) == pytest.approx(losses(alone), rel=2e-6)
    assert shared["items"] == alone["items"]


@pytest.mark.parametrize("more", [["--freeze", "*.weight"], ["--sequence-parallel", "--freeze", "h*.attn.*,h*.mlp.*,tokens*,positions*"]],
                         ids=["biases", "norms"])
def test_few_trained_parameters(more):
    """Biases of which each rank has a part without a matrix; and no parameter of which it has a part."""
    clip = ["--optimizer", "sgd", "--lr", "10", "--clip", "0.1"]
    alone, shared = train(GPT, 1, 1, *clip, *more[-2:]), train(GPT, 2, 2, *clip, *more)
    assert losses(shared) == pytest.approx(losses(alone), rel=2e-6)


def test_in_bf16_recomputed_over_micro_steps():
    more = ["--precision", "bf16", "--recompute", "--accumulate", "2"]
    alone, shared = (train(LLAMA, n, n, *more) for n in (1, 2))
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-3)


@pytest.mark.parametrize("ranks, more, blocking", [(2, [], "1"), (4, [], "0"), (2, ["--sequence-parallel"], "1")], ids=["hidden", "", "rows"])
def test_sums_on_the_queue_of_devices(llama, ranks, more, blocking):
    """By the fake NCCL, whose sums take time: what follows has to wait for them."""
    names = ",".join(f"later:{i}" for i in range(ranks))
    r = train(LLAMA, ranks, 2, *more, device=names, env={**devices(ranks), "JM_FAKE_NCCL_US": "500", "NCCL_COMM_BLOCKING": blocking})
    assert r["communication"]["transport"] == "nccl"
    assert losses(r) == pytest.approx(losses(llama), rel=2e-6)
    for rank in r["communication"]["ranks"]:
        waits = [rank[key] for key in ("compute_s", "exposed_s", "tp_exposed_s")]
        assert rank["step_s"] == pytest.approx(sum(s or 0 for s in waits)) and rank["compute_s"] > 0
        # at least those of the forward pass: two in each of two blocks, beside which nothing runs
        assert rank["tp_exposed_s"] > 4 * 500e-6
        assert 0 <= rank["late_ranks_s"] <= rank["tp_exposed_s"] + (rank["exposed_s"] or 0)
    assert min(rank["late_ranks_s"] for rank in r["communication"]["ranks"]) == 0


@pytest.mark.parametrize("fault, reason", [
    ({"INIT_HANGS": "1/2"}, "Opening a communicator by NCCL has not ended within 2 s"),  # of those that share a model
    ({"INIT_HANGS": "0/3"}, "Opening a communicator by NCCL has not ended within 2 s"),  # of those with the same part
    ({"HANGS": "9"}, "A transfer by NCCL failed: remote process exited"),
    ({"LOSES": "9"}, "A transfer by NCCL failed: remote process exited"),
], ids=str)
@pytest.mark.parametrize("blocking", ["0", "1"])
def test_faults_in_groups_end_all_ranks(fault, reason, blocking):
    env = {**devices(4), "JM_GANG_SECONDS": "2", "NCCL_COMM_BLOCKING": blocking, **{"JM_FAKE_NCCL_" + name: value for name, value in fault.items()}}
    r = train(LLAMA, 4, 2, device="later:0,later:1,later:2,later:3", env=env, status=FAILED, timeout=ENDS_S)
    assert reason in r["reason"], r["reason"]


@pytest.mark.parametrize("bent", [None, 0, 1])
def test_values_that_ranks_share_are_compared(bent, tmp_path):
    """One rank whose sums are wrong in the last bit of their first element trains other tables and norms. What was trained is
    saved, and the run has failed."""
    env = {**devices(2), **({} if bent is None else {"JM_FAKE_NCCL_BENDS": str(bent)})}
    r = train(LLAMA, 2, 2, "--save", tmp_path / "net", device="later:0,later:1", env=env, steps=20,
              status=0 if bent is None else FAILED)
    assert (tmp_path / "net").exists()
    if bent is None:
        assert r["verified"] is True
    else:
        assert "Ranks 0 and 1 have other values of tokens.weight after step 20" in (r["verify_reason"] or r["reason"])


def test_rows_of_one_rank_are_not_divided():
    r = one(*LLAMA, "--ranks", "2", "--tp", "1", "--sequence-parallel", "--batch", "1", "--steps", "1", "--device", "cpu")
    assert r["note"] == "--sequence-parallel has no effect: it needs --tp of at least 2."


@pytest.mark.parametrize("work, ranks, tp, more, reason", [
    (LLAMA, 3, 2, [], "--tp 2 does not divide 3 ranks into models"),
    (LLAMA, 3, 3, [], "--tp 3 does not divide the 4 heads of the model"),
    (LLAMA, 4, 4, [], "--tp 4 does not divide the 2 key and value heads of the model"),
    (GPT, 2, 2, ["--ffn", "33"], "--tp 2 does not divide the 33 columns of a layer of the model"),
    (LLAMA, 2, 2, ["--precision", "fp8", "--checkpoint", "c"], "--tp 2 does not go with --precision fp8 with a checkpoint"),
    (GPT, 2, 2, ["--sequence-parallel", "--dropout", "0.1"], "--tp 2 does not go with --sequence-parallel and --dropout"),
    (["run", "resnet18", "--image", "32", "--classes", "10"], 2, 2, [], "Model resnet cannot be divided by --tp"),
], ids=lambda x: x[0] if isinstance(x, list) and x else str(x))
def test_what_cannot_be_divided_is_refused(work, ranks, tp, more, reason):
    r = train(work, ranks, tp, *more, status=FAILED)
    assert reason in r["reason"] and r["reason"].endswith(".")
