# SPDX-License-Identifier: Apache-2.0
"""The plans of backend cuda for an H100, with all of its ops on a fake CUDA runtime: memory is saved where it costs little
time."""
import bisect
import json
import math
import re

import pytest

from cuda_plans import BYTES, FAKES, FLOPS, GPT, LLAMA, RESNET, fake_gpu, kinds, needs_fakes, plan  # noqa: F401  pylint: disable=unused-import
from jm import USAGE, jm

pytestmark = needs_fakes
SD2 = ["sd2", "--batch", 16, "--precision", "fp16"]  # a U-Net behind a transformer of captions, which is frozen


@pytest.mark.parametrize("model, share", [(GPT, 0.01 / 16), (LLAMA, 0.01 / 16), (RESNET, 0.035), (SD2, 0.016)],
                         ids=["gpt", "llama", "resnet", "sd2"])
def test_most_is_kept_within_the_usual_share(env, model, share):
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    every, most, less = (plan(env, *model, *word) for word in (["--keep-all"], ["--keep-most"], []))
    assert most == plan(env, *model, "--remake", 100 * share)
    assert most["peak_bytes"] <= every["peak_bytes"]
    assert less["peak_bytes"] <= most["peak_bytes"] or model is RESNET  # sums of residuals are not of what `less` recomputes
    assert (less == most) == (model is SD2)  # whose share suffices for all norms and activations
    tokens = every["batch"] * every["seq"]
    longest = every["flops_executed_per_item"] * tokens / FLOPS + every["bytes_per_item"] * tokens / BYTES
    again = (most["bytes_per_item"] - every["bytes_per_item"]) * tokens / BYTES
    beside = 4 * tokens * 8192 * 2 / BYTES if model is LLAMA else 0  # SwiGLU, which the kernels of its gradients write
    assert 0 <= again < share * longest + max(0, beside - share / 2 * longest)
    assert (again > 0) == (model is not GPT)  # one norm of gpt-117m takes longer than the whole share
    assert every["peak_bytes"] - most["peak_bytes"] >= 0.25 * again * BYTES  # what is moved frees memory


@pytest.mark.parametrize("precision", ["f32", "tf32", "bf16", "bf16-true", "fp16", "fp8", "fp8-true"])
@pytest.mark.parametrize("model", [GPT[:-1], LLAMA[:-1]], ids=["gpt", "llama"])
def test_every_precision_is_planned(env, model, precision):
    assert plan(env, *model, precision)["peak_bytes"] > 0


@pytest.mark.parametrize("precision", ["f32", "tf32", "bf16", "bf16-true", "fp16"])
def test_filters_have_gradients_in_f32(env, precision):
    """The kernels of filters' gradients, own ones and cuDNN's, write f32: in 16 bits they would write over what follows."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, "resnet50", "--batch", 32, "--precision", precision, "--graph")
    nodes = [n for group in p["graph"] for n in group["nodes"]]
    made = [n["out"][0] for n in nodes if n["op"] == "conv-wgrad"]
    assert len(made) == 53 and {t["type"] for t in made} == {"f32"}
    assert all(t["bytes"] >= 4 * math.prod(t["dims"]) for t in made)
    assert (kinds(p)["conv + bn-stats + bn-finalize"] > 0) == (precision != "f32")


def test_sums_of_filters_gradients_without_masters_are_rounded_before(env):
    """No kernel adds f32 to bf16."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, "resnet50", "--batch", 32, "--precision", "bf16-true", "--accumulate", 2, "--graph")
    nodes = [n for group in p["graph"] for n in group["nodes"]]
    assert sum(n["op"] == "conv-wgrad" for n in nodes) == 53
    sums = [n for n in nodes if n["op"] == "add" and n["out"][0]["type"] == "bf16"]
    assert len(sums) >= 53 and {t["type"] for n in sums for t in n["in"] if t} == {"bf16"}


