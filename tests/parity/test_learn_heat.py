# SPDX-License-Identifier: Apache-2.0
"""
A Fourier neural operator learns what heat on a periodic grid becomes (du/dt = laplacian u), to 1 % of the field. Fields, their
exact state later and the network with the learnt weights are computed here, by NumPy's transforms.
"""
import numpy

import weights_files
from fourier_net import network, relative_error
from jm import jm

POINTS, WAVES, LATER, STEPS, SAMPLES = 16, 4, 0.05, 1500, 64
NUMBERS = numpy.fft.fftfreq(POINTS, 1 / POINTS)  # periods along an axis


def heat(rng):
    """[samples,x,y]: real parts of sums of waves whose amplitudes fall with the square of their numbers, and what they become."""
    square = NUMBERS[:, None] ** 2 + NUMBERS[None, :] ** 2
    kept = (abs(NUMBERS)[:, None] <= WAVES) & (NUMBERS >= 0)[None, :] & (NUMBERS <= WAVES)[None, :]
    waves = (rng.standard_normal((2, SAMPLES, POINTS, POINTS)) * [[[[1]]], [[[1j]]]]).sum(0) * kept / (1 + square)
    return (numpy.fft.ifft2(waves * numpy.exp(-square * t), norm="forward").real for t in (0, LATER))


def error_after_training(folder, modes):
    """The mean of |y - target| / |target|, of samples that were not seen."""
    done = jm("run", "fno", "--fields", 1, "--hidden", 16, "--layers", 2, "--points-x", POINTS, "--points-y", POINTS,
              "--modes-x", modes, "--modes-y", modes, "--images", "fresh", "--batch", 8, "--optimizer", "adam", "--lr", "0.01",
              "--schedule", "cosine", "--lr-steps", STEPS, "--clip", 0, "--weight-decay", 0, "--steps", STEPS, "--warmup", 0,
              "--device", "cpu", "--source", "null", "--save", folder / "net.safetensors", timeout=1000,
              env={"OMP_WAIT_POLICY": "passive"})
    assert done.returncode == 0, done.stderr
    weights = {name: weights_files.values(t).astype(float) for name, t in weights_files.read(folder / "net.safetensors").items()}
    now, later = heat(numpy.random.default_rng(1))
    return relative_error(network(weights, now[..., None], modes), later[..., None])


def test_heat_is_learnt_to_one_percent(tmp_path):
    assert error_after_training(tmp_path, WAVES + 1) < 0.01


def test_without_the_shorter_waves_it_is_not(tmp_path):
    assert error_after_training(tmp_path, 2) > 0.03
