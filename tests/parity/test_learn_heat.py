# SPDX-License-Identifier: Apache-2.0
"""
A Fourier neural operator learns what heat on a periodic grid becomes (du/dt = laplacian u), to 1 % of the field. Fields, their
exact state later and the network with the learnt weights are computed here, by NumPy's transforms.
"""
import math

import numpy

import weights_files
from jm import jm

POINTS, WAVES, LATER, STEPS, SAMPLES = 16, 4, 0.05, 1500, 64
NUMBERS = numpy.fft.fftfreq(POINTS, 1 / POINTS)  # periods along an axis


def heat(rng):
    """[samples,x,y]: real parts of sums of waves whose amplitudes fall with the square of their numbers, and what they become."""
    square = NUMBERS[:, None] ** 2 + NUMBERS[None, :] ** 2
    kept = (abs(NUMBERS)[:, None] <= WAVES) & (NUMBERS >= 0)[None, :] & (NUMBERS <= WAVES)[None, :]
    waves = (rng.standard_normal((2, SAMPLES, POINTS, POINTS)) * [[[[1]]], [[[1j]]]]).sum(0) * kept / (1 + square)
    return (numpy.fft.ifft2(waves * numpy.exp(-square * t), norm="forward").real for t in (0, LATER))


def gelu(x):
    return x * (1 + numpy.vectorize(math.erf)(x / math.sqrt(2))) / 2


def network(p, x, modes):
    """x: [samples,x,y,fields]"""
    def linear(name, x):
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]
    x = linear("lift", x)
    for layer in ("h0", "h1"):
        real, imaginary = p[f"{layer}.modes.weight"]
        weight = (real + 1j * imaginary).reshape(2 * modes, modes, *real.shape[1:])
        spectrum = numpy.fft.rfft2(x, axes=(1, 2), norm="ortho")
        mixed = numpy.zeros_like(spectrum)
        for here, there in ((slice(0, modes), slice(0, modes)), (slice(-modes, None), slice(modes, None))):
            mixed[:, here, :modes] = numpy.einsum("bxyi,xyio->bxyo", spectrum[:, here, :modes], weight[there])
        x = gelu(numpy.fft.irfft2(mixed, s=(POINTS, POINTS), axes=(1, 2), norm="ortho") + linear(f"{layer}.linear", x))
    return linear("project.out", gelu(linear("project.in", x)))


def error_after_training(folder, modes):
    """The mean of |y - target| / |target|, of samples that were not seen."""
    done = jm("run", "fno", "--fields", 1, "--hidden", 16, "--layers", 2, "--points-x", POINTS, "--points-y", POINTS,
              "--modes-x", modes, "--modes-y", modes, "--images", "fresh", "--batch", 8, "--optimizer", "adam", "--lr", "0.01",
              "--schedule", "cosine", "--lr-steps", STEPS, "--clip", 0, "--weight-decay", 0, "--steps", STEPS, "--warmup", 0,
              "--device", "cpu", "--source", "null", "--save", folder / "net.safetensors", timeout=250,
              env={"OMP_WAIT_POLICY": "passive"})
    assert done.returncode == 0, done.stderr
    weights = {name: weights_files.values(t).astype(float) for name, t in weights_files.read(folder / "net.safetensors").items()}
    now, later = heat(numpy.random.default_rng(1))
    off = network(weights, now[..., None], modes)[..., 0] - later
    return (numpy.linalg.norm(off, axis=(1, 2)) / numpy.linalg.norm(later, axis=(1, 2))).mean()


def test_heat_is_learnt_to_one_percent(tmp_path):
    assert error_after_training(tmp_path, WAVES + 1) < 0.01


def test_without_the_shorter_waves_it_is_not(tmp_path):
    assert error_after_training(tmp_path, 2) > 0.03