def test_gradients_of_filters_behind_a_relu_have_room_for_their_parts(env):
    """They run without the bias, in ways that a gradient with a bias does not have: a block of each processor writes its sums."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, "vgg11", "--hidden", 8, "--ffn", 64, "--image", 224, "--batch", 4, "--precision", "bf16", "--graph")
    groups = [group for group in p["graph"] if {"relu-grad", "conv-wgrad"} <= {n["op"] for n in group["nodes"]}]
    sums = {tuple(group["nodes"][-1]["out"][0]["dims"]): group["scratch_bytes"] for group in groups}
    wide = {dims: scratch for dims, scratch in sums.items() if dims[2] == 3 and dims[0] == 64}
    assert len(wide) == 2, sums
    assert all(scratch >= 132 * 4 * math.prod(dims) for dims, scratch in wide.items()), sums


PICTURES = [["inception3"], ["alexnet"], ["vgg16"], ["xception"], ["resnet152", "--stem", "cifar", "--image", 32, "--classes", 10]]


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("network", PICTURES, ids=lambda words: words[0])
def test_images_keep_their_channels_last(env, network, precision):
    """Also where they are put side by side: only parameters are converted."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, *network, "--batch", 32, "--precision", precision, "--graph")
    nodes = [n for group in p["graph"] for n in group["nodes"]]
    images = [n["in"][0] for n in nodes if n["op"] in ("concat", "split", "maxpool", "bn-apply", "relu") and len(n["in"][0]["dims"]) == 4]
    assert images and {t["layout"] for t in images} == {"acdb"}
    assert {n["in"][0]["class"] for n in nodes if n["op"] == "cast"} <= {"parameters"}


def test_images_that_were_pooled_are_not_kept(env):
    """vgg16: the byte with a maximum's position says whether it is above 0, so that no gradient reads the ReLU's result."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, "vgg16", "--batch", 32, "--precision", "bf16", "--graph")
    nodes = [n for group in p["graph"] for n in group["nodes"]]
    pools = [at for at, n in enumerate(nodes) if n["op"] == "maxpool"]
    grads = {n["in"][1]["name"]: at for at, n in enumerate(nodes) if n["op"] == "maxpool-grad"}
    assert len(pools) == len(grads) == 5 and kinds(p)["maxpool-grad + relu-grad + conv-wgrad"] == 5
    for at in pools[:-1]:  # behind the last one there is no image to take its place
        image = nodes[at]["in"][0]
        between = [t for n in nodes[at + 1:grads[image["name"]]] for t in n["out"] if t and t.get("offset") is not None]
        assert any(t["offset"] < image["offset"] + image["bytes"] and image["offset"] < t["offset"] + t["bytes"] for t in between)


def test_means_come_after_convolutions_that_leave_fewer_channels(env):
    """inception3: 3 x 3 means of 32, 64, 192 channels in place of the 192 to 2,048 of the blocks' images."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, "inception3", "--batch", 32, "--precision", "bf16", "--graph")
    means = [n for group in p["graph"] for n in group["nodes"] if n["op"] == "avgpool"]
    channels = [n["in"][0]["dims"][1] for n in means]
    assert channels == [32, 64, 64, 192, 192, 192, 192, 768, 192, 192]  # 768: the second classifier's, of 5 x 5


# Operands that a node names and does not read, because what the forward pass saved says the same
UNREAD = {"maxpool-grad": 1, "bn-grad": 2}
NETWORKS = {"unet-sd2": ["unet-sd2", "--batch", 4], "vit-l16": ["vit-l16", "--batch", 2], "llama": LLAMA[:-2],
            "resnet50": ["resnet50", "--batch", 16], "xception": ["xception", "--batch", 8], "inception3": ["inception3", "--batch", 8]}


