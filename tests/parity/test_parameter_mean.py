# SPDX-License-Identifier: Apache-2.0
"""run --ema: what --save writes is the mean that NumPy makes of the parameters after each update."""
import json

import numpy
import pytest

from jm import jm
from weights_files import read, values

NET = {"resnet": ("resnet", "--layers", 10, "--hidden", 4, "--image", 32, "--classes", 5, "--images", "fresh"),
       "gpt": ("gpt", "--layers", 1, "--hidden", 16, "--heads", 2, "--context", 16, "--vocab", 256, "--seq", 16)}
COMMON = ("--batch", 4, "--warmup", 0, "--lr", "0.01", "--source", "null")


def run(net, *words, status=0):
    done = jm("run", *NET[net], *COMMON, "--device", "cpu", "--json", "-", *words, timeout=1000, env={"OMP_WAIT_POLICY": "passive"})
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def widened(x):
    kind, shape, data = x
    return (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape) if kind == "BF16" else values(x)


def means(files, kept):
    """The first update begins the mean; update t leaves min(kept, t / (t + 9)) of it."""
    found = None
    for t, file in enumerate(files, 1):
        now = {name: widened(x).astype(float) for name, x in read(file).items() if x[0] in ("F32", "BF16")}
        share = 0 if t == 1 else min(kept, t / (9 + t))
        found = {name: share * (found[name] if found else 0) + (1 - share) * x for name, x in now.items()}
    return found


@pytest.mark.parametrize("net, kept, more", [
    ("resnet", 0.2, ()), ("resnet", 0.999, ("--optimizer", "sgd")), ("gpt", 0.2, ("--optimizer", "adam")),
    ("gpt", 0.999, ("--precision", "bf16")), ("gpt", 0.2, ("--precision", "bf16-true", "--freeze", "h0.ln_1*"))])
def test_is_the_mean_of_the_parameters(tmp_path, net, kept, more):
    files = [tmp_path / f"{t}.safetensors" for t in range(1, 5)]
    plain = [run(net, "--steps", t, "--save", file, *more) for t, file in enumerate(files, 1)][-1]
    mean = tmp_path / "mean.safetensors"
    record = run(net, "--steps", 4, "--ema", kept, "--save", mean, *more)
    assert record["step_series"]["loss"] == plain["step_series"]["loss"]
    last, saved, expected = read(files[-1]), read(mean), means(files, kept)
    moved = 0
    for name, x in saved.items():
        if "running" in name or "num_batches" in name or "ln_1" in name and "--freeze" in more:
            assert x == last[name], name
        else:
            numpy.testing.assert_allclose(values(x), expected[name], rtol=0, atol=2e-6, err_msg=name)
            assert x[0] == "F32"
            moved += not numpy.array_equal(values(x), widened(last[name]))
    assert moved > 5


LATER = ("resnet", "--layers", 10, "--hidden", 4, "--image", 32, "--classes", 5, "--optimizer", "sgd", "--lr", 500, "--momentum", 0,
         "--weight-decay", 0, "--clip", 0, "--schedule", "linear", "--lr-steps", 20, "--loss-scale", f"dynamic:{2 ** 98}")
FIRST = (*NET["gpt"], "--lr", 0.01, "--precision", "fp16", "--loss-scale", "dynamic:1e8")


@pytest.mark.parametrize("net, first", [(LATER, False), (FIRST, True)], ids=["later", "first"])
def test_does_not_move_in_a_skipped_step(tmp_path, net, first):
    """Gradients that grow by orders of magnitude a step, for which the loss scale is too large later, and a scale that is too
    large at first: the mean is that of the parameters after steps that were not skipped."""
    def train(steps, file, *more):
        done = jm("run", *net, "--device", "ref", "--batch", 4, "--warmup", 0, "--source", "null", "--json", "-", "--steps", steps,
                  "--save", file, *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["loss_scale"]["steps_skipped"]
    files = [tmp_path / f"{t}.safetensors" for t in range(1, 10)]
    skipped = [0] + [train(t, file) for t, file in enumerate(files, 1)]
    updates = [file for file, before, now in zip(files, skipped, skipped[1:]) if now == before]
    assert 2 <= len(updates) < 9 and first == (skipped[1] == 1)
    train(9, tmp_path / "mean.safetensors", "--ema", 0.7)
    found, expected = read(tmp_path / "mean.safetensors"), means(updates, 0.7)
    for name in (name for name, x in found.items() if x[0] == "F32" and "running" not in name):
        size = numpy.abs(expected[name]).max()
        numpy.testing.assert_allclose(values(found[name]), expected[name], rtol=0, atol=1e-6 * size, err_msg=name)


def test_a_checkpoint_goes_on_with_it(tmp_path):
    whole, half, rest = (tmp_path / name for name in ("whole.safetensors", "half", "rest.safetensors"))
    run("resnet", "--steps", 4, "--ema", 0.9, "--save", whole, "--checkpoint", tmp_path / "other")
    run("resnet", "--steps", 2, "--ema", 0.9, "--checkpoint", half)
    run("resnet", "--steps", 2, "--ema", 0.9, "--continue", half, "--save", rest)
    assert read(rest) == read(whole)
    run("resnet", "--steps", 2, "--checkpoint", half)
    record = run("resnet", "--steps", 2, "--ema", 0.9, "--continue", half, status=1)
    assert "has no tensor 'adamw.average/" in record["reason"]


def test_each_rank_keeps_it(tmp_path):
    files = [tmp_path / name for name in ("one.safetensors", "two.safetensors")]
    run("gpt", "--steps", 3, "--ema", 0.5, "--save", files[0], "--accumulate", 2)
    run("gpt", "--steps", 3, "--ema", 0.5, "--save", files[1], "--ranks", 2)
    one, two = map(read, files)
    for name, x in one.items():
        numpy.testing.assert_allclose(values(two[name]), values(x), rtol=0, atol=1e-4, err_msg=name)


def test_is_part_of_the_plan():
    plain, mean = (json.loads(jm("describe", "gpt-117m", "--device", "ref", "--precision", "bf16-true", "--json", "-", *words).stdout)
                   for words in ((), ("--ema", 0.9999)))
    # one slab of f32 beside two in bf16, and a few bytes of padding
    assert mean["optimizer_bytes"] - plain["optimizer_bytes"] == pytest.approx(4 * plain["parameters"], rel=1e-3)
    assert mean["peak_bytes"] - plain["peak_bytes"] == pytest.approx(4 * plain["parameters"], rel=1e-3)
