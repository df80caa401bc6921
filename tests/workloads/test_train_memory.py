# SPDX-License-Identifier: Apache-2.0
"""What a training keeps, and the types of gradients and of the residual stream: memory, and how little the loss changes."""
import json
import os
import pathlib

import pytest

from jm import jm
from training import TINY, train, training_text


@pytest.fixture(name="on_own_memory")
def training_on_own_memory(tmp_path, text):
    """(plan, last loss) of a training on a device with memory of its own."""
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends/later.so").symlink_to(pathlib.Path(os.environ["JM_BUILD"]) / "tests/peers/later.so")

    def plan(**options):
        file = tmp_path / "record.json"
        words = [w for k, v in {**TINY, "layers": 3, "batch": 8, "text": text, "device": "later", **options}.items()
                 for w in (f"--{k}", v)]
        done = jm("run", "train", "--model", "gpt", *words, "--json", file, env={
            "JM_BACKENDS": str(tmp_path / "backends"), "JM_FAKE_LATER_US": "0", "JM_FAKE_LATER_OWN_MEMORY": "1"})
        assert done.returncode == 0, done.stderr
        r = json.loads(file.read_text())
        return r["plan"], r["loss_last"]
    return plan


def test_own_memory_of_a_device_keeps_all_that_fits(on_own_memory):
    plan = on_own_memory
    (kept, loss), (less, same) = plan(memory=1, **{"keep-all": 1}), plan(memory=1, **{"keep-less": 1})
    assert kept["keep_all"] and not less["keep_all"] and less["peak_bytes"] < kept["peak_bytes"]
    assert plan(memory=1)[0]["peak_bytes"] == kept["peak_bytes"]
    tight = plan(memory=(kept["peak_bytes"] + less["peak_bytes"]) / 2e9)[0]
    assert not tight["keep_all"] and tight["peak_bytes"] == less["peak_bytes"]
    assert same == loss


@pytest.mark.parametrize("options, wide", [({}, "f32"), ({"precision": "bf16"}, "bf16"),
                                           ({"precision": "bf16", "gradients": "f32"}, "f32"),
                                           ({"precision": "bf16", "accumulate": 2}, "f32")])
def test_gradients_that_wait_in_16_bits(on_own_memory, options, wide):
    """Where a device has its own memory, in bf16, and nothing is summed over micro-steps."""
    plan, loss = on_own_memory(**options)
    assert plan["gradients"] == wide
    if "precision" in options:
        assert loss == pytest.approx(on_own_memory(**{**options, "gradients": "f32"})[1], abs=2e-3)


@pytest.mark.parametrize("options, narrow", [({}, "f32"), ({"precision": "bf16"}, "bf16"), ({"precision": "bf16-true"}, "bf16"),
                                             ({"precision": "bf16", "accumulate": 2}, "bf16"),
                                             ({"precision": "bf16", "residual": "f32"}, "f32")])
def test_type_of_the_residual_stream(on_own_memory, options, narrow):
    """16 bits in bf16 where a device has its own memory; rounding changes the loss a little."""
    plan, loss = on_own_memory(**options)
    assert plan["residual"] == narrow
    if narrow == "bf16" and options["precision"] == "bf16":
        wide = on_own_memory(**{**options, "residual": "f32"})[1]
        assert loss != wide and loss == pytest.approx(wide, abs=5e-3)


def test_residual_stream_on_a_processor(tmp_path, text):
    how = {"precision": "bf16", "layers": 2, "hidden": 64, "steps": 3, "keep-all": 1}
    wide, half = (train(tmp_path, text, **how, **more)[1] for more in ({}, {"residual": "bf16"}))
    assert (wide["plan"]["residual"], half["plan"]["residual"]) == ("f32", "bf16")
    assert half["loss_last"] == pytest.approx(wide["loss_last"], abs=5e-3)
    assert half["plan"]["peak_bytes"] < wide["plan"]["peak_bytes"]


VIT = ["vit", "--layers", 1, "--hidden", 32, "--heads", 2, "--ffn", 64, "--image", 16, "--patch", 8, "--classes", 10]
RESNET = ["resnet18", "--image", 32, "--hidden", 8, "--classes", 10]


@pytest.mark.parametrize("model, residual", [(VIT, "bf16"), (RESNET, None)], ids=["vit", "resnet18"])
def test_gradients_of_networks_with_filters(tmp_path, model, residual):
    """Backends write those of filters in f32; all stay so unless the type is asked for. Convolutions have no residual stream."""
    (tmp_path / "backends").mkdir()
    for name in ("later", "cpu"):
        at = "tests/peers" if name == "later" else "backends"
        (tmp_path / f"backends/{name}.so").symlink_to(pathlib.Path(os.environ["JM_BUILD"]) / at / f"{name}.so")

    def run(device, *more):
        done = jm("run", *model, "--batch", 4, "--precision", "bf16", "--steps", 4, "--warmup", 0, "--device", device, *more,
                  "--json", "-", env={"JM_BACKENDS": str(tmp_path / "backends"), "JM_FAKE_LATER_US": "0",
                                      "JM_FAKE_LATER_OWN_MEMORY": "1"})
        assert done.returncode == 0, done.stderr
        r = json.loads(done.stdout)
        return r["plan"]["gradients"], r["loss_last"], r["plan"].get("residual")

    assert run("later")[::2] == ("f32", residual)
    if not residual:
        done = jm("run", *model, "--batch", 4, "--precision", "bf16", "--residual", "f32", "--steps", 1, "--device", "cpu")
        assert done.returncode == 1 and "omit --residual" in " ".join(done.stderr.split()), done.stderr
    (wide, whole, _), (asked, rounded, _) = run("cpu"), run("cpu", "--gradients", "bf16")
    assert (wide, asked) == ("f32", "bf16") and rounded == pytest.approx(whole, abs=0.02)


def test_gradients_in_16_bits_take_less_memory(tmp_path, text):
    how = {"precision": "bf16", "layers": 2, "hidden": 64, "steps": 3, "keep-all": 1}
    whole, half = (train(tmp_path, text, gradients=word, **how)[1] for word in ("f32", "bf16"))
    assert (whole["plan"]["gradients"], half["plan"]["gradients"]) == ("f32", "bf16")
    assert half["loss_last"] == pytest.approx(whole["loss_last"], abs=2e-3)
    assert half["plan"]["peak_bytes"] < whole["plan"]["peak_bytes"]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_bf16_true_takes_less_memory(tmp_path, text, optimizer):
    how = {"optimizer": optimizer, "layers": 2, "hidden": 64, "steps": 3}
    masters = train(tmp_path, text, precision="bf16", **how)[1]
    done, true = train(tmp_path, text, precision="bf16-true", **how)
    assert done.returncode == 0, done.stderr
    assert true["precision"] == "bf16-true"
    assert true["loss_last"] == pytest.approx(masters["loss_last"], abs=0.03)
    assert true["plan"]["persistent_bytes"] < 0.75 * masters["plan"]["persistent_bytes"]
