# SPDX-License-Identifier: Apache-2.0
"""Serving: requests are answered, counted and timed; a request's tokens do not depend on what runs beside it."""
import csv
import os
import pathlib

import numpy
import pytest

from jm import jm, sentence
from runs import one
from serving import SERVE

CPU = pathlib.Path(os.environ["JM_BUILD"]) / "backends/cpu.so"
DEVICES = ["ref"] + (["cpu"] if CPU.exists() else [])


@pytest.mark.parametrize("device", DEVICES)
def test_percentiles_equal_numpys_and_verify_repeats_requests_alone(device, tmp_path):
    lines = tmp_path / "requests.csv"
    r = one(*SERVE, "--device", device, "--steps", "60", "--input-tokens", "1:20", "--output-tokens", "1:9",
            "--requests", "12", "--running", "4", "--step-tokens", "16", "--cache-pages", "5", "--requests-csv", lines)
    assert r["status"] == "ok" and r["verified"] is True and r["unit"] == "token"
    rows = list(csv.DictReader(lines.open()))
    s = r["serving"]
    assert len(rows) == s["requests_done"] > 12 and s["requests_failed"] == 0 and s["preemptions"] > 0
    assert s["tokens_in"] == sum(int(row["input_tokens"]) for row in rows)
    assert s["tokens_out"] == sum(int(row["output_tokens"]) for row in rows)
    assert {int(row["output_tokens"]) for row in rows} <= set(range(1, 10))
    for key in ("ttft", "tpot", "latency"):
        values = numpy.array([float(row[f"{key}_s"]) for row in rows if row[f"{key}_s"]])
        assert s[key]["mean"] == pytest.approx(values.mean(), rel=1e-6)
        assert s[key]["max"] == pytest.approx(values.max(), rel=1e-6)
        for percent in (50, 90, 99):
            assert s[key][f"p{percent}"] == pytest.approx(numpy.percentile(values, percent), rel=1e-6)


def test_one_request_at_a_time_makes_one_token_in_each_step():
    r = one(*SERVE, "--device", "ref", "--steps", "20", "--arrival", "single", "--input-tokens", "5",
            "--output-tokens", "4")
    assert r["items"] == r["steps"] == 20
    assert r["serving"]["preemptions"] == 0


def test_closed_keeps_as_many_under_way_as_are_asked_for():
    r = one(*SERVE, "--device", "ref", "--steps", "12", "--arrival", "closed", "--running", "3", "--input-tokens", "2",
            "--output-tokens", "4")
    assert r["items"] == 3 * r["steps"]


@pytest.mark.parametrize("options, word", [
    (["--input-tokens", "9:3"], "--input-tokens"), (["--output-tokens", "x"], "--output-tokens"),
    (["--input-tokens", "60", "--output-tokens", "9"], "context"),
    (["--step-tokens", "3", "--running", "4"], "--step-tokens"),
    (["--cache-pages", "1", "--input-tokens", "20"], "pages")])
def test_what_cannot_be_served_is_said(options, word):
    r = jm(*SERVE, "--device", "ref", "--steps", "2", "--output-tokens", "4", "--input-tokens", "4", *options) \
        if "--input-tokens" not in options else jm(*SERVE, "--device", "ref", "--steps", "2", *options)
    assert r.returncode != 0 and word in r.stdout + r.stderr


def test_a_model_without_a_step_is_refused():
    r = jm("run", "serve", "--source", "null", "--steps", "2", "--device", "ref", "--precision", "f32", "--model",
           "gpt-117m")
    assert r.returncode != 0 and "cannot be served" in r.stdout + r.stderr
