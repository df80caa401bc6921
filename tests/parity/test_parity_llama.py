# SPDX-License-Identifier: Apache-2.0
"""
A small LLaMA against a NumPy implementation in f64, gradients by hand: losses of twenty steps and all
gradients. In f32 and bf16 the engine's error may be at most twice PyTorch's, where that is installed.
"""
import pathlib
import sys

import numpy
import pytest

import parity
from jm import SOURCE
from parity import STEPS, gradient_errors

BATCH, SEQ, SEEDS = 4 if parity.ON_GPU else 3, 24, (1, 2, 3, 4, 5)
DIMS = {"layers": 2, "hidden": 48, "heads": 6, "kv-heads": 2, "ffn": 80, "vocab": 256, "context": 32,
        "theta": 500000}
OF_GPU = {**DIMS, "hidden": 64, "heads": 2, "kv-heads": 1, "ffn": 160} if parity.ON_GPU else DIMS
# as Llama 3.2 has it: one table, slower angles, and heads whose widths are not together the hidden one
OF_3_2 = {**DIMS, "head-width": 10, "tied": "yes", "rope-factor": 8, "rope-low": 1, "rope-high": 4, "rope-context": 64,
          "norm-eps": "1e-3"}
HEADS, GROUPS, THETA, EPS = DIMS["heads"], DIMS["kv-heads"], DIMS["theta"], 1e-5


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text"
    licence = pathlib.Path("/usr/share/common-licenses/GPL-3")
    words = (licence if licence.exists() else SOURCE / "docs" / "engine.md").read_bytes()
    file.write_bytes(words[5000:5000 + STEPS * BATCH * SEQ + 1])
    return file


def batches(text):
    data = numpy.frombuffer(text.read_bytes(), numpy.uint8).astype(numpy.int64)
    for step in range(STEPS):
        at = step * BATCH * SEQ
        yield tuple(data[at + i:at + i + BATCH * SEQ].reshape(BATCH, SEQ) for i in (0, 1))


# ---- forward functions return (result, what backward needs); backward ones the gradients


def norm(x, gamma):
    rstd = 1 / numpy.sqrt((x * x).mean(-1, keepdims=True) + EPS)
    return x * rstd * gamma, (x, gamma, rstd)


def norm_back(dy, saved):
    x, gamma, rstd = saved
    h, g = x * rstd, dy * gamma
    return rstd * (g - h * (g * h).mean(-1, keepdims=True)), (dy * h).sum((0, 1))


def linear_back(dy, x, w):
    return dy @ w, numpy.einsum("bsn,bsk->nk", dy, x)


def speeds(half):
    return THETA ** (-numpy.arange(half) / half)


def speeds_of_3_2(half):
    """As ROPE_INIT_FUNCTIONS["llama3"] of transformers has them, by wavelengths."""
    factor, low, high, context = (OF_3_2[f"rope-{name}"] for name in ("factor", "low", "high", "context"))
    w = THETA ** (-numpy.arange(half) / half)
    wave = 2 * numpy.pi / w
    smooth = (context / wave - low) / (high - low)
    between = (1 - smooth) * w / factor + smooth * w
    found = numpy.where(wave > context / low, w / factor, numpy.where(wave < context / high, w, between))
    assert (wave > context / low).any() and (wave < context / high).any()
    return found


def turn(x, sign):
    """x[B, S, H, D]: pairs (i, i + D/2) by position * speed of the pair"""
    half = x.shape[-1] // 2
    angle = numpy.arange(x.shape[1])[:, None] * speeds(half)
    cos, sin = numpy.cos(angle)[:, None], sign * numpy.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return numpy.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def split(qkv):
    """Queries, keys and values [B, S, heads, D]; keys and values once for every head that shares them."""
    depth = qkv.shape[-1] // (HEADS + 2 * GROUPS)
    t = qkv.reshape(*qkv.shape[:2], -1, depth)
    q, k, v = t[:, :, :HEADS], t[:, :, HEADS:HEADS + GROUPS], t[:, :, HEADS + GROUPS:]
    return q, k, v


