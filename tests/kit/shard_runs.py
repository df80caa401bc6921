# SPDX-License-Identifier: Apache-2.0
"""Small trainings of several ranks, each of which updates a share, and the headers of their files."""
import json
import struct

from gangs import GPT
from runs import one

UNEVEN = [{"256": "259", "32": "36"}.get(word, word) for word in GPT]  # parameters that no number of ranks divides
RESNET = ["run", "resnet18", "--image", "32", "--classes", "7", "--warmup", "0", "--source", "null", "--images", "fresh"]
BATCH = 6


def train(work, ranks, *more, steps=3, **how):
    """Of each step six samples, whatever the ranks."""
    r = one(*work, "--batch", BATCH // ranks, "--steps", steps, *(["--ranks", ranks] if ranks > 1 else []), *more, **how)
    if ranks > 1 and not how.get("status"):
        is_whole = "off" in more
        assert r["communication"]["shard_update"] is not is_whole
        assert ("--shard-update is off" in r["communication"].get("whole_update_reason", "")) is is_whole
    return r


def losses(record):
    return record["step_series"]["loss"]


def header(path):
    data = path.read_bytes()
    rows = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    return rows, len(data)
