# SPDX-License-Identifier: Apache-2.0
"""
Twenty training losses and all gradients of a small GPT on English text against PyTorch, from the same
start values.

PyTorch in f64 must agree with ref in f64 to rounding. The errors of f32 and bf16 (PyTorch: f32 and autocast) are their
distances from f64: those of joulemark may be at most twice those of PyTorch.
"""
import gzip
import os

import numpy
import pytest

import parity
from jm import BUILD
from parity import distance, gradient_errors

torch = pytest.importorskip("torch", reason="python3-torch is not installed: no independent losses")

STEPS, BATCH, SEQ = 20, 4, 32
DIMS = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "vocab": 256, "context": 48}
SEEDS = (1, 2, 3, 4)
TEXTS = ("/usr/share/doc/jargon-text/jargon.txt.gz", "/usr/share/common-licenses/GPL-3")
DEVICE = "cpu" if (BUILD / "backends" / "cpu.so").exists() else "ref"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = next(p for p in TEXTS if os.path.exists(p))
    data = (gzip.open if path.endswith(".gz") else open)(path, "rb").read()
    middle = len(data) // 3
    file = tmp_path_factory.mktemp("text") / "text"
    file.write_bytes(data[middle:middle + STEPS * BATCH * SEQ + 1])
    return file


def ours(text, device, precision, positions, seed):
    """By the engine: losses, the start values, the first gradients."""
    return parity.ours(
        "gpt", {**DIMS, "positions": positions}, device, precision, BATCH, SEQ, text, seed)


def same(a, b):
    return all(numpy.array_equal(a[name], b[name]) for name in a)


def rotate(x):
    """x[B, H, S, D]: pairs (i, i + D/2) turned by position * 10000^(-2i/D)."""
    half = x.shape[-1] // 2
    wave = 10000.0 ** (-2 * torch.arange(half, dtype=torch.float64) / x.shape[-1])
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * wave
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention(p, x, rotary):
    heads, (batch, seq, width) = DIMS["heads"], x.shape
    qkv = torch.nn.functional.linear(x, p["attn.qkv.weight"], p["attn.qkv.bias"])
    q, k, v = (t.view(batch, seq, heads, -1).transpose(1, 2) for t in qkv.chunk(3, -1))
    if rotary:
        q, k = rotate(q), rotate(k)
    scores = q @ k.transpose(-1, -2) / (width // heads) ** 0.5
    future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, float("-inf")).softmax(-1)
    y = (weights.to(v.dtype) @ v).transpose(1, 2).reshape(batch, seq, width)
    return torch.nn.functional.linear(y, p["attn.out.weight"], p["attn.out.bias"])


def feed_forward(p, x):
    h = torch.nn.functional.linear(x, p["mlp.in.weight"], p["mlp.in.bias"])
    h = 0.5 * h * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (h + 0.044715 * h ** 3)))
    return torch.nn.functional.linear(h, p["mlp.out.weight"], p["mlp.out.bias"])


def norm(p, name, x):
    weight = p[f"{name}.weight"]
    return torch.nn.functional.layer_norm(x, weight.shape, weight, p[f"{name}.bias"], 1e-5)


def network(p, ids, target):
    x = p["tokens.weight"][ids]
    rotary = "positions.weight" not in p
    if not rotary:
        x = x + p["positions.weight"][:ids.shape[1]]
    for i in range(DIMS["layers"]):
        h = {name[3:]: value for name, value in p.items() if name.startswith(f"h{i}.")}
        x = x + attention(h, norm(h, "ln_1", x), rotary)
        x = x + feed_forward(h, norm(h, "ln_2", x))
    logits = torch.nn.functional.linear(norm(p, "ln_f", x), p["tokens.weight"])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def theirs(text, weights, dtype, autocast=False):
    """Losses and first gradients by PyTorch: AdamW, clip at 1, decay of matrices only."""
    data = numpy.frombuffer(text.read_bytes(), numpy.uint8).astype(numpy.int64)
    p = {name: torch.tensor(w, dtype=dtype, requires_grad=True) for name, w in weights.items()}
    groups = [{"params": [w for w in p.values() if w.dim() > 1], "weight_decay": 0.1},
              {"params": [w for w in p.values() if w.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    losses, first = [], None
    for step in range(STEPS):
        at = step * BATCH * SEQ
        ids, target = (torch.tensor(data[at + i:at + i + BATCH * SEQ]).view(BATCH, SEQ) for i in (0, 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = network(p, ids, target)
        optimizer.zero_grad()
        loss.backward()
        first = first or {name: w.grad.double().numpy().copy() for name, w in p.items()}
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return numpy.array(losses), first


def errors(found, truth):
    """Of the losses, of all gradients, of the worst gradient."""
    return (distance(found[0], truth[0]), *gradient_errors(found[1], truth[1]))


@pytest.fixture(scope="module", params=["learned", "rotary"])
def runs(request, text):
    """Per seed: our start values, the truth in f64, and PyTorch's distances from it."""
    torch.set_num_threads(1)
    found = []
    for seed in SEEDS:
        losses, weights, gradients = ours(text, DEVICE, "f32", request.param, seed)
        truth = theirs(text, weights, torch.float64)
        found.append({
            "seed": seed, "weights": weights, "truth": truth, "ours": (losses, gradients),
            "f32": errors(theirs(text, weights, torch.float32), truth),
            "bf16": errors(theirs(text, weights, torch.float32, autocast=True), truth)})
    return request.param, found


def test_f64_is_the_same_mathematics(runs, text):
    positions, (run, *_) = runs
    losses, weights, gradients = ours(text, "ref", "f64", positions, run["seed"])
    expected, first = run["truth"]
    assert same(weights, run["weights"]), "not the same start"
    assert numpy.abs(losses - expected).max() < 1e-11
    assert gradient_errors(gradients, first)[1] < 1e-11
    assert losses[-1] < losses[0] - 0.8


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_error_to_f64(runs, text, precision, record_property):
    positions, found = runs
    mine = []
    for run in found:
        result, weights = run["ours"], run["weights"]
        if precision != "f32":
            losses, weights, gradients = ours(text, DEVICE, precision, positions, run["seed"])
            result = losses, gradients
        assert same(weights, run["weights"]), "not the same start"
        mine.append(errors(result, run["truth"]))
    mine, his = numpy.mean(mine, 0), numpy.mean([run[precision] for run in found], 0)
    parity.keep(record_property, f"gpt {positions}", precision, mine, his)
    print(f"{DEVICE} {precision} {positions}: ours {mine}, PyTorch {his} (losses, gradients, worst)")
    assert (mine <= 2 * his).all(), (mine, his)
