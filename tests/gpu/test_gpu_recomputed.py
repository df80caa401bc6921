# SPDX-License-Identifier: Apache-2.0
"""What backend cuda recomputes for gradients, and which kernels do it: plans for an H100 on a fake CUDA runtime."""
import collections

import pytest

from cuda_plans import BYTES, FLOPS, GPT, LLAMA, RESNET, fake_gpu, kinds, needs_fakes, plan  # noqa: F401  pylint: disable=unused-import
from jm import jm

pytestmark = needs_fakes


def test_activations_are_recomputed_by_the_kernels_of_their_gradients(env):
    """llama: SwiGLU costs one more writing of its result, which 4 layers then do not keep, however small the share of the step
    is that --remake gives."""
    every, least, less = (plan(env, *LLAMA, *words, "--graph") for words in (["--keep-all"], ["--remake", 1e-6], []))
    tokens = every["batch"] * every["seq"]
    for p in (least, less):
        assert kinds(p)["swiglu-grad + swiglu"] == kinds(p)["swiglu"] == 4 and not kinds(p)["swiglu-grad"]
        for pair in (group for group in p["graph"] if len(group["nodes"]) == 2 and group["nodes"][0]["op"] == "swiglu-grad"):
            grad, again = pair["nodes"]
            assert again["in"][0]["offset"] == grad["in"][1]["offset"]  # the same gates
    assert kinds(every)["swiglu-grad"] == 4 and kinds(least)["rmsnorm"] == kinds(every)["rmsnorm"]
    result = tokens * 8192 * 2
    assert (least["bytes_per_item"] - every["bytes_per_item"]) * tokens == pytest.approx(4 * result, rel=1e-3)
    assert every["peak_bytes"] - least["peak_bytes"] == pytest.approx(4 * result, rel=0.3)


def test_more_recomputation_needs_less_memory(env):
    """--remake: the more of a step, the less memory, and never more time than was given."""
    every, less = plan(env, *GPT, "--keep-all"), plan(env, *GPT)
    given = [plan(env, *GPT, "--remake", percent) for percent in (0, 1, 2, 4, 100)]
    peaks = [p["peak_bytes"] for p in given]
    assert peaks == sorted(peaks, reverse=True) and len(set(peaks)) == len(peaks)
    assert given[0] == every and peaks[-1] < less["peak_bytes"]  # which neither attention nor products are part of
    tokens = every["batch"] * every["seq"]
    longest = every["flops_executed_per_item"] * tokens / FLOPS + every["bytes_per_item"] * tokens / BYTES
    for share, p in zip((0, 0.01, 0.02, 0.04), given):
        assert (p["bytes_per_item"] - every["bytes_per_item"]) * tokens / BYTES <= share * longest


def again(p):
    """How often each op is recomputed."""
    return collections.Counter(n["op"] for group in p["graph"] for n in group["nodes"] if n["out"][0]["name"].endswith(".again"))


def test_attention_is_recomputed_before_products_if_time_is_given(env):
    """4 frozen layers, of whose norms and SwiGLU no gradient reads a result. 2.6 % of a step suffices for attention."""
    words = [*LLAMA[:-1], "bf16-true", "--freeze", "h*", "--graph"]
    every, usual, some, much = (plan(env, *words, *more) for more in
                                (["--keep-all"], ["--keep-most"], ["--remake", 1], ["--remake", 100]))
    assert every == usual and again(some) == {"attention": 3}
    assert again(much) == {"attention": 4, "linear": 8, "rope": 4, "rmsnorm": 8}
    tokens, wide = every["batch"] * every["seq"], 2048 + 3072 + 2 * 8192  # attention; queries, keys, values; gates
    assert every["peak_bytes"] - some["peak_bytes"] == pytest.approx(3 * tokens * 2048 * 2, rel=0.1)
    assert every["peak_bytes"] - much["peak_bytes"] >= 0.7 * 4 * tokens * wide * 2
    products = 2 * 4 * tokens * 2048 * (3072 + 2 * 8192)
    attention = 4 * 2 * 2 * 8 * 2048 * 2048 / 2 * 2048
    more = (much["flops_executed_per_item"] - every["flops_executed_per_item"]) * tokens
    assert more == pytest.approx(products + attention, rel=0.01)


@pytest.mark.parametrize("words", [GPT, [*GPT[:-1], "fp8"], LLAMA, [*LLAMA[:-1], "fp8"], ["unet-sd2", "--batch", 8, "--precision", "bf16"]],
                         ids=["gpt", "gpt-fp8", "llama", "llama-fp8", "unet"])
