# SPDX-License-Identifier: Apache-2.0
"""serve --phase: steps of prompts alone and of answers alone; the tokens are those of runs that compute both."""
import csv
import json

import pytest

from jm import jm
from runs import one
from serving import SERVE

CLOSED = ["--device", "ref", "--arrival", "closed", "--running", "4", "--input-tokens", "3:20", "--output-tokens", "2:7", "--steps", "60"]


def answered(tmp_path, *options):
    path = tmp_path / "answers.jsonl"
    r = one(*SERVE, *options, "--answers", path)
    return r, [json.loads(line) for line in path.read_text().splitlines()]


def test_decode_makes_the_tokens_of_the_same_prompts_again(tmp_path):
    _, both = answered(tmp_path, *CLOSED)
    r, decoded = answered(tmp_path, *CLOSED, "--phase", "decode")
    s = r["serving"]
    assert r["verified"] is True and len(decoded) > 20
    # four prompts, which are those of the first four requests, and of each the tokens that follow it
    truth = {tuple(a["prompt_tokens"]): a["tokens"] for a in both if a["request"] < 4}
    assert {tuple(a["prompt_tokens"]) for a in decoded} == set(truth) and len(truth) == 4
    for a in decoded:
        known = truth[tuple(a["prompt_tokens"])]
        n = min(len(known), len(a["tokens"]))
        assert n and a["tokens"][:n] == known[:n]
    # a step has one row of each of the four, whatever ends: no prompt is computed
    assert s["mean_running"] == pytest.approx(4) and s["padding"] == 0 and r["items"] == 4 * r["steps"]
    assert s["window"]["tokens_in"] == 0 and s["window"]["tokens_out"] > 0 and s["preemptions"] == 0


def test_prefill_makes_one_token_of_each_prompt(tmp_path):
    _, both = answered(tmp_path, *CLOSED)
    alone = [word for word in CLOSED if word not in ("--output-tokens", "2:7")]
    r, computed = answered(tmp_path, *alone, "--phase", "prefill")
    s = r["serving"]
    assert r["verified"] is True and len(computed) > 20
    truth = {a["request"]: (a["prompt_tokens"], a["tokens"][:1]) for a in both}
    common = [a for a in computed if a["request"] in truth]
    assert len(common) > 10
    for a in common:
        assert (a["prompt_tokens"], a["tokens"]) == truth[a["request"]]
    assert s["tpot"] is None and s["itl"] is None and s["tokens_out"] == s["requests_done"]
    w = s["window"]
    assert w["tokens_out"] == w["requests_done"] and w["tokens_in"] > 3 * w["requests_done"]


def test_a_file_of_lengths_says_how_long_the_prompts_are(tmp_path):
    table = tmp_path / "lengths.csv"
    table.write_text("input,output\n3,9\n7,2\n")
    _, computed = answered(tmp_path, "--device", "ref", "--arrival", "single", "--lengths", table, "--steps", "9", "--phase", "prefill")
    assert [(len(a["prompt_tokens"]), len(a["tokens"])) for a in computed][:4] == [(3, 1), (7, 1)] * 2


@pytest.mark.parametrize("options, word", [
    (["--phase", "decode"], "--arrival closed"), (["--phase", "prefill", "--output-tokens", "9"], "--output-tokens"),
    (["--phase", "decode", "--arrival", "closed", "--running", "8", "--input-tokens", "20", "--output-tokens", "9",
      "--cache-pages", "12"], "pages"),
    (["--phase", "prefill", "--listen", "127.0.0.1:0"], "--phase"), (["--phase", "all"], "decode")])
def test_what_does_not_go_with_a_phase_is_said(options, word):
    r = jm(*SERVE, "--device", "ref", "--steps", "2", *options)
    assert r.returncode != 0 and word in r.stdout + r.stderr


def split_of(tmp_path, *options):
    lines = tmp_path / "requests.csv"
    r = one(*[o if o != "null" else "estimate" for o in SERVE], "--device", "ref", "--requests-csv", lines, *options)
    return r, list(csv.DictReader(lines.open()))


def test_the_split_of_requests_that_are_alone_is_their_ttft_by_their_latency(tmp_path):
    """No step is mixed there, so that nothing is estimated but the power, which is one for all steps."""
    r, rows = split_of(tmp_path, "--arrival", "single", "--input-tokens", "40", "--output-tokens", "12", "--seconds", "1.5")
    split, w = r["serving"]["split"], r["serving"]["window"]
    assert split["origin"] == "estimated" and split["mixed"] == 0
    assert split["prefill"] == split["prefill_low"] == split["prefill_high"]
    inside = [row for row in rows if row["in_window"] == "1"]
    share = sum(float(row["ttft_s"]) for row in inside) / sum(float(row["latency_s"]) for row in inside)
    assert split["prefill"] == pytest.approx(share, abs=0.1) and 0.05 < split["prefill"] < 0.95
    joules = w["joules_per_output_token"] * w["tokens_out"]
    assert split["joules_prefill"] == pytest.approx(split["prefill"] * joules, rel=1e-9)
    assert split["joules_prefill"] + split["joules_decode"] == pytest.approx(joules, rel=1e-9) and split["joules_error"] == 0
    assert split["joules_per_input_token"] == pytest.approx(split["joules_prefill"] / w["tokens_in"], rel=1e-9)
    firsts = w["tokens_in"] / 40  # each prompt has 40 tokens, which count with its first one
    assert w["tokens_first"] == firsts > 0
    assert split["joules_per_output_token"] == pytest.approx(split["joules_decode"] / (w["tokens_out"] - firsts), rel=1e-9)


def test_the_split_of_mixed_steps_is_between_two_bounds(tmp_path):
    r, _ = split_of(tmp_path, "--arrival", "closed", "--running", "4", "--input-tokens", "1:40", "--output-tokens", "1:20", "--seconds", "1.5")
    s = r["serving"]["split"]
    assert 0 < s["mixed"] < 1 and 0 < s["prefill_low"] < s["prefill_high"] < 1
    assert s["prefill"] == pytest.approx((s["prefill_low"] + s["prefill_high"]) / 2, rel=1e-9)
    joules = s["joules_prefill"] + s["joules_decode"]
    assert s["joules_error"] == pytest.approx((s["prefill_high"] - s["prefill"]) * joules, rel=1e-6)


@pytest.mark.parametrize("options", [["--phase", "prefill"], ["--phase", "decode", "--output-tokens", "4"]])
def test_what_is_of_one_kind_or_always_mixed_has_no_split(tmp_path, options):
    r, _ = split_of(tmp_path, "--arrival", "closed", "--running", "2", "--input-tokens", "8", "--seconds", "0.5", *options)
    assert r["serving"]["split"] is None and r["serving"]["window"]["tokens_out"] > 0
