# SPDX-License-Identifier: Apache-2.0
"""describe --tp --pp --dp: the plan of one rank of several is that of a run, and what it sends is what the record counts."""

import pytest

from described import describe
from jm import FAILURE, USAGE, jm, sentence
from runs import one

GPT = ["gpt", "--layers", "2", "--hidden", "32", "--heads", "4", "--vocab", "256", "--context", "16", "--batch", "2", "--device", "ref"]


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
    assert ranks["dp_sent_bytes_per_step"] == sums["bytes_per_step"] / 2 + sums["gathered_bytes_per_step"] / 2
    assert sums["shard_update"] is (dp > 1)


@pytest.mark.parametrize("chunks, stage, more", [(1, 0, []), (2, 0, []), (1, 0, ["--pp-last", "1"])])
def test_the_stage_that_needs_most_is_as_in_a_run(chunks, stage, more):
    """Rank 0, whose plan the record has, is of the first stage; both send as much."""
    shared = ["gpt", "--layers", "4", *GPT[3:], "--accumulate", "4", "--pp", "2", "--pp-chunks", str(chunks), *more]
    run = one("run", *shared, "--seq", "16", "--ranks", 2, "--steps", "1", "--warmup", "0", "--selftest", "0", "--source", "null",
              "--keep-less")
    planned = describe(*shared)
    sent, ranks = run["communication"], planned["ranks"]
    assert planned["persistent_bytes"] == run["plan"]["persistent_bytes"]
    assert planned["peak_bytes"] == run["plan"]["peak_bytes"]
    assert planned["flops_model_per_item"] == pytest.approx(run["flops_model_per_item"], rel=1e-12)
    assert (ranks["n"], ranks["pp"], ranks["pp_chunks"], ranks["stage"]) == (2, 2, chunks, stage)
    assert ranks["pp_sent_bytes_per_step"] == sent["pp_bytes_per_step"] / 2
    assert (ranks["bubble"], sent["bubble"]) == pytest.approx((1 / (4 * chunks + 1),) * 2)


def test_the_last_part_of_unequal_stages_has_as_many_blocks_as_it_is_given():
    """The first stage of four blocks then has three, not two. Of a parameter in f32 it keeps value, gradient and two moments."""
    shared = ["gpt", "--layers", "4", *GPT[3:], "--accumulate", "4", "--pp", "2"]
    even, uneven = (describe(*shared, *more)["persistent_bytes"] for more in ([], ["--pp-last", "1"]))
    assert uneven - even == pytest.approx(16 * (12 * 32**2 + 13 * 32), rel=0.01)


@pytest.mark.parametrize("layers, vocab, tp, pp, chunks", [(32, 128256, 1, 2, 1), (32, 128256, 1, 2, 2), (32, 128256, 2, 2, 2),
                                                           (32, 1024, 1, 4, 1), (6, 65536, 1, 2, 3), (7, 512, 1, 3, 1)])
def test_stages_have_blocks_by_their_flops(layers, vocab, tp, pp, chunks):
    """Counted here from the sizes: of all ways to divide, none makes the slowest stage faster. The loss is whole on each rank of --tp."""
    hidden, heads, kv, ffn, seq, parts = 256, 8, 2, 512, 64, pp * chunks
    head = hidden // heads
    block = 2 * (hidden * (2 * heads + 2 * kv) * head + 3 * hidden * ffn) + 2 * seq * hidden  # causal attention
    sizes = ["--hidden", hidden, "--heads", heads, "--kv-heads", kv, "--ffn", ffn, "--context", seq, "--seq", seq, "--batch", 1]
    ranks = describe("llama", "--layers", layers, "--vocab", vocab, *sizes, "--tp", tp, "--pp", pp, "--pp-chunks", chunks,
                     "--accumulate", 4 * pp, "--device", "ref")["ranks"]

    def slowest(last):
        each, more = divmod(layers - last, parts - 1)
        stages = [0] * pp
        for part in range(parts):
            stages[part % pp] += (last if part == parts - 1 else each + (part < more)) * block / tp
        return max(*stages[:-1], stages[-1] + 2 * hidden * vocab)
    assert ranks["pp_last"] in range(1, layers // parts + 1)
    assert slowest(ranks["pp_last"]) == pytest.approx(min(map(slowest, range(1, layers // parts + 1))), rel=1e-9)


def test_a_plan_for_512_ranks():
    """CARAML's largest: parameters by hand; of each stage an eighth of the matrices, and of the ends an embedding each."""
    d = describe("gpt-175b", "--tp", "8", "--pp", "16", "--pp-last", "6", "--dp", "4", "--accumulate", "64",
                 "--precision", "bf16-true", "--device", "ref")
    block, table, ranks = 12 * 12288**2, 51200 * 12288, d["ranks"]
    assert (ranks["n"], d["parameters"]) == (512, 174590681088)
    assert ranks["bubble"] == pytest.approx(15 / 79)
    # parameter in bf16 and gradient in f32; of the four models each a quarter of two moments in bf16 and of the sums of
    # gradients; the rest is vectors
    assert d["persistent_bytes"] == pytest.approx((2 + 4 + 4 / 4 + 4 / 4) * (6 * block / 8 + table), rel=0.01)
    # the first stage: each micro-step forward, and a quarter of the table's gradient once
    assert ranks["pp_sent_bytes_per_step"] == pytest.approx(64 * 2048 * 12288 * 2 + table, rel=1e-6)


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
    (["gpt-175b", "--pp", "97"], "--pp 97 makes 97 parts, and the model has 96 blocks; give fewer", USAGE),
    (["gpt-175b", "--pp-chunks", "2", "--pp", "1"], "--pp-chunks 2 needs --pp of at least 2", USAGE),
    (["gpt-175b", "--pp-last", "2", "--pp", "1"], "--pp-last 2 needs --pp of at least 2", USAGE),
    (["gpt-175b", "--pp", "2", "--pp-last", "96"], "--pp-last 96 leaves none of the 96 blocks of the model to the other part of --pp 2;", USAGE),
    (["gpt-175b", "--pp", "3", "--pp-last", "500"], "--pp-last 500 leaves none of the 96 blocks of the model to the other parts of --pp 3;", USAGE),
    (["gpt-175b", "--layers", "4", "--pp", "2", "--pp-chunks", "2"], "does not divide the 1 micro-steps of --accumulate", USAGE),
    (["gpt-117m", "--pp", "2", "--seq", "33", "--precision", "fp8"], "Products in fp8 need a multiple of 16 rows", USAGE),
    (["llama3-8b", "--serve", "--tp", "2"], "--tp, --pp and --dp plan a training by several ranks, which --serve does not know", USAGE),
], ids=lambda x: x[0] if isinstance(x, list) else "")
def test_what_cannot_be_planned(words, reason, status):
    assert reason in sentence(jm("describe", *words), status)