class Memory:
    """Which value each byte holds: a value up to an end, by where it begins."""

    def __init__(self):
        self.begins, self.runs = [], {}

    def split(self, at):
        i = bisect.bisect_right(self.begins, at) - 1
        begin = self.begins[i] if i >= 0 else None
        if begin is not None and begin < at < self.runs[begin][0]:
            to, value = self.runs[begin]
            self.runs[begin], self.runs[at] = (at, value), (to, value)
            self.begins.insert(i + 1, at)

    def inside(self, t):
        begin, end = t["offset"], t["offset"] + t["bytes"]
        self.split(begin)
        self.split(end)
        return bisect.bisect_left(self.begins, begin), bisect.bisect_left(self.begins, end)

    def write(self, t, value):
        i, k = self.inside(t)
        for begin in self.begins[i:k]:
            del self.runs[begin]
        self.begins[i:k] = [t["offset"]]
        self.runs[t["offset"]] = (t["offset"] + t["bytes"], value)

    def values(self, t):
        i, k = self.inside(t)
        return {self.runs[begin][1] for begin in self.begins[i:k]}


def one(tensor):
    return tensor["name"], tensor.get("offset")


def same_image(node):
    """True for tokens that are the image itself, in its place."""
    return node["op"] in ("tokens", "tokens-grad") and node["in"][0].get("offset") == node["out"][0].get("offset")


@pytest.mark.parametrize("words", [["--keep-most"], []], ids=["most", "less"])
@pytest.mark.parametrize("network", NETWORKS)
def test_operands_hold_what_was_written(env, network, words):
    """The groups of a plan run on memory that records who wrote each byte: whatever a group reads from outside is as its
    maker left it."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, *NETWORKS[network], "--precision", "bf16", *words, "--graph")
    memory, made = Memory(), {}  # by name and place: the mean and rstd of several norms have one name
    for at, group in enumerate(p["graph"]):
        inside = {one(t) for n in group["nodes"] for t in n["out"] if t}
        for n in group["nodes"]:
            for i, t in enumerate(n["in"]):
                if not t or t.get("offset") is None or t["class"] != "activations" or (one(t) in inside and one(t) not in made):
                    continue
                assert UNREAD.get(n["op"]) == i or memory.values(t) == {made[one(t)]}, (n["op"], t["name"])
        for n in group["nodes"]:
            for t in n["out"]:
                if t and t.get("offset") is not None:
                    made[one(t)] = made[one(n["in"][0])] if same_image(n) else (t["name"], at)
                    memory.write(t, made[one(t)])


# What PyTorch's allocator reserved on H200s in bf16, GB (docs/networks.md, docs/gpu-kernels.md)
RESERVED = {"resnet152": (15.3, *PICTURES[-1][1:], "--batch", 512, "--remake", 4), "unet-sd2": (64.5, "--batch", 64),
            "vgg16": (10.4, "--batch", 256), "inception3": (11.8, "--batch", 256), "xception": (15.8, "--batch", 128), "alexnet": (4.26, "--batch", 1024)}


@pytest.mark.parametrize("network", RESERVED)
def test_less_memory_than_pytorch(env, network):
    """Beyond parameters and moments, 12 bytes each on both sides, at most 0.80; of resnet152 only where it is asked for."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    theirs, *words = RESERVED[network]
    p = plan(env, network, *words, "--precision", "bf16", "--keep-most")
    state = 12 * p["parameters"]
    assert p["peak_bytes"] - state <= 0.8 * (theirs * 1e9 - state)


