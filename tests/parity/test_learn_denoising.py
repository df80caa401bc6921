# SPDX-License-Identifier: Apache-2.0
"""
run unet --data DIR: a small U-Net learns one batch by heart, a picture under different noise, and draws that picture from noise alone.
The noise that it finds, and the sampler that draws by it, are computed here by NumPy with the saved weights.
"""
import os
import re
import subprocess
import sys

import numpy
import pytest
from PIL import Image

import weights_files
from jm import BIN, SOURCE, jm
from noise_net import Network, noisy, parted, sample

SIDE, HEAD, GROUPS, WORDS, WIDTH, BATCH = 8, 8, 4, 1, 8, 4
NET = ("unet", "--latent-channels", 3, "--latent", SIDE, "--hidden", 16, "--layers", 1, "--head-width", HEAD, "--norm-groups", GROUPS,
       "--caption", WORDS, "--caption-width", WIDTH, "--batch", BATCH, "--device", "cpu", "--threads", 1, "--source", "null", "--warmup", 0,
       "--augment", "off", "--predict", "v", "--weight-decay", 0, "--seed", 3)
TIMES = (100, 300, 500, 700)
COLOURS = [(230, 60, 50), (70, 200, 90), (80, 120, 240), (220, 200, 60)]


def discs(shifted=0):
    """One of each colour, each in a corner of its own; bytes. The first is the one to be learnt."""
    found = numpy.full((BATCH, 3, SIDE, SIDE), 25, numpy.uint8)
    y, x = numpy.mgrid[:SIDE, :SIDE]
    for i, colour in enumerate(COLOURS):
        corner = (i + shifted) % BATCH
        row, column = 2 + 3 * (corner // 2), 2 + 3 * (corner % 2)
        found[i, :, (y - row) ** 2 + (x - column) ** 2 < 6] = colour
    return found


def signed(pictures):
    return pictures / 127.5 - 1


def train(folder, pictures, name, *more):
    for i, picture in enumerate(pictures):
        (folder / "pictures/one").mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture.transpose(1, 2, 0)).save(folder / f"pictures/one/{i}.png")
    saved = folder / f"{name}.safetensors"
    done = jm("run", *NET, "--data", folder / "pictures", "--save", saved, *more, timeout=1000, env={"OMP_WAIT_POLICY": "passive"})
    assert done.returncode == 0, done.stderr
    return Network({key: weights_files.values(t).astype(float) for key, t in weights_files.read(saved).items()}, HEAD, GROUPS)


def errors(network):
    """The mean squared error of the noise that is found in the first disc, at each of TIMES."""
    rng, x = numpy.random.default_rng(5), signed(discs()[:1])
    found = []
    for at in TIMES:
        noise, caption = rng.standard_normal((4, *x.shape)), rng.standard_normal((1, WORDS, WIDTH))
        found.append(numpy.mean([(parted(network, noisy(x, one, at), at, caption)[1] - one) ** 2 for one in noise]))
    return numpy.array(found)


def drawn(network, n=6):
    """(how far samples are from the disc to be learnt, and from the nearest of others): roots of mean squares in 0 to 255"""
    rng = numpy.random.default_rng(6)
    samples = sample(network, rng.standard_normal((n, 3, SIDE, SIDE)), rng.standard_normal((n, WORDS, WIDTH)), 15)
    def nearest(pictures):
        return 127.5 * (((samples[:, None] - signed(pictures)) ** 2).mean((2, 3, 4)) ** 0.5).min(1)
    return nearest(discs()[:1]), nearest(numpy.concatenate([discs()[1:], *(discs(k) for k in range(1, BATCH))]))


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_batch_is_learnt_and_drawn_from_noise(tmp_path, shuffled):
    """The error of the noise falls to less than a third at every step, 4 to 22 times. Shuffled: of the same disc with its pixels in
    another order, neither is true."""
    pictures = discs()[:1]
    if shuffled:
        rng = numpy.random.default_rng(7)
        pictures = rng.permuted(pictures.reshape(1, 3, -1), axis=2).reshape(pictures.shape)
    before = errors(train(tmp_path, pictures, "before", "--steps", 1, "--lr", "1e-12"))
    network = train(tmp_path, pictures, "after", "--steps", 300, "--lr", "2e-3", "--schedule", "cosine", "--lr-steps", 300)
    gains, (own, others) = before / errors(network), drawn(network)
    learnt = gains.min() > 3 and (own < others).all() and own.mean() < 70
    assert learnt != shuffled, (gains, own, others)


def test_pictures_are_drawn_before_and_after_a_training(tmp_path):
    """By the script that the documentation names."""
    pytest.importorskip("torch", reason="python3-torch is not installed: bench/sample_unet.py draws by it")
    done = subprocess.run([sys.executable, SOURCE / "bench/sample_unet.py", tmp_path / "drawn.png", "60"], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, env={**os.environ, "JM_BIN": str(BIN)})
    assert done.returncode == 0, done.stderr
    before, after = map(float, re.search(r"picture: ([\d.]+) before, ([\d.]+) after 60 steps", done.stdout).groups())
    assert after < 0.9 * before and Image.open(tmp_path / "drawn.png").size == (8 * 8 * 8, 3 * 8 * 8)
