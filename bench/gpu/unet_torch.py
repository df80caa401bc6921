#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the U-Net of Stable Diffusion 2 by PyTorch on one GPU, for comparison with joulemark: same shapes, loss and update.

unet_torch.py BATCH SECONDS [latent=64] [precision=bf16|fp16] [mode=MODE]

From latents and states of the text encoder that stay on the GPU, which learns the noise of a random step. Autocast, torch.compile of
the whole network, channels last, q, k and v of one product, flash attention or cuDNN's as PyTorch chooses, fused AdamW, gradients
clipped. In fp16 the loss is scaled. Parameters are those of diffusers' UNet2DConditionModel (tests/parity/test_diffusion_peers.py). MODE is that
of torch.compile. Prints one line of JSON as train_torch.py does.
"""
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

from measured_steps import measure

WIDTHS, LAYERS, HEAD, GROUPS = (320, 640, 1280, 1280), 2, 64, 32
CAPTION, CAPTION_WIDTH, CHANNELS, STEPS = 77, 1024, 4, 1000
BETA_FIRST, BETA_LAST = 0.00085, 0.012
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "f32": torch.float32}
WHERE = "cuda"


def conv3(inside, to, stride=1):
    return nn.Conv2d(inside, to, 3, stride, 1)


class Residual(nn.Module):
    """wave: width of the embedding of the step of noise; None where there is none."""

    def __init__(self, inside, to, wave, groups, eps=1e-5):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, inside, eps=eps), conv3(inside, to)
        self.time_emb_proj = nn.Linear(wave, to) if wave else None
        self.norm2, self.conv2 = nn.GroupNorm(groups, to, eps=eps), conv3(to, to)
        self.conv_shortcut = nn.Conv2d(inside, to, 1) if inside != to else None

    def forward(self, x, wave=None):
        h = self.conv1(F.silu(self.norm1(x)))
        if self.time_emb_proj:
            h = h + self.time_emb_proj(wave)[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return (self.conv_shortcut(x) if self.conv_shortcut else x) + h


def attend(q, k, v, head, causal=False):
    q, k, v = (t.unflatten(-1, (-1, head)).transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """The transformer's block over the pixels as rows."""

    def __init__(self, width, caption, head, groups):
        super().__init__()
        self.head = head
        self.norm = nn.GroupNorm(groups, width, eps=1e-6)
        self.proj_in, self.proj_out = nn.Linear(width, width), nn.Linear(width, width)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out1 = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(caption, 2 * width, bias=False)
        self.out2 = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x, caption):
        rows = self.proj_in(self.norm(x).permute(0, 2, 3, 1).flatten(1, 2))
        rows = rows + self.out1(attend(*self.qkv(self.norm1(rows)).chunk(3, -1), self.head))
        rows = rows + self.out2(attend(self.q(self.norm2(rows)), *self.kv(caption).chunk(2, -1), self.head))
        value, gate = self.up(self.norm3(rows)).chunk(2, -1)
        rows = self.proj_out(rows + self.down(value * F.gelu(gate)))
        return x + rows.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2)


class Level(nn.Module):
    """Residual blocks with attention behind each, and a convolution that changes the size."""

    def __init__(self, shapes, make, attends, size=None):
        super().__init__()
        self.resnets = nn.ModuleList(make[0](inside, to) for inside, to in shapes)
        self.attentions = nn.ModuleList(make[1](to) for _, to in shapes) if attends else [None] * len(shapes)
        self.size = size

    def blocks(self):
        return zip(self.resnets, self.attentions)