def share(x):
    return numpy.repeat(x, HEADS // GROUPS, 2)


def unshare(x):
    return x.reshape(*x.shape[:2], GROUPS, HEADS // GROUPS, -1).sum(3)


def attention(qkv):
    q, k, v = split(qkv)
    q, k, v = turn(q, 1), share(turn(k, 1)), share(v)
    z = numpy.einsum("bshd,bthd->bhst", q, k) / numpy.sqrt(q.shape[-1])
    z = numpy.where(numpy.tri(z.shape[-1], dtype=bool), z, -numpy.inf)
    p = numpy.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return numpy.einsum("bhst,bthd->bshd", p, v).reshape(*qkv.shape[:2], -1), (q, k, v, p)


def attention_back(dy, saved):
    q, k, v, p = saved
    dy = dy.reshape(q.shape)
    dp = numpy.einsum("bshd,bthd->bhst", dy, v)
    dz = p * (dp - (dp * p).sum(-1, keepdims=True)) / numpy.sqrt(q.shape[-1])
    dq, dk = numpy.einsum("bhst,bthd->bshd", dz, k), numpy.einsum("bhst,bshd->bthd", dz, q)
    dv = numpy.einsum("bhst,bshd->bthd", p, dy)
    parts = turn(dq, -1), turn(unshare(dk), -1), unshare(dv)
    return numpy.concatenate(parts, 2).reshape(*dy.shape[:2], -1)


def swiglu(x):
    gate, up = numpy.split(x, 2, -1)
    return gate / (1 + numpy.exp(-gate)) * up


def swiglu_back(dy, x):
    gate, up = numpy.split(x, 2, -1)
    s = 1 / (1 + numpy.exp(-gate))
    return numpy.concatenate((dy * up * s * (1 + gate * (1 - s)), dy * gate * s), -1)


def block(p, x):
    h, norm_1 = norm(x, p["attn_norm.weight"])
    y, inner = attention(h @ p["attn.qkv.weight"].T)
    middle = x + y @ p["attn.out.weight"].T
    h2, norm_2 = norm(middle, p["ffn_norm.weight"])
    wide = h2 @ p["ffn.gate_up.weight"].T
    act = swiglu(wide)
    return middle + act @ p["ffn.down.weight"].T, (h, norm_1, y, inner, h2, norm_2, wide, act)


def block_back(p, dx, saved):
    h, norm_1, y, inner, h2, norm_2, wide, act = saved
    d = {}
    dact, d["ffn.down.weight"] = linear_back(dx, act, p["ffn.down.weight"])
    dh, d["ffn.gate_up.weight"] = linear_back(swiglu_back(dact, wide), h2, p["ffn.gate_up.weight"])
    part, d["ffn_norm.weight"] = norm_back(dh, norm_2)
    dx = dx + part
    dy, d["attn.out.weight"] = linear_back(dx, y, p["attn.out.weight"])
    dh, d["attn.qkv.weight"] = linear_back(attention_back(dy, inner), h, p["attn.qkv.weight"])
    part, d["attn_norm.weight"] = norm_back(dh, norm_1)
    return dx + part, d


def of_block(p, i):
    return {name[3:]: w for name, w in p.items() if name.startswith(f"h{i}.")}


def loss_and_gradients(p, ids, target):
    x, saved, d = p["tokens.weight"][ids], [], {}
    for i in range(DIMS["layers"]):
        x, keep = block(of_block(p, i), x)
        saved.append(keep)
    h, last = norm(x, p["norm.weight"])
    table = p.get("output.weight", p["tokens.weight"])
    z = h @ table.T
    z -= z.max(-1, keepdims=True)
    lse = numpy.log(numpy.exp(z).sum(-1, keepdims=True))
    hit = numpy.eye(z.shape[-1])[target]
    loss = ((lse[..., 0] - (z * hit).sum(-1))).mean()
    dh, dtable = linear_back((numpy.exp(z - lse) - hit) / ids.size, h, table)
    dx, d["norm.weight"] = norm_back(dh, last)
    for i in reversed(range(DIMS["layers"])):
        dx, part = block_back(of_block(p, i), dx, saved[i])
        d.update({f"h{i}.{name}": g for name, g in part.items()})
    d["tokens.weight"] = numpy.zeros_like(table) if "output.weight" in p else dtable
    if "output.weight" in p:
        d["output.weight"] = dtable
    numpy.add.at(d["tokens.weight"], ids, dx)
    return loss, d


def truth(text, weights):
    """Losses and first gradients; AdamW as tests/parity/losses.c says."""
    p = {name: w.copy() for name, w in weights.items()}
    m, v = ({name: numpy.zeros_like(w) for name, w in p.items()} for _ in range(2))
    losses, first = [], None
    for t, (ids, target) in enumerate(batches(text), 1):
        loss, d = loss_and_gradients(p, ids, target)
        losses.append(loss)
        first = first or d
        size = numpy.sqrt(sum((g * g).sum() for g in d.values()))
        for name, w in p.items():
            g = d[name] * min(1, 1 / (size + 1e-6))
            w *= 1 - (1e-4 if w.ndim > 1 else 0)
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g * g
            w -= 1e-3 / (1 - 0.9 ** t) * m[name] / (numpy.sqrt(v[name] / (1 - 0.999 ** t)) + 1e-8)
    return numpy.array(losses), first


def run(text, dims, device, precision, seed):
    return parity.ours("llama", dims, device, precision, BATCH, SEQ, text, seed)


def test_f64_is_the_same_mathematics(text):
    losses, weights, gradients = run(text, DIMS, "ref", "f64", 1)
    expected, first = truth(text, weights)
    assert numpy.abs(losses - expected).max() < 1e-11
    assert gradient_errors(gradients, first)[1] < 1e-11
    assert losses[-1] < losses[0] - 0.5


def test_tied_tables_and_slower_angles_in_f64(text, monkeypatch):
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "EPS", float(OF_3_2["norm-eps"]))
    monkeypatch.setattr(here, "speeds", speeds_of_3_2)
    losses, weights, gradients = run(text, OF_3_2, "ref", "f64", 1)
    assert "output.weight" not in weights
    expected, first = truth(text, weights)
    assert numpy.abs(losses - expected).max() < 1e-11
    assert gradient_errors(gradients, first)[1] < 1e-11


# ---- the same in PyTorch, for its rounding


def torch_norm(peer, p, name, x):
    wide = peer.widen(x)
    return wide * (wide.pow(2).mean(-1, keepdim=True) + EPS).rsqrt() * p[name]


def torch_attention(peer, dims, x):
    """x[B, S, heads of queries, keys, values]"""
    heads, groups = dims["heads"], dims["kv-heads"]
    t = x.view(*x.shape[:2], heads + 2 * groups, -1).transpose(1, 2)
    q, k, v = t.split((heads, groups, groups), 1)
    k, v = (y.repeat_interleave(heads // groups, 1) for y in (peer.rotate(k, THETA), v))
    return peer.attention(peer.rotate(q, THETA), k, v).transpose(1, 2).reshape(*x.shape[:2], -1)


def torch_loss(torch, peer, p, dims, ids, target):
    x = p["tokens.weight"][ids]
    for i in range(dims["layers"]):
        block = of_block(p, i)
        qkv = peer.linear(torch_norm(peer, block, "attn_norm.weight", x), block["attn.qkv.weight"])
        x = x + peer.linear(torch_attention(peer, dims, qkv), block["attn.out.weight"])
        both = peer.linear(torch_norm(peer, block, "ffn_norm.weight", x), block["ffn.gate_up.weight"])
        gate, up = both.chunk(2, -1)
        x = x + peer.linear(torch.nn.functional.silu(gate) * up, block["ffn.down.weight"])
    logits = torch.nn.functional.linear(torch_norm(peer, p, "norm.weight", x), p["output.weight"])
    return torch.nn.functional.cross_entropy(peer.widen(logits.flatten(0, 1)), target.flatten())


def theirs(torch, text, dims, weights, precision):
    peer = pytest.importorskip("torch_peer")
    peer.use(precision)
    p = peer.parameters(weights)
    return peer.train(p, weights, (lambda b=pair: torch_loss(torch, peer, p, dims, *map(peer.tensor, b)) for pair in batches(text)))


def test_pytorch_in_f64_is_the_same_mathematics(text):
    torch = pytest.importorskip("torch", reason="python3-torch is not installed: no errors to compare with")
    _, weights, _ = run(text, DIMS, "ref", "f64", 1)
    (losses, gradients), (expected, first) = theirs(torch, text, DIMS, weights, "f64"), truth(text, weights)
    assert numpy.abs(losses - expected).max() < 1e-11
    assert gradient_errors(gradients, first)[1] < 1e-11


@pytest.mark.parametrize("precision", parity.WITH_FP8)
def test_error_to_f64(text, precision, record_property):
    torch = pytest.importorskip("torch", reason="python3-torch is not installed: no errors to compare with")
    device = parity.device_for("llama", OF_GPU)
    parity.compare(
        record_property, ("llama", precision), SEEDS,
        lambda precision, seed: run(text, OF_GPU, device, precision, seed),
        lambda weights, precision: theirs(torch, text, OF_GPU, weights, precision), smooth=True)
