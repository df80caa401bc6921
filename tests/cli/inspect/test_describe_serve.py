# SPDX-License-Identifier: Apache-2.0
"""describe --serve: pages of keys and values that fill the memory, and how many requests they hold."""
import re

import pytest

from described import describe
from jm import USAGE, jm, sentence


@pytest.mark.parametrize("preset, parameters, of_token", [
    ("llama3-8b", 8_030_261_248, 2 * 32 * 8 * 128), ("llama3.1-8b", 8_030_261_248, 2 * 32 * 8 * 128),
    ("llama3.2-1b", 1_235_814_400, 2 * 16 * 8 * 64), ("llama3.2-3b", 3_212_749_824, 2 * 28 * 8 * 128),
    ("llama2-7b", 6_738_415_616, 2 * 32 * 32 * 128)])
@pytest.mark.parametrize("precision, size", [("bf16", 2), ("f32", 4)])
def test_serving_fills_the_memory_with_pages(preset, parameters, of_token, precision, size):
    """Keys and values of layers x shared heads x width, and no page more would fit."""
    d = describe(preset, "--serve", "--device", "ref", "--precision", precision, "--memory", 80, "--request-tokens", 1000)
    assert d["parameters"] == parameters
    assert size * parameters <= d["parameter_bytes"] <= 1.001 * size * parameters
    assert d["page_bytes"] == 16 * size * of_token
    assert d["cache_tokens"] == 16 * d["cache_pages"]
    assert d["requests"] == d["cache_pages"] // 63  # the last token of an answer is not kept
    assert d["peak_bytes"] >= d["parameter_bytes"] + d["arena_bytes"] + d["cache_pages"] * d["page_bytes"]
    assert 80e9 - d["page_bytes"] < d["peak_bytes"] <= 80e9


@pytest.mark.parametrize("precision, times", [("bf16", 2), ("f32", 4)])
def test_keys_and_values_of_8_bits_hold_more_requests(precision, times):
    given = ["llama3-8b", "--serve", "--device", "ref", "--precision", precision, "--memory", 80, "--request-tokens", 1000]
    whole, narrow = describe(*given), describe(*given, "--kv", "f8e4m3")
    assert (whole["cache_type"], narrow["cache_type"]) == (precision, "f8e4m3")
    assert whole["page_bytes"] == times * narrow["page_bytes"] and whole["parameter_bytes"] == narrow["parameter_bytes"]
    assert narrow["cache_pages"] == pytest.approx(times * whole["cache_pages"], abs=times)
    assert narrow["requests"] == narrow["cache_pages"] // 63


def test_serving_as_text_and_what_it_refuses():
    tiny = ["llama", "--layers", 1, "--hidden", 16, "--heads", 2, "--context", 64, "--device", "ref"]
    out = jm("describe", *tiny, "--serve", "--memory", 0.01).stdout
    assert re.search(r"^  requests of 64 tokens +\d+$", out, re.M) and re.search(r"^  pages of 16 tokens +[\d,]+$", out, re.M)
    assert describe(*tiny, "--serve")["memory_bytes"] > 1e8
    assert "needs" in sentence(jm("describe", *tiny, "--serve", "--memory", "1e-5"), USAGE)
    assert "context of 64" in sentence(jm("describe", *tiny, "--serve", "--request-tokens", 65), USAGE)
    assert "--step-tokens" in sentence(jm("describe", *tiny, "--serve", "--running", 300), USAGE)
    assert "cannot be served" in sentence(jm("describe", "gpt-117m", "--serve"), USAGE)
    for option in ("memory", "running", "step-tokens", "request-tokens"):
        assert f"--{option} has no effect without --serve" in sentence(jm("describe", *tiny, f"--{option}", 16), USAGE)
    assert "omit one" in sentence(jm("describe", *tiny, "--serve", "--graph"), USAGE)