class UNet(nn.Module):
    def __init__(self, widths=WIDTHS, layers=LAYERS, head=HEAD, groups=GROUPS, caption=CAPTION_WIDTH, channels=CHANNELS):
        super().__init__()
        self.first, wave = widths[0], 4 * widths[0]
        make = (lambda inside, to: Residual(inside, to, wave, groups), lambda width: Attention(width, caption, head, groups))
        last = len(widths) - 1
        self.conv_in, self.conv_out = conv3(channels, self.first), conv3(self.first, channels)
        self.linear_1, self.linear_2 = nn.Linear(self.first, wave), nn.Linear(wave, wave)
        skips, inside, self.down_blocks, self.up_blocks = [self.first], self.first, nn.ModuleList(), nn.ModuleList()
        for i, to in enumerate(widths):
            shapes = [(inside, to)] + [(to, to)] * (layers - 1)
            self.down_blocks.append(Level(shapes, make, i < last, conv3(to, to, 2) if i < last else None))
            skips += [to] * (layers + (i < last))
            inside = to
        self.middle = make[0](inside, inside), make[1](inside), make[0](inside, inside)
        self.mid_block = nn.ModuleList(self.middle)
        for i, to in enumerate(reversed(widths)):
            shapes = []
            for _ in range(layers + 1):
                shapes.append((inside + skips.pop(), to))
                inside = to
            self.up_blocks.append(Level(shapes, make, i > 0, conv3(to, to) if i < last else None))
        self.conv_norm_out = nn.GroupNorm(groups, self.first, eps=1e-5)

    def waves(self, step):
        half = self.first // 2
        turn = torch.exp(torch.arange(half, device=step.device) * (-math.log(10000.0) / half))
        angle = step[:, None].float() * turn
        x = torch.cat((angle.cos(), angle.sin()), -1)
        return F.silu(self.linear_2(F.silu(self.linear_1(x.to(self.linear_1.weight.dtype)))))

    def forward(self, x, step, caption):
        wave = self.waves(step)
        x = self.conv_in(x)
        skips = [x]
        for level in self.down_blocks:
            for residual, attention in level.blocks():
                x = residual(x, wave)
                x = attention(x, caption) if attention else x
                skips.append(x)
            if level.size:
                x = level.size(x)
                skips.append(x)
        x = self.mid_block[2](self.mid_block[1](self.mid_block[0](x, wave), caption), wave)
        for level in self.up_blocks:
            for residual, attention in level.blocks():
                x = residual(torch.cat((x, skips.pop()), 1), wave)
                x = attention(x, caption) if attention else x
            if level.size:
                x = level.size(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class Diffusion(nn.Module):
    """The mean squared difference to the noise that was mixed into a latent."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        beta = torch.linspace(BETA_FIRST ** 0.5, BETA_LAST ** 0.5, STEPS, dtype=torch.float64) ** 2
        self.register_buffer("kept", torch.cumprod(1 - beta, 0).float())

    def forward(self, latent, noise, step, caption):
        kept = self.kept[step][:, None, None, None]
        found = self.net(kept.sqrt() * latent + (1 - kept).sqrt() * noise, step, caption)
        return F.mse_loss(found.float(), noise)


def compiled(model, mode):
    return torch.compile(model, **({"mode": mode} if mode else {}))


class Training:
    """An update takes `micro_steps` batches. dims: of the U-Net, where they are not those of Stable Diffusion 2."""

    def __init__(self, batch, latent, precision, mode, micro_steps=1, **dims):
        torch.manual_seed(1)
        with torch.device(WHERE):
            net = UNet(**dims).to(memory_format=torch.channels_last)
            both = [torch.randn(batch, CHANNELS, latent, latent).to(memory_format=torch.channels_last) for _ in range(2)]
            caption = torch.randn(batch, CAPTION, dims.get("caption", CAPTION_WIDTH))
            self.inputs = [*both, torch.randint(STEPS, (batch,)), caption]
        self.model = compiled(Diffusion(net).to(WHERE), mode)
        self.items, self.micro_steps, self.parameters = batch * micro_steps, micro_steps, list(net.parameters())
        if micro_steps > 1:  # memory of their own: that of graphs is written again by the next micro-step
            for p in self.parameters:
                p.grad = torch.zeros_like(p)
        self.type = TYPES[precision]
        self.scaler = torch.amp.GradScaler(WHERE, enabled=precision == "fp16")
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, weight_decay=1e-2, fused=True)

    def batch(self):
        """What a micro-step learns from: latents, noise, its steps and states of captions."""
        return self.inputs

    def step(self):
        self.optimizer.zero_grad(set_to_none=self.micro_steps == 1)
        for _ in range(self.micro_steps):
            batch = self.batch()
            with torch.autocast(WHERE, dtype=self.type, enabled=self.type != torch.float32):
                loss = self.model(*batch)
            self.scaler.scale(loss / self.micro_steps).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss


def main(batch, seconds, *given):
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    words = {"latent": "64", "precision": "bf16", "mode": "", **dict(one.split("=") for one in given)}
    measure(lambda: Training(int(batch), int(words["latent"]), words["precision"], words["mode"]), float(seconds),
            model="unet-sd2", batch=int(batch), precision=words["precision"])


if __name__ == "__main__":
    main(*sys.argv[1:])
