# SPDX-License-Identifier: Apache-2.0
"""Small language models whose ranks share them by --tp and --pp, and the losses of their training."""
from jm import is_sanitized

STEPS = 4 if is_sanitized() else 20
END = ["--warmup", 0, "--source", "null", "--selftest", 0]


def language_models(*more, layers=4, vocab=256):
    """The work gpt, whose first and last stage train one table, and llama, which has two."""
    sizes = ["--layers", layers, "--hidden", 32, "--heads", 4, "--vocab", vocab, "--context", 16, "--seq", 16, *more]
    return ["run", "gpt", *sizes, *END], ["run", "llama", *sizes, "--kv-heads", 2, "--ffn", 48, *END]


def losses(record):
    assert record["status"] == "ok" and record["verified"] is True
    return record["step_series"]["loss"]


def falling_losses(record):
    """Of STEPS steps; few are not enough for them to fall."""
    found = losses(record)
    assert len(found) == STEPS and (STEPS < 20 or found[-1] < found[0])
    return found
