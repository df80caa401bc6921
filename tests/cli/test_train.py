# SPDX-License-Identifier: Apache-2.0
"""run train: a small GPT learns; what cannot be trained is said."""
import json
import math

import pytest

from jm import jm

TINY = {
    "device": "ref", "batch": 2, "seq": 16, "layers": 1, "hidden": 16, "heads": 2, "ffn": 32,
    "vocab": 256, "context": 1000, "positions": "learned", "lr": 0.01, "steps": 4, "warmup": 1,
}


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"The quick brown fox jumps over the lazy dog. " * 19)
    return file


def train(tmp_path, sample, **options):
    file = tmp_path / "record.json"
    options = {**TINY, "text": sample, **options}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    done = jm("run", "train", "--model", "gpt", *words, "--json", file)
    records = json.loads(file.read_text()) if file.exists() else None
    return done, records[0] if isinstance(records, list) else records


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_learns(tmp_path, text, precision):
    done, r = train(tmp_path, text, precision=precision)
    assert done.returncode == 0, done.stderr
    assert (r["workload"], r["unit"], r["precision"]) == ("train", "token", precision)
    assert r["steps"] == 4 and r["items"] == 4 * 2 * 16
    assert abs(r["loss_first"] - math.log(256)) < 1
    assert r["loss_last"] < r["loss_first"]
    assert r["verified"] is True
    assert r["throughput"] > 0 and r["flops_model_per_item"] > 6 * 256 * 16
    assert (r["note"] is None) == (precision == "f32"), r["note"]


def test_same_seed_same_losses(tmp_path, text):
    first, second = (train(tmp_path, text)[1] for _ in range(2))
    assert first["loss_last"] == second["loss_last"]


@pytest.mark.parametrize("options, hint", [
    ({"seq": 900}, "900"),
    ({"heads": 3}, "do not divide"),
    ({"text": "/nowhere/text"}, "/nowhere/text"),
    ({"text": "/dev/null"}, "/dev/null"),
    ({"vocab": 200}, "--vocab"),
    ({"precision": "int4"}, "bf16"),
    ({"device": "abacus"}, "abacus"),
    ({"batch": 1000000}, "smaller batch"),
    ({"lr": 1000, "steps": 6}, "smaller --lr"),
])
def test_refusals(tmp_path, text, options, hint):
    done, _ = train(tmp_path, text, **options)
    assert done.returncode != 0
    assert hint in done.stdout + done.stderr, (done.stdout, done.stderr)