@pytest.mark.parametrize("words", [["vit-b16", "--freeze", "patches.weight"], ["vgg11", "--image", 224, "--freeze", "features.0.weight"]])
def test_a_frozen_filter_in_16_bits_alone(env, words):
    """Its bias is trained: the op that sums the bias also writes the filter's gradient, which none reads, in f32."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, *words, "--batch", 2, "--precision", "bf16-true", "--graph")
    unread = [t for group in p["graph"] for n in group["nodes"] if n["op"] == "conv-wgrad" for t in n["out"] if t and words[-1] in t["name"]]
    assert [t["type"] for t in unread] == ["f32"]


def test_large_tensors_of_stages_begin_at_multiples_of_512_bytes(env):
    """Also those that a stage keeps for several micro-steps at a time, and others, which lie behind them."""
    p = plan(env, "gpt-117m", "--batch", 2, "--seq", 200, "--precision", "bf16", "--pp", 2, "--accumulate", 4, "--graph")
    tensors = [t for group in p["graph"] for n in group["nodes"] for t in n["in"] + n["out"] if t]
    large = [t for t in tensors if t["class"] == "activations" and t.get("offset") is not None and t["bytes"] >= 4096]
    assert len(large) > 100 and not [t["name"] for t in large if t["offset"] % 512]


@pytest.mark.parametrize("library, says", [("nothing.so", "cannot be loaded"), ("old", "of version 9.1")])
def test_cudnn_missing_or_too_old(env, library, says):
    """A network with convolutions ends with 125; another device goes on, and so does a network without them."""
    wrong = {"JM_FAKE_DNN_VERSION": "90100"} if library == "old" else {"JM_CUDNN_LIB": library}
    tiny = ["resnet18", "--image", 32, "--hidden", 8, "--batch", 2, "--steps", 1, "--warmup", 1, "--source", "null"]
    done = jm("run", *tiny, "--device", "cuda:0,ref", "--json", "-", env={**env, **wrong})
    records = {r["device"]: r for r in json.loads(done.stdout)}
    r = records["cuda:0"]
    assert done.returncode == 125 and r["exit_status"] == 125
    assert says in r["reason"] and "9.14" in r["reason"] and "JM_CUDNN_LIB" in r["reason"]
    assert records["ref"]["status"] == "ok"
    assert plan(env, *GPT, **wrong)["peak_bytes"] > 0


GRADIENT = "attention/91900/8x2048/32:8x64/causal/grad/repeatable/ways"  # of LLAMA
OWN = 2 * 4 * 8 * 32 * 2048  # bytes: lse and delta of the own kernels in f32
WORKSPACE = 5 << 28
SUMS = 4 * 8 * 32 * (2048 * 64 + 2048 // 64) + 4  # gradients of queries in f32, a count for 64 of them, and a ticket
SCRATCH = {"own": OWN, "cudnn": OWN // 2 + WORKSPACE, "once": OWN + SUMS}


def plan_with_driver(env, tmp_path, *words, **more):
    """On a GPU on which own kernels compute the gradient of attention."""
    driver = tmp_path / "driver/libcuda.so.1"
    driver.parent.mkdir(exist_ok=True)
    if not driver.exists():
        driver.symlink_to(FAKES / "libcuda-driver-fake.so")
    return plan(env, *words, "--graph", LD_LIBRARY_PATH=str(driver.parent), JM_FAKE_DNN_WORKSPACE=str(WORKSPACE), **more)


def scratch_of_gradient(env, tmp_path, **more):
    p = plan_with_driver(env, tmp_path, *LLAMA, **more)
    (found,) = {group["scratch_bytes"] for group in p["graph"] if group["nodes"][0]["op"] == "attention-grad"}
    return found


def test_the_gradient_of_attention_reserves_what_its_way_needs(env, tmp_path):
    """The way is timed before memory is planned, or read from the plan cache."""
    found, cache = scratch_of_gradient(env, tmp_path), tmp_path / "cuda.plans"
    before, chosen, after = re.fullmatch(f"(.* {GRADIENT} )([^,]*)(,.*)", cache.read_text(), re.DOTALL).groups()
    assert found == SCRATCH[chosen]
    for way, needs in SCRATCH.items():
        cache.write_text(before + way + after)
        assert scratch_of_gradient(env, tmp_path) == needs


def test_the_largest_batch_is_found_with_few_timings(env, tmp_path):
    """Ways are timed for the last batches that are tried; the others are planned with the most memory that a way needs.
    The operands to time fit into the memory that others leave, and the plan does not."""
    scratch_of_gradient(env, tmp_path)  # makes the folder of the driver
    (tmp_path / "cuda.plans").unlink()
    at = LLAMA.index("--batch")
    words = [*LLAMA[:at], "--batch", "max", *LLAMA[at + 2:]]
    done = jm("run", *words, "--seq", 2048, "--memory", 60, "--device", "cuda:0", "--steps", 1, "--warmup", 0, "--source", "null",
              "--selftest", 0, "--json", "-", env={**env, "LD_LIBRARY_PATH": str(tmp_path / "driver"), "JM_FAKE_CUDA": "held=75000",
                                                   "JM_FAKE_DNN_WORKSPACE": str(WORKSPACE // 4)})
    p = json.loads(done.stdout)["plan"]
    assert p["batch"] > 30 and p["peak_bytes"] <= 60e9
    assert 1 <= (tmp_path / "cuda.plans").read_text().count("/grad/repeatable/ways ") <= 3


def test_the_own_gradient_of_attention_needs_no_cudnn(env, tmp_path):
    assert scratch_of_gradient(env, tmp_path, JM_CUDNN_LIB="nothing.so") in (SCRATCH["own"], SCRATCH["once"])


@pytest.mark.parametrize("words", [["--keep-all"], ["--keep-most"], []], ids=["all", "most", "less"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_gradients_of_biases_are_sums_of_the_kernels_before(env, words, positions):
    """12 layers. Norms' gradients: the biases of the two products whose results are added to the residual stream. rope works in
    place."""
    p = plan(env, *GPT, "--positions", positions, *words, "--graph")
    plans, turned = kinds(p), 12 if positions == "rotary" else 0
    assert plans["layernorm-grad + linear-wgrad"] == 2 * 12 and plans["linear-wgrad"] == 2 * 12
    turns = [n for group in p["graph"] for n in group["nodes"] if n["op"] == "rope"]
    assert len(turns) == turned and all(n["in"][0]["offset"] == n["out"][0]["offset"] for n in turns)


@pytest.mark.parametrize("model, norms", [(GPT, "layernorm-grad"), (LLAMA, "rmsnorm-grad")], ids=["gpt", "llama"])
def test_a_residual_stream_in_f32_is_cast_for_products(env, model, norms):
    plans = kinds(plan(env, *model[:-1], "fp16", "--graph"))
    assert plans[norms] > 0 and not any(norms in name and name != norms for name in plans)


def test_the_gradient_of_attention_turns_its_result(env, tmp_path):
    """4 layers of llama, without biases; 12 of gpt, with biases."""
    plans = kinds(plan_with_driver(env, tmp_path, *LLAMA))
    assert plans["attention-grad + rope-grad"] == 4 and not plans["rope-grad"] and not plans["attention-grad"]
    plans = kinds(plan_with_driver(env, tmp_path, *GPT, "--positions", "rotary"))
    assert plans["attention-grad + rope-grad"] == 12 and not plans["rope-grad"] and not plans["attention-grad"]


@pytest.mark.parametrize("precision", ["bf16-true", "bf16", "fp16"])
def test_norms_add_to_the_residual_stream(env, precision):
    """4 layers with two products each, whose results the norms after them add; the stream of fp16 is f32."""
    plans = kinds(plan(env, *LLAMA[:-1], precision, "--graph"))
    assert plans["add + rmsnorm"] == 8 and not plans["add"]


@pytest.mark.parametrize("model, copied, kept", [(GPT, 12 * 12 * 768 * 768, 1), (LLAMA, None, 0)], ids=["gpt", "llama"])
def test_the_update_writes_the_copies_of_parameters(env, model, copied, kept):
    """All matrices of the layers. gpt: the vocabulary of 50257 rows is copied into padded rows in each step; llama: its
    classifier is copied too, and the table of its embedding is not."""
    p = plan(env, *model, "--keep-most", "--graph")
    nodes = [n for group in p["graph"] for n in group["nodes"]]
    update = next(n for n in nodes if n["op"] == "adamw")
    copies = [n["out"][0] for n in nodes if n["op"] == "cast" and n["out"][0]["class"] == "compute copies"]
    slab = update["out"][3]
    inside = [c for c in copies if slab["offset"] <= c["offset"] < slab["offset"] + slab["bytes"]]
    assert slab["type"] == "bf16" and sum(c["bytes"] for c in inside) == slab["bytes"]
    assert len(copies) - len(inside) == kept and all(c["offset"] % 64 == 0 for c in copies)
    every = update["out"][0]["dims"][0]
    gradients = 2  # bytes of one, in bf16; parameters and both moments are read and written in f32
    assert update["bytes"] == pytest.approx((24 + gradients) * every + slab["bytes"], rel=1e-6)
    assert slab["bytes"] == 2 * (copied or every - 128256 * 2048)


def test_logits_stand_in_chunks_where_that_is_cheap(env):
    """gpt-117m: 32768 rows of 50304 in 16 bits whole, a quarter of them in chunks of the loss, which reads and writes the
    gradient of 50257 x 768 in f32 three times more."""
    chunks = plan(env, *GPT, "--keep-all")
    whole = plan(env, *GPT, "--keep-all", JM_CUDA_LOGITS="1e12")
    logits = 32768 * 50304 * 2
    assert whole["peak_bytes"] - chunks["peak_bytes"] == pytest.approx(0.75 * logits, rel=0.05)
    assert 3 * 2 * 50257 * 768 * 4 / BYTES < 0.01 * chunks["flops_executed_per_item"] * 32768 / FLOPS * 1.1
    few = plan(env, "gpt-117m", "--batch", 1, "--seq", 1024, "--precision", "bf16", "--keep-all")
    same = plan(env, "gpt-117m", "--batch", 1, "--seq", 1024, "--precision", "bf16", "--keep-all", JM_CUDA_LOGITS="1e12")
    assert few["peak_bytes"] == same["peak_bytes"]  # with few rows it would cost


def test_eight_bits_take_no_more_memory_than_sixteen(env):
    """With --keep-most only, since SwiGLU is then quantized and recomputed by a pass of its own, which counts in the time."""
    for words, most in ((["--keep-all"], 1.001), (["--keep-most"], 1.02), ([], 1.001), (["--recompute"], 1.001)):
        eight, sixteen = (plan(env, *LLAMA[:-1], p, *words) for p in ("fp8", "bf16"))
        assert eight["peak_bytes"] <= most * sixteen["peak_bytes"], words


def test_a_vocabulary_without_masters_fills_whole_blocks(env):
    """50257 tokens in bf16-true: 47 rows more in parameters, gradients and two moments."""
    words = ["gpt-117m", "--batch", 1, "--seq", 64, "--precision", "bf16-true"]
    odd, even = plan(env, *words), plan(env, *words, "--vocab", 50304)
    assert odd["parameters"] == 124439808 and even["parameters"] == 124439808 + 47 * 768
    assert odd["parameter_bytes"] == even["parameter_bytes"] and odd["peak_bytes"] == even["peak_bytes"]
    assert odd["flops_model_per_item"] < even["flops_model_per_item"]
    assert odd["flops_executed_per_item"] == even["flops_executed_per_item"]


def test_group_norms_make_their_images(env):
    """Of 22 blocks with a wave, 12 images beside a skip and 5 sums that no convolution adds, the images of more than 8 x 8 pixels; all
    that are beside a skip have gradients in two parts. The gradient of the whole has its memory until the parts are written."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, "unet-sd2", "--batch", 8, "--precision", "bf16", "--graph")
    plans = kinds(p)
    assert (plans["upsample + add + groupnorm"], plans["upsample + add"]) == (15, 7)
    assert (plans["add + groupnorm"], plans["concat + groupnorm"], plans["concat"]) == (4, 9, 3)
    assert (plans["groupnorm-grad + split"], plans["split"]) == (12, 0)
    for group in p["graph"]:
        if group["nodes"][-1]["op"] == "split":
            grad, split = group["nodes"]
            old = grad["out"][0]
            spans = [(t["offset"], t["offset"] + t["bytes"]) for t in split["out"] if t]
            assert all(end <= old["offset"] or at >= old["offset"] + old["bytes"] for at, end in spans)


