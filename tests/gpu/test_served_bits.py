# SPDX-License-Identifier: Apache-2.0
"""The same schedule of requests has the same answers in another process. Logits of random weights are nearly
equal and tokens are drawn, so that sums in another order soon give other tokens."""
import json
import os
import pathlib

import pytest

from runs import one

BUILD = pathlib.Path(os.environ["JM_BUILD"])
NET = ["--model", "llama", "--layers", "2", "--hidden", "256", "--heads", "8", "--kv-heads", "2", "--vocab", "512", "--context", "256"]
LOAD = ["--arrival", "closed", "--running", "8", "--input-tokens", "1:60", "--output-tokens", "1:30", "--step-tokens", "64"]


def needs(device):
    if device.startswith("cuda") and not (os.path.exists("/dev/nvidiactl") and (BUILD / "backends/cuda.so").exists()):
        pytest.skip("needs a GPU and backend cuda")
    if device == "cpu" and not (BUILD / "backends/cpu.so").exists():
        pytest.skip("needs backend cpu")


@pytest.mark.parametrize("device,precision,kv", [
    ("cpu", "bf16", "f8e4m3"), ("cuda:0", "f32", "auto"), ("cuda:0", "bf16", "auto"),
    ("cuda:0", "bf16", "f8e4m3"), ("cuda:0", "fp8", "f8e4m3")])
def test_the_same_schedule_repeats_its_answers(device, precision, kv, tmp_path):
    needs(device)
    steps = 300 if device.startswith("cuda") else 30
    words = ["run", "serve", "--source", "null", "--selftest", "0", *NET, *LOAD, "--device", device, "--precision", precision,
             "--kv", kv, "--temperature", "0.9", "--warmup", "1", "--steps", str(steps)]
    told = []
    for i in range(2):
        one(*words, "--answers", tmp_path / str(i))
        told.append([(line["request"], line["tokens"]) for line in map(json.loads, (tmp_path / str(i)).open())])
    assert sum(len(tokens) for _, tokens in told[0]) > 4 * steps
    assert len({token for _, tokens in told[0] for token in tokens}) > 100  # not one token again and again
    assert told[0] == told[1]
