# SPDX-License-Identifier: Apache-2.0
"""
PyTorch as the other side of a comparison: its device, its settings in each precision, its training step and the
pieces that networks share; not a test. On a GPU attention is scaled_dot_product_attention, images lie channels_last,
and nothing is compiled.
"""
import numpy
import torch

import parity

WHERE = "cuda" if parity.ON_GPU else "cpu"
SHORT = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
NOW = {"precision": "f32"}


def use(precision):
    """Before a network is built and run in this precision."""
    torch.set_num_threads(1)
    NOW["precision"] = precision
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def wide():
    """The type of parameters and of inputs."""
    return torch.float64 if NOW["precision"] == "f64" else torch.float32


def tensor(values, **more):
    return torch.tensor(values, device=WHERE, **more)


def numbers(values):
    """Inputs that are not classes."""
    return tensor(values, dtype=wide())


def parameters(weights):
    return {name: tensor(w, dtype=wide(), requires_grad=True) for name, w in weights.items()}


def autocast():
    short = SHORT.get(NOW["precision"])
    return torch.autocast(WHERE, short or torch.bfloat16, enabled=short is not None)


def train(p, weights, losses_of_steps):
    """Losses and first gradients by name: AdamW, clip at 1, decay of what joulemark has as matrices only, as in
    tests/parity/losses.c. weights: joulemark's start values."""
    groups = [{"params": [p[n] for n, w in weights.items() if w.ndim > 1], "weight_decay": 0.1},
              {"params": [p[n] for n, w in weights.items() if w.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    scale = parity.scale_of(NOW["precision"])
    losses, first = [], None
    for loss_of in losses_of_steps:
        with autocast():
            loss = loss_of()
        optimizer.zero_grad()
        (loss * scale).backward()
        for w in p.values():
            w.grad /= scale
        first = first or {name: w.grad.double().cpu().numpy().reshape(weights[name].shape).copy() for name, w in p.items()}
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return numpy.array(losses), first


def widen(x):
    """f32 of 16 bits; f32 and f64 stay."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def rotate(x, theta):
    """x[B, H, S, D]: pairs (i, i + D/2) turned by position * theta^(-2i/D)."""
    half = x.shape[-1] // 2
    wave = theta ** (-2 * torch.arange(half, dtype=torch.float64) / x.shape[-1])
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * wave
    cos, sin = (f(angle).to(x) for f in (torch.cos, torch.sin))
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention(q, k, v):
    """Causal, of [B, H, S, D]."""
    if parity.ON_GPU:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1).to(v.dtype) @ v


def narrow(x, kind):
    """x in 8 bits, scaled so that its maximum is the largest number of the type, and the inverse of that scale."""
    limit = torch.finfo(kind).max
    scale = limit / x.abs().max().float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-limit, limit).to(kind), scale.reciprocal()


def product(a, b, fast=False):
    """a[M, K] times the transpose of b[N, K], both from `narrow`; fast: sums of fewer bits, usual in the forward pass"""
    return torch._scaled_mm(  # pylint: disable=protected-access  # PyTorch has no public name for it
        a[0], b[0].t(), scale_a=a[1], scale_b=b[1], out_dtype=torch.bfloat16, use_fast_accum=fast)


def turned(x):
    return x[0].t().contiguous(), x[1]


class Linear8(torch.autograd.Function):
    """x[M, K] times w[N, K]: e4m3 forward, e5m2 for the gradient that comes back, each scaled by its own maximum."""

    @staticmethod
    def forward(ctx, x, w):
        a, b = narrow(x, torch.float8_e4m3fn), narrow(w, torch.float8_e4m3fn)
        ctx.save_for_backward(*a, *b)
        return product(a, b, fast=True)

    @staticmethod
    def backward(ctx, dy):
        saved = ctx.saved_tensors
        d, a, b = narrow(dy.contiguous(), torch.float8_e5m2), saved[:2], saved[2:]
        return product(d, turned(b)), product(turned(d), turned(a))


def linear(x, w, bias=None):
    """Of a layer inside a block, which fp8 computes in 8 bits."""
    if NOW["precision"] != "fp8":
        return torch.nn.functional.linear(x, w, bias)
    y = Linear8.apply(x.bfloat16().flatten(0, -2), w.bfloat16()).view(*x.shape[:-1], -1)
    return y if bias is None else y + bias.bfloat16()
