# SPDX-License-Identifier: Apache-2.0
"""--eval-every with --tp and --pp: the held-out losses are those of one rank, and the training goes on as without."""
import pytest

from gangs import devices
from runs import one
from split_models import language_models

GPT, LLAMA = language_models("--accumulate", 2)
F64 = ["--precision", "f64"]
WAYS = {
    "tensor": ["--ranks", 2, "--tp", 2],
    "rows": ["--ranks", 2, "--tp", 2, "--sequence-parallel"],
    "stages": ["--ranks", 4, "--pp", 4],
    "chunks": ["--ranks", 2, "--pp", 2, "--pp-chunks", 2],
    "both": ["--ranks", 8, "--tp", 2, "--pp", 2],
}


def train(work, way, *more, device="ref", steps=6, **kwargs):
    """The evaluations take their samples from the last tenth of the text, the same ones in each way."""
    batch = 2 if way == "both" else 4
    r = one(*work, *WAYS.get(way, []), "--batch", batch, "--device", device, "--steps", steps, *more, **kwargs)
    assert r["status"] == "ok"
    return r


def held_out(record):
    return [e["loss"] for e in record["evaluations"]]


def evaluations(way, every=2, batches=3):
    """As many samples whatever the batch of a model."""
    return ["--eval-every", every, "--eval-batches", batches * (2 if way == "both" else 1)]


@pytest.fixture(name="one_rank", scope="module", params=[GPT, LLAMA], ids=["gpt", "llama"])
def work_of_one_rank(request):
    return request.param, train(request.param, "", *F64, *evaluations(""))


@pytest.mark.parametrize("way", WAYS)
def test_held_out_losses_are_those_of_one_rank(one_rank, way):
    work, alone = one_rank
    shared = train(work, way, *F64, *evaluations(way))
    assert len(held_out(alone)) == 3 and held_out(alone)[2] < held_out(alone)[0]
    assert held_out(shared) == pytest.approx(held_out(alone), rel=1e-9)
    assert [e["step"] for e in shared["evaluations"]] == [2, 4, 6]
    assert [e["samples"] for e in shared["evaluations"]] == [e["samples"] for e in alone["evaluations"]]
    assert shared["step_series"]["loss"] == pytest.approx(alone["step_series"]["loss"], rel=1e-9)


@pytest.mark.parametrize("way, transport", [("rows", "nccl"), ("both", "nccl"), ("chunks", "nccl"), ("tensor", "host"), ("chunks", "host")])
def test_on_the_queue_of_devices(way, transport):
    """By the fake NCCL and by lanes, whose transfers take time: what follows has to wait for them."""
    n = WAYS[way][1]
    names = ",".join(f"later:{i}" for i in range(n))
    alone = train(LLAMA, "", *evaluations(""), device="cpu")
    shared = train(LLAMA, way, *evaluations(way), "--transport", transport, device=names,
                   env={**devices(n), "JM_FAKE_NCCL_US": "500", "JM_FAKE_LANES_US": "500"})
    assert shared["communication"]["transport"] == transport
    assert held_out(shared) == pytest.approx(held_out(alone), rel=2e-6)


@pytest.mark.parametrize("way", ["tensor", "stages"])
def test_all_ranks_end_with_the_evaluation_that_is_good_enough(way):
    alone = train(LLAMA, "", *evaluations(""), device="cpu")
    bound = (held_out(alone)[0] + held_out(alone)[1]) / 2
    shared = train(LLAMA, way, *evaluations(way), "--until", f"loss={bound}", device="cpu", steps=50)
    assert shared["steps"] == 4 and shared["until"]["reached"] is True
