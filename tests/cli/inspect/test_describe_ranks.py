# SPDX-License-Identifier: Apache-2.0
"""describe --tp --dp: the plan of one rank of several is that of a run, and what it sends is what the record counts."""
import json

import pytest

from jm import FAILURE, USAGE, jm, sentence
from runs import one

GPT = ["gpt", "--layers", "2", "--hidden", "32", "--heads", "4", "--vocab", "256", "--context", "16", "--batch", "2", "--device", "ref"]


def describe(*words):
    done = jm("describe", *words, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("tp, dp, more", [(2, 2, []), (2, 1, ["--sequence-parallel"]), (1, 2, [])])
def test_a_rank_of_a_run_is_as_described(tp, dp, more):
    run = one("run", *GPT, "--seq", "16", "--ranks", tp * dp, "--tp", tp, "--steps", "1", "--warmup", "0", "--selftest",
              "0", "--source", "null", "--keep-less", *more)
    planned = describe(*GPT, "--tp", tp, "--dp", dp, *more)
    sums, ranks = run["communication"], planned["ranks"]
    assert planned["persistent_bytes"] == run["plan"]["persistent_bytes"]
    assert planned["parameters"] == run["plan"]["parameters"]
    assert planned["flops_model_per_item"] == pytest.approx(run["flops_model_per_item"], rel=1e-12)
    assert (ranks["n"], ranks["tp"], ranks["dp"]) == (tp * dp, tp, dp)
    # two ranks of a ring: half of the array twice in a sum, once in a reduce-scatter and in a gather
    assert ranks["tp_sent_bytes_per_step"] == sums["tp_bytes_per_step"]
    assert ranks["dp_sent_bytes_per_step"] == sums["bytes_per_step"] * (1 if tp > 1 else 0.5) + sums["gathered_bytes_per_step"] / 2
    assert sums["shard_update"] is (tp == 1)


def test_a_model_is_the_same_however_it_is_divided():
    """Parameters, and FLOPs of the model per token, of CARAML's largest plan; what ranks keep falls with their number."""
    small = ["gpt-175b", "--layers", "2", "--device", "ref", "--precision", "bf16-true"]
    whole, parts = describe(*small), [describe(*small, "--tp", tp) for tp in (2, 8)]
    for d in parts:
        assert d["parameters"] == whole["parameters"]
        assert d["flops_model_per_item"] == pytest.approx(whole["flops_model_per_item"], rel=1e-12)
        assert sum(rule["parameters"] for rule in d["start_values"]) == d["parameters"]
    assert whole["persistent_bytes"] > 1.3 * parts[0]["persistent_bytes"] > 1.7 * parts[1]["persistent_bytes"]


@pytest.mark.parametrize("words, reason, status", [
    (["gpt-175b", "--tp", "7"], "--tp 7 does not divide the 96 heads of the model", USAGE),
    (["resnet50", "--tp", "2"], "Model resnet cannot be divided by --tp", FAILURE),
    (["gpt-117m", "--tp", "2", "--sequence-parallel", "--seq", "15"], "2 ranks do not divide the 15 rows of a batch evenly", USAGE),
    (["llama3-8b", "--serve", "--tp", "2"], "--tp and --dp plan a training by several ranks, which --serve does not know", USAGE),
], ids=lambda x: x[0] if isinstance(x, list) else "")
def test_what_cannot_be_planned(words, reason, status):
    assert reason in sentence(jm("describe", *words), status)
