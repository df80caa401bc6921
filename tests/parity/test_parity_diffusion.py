# SPDX-License-Identifier: Apache-2.0
"""
A small U-Net that removes noise against the same network in plain PyTorch, from the same start values: losses of
three steps and all gradients of the first one. f64 must agree with ref to rounding; in f32 and bf16 the engine's error
may be at most twice PyTorch's.
"""
import numpy
import pytest

import parity
from parity import gradient_errors

torch = pytest.importorskip("torch", reason="python3-torch is not installed: no independent losses")
peer = pytest.importorskip("torch_peer")
F = torch.nn.functional

BATCH, SEEDS, TIMES, STEPS, TRAINED = 2, range(1, 5), (1, 2, 4, 4), 1000, 3
DIMS = {"hidden": 8, "layers": 1, "head-width": 4, "norm-groups": 2, "latent": 8, "latent-channels": 3, "caption": 5, "caption-width": 6}
IMAGE, CAPTION = (BATCH, 3, 8, 8), (BATCH, 5, 6)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file, rng = tmp_path_factory.mktemp("diffusion") / "data", numpy.random.default_rng(7)
    with file.open("wb") as f:
        for _ in range(TRAINED):
            f.write(rng.standard_normal((2, *IMAGE)).astype("<f4").tobytes())
            f.write(rng.integers(0, STEPS, BATCH).astype("<i4").tobytes())
            f.write(rng.standard_normal(CAPTION).astype("<f4").tobytes())
    return file


def steps_of(file):
    kind = numpy.dtype([("x", "<f4", IMAGE), ("noise", "<f4", IMAGE), ("at", "<i4", BATCH), ("caption", "<f4", CAPTION)])
    return numpy.fromfile(file, kind)


