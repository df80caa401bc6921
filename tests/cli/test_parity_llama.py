# SPDX-License-Identifier: Apache-2.0
"""
A small LLaMA against a NumPy implementation in f64, gradients by hand: losses of twenty steps and all
gradients. In f32 and bf16 the engine's error may be at most twice PyTorch's, where that is installed.
"""
import numpy
import pytest

import parity
from parity import STEPS, distance, gradient_errors

BATCH, SEQ, SEEDS = 3, 24, (1, 2, 3)
DIMS = {"layers": 2, "hidden": 48, "heads": 6, "kv-heads": 2, "ffn": 80, "vocab": 256, "context": 32,
        "theta": 500000}
HEADS, GROUPS, THETA, EPS = DIMS["heads"], DIMS["kv-heads"], DIMS["theta"], 1e-5
DEVICE = parity.device_for("llama", DIMS)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text"
    words = open("/usr/share/common-licenses/GPL-3", "rb").read()
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


def turn(x, sign):
    """x[B, S, H, D]: pairs (i, i + D/2) by position * theta^(-2i/D)"""
    half = x.shape[-1] // 2
    angle = numpy.arange(x.shape[1])[:, None] * THETA ** (-numpy.arange(half) / half)
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
    z = h @ p["output.weight"].T
    z -= z.max(-1, keepdims=True)
    lse = numpy.log(numpy.exp(z).sum(-1, keepdims=True))
    hit = numpy.eye(z.shape[-1])[target]
    loss = ((lse[..., 0] - (z * hit).sum(-1))).mean()
    dh, d["output.weight"] = linear_back((numpy.exp(z - lse) - hit) / ids.size, h, p["output.weight"])
    dx, d["norm.weight"] = norm_back(dh, last)
    for i in reversed(range(DIMS["layers"])):
        dx, part = block_back(of_block(p, i), dx, saved[i])
        d.update({f"h{i}.{name}": g for name, g in part.items()})
    d["tokens.weight"] = numpy.zeros_like(p["tokens.weight"])
    numpy.add.at(d["tokens.weight"], ids, dx)
    return loss, d


def truth(text, weights):
    """Losses and first gradients; AdamW as tests/engine/losses.c says."""
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


def run(text, device, precision, seed):
    return parity.ours("llama", DIMS, device, precision, BATCH, SEQ, text, seed)


def test_f64_is_the_same_mathematics(text):
    losses, weights, gradients = run(text, "ref", "f64", 1)
    expected, first = truth(text, weights)
    assert numpy.abs(losses - expected).max() < 1e-11
    assert gradient_errors(gradients, first)[1] < 1e-11
    assert losses[-1] < losses[0] - 0.5


# ---- the same in PyTorch, for its rounding


def torch_loss(torch, p, ids, target):
    def rms(x, name):
        wide = x.float() if x.dtype == torch.bfloat16 else x
        return wide * (wide.pow(2).mean(-1, keepdim=True) + EPS).rsqrt() * p[name]

    def rotate(x):
        half = x.shape[-1] // 2
        wave = THETA ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * wave
        cos, sin = (f(angle)[:, None].to(x.dtype) for f in (torch.cos, torch.sin))
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def attend(x, name):
        qkv = torch.nn.functional.linear(x, p[name])
        q, k, v = split(qkv)
        q, k = rotate(q), rotate(k).repeat_interleave(HEADS // GROUPS, 2)
        v = v.repeat_interleave(HEADS // GROUPS, 2)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        z = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        future = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1)
        y = z.masked_fill(future, float("-inf")).softmax(-1).to(v.dtype) @ v
        return y.transpose(1, 2).reshape(BATCH, SEQ, -1)

    x = p["tokens.weight"][ids]
    for i in range(DIMS["layers"]):
        y = attend(rms(x, f"h{i}.attn_norm.weight"), f"h{i}.attn.qkv.weight")
        x = x + torch.nn.functional.linear(y, p[f"h{i}.attn.out.weight"])
        wide = torch.nn.functional.linear(rms(x, f"h{i}.ffn_norm.weight"), p[f"h{i}.ffn.gate_up.weight"])
        gate, up = wide.chunk(2, -1)
        y = torch.nn.functional.silu(gate) * up
        x = x + torch.nn.functional.linear(y, p[f"h{i}.ffn.down.weight"])
    logits = torch.nn.functional.linear(rms(x, "norm.weight"), p["output.weight"])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


def theirs(torch, text, weights, autocast):
    p = {name: torch.tensor(w, dtype=torch.float32, requires_grad=True) for name, w in weights.items()}
    groups = [{"params": [w for w in p.values() if w.dim() > 1], "weight_decay": 0.1},
              {"params": [w for w in p.values() if w.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    losses, first = [], None
    for ids, target in batches(text):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = torch_loss(torch, p, torch.tensor(ids), torch.tensor(target))
        optimizer.zero_grad()
        loss.backward()
        first = first or {name: w.grad.numpy().astype(float) for name, w in p.items()}
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return numpy.array(losses), first


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_error_to_f64(text, precision, record_property):
    torch = pytest.importorskip("torch", reason="python3-torch is not installed: no errors to beat")
    torch.set_num_threads(1)
    mine, his = [], []
    for seed in SEEDS:
        losses, weights, gradients = run(text, DEVICE, precision, seed)
        expected, first = truth(text, weights)
        mine.append((distance(losses, expected), *gradient_errors(gradients, first)))
        losses, gradients = theirs(torch, text, weights, precision == "bf16")
        his.append((distance(losses, expected), *gradient_errors(gradients, first)))
    mine, his = numpy.mean(mine, 0), numpy.mean(his, 0)
    parity.keep(record_property, "llama", precision, mine, his)
    print(f"{DEVICE} {precision}: ours {mine}, PyTorch {his} (losses, gradients, worst gradient)")
    assert (mine <= 2 * his).all(), (mine, his)