@pytest.mark.parametrize("network, joined, norms", [("sd2", 32, 26), ("unet-sd2", 22, 19)])
def test_convolutions_add_residuals_where_that_is_faster(env, tmp_path, network, joined, norms):
    """Those of the U-Net's 22 blocks and of 10 in the image encoder; else group norms add what they can. An image that is added has its
    memory until then."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    words = [network, "--batch", 8, "--precision", "fp16", "--graph"]
    with_sums = plan(env, *words)
    assert kinds(with_sums)["conv + add"] == joined and kinds(with_sums)["add + groupnorm"] < norms - 10
    for group in with_sums["graph"]:
        if [n["op"] for n in group["nodes"]] == ["conv", "add"]:
            conv, add = group["nodes"]
            to, image = add["out"][0], next(t for t in add["in"] if t["name"] != conv["out"][0]["name"])
            assert conv["out"][0].get("offset") is None
            assert to["offset"] + to["bytes"] <= image["offset"] or image["offset"] + image["bytes"] <= to["offset"]
    known = (tmp_path / "cuda.plans").read_text()
    slower = re.sub(r"( added/\S+) 1,", r"\1 0,", known)
    assert slower != known
    (tmp_path / "cuda.plans").write_text(slower)
    apart = plan(env, *words)
    assert kinds(apart)["conv + add"] == 0 and kinds(apart)["add + groupnorm"] == norms
    assert with_sums["peak_bytes"] <= apart["peak_bytes"]
    assert sum(kinds(p)["conv"] + kinds(p)["conv + add"] + kinds(p)["upsample + conv"] for p in (with_sums, apart)) % 2 == 0


@pytest.mark.parametrize("words", [["sd2", "--batch", 2, "--precision", "f32"], ["vgg16", "--batch", 2, "--precision", "bf16"]],
                         ids=["f32", "vgg16"])
def test_no_residual_is_added_in_f32_or_where_there_is_none(env, words):
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    assert kinds(plan(env, *words, "--graph"))["conv + add"] == 0


def test_group_norms_that_are_computed_twice_run_alone(env):
    """With what makes their image they add their sums in another order, and a recomputed result would have other bits."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, "unet-sd2", "--batch", 4, "--precision", "bf16", "--recompute", "--graph")
    norms = {n["out"][0]["name"]: len(group["nodes"]) for group in p["graph"] for n in group["nodes"] if n["op"] == "groupnorm"}
    twice = [name for name in norms if f"{name}.again" in norms]
    assert len(twice) == 60 and all(norms[name] == norms[f"{name}.again"] == 1 for name in twice)


