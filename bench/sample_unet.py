#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures that a small U-Net draws before and after its training, as a PNG.

sample_unet.py OUT.png [STEPS]

joulemark trains `unet` on 64 pictures of 8 x 8 pixels, discs of three colours on a dark ground, as they are (no image encoder: three
channels are the picture itself). PyTorch then makes pictures from noise by DDIM (arXiv 2010.02502, 50 of the 1,000 steps, no noise
added on the way), with weights as they were at the start and after STEPS steps (1000). OUT.png has three rows of eight: pictures that
it learned from, samples before, samples after. Prints how far a sample is from the nearest picture, as the root of the mean square
of the difference in 0 to 255. JM_BIN names joulemark.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "gpu"), str(HERE.parent / "tests/kit")]
if not hasattr(F, "scaled_dot_product_attention"):  # before PyTorch 2
    F.scaled_dot_product_attention = lambda q, k, v, is_causal: torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v

import unet_torch  # noqa: E402
import weights_files  # noqa: E402

SIDE, HIDDEN, LAYERS, HEAD, GROUPS, WORDS, WIDTH = 8, 16, 1, 8, 4, 2, 8
COLOURS = [(230, 60, 50), (70, 200, 90), (80, 120, 240)]
NET = ("unet", "--latent-channels", 3, "--latent", SIDE, "--hidden", HIDDEN, "--layers", LAYERS, "--head-width", HEAD, "--norm-groups",
       GROUPS, "--caption", WORDS, "--caption-width", WIDTH, "--batch", 8, "--threads", 1, "--device", "cpu", "--source", "null", "--warmup", 0,
       "--augment", "off", "--weight-decay", 0)


def discs(n, seed=1):
    """[n,3,SIDE,SIDE], 0 to 255"""
    rng, found = numpy.random.default_rng(seed), numpy.full((n, 3, SIDE, SIDE), 25, numpy.uint8)
    y, x = numpy.mgrid[:SIDE, :SIDE]
    for i in range(n):
        centre, radius = rng.uniform(2.5, SIDE - 3.5, 2), rng.uniform(2, 3)
        found[i, :, (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius ** 2] = COLOURS[i % 3]
    return found


def train(folder, steps, rate):
    """The weights after so many steps; they begin the same."""
    saved = folder / f"{steps}.safetensors"
    subprocess.run([os.environ.get("JM_BIN", "joulemark"), "run", *map(str, NET), "--data", folder / "train", "--steps", str(steps),
                    "--lr", rate, "--save", saved], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   env={"OMP_WAIT_POLICY": "passive", **os.environ})
    return {name: torch.tensor(weights_files.values(t)) for name, t in weights_files.read(saved).items()}


PARTS = {"norm1": "norm1", "norm2": "norm2", "norm3": "norm3", "out1": "attn1.to_out.0", "out2": "attn2.to_out.0", "q": "attn2.to_q",
         "up": "ff.net.0.proj", "down": "ff.net.2"}


def tensor_of(saved, name):
    """The one of diffusers' names that a parameter of unet_torch.UNet is."""
    parts = ("resnets.0", "attentions.0", "resnets.1")
    for i, part in enumerate(parts):
        name = name.replace(f"mid_block.{i}.", f"mid_block.{part}.")
    name = name.replace(".size.", ".downsamplers.0.conv." if "down" in name else ".upsamplers.0.conv.")
    name = "time_embedding." + name if name.startswith("linear_") else name
    head, part, what = name.rsplit(".", 2) if "attentions" in name else ("", "", "")
    if part in ("qkv", "kv"):
        attention = f"{head}.transformer_blocks.0.attn{1 if part == 'qkv' else 2}"
        return torch.cat([saved[f"{attention}.to_{one}.weight"] for one in part])
    return saved[f"{head}.transformer_blocks.0.{PARTS[part]}.{what}" if part in PARTS else name]


def network(saved):
    net = unet_torch.UNet(tuple(HIDDEN * k for k in (1, 2, 4, 4)), LAYERS, HEAD, GROUPS, WIDTH, 3)
    net.load_state_dict({name: tensor_of(saved, name).reshape(p.shape) for name, p in net.state_dict().items()})
    return net


@torch.no_grad()
def sample(net, n, steps=50, seed=2):
    """DDIM: the noise that is found gives the picture without noise, which is mixed with less of that noise."""
    torch.manual_seed(seed)
    kept = unet_torch.Diffusion(net).kept
    x, caption = torch.randn(n, 3, SIDE, SIDE), torch.randn(n, WORDS, WIDTH)
    times = list(range(unet_torch.STEPS - 1, -1, -unet_torch.STEPS // steps))
    for i, t in enumerate(times):
        now, then = kept[t], kept[times[i + 1]] if i + 1 < len(times) else torch.tensor(1.0)
        noise = net(x, torch.full((n,), t), caption)
        clean = ((x - (1 - now).sqrt() * noise) / now.sqrt()).clamp(-1, 1)
        noise = (x - now.sqrt() * clean) / (1 - now).sqrt()
        x = then.sqrt() * clean + (1 - then).sqrt() * noise
    return ((x + 1) * 127.5).clamp(0, 255).numpy()


def to_nearest(samples, pictures):
    apart = ((samples[:, None].astype(float) - pictures[None]) ** 2).mean((2, 3, 4)) ** 0.5
    return apart.min(1).mean()


def main(out, steps=1000):
    pictures = discs(64)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for i, picture in enumerate(pictures):
            path = folder / f"train/disc/{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture.transpose(1, 2, 0)).save(path)
        rows = [pictures[:8], sample(network(train(folder, 1, "1e-12")), 8), sample(network(train(folder, steps, "2e-3")), 8)]
    print(f"to the nearest picture: {to_nearest(rows[1], pictures):.1f} before, {to_nearest(rows[2], pictures):.1f} after {steps} steps")
    sheet = numpy.concatenate([numpy.concatenate(list(row), 2) for row in rows], 1).astype(numpy.uint8)
    Image.fromarray(sheet.transpose(1, 2, 0)).resize((8 * SIDE * 8, 3 * SIDE * 8), Image.NEAREST).save(out)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:]))
