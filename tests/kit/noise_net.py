# SPDX-License-Identifier: Apache-2.0
"""The U-Net of Stable Diffusion and its sampler, by NumPy; not a test. Images are [samples,channels,rows,columns]."""
import numpy

from fourier_net import gelu

STEPS = 1000
KEPT = numpy.cumprod(1 - numpy.linspace(0.00085 ** 0.5, 0.012 ** 0.5, STEPS) ** 2)  # of the picture's variance, after each step of noise


def noisy(x, noise, at):
    """The picture with the noise of one step mixed in."""
    return KEPT[at] ** 0.5 * x + (1 - KEPT[at]) ** 0.5 * noise


def silu(x):
    return x / (1 + numpy.exp(-x))


def softmax(x):
    x = numpy.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def normal(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / numpy.sqrt(x.var(axes, keepdims=True) + eps)


class Network:
    """p: parameters by the names of `run --save`, which are those of diffusers; widths of heads and groups as the options say."""

    def __init__(self, p, head, groups, levels=4):
        self.p, self.head, self.groups, self.levels = p, head, groups, levels

    def blocks(self, part):
        return range(sum(name.startswith(f"{part}.resnets.") and name.endswith(".conv1.weight") for name in self.p))

    def conv(self, x, name, stride=1):
        weight = self.p[f"{name}.weight"]
        size = weight.shape[-1]
        x = numpy.pad(x, ((0, 0), (0, 0), (size // 2, size // 2), (size // 2, size // 2)))
        windows = numpy.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))[:, :, ::stride, ::stride]
        return numpy.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2) + self.p[f"{name}.bias"][:, None, None]

    def linear(self, x, name):
        return x @ self.p[f"{name}.weight"].T + self.p.get(f"{name}.bias", 0)

    def group_norm(self, x, name, eps=1e-5):
        x = normal(x.reshape(len(x), self.groups, -1), -1, eps).reshape(x.shape)
        return x * self.p[f"{name}.weight"][:, None, None] + self.p[f"{name}.bias"][:, None, None]

    def layer_norm(self, x, name):
        return normal(x, -1, 1e-5) * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]

    def resnet(self, x, wave, name):
        h = self.conv(silu(self.group_norm(x, f"{name}.norm1")), f"{name}.conv1")
        h = h + self.linear(wave, f"{name}.time_emb_proj")[:, :, None, None]
        h = self.conv(silu(self.group_norm(h, f"{name}.norm2")), f"{name}.conv2")
        return h + (self.conv(x, f"{name}.conv_shortcut") if x.shape[1] != h.shape[1] else x)

    def attention(self, rows, source, name):
        q, k, v = (self.linear(x, f"{name}.to_{which}") for x, which in zip((rows, source, source), "qkv"))
        q, k, v = (t.reshape(*t.shape[:2], -1, self.head).swapaxes(1, 2) for t in (q, k, v))
        found = softmax(q @ k.swapaxes(-1, -2) / self.head ** 0.5) @ v
        return self.linear(found.swapaxes(1, 2).reshape(rows.shape), f"{name}.to_out.0")

    def transformer(self, x, caption, name):
        block = f"{name}.transformer_blocks.0"
        rows = self.group_norm(x, f"{name}.norm", 1e-6).reshape(*x.shape[:2], -1).swapaxes(1, 2)
        rows = self.linear(rows, f"{name}.proj_in")
        seen = self.layer_norm(rows, f"{block}.norm1")
        rows = rows + self.attention(seen, seen, f"{block}.attn1")
        rows = rows + self.attention(self.layer_norm(rows, f"{block}.norm2"), caption, f"{block}.attn2")
        value, gate = numpy.split(self.linear(self.layer_norm(rows, f"{block}.norm3"), f"{block}.ff.net.0.proj"), 2, -1)
        rows = self.linear(rows + self.linear(value * gelu(gate), f"{block}.ff.net.2"), f"{name}.proj_out")
        return x + rows.swapaxes(1, 2).reshape(x.shape)

    def wave(self, at):
        half = self.p["conv_in.weight"].shape[0] // 2
        angle = at * 10000.0 ** (-numpy.arange(half) / half)
        x = numpy.concatenate((numpy.cos(angle), numpy.sin(angle)))[None]
        return silu(self.linear(silu(self.linear(x, "time_embedding.linear_1")), "time_embedding.linear_2"))

    def block(self, x, wave, caption, part, i):
        x = self.resnet(x, wave, f"{part}.resnets.{i}")
        attends = f"{part}.attentions.{i}.norm.weight" in self.p
        return self.transformer(x, caption, f"{part}.attentions.{i}") if attends else x

    def __call__(self, x, at, caption):
        """What is found in pictures x after step `at` of noise."""
        wave, x = self.wave(at), self.conv(x, "conv_in")
        skips = [x]
        for level in range(self.levels):
            part = f"down_blocks.{level}"
            for i in self.blocks(part):
                x = self.block(x, wave, caption, part, i)
                skips.append(x)
            if level < self.levels - 1:
                x = self.conv(x, f"{part}.downsamplers.0.conv", 2)
                skips.append(x)
        x = self.block(x, wave, caption, "mid_block", 0)
        x = self.resnet(x, wave, "mid_block.resnets.1")
        for level in range(self.levels):
            part = f"up_blocks.{level}"
            for i in self.blocks(part):
                x = self.block(numpy.concatenate((x, skips.pop()), 1), wave, caption, part, i)
            if level < self.levels - 1:
                x = self.conv(x.repeat(2, 2).repeat(2, 3), f"{part}.upsamplers.0.conv")
        return self.conv(silu(self.group_norm(x, "conv_norm_out")), "conv_out")


def parted(network, x, at, caption):
    """(picture, noise) that x is made of, by a network that was trained with --predict v."""
    now, away = KEPT[at] ** 0.5, (1 - KEPT[at]) ** 0.5
    v = network(x, at, caption)
    return now * x - away * v, away * x + now * v


def sample(network, noise, caption, steps):
    """Pictures from noise by DDIM (arXiv 2010.02502): the picture that is found is mixed with less of the noise that is found."""
    x, times = noise, numpy.linspace(STEPS - 1, 0, steps).round().astype(int)
    for at, then in zip(times, [*times[1:], None]):
        x, noise = parted(network, x, at, caption)
        if then is not None:
            x = noisy(x, noise, then)
    return x
