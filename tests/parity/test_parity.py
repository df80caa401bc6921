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
from jm import SOURCE
from parity import gradient_errors

torch = pytest.importorskip("torch", reason="python3-torch is not installed: no independent losses")
peer = pytest.importorskip("torch_peer")

STEPS, BATCH, SEQ = 20, 4, 32
DIMS = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "vocab": 256, "context": 48}
OF_GPU = {**DIMS, "heads": 1} if parity.ON_GPU else DIMS
SEEDS = (1, 2, 3, 4)
TEXTS = ("/usr/share/doc/jargon-text/jargon.txt.gz", "/usr/share/common-licenses/GPL-3", SOURCE / "docs" / "engine.md")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = next(p for p in TEXTS if os.path.exists(p))
    data = (gzip.open if str(path).endswith(".gz") else open)(path, "rb").read()
    middle = len(data) // 3
    file = tmp_path_factory.mktemp("text") / "text"
    file.write_bytes(data[middle:middle + STEPS * BATCH * SEQ + 1])
    return file


def ours(text, dims, device, precision, seed):
    """By the engine: losses, the start values, the first gradients."""
    return parity.ours("gpt", dims, device, precision, BATCH, SEQ, text, seed)


def attention(p, x, heads, rotary):
    qkv = peer.linear(x, p["attn.qkv.weight"], p["attn.qkv.bias"])
    q, k, v = (t.view(*x.shape[:2], heads, -1).transpose(1, 2) for t in qkv.chunk(3, -1))
    if rotary:
        q, k = peer.rotate(q, 10000.0), peer.rotate(k, 10000.0)
    y = peer.attention(q, k, v).transpose(1, 2).reshape(x.shape)
    return peer.linear(y, p["attn.out.weight"], p["attn.out.bias"])


def feed_forward(p, x):
    h = peer.linear(x, p["mlp.in.weight"], p["mlp.in.bias"])
    h = 0.5 * h * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (h + 0.044715 * h ** 3)))
    return peer.linear(h, p["mlp.out.weight"], p["mlp.out.bias"])


def norm(p, name, x):
    weight = p[f"{name}.weight"]
    return torch.nn.functional.layer_norm(x, weight.shape, weight, p[f"{name}.bias"], 1e-5)


def network(p, dims, ids, target):
    x = p["tokens.weight"][ids]
    rotary = "positions.weight" not in p
    if not rotary:
        x = x + p["positions.weight"][:ids.shape[1]]
    for i in range(dims["layers"]):
        h = {name[3:]: value for name, value in p.items() if name.startswith(f"h{i}.")}
        x = x + attention(h, norm(h, "ln_1", x), dims["heads"], rotary)
        x = x + feed_forward(h, norm(h, "ln_2", x))
    logits = torch.nn.functional.linear(norm(p, "ln_f", x), p["tokens.weight"])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def theirs(text, dims, weights, precision):
    """Losses and first gradients by PyTorch."""
    peer.use(precision)
    data = numpy.frombuffer(text.read_bytes(), numpy.uint8).astype(numpy.int64)
    p = peer.parameters(weights)

    def loss_of(step):
        at = step * BATCH * SEQ
        return network(p, dims, *(peer.tensor(data[at + i:at + i + BATCH * SEQ]).view(BATCH, SEQ) for i in (0, 1)))
    return peer.train(p, weights, (lambda s=step: loss_of(s) for step in range(STEPS)))


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_f64_is_the_same_mathematics(text, positions):
    dims = {**DIMS, "positions": positions}
    losses, weights, gradients = ours(text, dims, "ref", "f64", SEEDS[0])
    expected, first = theirs(text, dims, weights, "f64")
    assert numpy.abs(losses - expected).max() < 1e-11
    assert gradient_errors(gradients, first)[1] < 1e-11
    assert losses[-1] < losses[0] - 0.8


@pytest.mark.parametrize("precision", parity.WITH_FP8)
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_error_to_f64(text, positions, precision, record_property):
    dims = {**OF_GPU, "positions": positions}
    device = parity.device_for("gpt", dims)
    parity.compare(
        record_property, (f"gpt {positions}", precision), SEEDS,
        lambda precision, seed: ours(text, dims, device, precision, seed),
        lambda weights, precision: theirs(text, dims, weights, precision), smooth=True)


def test_error_to_f64_with_gradients_in_bf16(text, monkeypatch, record_property):
    """PyTorch's autocast rounds gradients of matrices to bf16 as well. The table has two gradients, whose sum is rounded, too."""
    monkeypatch.setenv("JM_TEST_GRADIENTS", "bf16")
    dims = {**OF_GPU, "positions": "learned"}
    device = parity.device_for("gpt", dims)
    parity.compare(
        record_property, ("gpt, gradients in bf16", "bf16"), SEEDS,
        lambda precision, seed: ours(text, dims, device, precision, seed),
        lambda weights, precision: theirs(text, dims, weights, precision), smooth=True)
