# SPDX-License-Identifier: Apache-2.0
"""A training that is over in a moment, and the text that it learns from."""
import json

import pytest

from jm import jm

TINY = {
    "device": "ref", "batch": 2, "seq": 16, "layers": 1, "hidden": 16, "heads": 2, "ffn": 32,
    "vocab": 256, "context": 1000, "positions": "learned", "lr": 0.01, "steps": 4, "warmup": 1,
}


@pytest.fixture(name="text")
def training_text(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"The quick brown fox jumps over the lazy dog. " * 19)
    return file


def train(tmp_path, sample, **options):
    file = tmp_path / "record.json"
    options = {**TINY, "text": sample, **options}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    done = jm("run", "train", "--model", "gpt", *words, "--json", file)
    records = json.loads(file.read_text() or "null") if file.exists() else None
    return done, records[0] if isinstance(records, list) else records
