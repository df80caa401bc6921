# SPDX-License-Identifier: Apache-2.0
"""serve --steps-ahead 1: a step that is launched before the tokens of the one before are known computes the same answers."""
import json
import os
import pathlib

import pytest

from runs import one
from serving import SERVE

CPU = pathlib.Path(os.environ["JM_BUILD"]) / "backends/cpu.so"
DEVICES = ["ref"] + (["cpu"] if CPU.exists() else [])
SHORT = ["--input-tokens", "1:20", "--output-tokens", "1:9", "--running", "4", "--step-tokens", "16"]


def answers(path):
    return {line["request"]: line["tokens"] for line in map(json.loads, path.open())}


def served(tmp_path, ahead, *words):
    file = tmp_path / f"{ahead}.json"
    r = one(*SERVE, *words, "--steps-ahead", str(ahead), "--answers", file)
    assert r["status"] == "ok" and r["verified"] is True
    return r["serving"], answers(file)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("words", [
    ["--arrival", "closed"], ["--arrival", "all", "--requests", "12"], ["--arrival", "single"],
    ["--arrival", "closed", "--temperature", "0.8"]])
def test_answers_are_the_same(device, words, tmp_path):
    """With so few pages that requests give theirs up and are computed again."""
    words = [*words, "--device", device, "--steps", "100", *SHORT, "--cache-pages", "4"]
    now, ahead = served(tmp_path, 0, *words), served(tmp_path, 1, *words)
    both = set(now[1]) & set(ahead[1])
    assert len(both) > 20 or "single" in words
    assert len({tuple(now[1][r]) for r in both}) > 0.7 * len(both)  # of one token, some are equal
    assert [now[1][r] for r in sorted(both)] == [ahead[1][r] for r in sorted(both)]
    assert "single" in words or min(now[0]["preemptions"], ahead[0]["preemptions"]) > 0
    for serving in (now[0], ahead[0]):
        assert 0 <= serving["device_idle"] < 1 and 0 < serving["mean_running"] <= 4


def test_answers_alone_are_the_same(tmp_path):
    words = ["--device", "ref", "--steps", "40", "--arrival", "closed", "--running", "3", "--phase", "decode",
             "--input-tokens", "2:9", "--output-tokens", "1:5"]
    now, ahead = served(tmp_path, 0, *words)[1], served(tmp_path, 1, *words)[1]
    both = set(now) & set(ahead)
    assert len(both) > 20 and [now[r] for r in sorted(both)] == [ahead[r] for r in sorted(both)]


@pytest.mark.parametrize("ahead", ["0", "1"])
def test_each_phase_has_the_tokens_of_its_steps(ahead):
    """Each answer has one token, so that as many tokens as requests are made."""
    r = one(*SERVE, "--device", "ref", "--steps", "20", "--steps-ahead", ahead, "--phase", "prefill", "--arrival", "all",
            "--running", "4", "--requests", "12", "--input-tokens", "3")
    tokens = {phase["name"]: phase["items"] for phase in r["phases"]}
    assert r["verified"] is True and r["steps"] == 20 and r["warmup_steps"] == 1
    assert tokens["warmup"] + tokens["steady"] == r["serving"]["tokens_out"] and tokens["steady"] == r["items"]
    assert 0 < tokens["warmup"] <= 4