@pytest.mark.parametrize("batch, joined", [(512, 47), (8192, 0)])
def test_norms_that_fit_on_the_multiprocessors_join_the_convolution_before_them(env, batch, joined):
    """The first norms of 47 of 50 blocks: of two others the convolution has 2,048 channels, and half of one image is too large."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    words = ["resnet152", "--stem", "cifar", "--image", 32, "--classes", 10, "--batch", batch, "--graph", "--precision"]
    assert kinds(plan(env, *words, "bf16"))["conv + bn-stats + bn-finalize + bn-apply"] == joined
    assert kinds(plan(env, *words, "tf32"))["conv + bn-stats + bn-finalize + bn-apply"] == 0


def test_unknown_peaks_are_told():
    for word in (["--keep-most"], ["--remake", 2]):
        done = jm("describe", "gpt-117m", "--device", "ref", *word)
        assert done.returncode == USAGE and "peaks of device ref are not known" in done.stderr
    done = jm("run", "gpt-117m", "--device", "ref", "--layers", 1, "--batch", 1, "--seq", 16, "--steps", 1, "--remake", 2)
    assert done.returncode and "peaks of device ref are not known" in " ".join(done.stdout.split() + done.stderr.split())


@pytest.mark.parametrize("precision", ["f32", "tf32", "bf16", "bf16-true", "fp16"])
def test_frozen_layers_are_planned(env, precision):
    """Below the last layer nothing is copied or turned in a step; in the middle gradients pass frozen norms."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    words = ["resnet50", "--batch", 64, "--precision", precision]
    whole, top, inner = (plan(env, *words, *more) for more in ([], ["--freeze", "conv1*,bn1*,layer*"], ["--freeze", "layer2*"]))
    assert top["peak_bytes"] < inner["peak_bytes"] < whole["peak_bytes"]
    assert top["flops_model_per_item"] == pytest.approx(whole["flops_model_per_item"] / 3, rel=0.01)
    done = jm("describe", *words, "--freeze", "conv1*,bn1*,layer*", "--device", "cuda:0", "--graph", env=env)
    assert ", 0 reorders between layouts" in done.stdout, done.stderr