class Network:
    """The network as functions of the parameters, which have joulemark's names."""

    def __init__(self, p):
        self.p = p

    def conv(self, x, name, stride=1):
        w = self.p[f"{name}.weight"]
        return F.conv2d(x, w, self.p[f"{name}.bias"], stride, w.shape[-1] // 2)

    def linear(self, x, name):
        return F.linear(x, self.p[f"{name}.weight"], self.p.get(f"{name}.bias"))

    def group_norm(self, x, name, eps=1e-5):
        return F.group_norm(peer.widen(x), DIMS["norm-groups"], self.p[f"{name}.weight"], self.p[f"{name}.bias"], eps)

    def layer_norm(self, x, name):
        return F.layer_norm(peer.widen(x), x.shape[-1:], self.p[f"{name}.weight"], self.p[f"{name}.bias"])

    def resnet(self, x, wave, name):
        h = self.conv(F.silu(self.group_norm(x, f"{name}.norm1")), f"{name}.conv1")
        h = h + self.conv(wave, f"{name}.time_emb_proj")
        h = self.conv(F.silu(self.group_norm(h, f"{name}.norm2")), f"{name}.conv2")
        return h + (self.conv(x, f"{name}.conv_shortcut") if x.shape[1] != h.shape[1] else x)

    @staticmethod
    def heads(q, k, v):
        q, k, v = (t.unflatten(-1, (-1, DIMS["head-width"])).transpose(1, 2) for t in (q, k, v))
        p = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return (p.to(v.dtype) @ v).transpose(1, 2).flatten(2)

    def transformer(self, x, caption, name):
        block = f"{name}.transformer_blocks.0"
        rows = self.group_norm(x, f"{name}.norm", 1e-6).flatten(2).transpose(1, 2)
        rows = self.linear(rows, f"{name}.proj_in")
        qkv = self.linear(self.layer_norm(rows, f"{block}.norm1"), f"{block}.attn1.qkv")
        rows = rows + self.linear(self.heads(*qkv.chunk(3, -1)), f"{block}.attn1.to_out")
        q = self.linear(self.layer_norm(rows, f"{block}.norm2"), f"{block}.attn2.to_q")
        k, v = (self.linear(caption, f"{block}.attn2.to_{which}") for which in "kv")
        rows = rows + self.linear(self.heads(q, k, v), f"{block}.attn2.to_out")
        value, gate = self.linear(self.layer_norm(rows, f"{block}.norm3"), f"{block}.ff.in").chunk(2, -1)
        rows = rows + self.linear(value * F.gelu(gate), f"{block}.ff.out")
        return x + self.linear(rows, f"{name}.proj_out").transpose(1, 2).reshape(x.shape)

    def wave(self, at):
        half = DIMS["hidden"] // 2
        angle = at[:, None] * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        x = peer.numbers(torch.cat((angle.cos(), angle.sin()), -1).numpy())[..., None, None]
        x = F.silu(self.conv(x, "time_embedding.linear_1"))
        return F.silu(self.conv(x, "time_embedding.linear_2"))

    def run(self, x, at, caption):
        wave, x = self.wave(at), self.conv(x, "conv_in")
        skips = [x]
        for i in range(len(TIMES)):
            last, part = i == len(TIMES) - 1, f"down_blocks.{i}"
            x = self.resnet(x, wave, f"{part}.resnets.0")
            x = x if last else self.transformer(x, caption, f"{part}.attentions.0")
            skips.append(x)
            if not last:
                x = self.conv(x, f"{part}.downsamplers.0.conv", 2)
                skips.append(x)
        x = self.resnet(x, wave, "mid_block.resnets.0")
        x = self.transformer(x, caption, "mid_block.attentions.0")
        x = self.resnet(x, wave, "mid_block.resnets.1")
        for i in range(len(TIMES)):
            part = f"up_blocks.{i}"
            for j in range(2):
                x = self.resnet(torch.cat((x, skips.pop()), 1), wave, f"{part}.resnets.{j}")
                x = self.transformer(x, caption, f"{part}.attentions.{j}") if i else x
            if i < len(TIMES) - 1:
                x = self.conv(F.interpolate(x, scale_factor=2), f"{part}.upsamplers.0.conv")
        return self.conv(F.silu(self.group_norm(x, "conv_norm_out")), "conv_out")


def loss_of(network, step, predict):
    beta = numpy.linspace(0.00085 ** 0.5, 0.012 ** 0.5, STEPS) ** 2
    kept = numpy.cumprod(1 - beta)[step["at"]][:, None, None, None]
    x, noise = (step[name].astype(float) for name in ("x", "noise"))
    goal = noise if predict == "epsilon" else kept ** 0.5 * noise - (1 - kept) ** 0.5 * x
    noisy, goal, caption = (peer.numbers(v) for v in (kept ** 0.5 * x + (1 - kept) ** 0.5 * noise, goal, step["caption"]))
    return F.mse_loss(peer.widen(network.run(noisy, torch.tensor(step["at"]), caption)), goal)


def theirs(file, predict, weights, precision):
    peer.use(precision)
    p = peer.parameters(weights)
    return peer.train(p, weights, ((lambda s=step: loss_of(Network(p), s, predict)) for step in steps_of(file)))


def ours(file, predict, device, precision, seed):
    return parity.ours("unet", {**DIMS, "predict": predict}, device, precision, BATCH, 1, file, seed, TRAINED)


@pytest.mark.parametrize("predict", ["epsilon", "v"])
def test_pytorch_has_the_same_losses(data, predict):
    losses, weights, gradients = ours(data, predict, "ref", "f64", 1)
    expected, first = theirs(data, predict, weights, "f64")
    assert gradient_errors(gradients, first)[1] < 1e-9
    assert numpy.abs(losses - expected).max() < 1e-9


@pytest.mark.parametrize("precision", parity.PRECISIONS)
def test_error_to_f64(data, precision, record_property):
    # Losses after the first step are compared as those of networks with a ReLU: AdamW's first steps, which are the sign of
    # a gradient, and norms of few numbers multiply rounding by ten and more, on either side.
    device = parity.device_for("unet", DIMS)
    parity.compare(record_property, ("unet", precision), SEEDS, lambda _, seed: ours(data, "epsilon", device, precision, seed),
                   lambda weights, precision: theirs(data, "epsilon", weights, precision))