def test_products_are_recomputed_alone(env, words):
    """Only those that no follower shares a kernel with, none in 8 bits, and none within the usual share."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    usual, much = (plan(env, *words, *more, "--graph") for more in (["--keep-most"], ["--remake", 100]))
    assert not {"attention", "linear"} & set(again(usual))
    assert again(much)["attention"] == kinds(usual)["attention"] and (again(much)["linear"] > 0) == ("fp8" not in words)
    for group in much["graph"]:
        if group["nodes"][0]["out"][0]["name"].endswith("again") and group["nodes"][0]["op"] == "linear":
            assert len(group["nodes"]) == 1


def test_a_recomputed_swiglu_joins_its_gradient(env):
    """Both read the same operand, which is then read once; the product that reads the swiglu follows."""
    graph = plan(env, *LLAMA, "--graph")["graph"]
    groups = [[node["op"] for node in group["nodes"]] for group in graph]
    assert groups.count(["swiglu-grad", "swiglu"]) == 4 and ["swiglu-grad"] not in groups
    for at, ops in enumerate(groups):
        if ops == ["swiglu-grad", "swiglu"]:
            made = graph[at]["nodes"][1]["out"][0]["name"]
            after = [node for group in graph[at + 1:] for node in group["nodes"]]
            assert [n["op"] for n in after if made in [t["name"] for t in n["in"] if t]] == ["linear-wgrad"]


def test_a_recomputed_geglu_joins_its_gradient_and_the_sums_of_a_bias(env):
    """16 of them: one kernel reads the operand, writes both results and adds up the bias's gradient."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    words = ["unet-sd2", "--batch", 8, "--precision", "bf16"]
    every, less = (plan(env, *words, *more, "--graph") for more in (["--keep-all"], ["--keep-most"]))
    assert kinds(every)["geglu-grad + linear-wgrad"] == kinds(less)["geglu-grad + geglu + linear-wgrad"] == 16
    assert not kinds(less)["geglu-grad"] and kinds(less)["geglu"] == 16
    for group in less["graph"]:
        if group["nodes"][0]["op"] == "geglu-grad":
            assert group["nodes"][1]["out"][0]["offset"] == group["nodes"][0]["in"][0]["offset"]  # over its gradient
    results = sum(g["nodes"][0]["out"][0]["bytes"] for g in every["graph"] if g["nodes"][0]["op"] == "geglu")
    assert every["peak_bytes"] - less["peak_bytes"] >= 0.8 * results


def test_a_recomputed_norm_joins_its_gradient(env):
    """Two norms of each of 16 blocks: their gradient reads the operand and writes the norm, too."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    every, less = (plan(env, *RESNET, *more, "--graph") for more in (["--keep-all"], ["--remake", 100]))
    plans = kinds(less)
    assert plans["conv-dgrad + bn-grad + bn-apply"] + plans["bn-grad + bn-apply"] == 2 * 16
    again = [g["nodes"][-1] for g in less["graph"] if [n["op"] for n in g["nodes"][-2:]] == ["bn-grad", "bn-apply"]]
    written = sum(n["out"][0]["bytes"] for n in again)
    sums = [n for g in less["graph"] for n in g["nodes"] if n["op"] == "bn-apply" and n["in"][5] and n["out"][0]["name"].endswith("again")]
    moved = written + sum(n["bytes"] for n in sums)
    assert (less["bytes_per_item"] - every["bytes_per_item"]) * 256 == pytest.approx(moved, rel=0.02)
    assert every["peak_bytes"] - less["peak_bytes"] >= 0.8 * written


def test_every_other_residual_sum_is_recomputed_if_time_is_given(env):
    """Stages of 3, 4, 6 and 3 blocks. What is added to a sum is kept for it: the result of the block before, or that of a
    convolution's norm, which is not stored."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    norms, sums = (plan(env, *RESNET, "--remake", percent, "--graph") for percent in (1, 100))
    again = [n for g in sums["graph"] for n in g["nodes"] if n["op"] == "bn-apply" and n["in"][5] and n["out"][0]["name"].endswith("again")]
    assert len(again) == 1 + 2 + 3 + 1 and not any(n["in"][5]["name"].endswith("again") for n in again)
    assert sums["peak_bytes"] < norms["peak_bytes"]


@pytest.mark.parametrize("word", ["--keep-all", "--keep-less", "--recompute"])
def test_one_rule_decides_what_is_kept(word):
    done = jm("run", "gpt-117m", "--device", "ref", "--layers", 1, "--batch", 1, "--seq", 16, "--steps", 1,
              "--remake", 2, word)
    assert done.returncode and "omit one of them" in " ".join(done.stdout.split() + done.stderr.split())