@pytest.mark.parametrize("precision", ["bf16", "bf16-true", "fp8"])
@pytest.mark.parametrize("patterns", ["h0*,h1*,positions*", "h5*,*.bias"])
def test_frozen_blocks_are_planned(env, patterns, precision):
    words = [*GPT[:-1], precision, "--keep-all"]
    assert plan(env, *words, "--freeze", patterns)["peak_bytes"] < plan(env, *words)["peak_bytes"]


@pytest.mark.parametrize("batch, precision, pictures", [(2, "bf16", 2), (8, "bf16", 4), (8, "f32", 4)])
def test_scores_of_wide_heads_are_planned(env, batch, precision, pictures):
    """The image encoder's 4096 positions by 4096 keys in f32, of four pictures at most."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, "sd2", "--batch", batch, "--precision", precision, "--graph")
    wide = [g for g in p["graph"] if g["nodes"][0]["op"] == "attention" and g["nodes"][0]["in"][0]["dims"][2] == 3 * 512]
    assert [g["scratch_bytes"] for g in wide] == [pictures * 4096 * 4096 * 4]


def test_rows_of_16_bytes_are_not_padded(env):
    """f32: 100 channels start at multiples of 16 bytes, and fields of 5 or 25 are too narrow to be padded."""
    p = plan(env, "fno-rbc3d", "--batch", 4, "--precision", "f32", "--graph")
    nodes = [n for group in p["graph"] for n in group["nodes"]]
    widths = {t["dims"][-1] for n in nodes if n["op"] == "linear" for t in n["out"]}
    assert widths == {25, 100, 5} and not [n for n in nodes if n["op"] == "cast"]


def test_images_with_channels_last_are_sequences_in_place(env):
    """Also where another node still reads the image: in the gradients of 16 residual sums of unet-sd2."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    p = plan(env, "unet-sd2", "--batch", 8, "--precision", "bf16", "--graph")
    nodes = [n for group in p["graph"] for n in group["nodes"]]
    last = {t["name"]: at for at, n in enumerate(nodes) for t in n["in"] if t}
    turns = [(at, n) for at, n in enumerate(nodes) if n["op"] in ("tokens", "tokens-grad")]
    assert len(turns) == 64 and sum(last[n["in"][0]["name"]] > at for at, n in turns) == 16
    assert all(same_image(n) for _, n in turns)
