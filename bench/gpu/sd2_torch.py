#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains Stable Diffusion 2 from pixels by PyTorch on one GPU, for comparison with joulemark: same shapes, loss and update.

sd2_torch.py BATCH SECONDS [micro-steps=1] [precision=fp16|bf16] [mode=MODE]

U-Net, loss and update are those of unet_torch.py. Behind it the encoder of pictures of 512 x 512 pixels and that of captions are
frozen: 16 bits, no gradients, compiled each as a whole, channels last. They run in each of the micro-steps of BATCH pictures that
an update takes; the former sees at most 32 pictures at once. Pictures, tokens and what is drawn stay on the GPU. Parameters are those
of diffusers' AutoencoderKL and transformers' CLIPTextModel (tests/parity/test_diffusion_peers.py). Prints one line of JSON as
train_torch.py does.
"""
import sys

import torch
from torch import nn
from torch.nn import functional as F

import unet_torch
from measured_steps import measure
from unet_torch import Level, Residual, attend, compiled, conv3

IMAGE, SHRINKS, FACTOR, AT_ONCE, EPS = 512, 8, 0.18215, 32, 1e-6
PICTURES = {"widths": (128, 256, 512, 512), "layers": 2, "groups": 32, "channels": unet_torch.CHANNELS}
CAPTIONS = {"layers": 23, "width": unet_torch.CAPTION_WIDTH, "heads": 16, "vocabulary": 49408, "context": unet_torch.CAPTION}


class Half(nn.Conv2d):
    """Halves an image, with zeros below and to the right."""

    def __init__(self, width):
        super().__init__(width, width, 3, 2)

    def forward(self, x):
        return super().forward(F.pad(x, (0, 1, 0, 1)))


class OneHead(nn.Module):
    """All pixels see each other. A head of 512 is wider than those of flash attention, so it is two products."""

    def __init__(self, width, groups):
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, width, eps=EPS)
        self.qkv, self.to_out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.group_norm(x).permute(0, 2, 3, 1).flatten(1, 2)).chunk(3, -1)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(1, 2)
        rows = self.to_out(F.softmax(scores, -1) @ v)
        return x + rows.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2)


class PictureEncoder(nn.Module):
    """A sample of the latents of pictures, which noise `drawn` selects."""

    def __init__(self, widths, layers, groups, channels):
        super().__init__()
        make = (lambda inside, to: Residual(inside, to, None, groups, EPS), None)
        self.conv_in, self.down_blocks, inside, last = conv3(3, widths[0]), nn.ModuleList(), widths[0], len(widths) - 1
        for i, to in enumerate(widths):
            shapes = [(inside, to)] + [(to, to)] * (layers - 1)
            self.down_blocks.append(Level(shapes, make, False, Half(to) if i < last else None))
            inside = to
        self.mid_block = nn.Sequential(make[0](inside, inside), OneHead(inside, groups), make[0](inside, inside))
        self.conv_norm_out = nn.GroupNorm(groups, inside, eps=EPS)
        self.conv_out, self.quant_conv = conv3(inside, 2 * channels), nn.Conv2d(2 * channels, 2 * channels, 1)

    def forward(self, x, drawn):
        x = self.conv_in(x)
        for level in self.down_blocks:
            for residual in level.resnets:
                x = residual(x)
            x = level.size(x) if level.size else x
        x = F.silu(self.conv_norm_out(self.mid_block(x)))
        mean, log_variance = self.quant_conv(self.conv_out(x)).chunk(2, 1)
        return FACTOR * (mean + torch.exp(log_variance.clamp(-30, 20) / 2) * drawn)


class TextBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.head = width // heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.out(attend(*self.qkv(self.ln_1(x)).chunk(3, -1), self.head, causal=True))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class CaptionEncoder(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(TextBlock(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        return self.ln_f(self.blocks(self.tokens(ids) + self.positions.weight[: ids.shape[1]]))


class Training(unet_torch.Training):
    """The encoders write what the U-Net learns from."""

    def __init__(self, batch, precision, mode, micro_steps, image=IMAGE, pictures=None, captions=None, **dims):
        super().__init__(batch, image // SHRINKS, precision, mode, micro_steps, **dims)
        pictures, captions = pictures or PICTURES, captions or CAPTIONS
        with torch.device(unet_torch.WHERE):
            both = [part.to(self.type, memory_format=torch.channels_last).requires_grad_(False)
                    for part in (PictureEncoder(**pictures), CaptionEncoder(**captions))]
            self.ids = torch.randint(captions["vocabulary"], (batch, captions["context"]))
            self.pictures = torch.randn(batch, 3, image, image).to(self.type, memory_format=torch.channels_last)
            self.drawn = torch.randn_like(self.inputs[0]).to(self.type)
        self.encode_pictures, self.encode_captions = (compiled(part, mode) for part in both)

    def batch(self):
        latents, _, _, captions = self.inputs
        with torch.no_grad():
            for latent, *given in zip(*(t.split(AT_ONCE) for t in (latents, self.pictures, self.drawn))):
                latent.copy_(self.encode_pictures(*given))
            captions.copy_(self.encode_captions(self.ids))
        return self.inputs


def main(batch, seconds, *given):
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    words = {"micro-steps": "1", "precision": "fp16", "mode": "", **dict(one.split("=") for one in given)}
    measure(lambda: Training(int(batch), words["precision"], words["mode"], int(words["micro-steps"])), float(seconds), warm_up=2, model="sd2",
            batch=int(batch), micro_steps=int(words["micro-steps"]), precision=words["precision"])


if __name__ == "__main__":
    main(*sys.argv[1:])
