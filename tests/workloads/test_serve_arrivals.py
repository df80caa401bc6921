# SPDX-License-Identifier: Apache-2.0
"""When requests of serve arrive, and the figures of them: each is computed anew from the lists of requests and tokens."""
import csv
import io
import json
import math

import numpy
import pytest

from jm import jm
from runs import one
from serving import SERVE

POISSON = ["--device", "ref", "--arrival", "poisson", "--input-tokens", "3", "--output-tokens", "1:4"]
ROUNDED = 2e-9  # s, of times in the list of requests


def mix(x):
    for factor in (0xbf58476d1ce4e5b9, 0x94d049bb133111eb):
        x = (x ^ x >> (30 if factor == 0xbf58476d1ce4e5b9 else 27)) * factor % 2**64
    return x ^ x >> 31


def rng(seed, counter):
    """SplitMix64's finaliser over seed and counter (engine/graph/rng.h)."""
    step = 0x9e3779b97f4a7c15
    return mix(mix((seed + step) % 2**64) ^ (counter + 1) * step % 2**64)


def served(tmp_path, *options):
    """Record, rows of --requests-csv as numbers, times of tokens by request."""
    lines, answers = tmp_path / "requests.csv", tmp_path / "answers.jsonl"
    r = one(*SERVE, *options, "--requests-csv", lines, "--answers", answers)
    rows = [{k: float(v) if v else math.nan for k, v in row.items()} for row in csv.DictReader(lines.open())]
    return r, rows, {a["request"]: a["token_s"] for a in map(json.loads, answers.read_text().splitlines())}


def window_phase(r):
    return next(p for p in r["phases"] if p["name"] == "window")


def poisson_gaps(r, rate, n):
    """Seconds from each of the first n requests to the one before, the first from the first step."""
    seed = r["case"]["seed"]
    return numpy.array([-math.log1p(-(rng(rng(seed, i), 2**64 - 1) >> 11) * 2**-53) / rate for i in range(n)])


def test_poisson_arrives_at_the_times_of_its_seed_and_rate(tmp_path):
    r, rows, _ = served(tmp_path, *POISSON, "--rate", "500", "--seconds", "1", "--running", "16")
    number = [int(row["request"]) for row in rows]
    gaps = poisson_gaps(r, 500, number[-1] + 1)
    times = numpy.cumsum(gaps)
    assert number == sorted(set(number)) and len(rows) > 15  # a busy machine answers few
    # requests begin in order: those that the end of the run caught before one that is done were all under way
    assert number[-1] + 1 - len(number) < 16
    assert [row["arrival_s"] for row in rows] == pytest.approx(list(times[number] - times[0]), abs=ROUNDED)
    # exponential: distance to the distribution below the bound that 1 of 1000 samples exceeds (Kolmogorov)
    x = numpy.sort(gaps)
    ideal = 1 - numpy.exp(-500 * x)
    assert numpy.abs(ideal - (numpy.arange(len(x)) + 0.5) / len(x)).max() < 1.95 / math.sqrt(len(x))


def test_a_file_gives_lengths_and_times_and_begins_again_after_its_end(tmp_path):
    given = [(3, 2, 0), (5, 1, 0.01), (2, 4, 0.01), (7, 3, 0.2)]
    table = tmp_path / "lengths.csv"
    table.write_text("input,output,arrival_s\n" + "".join(f"{i},{o},{t}\n" for i, o, t in given))
    _, rows, _ = served(tmp_path, "--device", "ref", "--arrival", "file", "--lengths", table, "--seconds", "1")
    assert len(rows) > 2 * len(given)
    for row in rows:  # without those that the end of the run caught
        n = int(row["request"])
        i, o, t = given[n % 4]
        assert (row["input_tokens"], row["output_tokens"]) == (i, o)
        assert row["arrival_s"] == pytest.approx(n // 4 * 0.2 + t, abs=ROUNDED)
        assert row["ttft_s"] > 0


def test_a_request_that_had_to_wait_is_timed_from_its_intended_arrival(tmp_path):
    table = tmp_path / "lengths.csv"
    table.write_text("input,output,arrival_s\n" + "4,8,0\n" * 20 + "4,8,1000\n")
    _, rows, tokens = served(tmp_path, "--device", "ref", "--arrival", "file", "--lengths", table, "--running", "1",
                             "--steps", "120")
    assert len(rows) >= 10 and {row["arrival_s"] for row in rows} == {0}
    ends = [row["latency_s"] for row in rows]
    for i in range(1, len(rows)):  # one after the other, all from 0
        assert rows[i]["ttft_s"] > ends[i - 1]
        assert tokens[i][0] == pytest.approx(rows[i]["ttft_s"], abs=ROUNDED)


def test_figures_of_tokens_equal_numpys(tmp_path):
    r, rows, tokens = served(tmp_path, "--device", "ref", "--steps", "60", "--input-tokens", "1:20", "--output-tokens",
                             "1:9", "--requests", "12", "--running", "4", "--step-tokens", "16", "--cache-pages", "5",
                             "--ttft", "20ms", "--tpot", "1s")
    s = r["serving"]
    covered = [row for row in rows if row["in_window"]]
    gaps = numpy.concatenate([numpy.diff(tokens[row["request"]]) for row in covered])
    assert s["span"] == "window" and 0 < len(covered) < len(rows)
    assert sum(len(t) for t in tokens.values()) == s["tokens_out"]
    assert s["itl"]["mean"] == pytest.approx(gaps.mean(), rel=1e-6)
    for percent in (50, 90, 99):
        assert s["itl"][f"p{percent}"] == pytest.approx(numpy.percentile(gaps, percent), rel=1e-6)
    good = sum(row["ttft_s"] <= 0.02 and not row["tpot_s"] > 1 for row in covered)
    assert s["goodput"] == pytest.approx(good / s["window"]["seconds"], rel=1e-6)
    assert 0 < s["requests_preempted"] <= s["preemptions"]
    assert 0 < s["mean_running"] <= 4 and 0 < s["cache_use"] <= 1 and 0 <= s["padding"] < 0.5


def test_one_request_alone_has_known_rows_and_pages():
    """Prompts of 5 tokens: rows 5, 1, 1, 1 in programs of 8, 1, 1, 1; one page of two."""
    s = one(*SERVE, "--device", "ref", "--steps", "19", "--arrival", "single", "--input-tokens", "5",
            "--output-tokens", "4", "--cache-pages", "2")["serving"]
    assert s["mean_running"] == pytest.approx(1) and s["cache_use"] == pytest.approx(0.5)
    assert s["padding"] == pytest.approx(3 / 11) and s["goodput"] is None and s["requests_preempted"] == 0


def test_one_request_alone_needs_no_step_of_many_rows():
    """Fewer rows than --running, of which only one is under way."""
    r = one(*SERVE, "--device", "ref", "--steps", "12", "--arrival", "single", "--input-tokens", "5", "--output-tokens", "3",
            "--step-tokens", "2")
    assert r["serving"]["mean_running"] == pytest.approx(1) and r["serving"]["requests_done"] >= 2 and r["verified"] is True


def test_window_of_closed_lies_between_the_running_th_first_token_and_the_last_but_running(tmp_path):
    r, rows, tokens = served(tmp_path, "--device", "ref", "--steps", "200", "--arrival", "closed", "--running", "3",
                             "--input-tokens", "2", "--output-tokens", "1:6")
    w = r["serving"]["window"]
    ends = sorted(row["arrival_s"] + row["latency_s"] for row in rows)
    end = w["begin_s"] + w["seconds"]
    offered = r["serving"]["requests_offered"]
    assert end == pytest.approx(ends[offered - 3 - 2], abs=ROUNDED)
    assert w["requests_done"] == sum(w["begin_s"] + ROUNDED < t <= end + ROUNDED for t in ends)
    begun = [row["arrival_s"] + row["ttft_s"] for row in rows]
    known = sum(row["input_tokens"] for row, t in zip(rows, begun) if w["begin_s"] + ROUNDED < t <= end + ROUNDED)
    assert known <= w["tokens_in"] <= known + 3 * 2  # those of answers that are not done are in no list
    phase = window_phase(r)
    assert phase["end_s"] - phase["start_s"] == pytest.approx(w["seconds"], abs=ROUNDED) and phase["items"] == w["tokens_out"]
    arrival = {row["request"]: row["arrival_s"] for row in rows}
    known = sum(w["begin_s"] + ROUNDED < arrival[i] + t <= end + ROUNDED for i, times in tokens.items() for t in times)
    assert known <= w["tokens_out"] <= known + 3 * 6  # those of answers that are not done are in no list


def test_window_of_timed_arrivals_lies_between_their_10th_and_90th_percentile(tmp_path):
    r, _, _ = served(tmp_path, *POISSON, "--rate", "400", "--seconds", "1")
    w, n = r["serving"]["window"], r["serving"]["requests_offered"]
    times = numpy.cumsum(poisson_gaps(r, 400, n))
    at = times - times[0]  # also of requests that are not done
    assert w["begin_s"] == pytest.approx(at[math.ceil(0.1 * (n - 1))], abs=ROUNDED)
    assert w["begin_s"] + w["seconds"] == pytest.approx(at[math.floor(0.9 * (n - 1))], abs=ROUNDED)


def test_the_window_of_single_is_that_of_arrivals_too(tmp_path):
    """18 answers, of which one is under way at a time: too few for the window of 16 that run at once."""
    r, rows, _ = served(tmp_path, "--device", "ref", "--steps", "72", "--arrival", "single", "--input-tokens", "2", "--output-tokens", "4")
    w, n = r["serving"]["window"], r["serving"]["requests_offered"]
    at = [row["arrival_s"] for row in rows]
    assert 18 <= len(rows) <= n <= len(rows) + 1
    assert w["begin_s"] == pytest.approx(at[math.ceil(0.1 * (n - 1))], abs=ROUNDED)
    assert w["begin_s"] + w["seconds"] == pytest.approx(at[math.floor(0.9 * (n - 1))], abs=ROUNDED)


@pytest.mark.parametrize("table, word", [
    ("", "no request"), ("input,output\n", "no request"), ("in,out\n1,2\n", "Line 1"), ("input,output\n40,40\n", "context"),
    ("input,output\n1\n", "Line 2 of 'lengths.csv' (--lengths) has 1 field; give input,output as in line 1."),
    ("input,output\n1,2,3\n", "Line 2 of 'lengths.csv' (--lengths) has 3 fields; give input,output as in line 1."),
    ("input,output\n1,2\n1,0\n", "Line 3 of 'lengths.csv' (--lengths) has '0' as output; give a whole number from 1 to 1000000."),
    ("input,output\nx,2\n", "Line 2 of 'lengths.csv' (--lengths) has 'x' as input;"), ("input,output\n1,2.5\n", "has '2.5' as output;"),
    ("input,output,arrival_s\n1,2,nan\n", "has 'nan' as arrival_s; give a time from 0 to 100000000 s."),
    ("input,output,arrival_s\n1,2,-1\n", "Line 2 of 'lengths.csv' (--lengths) has '-1' as arrival_s; give a time from 0"),
    ("input,output,arrival_s\r\n1,2,1e12\r\n", "has '1e12' as arrival_s;"),
    ("input,output,arrival_s\n1,2,3\n1,2,1\n", "Line 3 of 'lengths.csv' (--lengths) has '1' as arrival_s, which is before the 3 s of the")])
def test_a_bad_table_is_said(tmp_path, table, word):
    (tmp_path / "lengths.csv").write_text(table, newline="")
    r = jm(*SERVE, "--device", "ref", "--steps", "2", "--lengths", "lengths.csv", cwd=tmp_path)
    assert r.returncode != 0 and word in r.stderr, r.stderr


def test_a_table_of_a_spreadsheet_may_begin_with_its_mark_and_end_with_empty_lines(tmp_path):
    (tmp_path / "lengths.csv").write_text("input,output\r\n3,2\r\n\r\n5,1\r\n\r\n", encoding="utf-8-sig", newline="")
    _, rows, _ = served(tmp_path, "--device", "ref", "--steps", "9", "--arrival", "single", "--lengths", tmp_path / "lengths.csv")
    lengths = [(row["input_tokens"], row["output_tokens"]) for row in rows]
    assert len(rows) >= 4 and lengths == [(3, 2), (5, 1)] * (len(rows) // 2) + [(3, 2)] * (len(rows) % 2)


def test_a_folder_in_place_of_a_table_is_said(tmp_path):
    r = jm(*SERVE, "--device", "ref", "--steps", "2", "--lengths", tmp_path)
    assert r.returncode != 0 and "of --lengths cannot be read: Is a directory." in r.stderr, r.stderr


@pytest.mark.parametrize("options, word", [
    (["--arrival", "poisson"], "--rate"), (["--rate", "3"], "--arrival"), (["--arrival", "file"], "--lengths"),
    (["--lengths", "absent.csv"], "absent.csv"), (["--input-tokens", "4294967297"], "--input-tokens"),
    (["--output-tokens", "1:4294967298"], "--output-tokens")])
def test_arrivals_that_lack_something_are_said(options, word):
    r = jm(*SERVE, "--device", "ref", "--steps", "2", *options)
    assert r.returncode != 0 and word in r.stdout + r.stderr


@pytest.mark.parametrize("options, word", [
    (["--arrival", "closed", "--requests", "9"], "--requests"), (["--arrival", "single", "--trial-requests", "9"], "--trial-requests"),
    (["--arrival", "single", "--top-k", "9"], "--top-k"), (["--arrival", "single", "--top-p", "0.5"], "--top-p"),
    (["--lengths", "lengths.csv"], "--input-tokens"), (["--lengths", "lengths.csv"], "--output-tokens"),
    (["--arrival", "all", "--requests", "9"], ""), (["--arrival", "single", "--top-k", "9", "--temperature", "1"], "")])
def test_options_that_change_nothing_are_said(options, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lengths.csv").write_text("input,output\n3,2\n", encoding="utf-8")
    note = one(*SERVE, "--device", "ref", "--steps", "9", "--input-tokens", "3", "--output-tokens", "2", *options)["note"] or ""
    assert word in note and ("change" in note) == bool(word)


def test_latencies_and_goodput_are_columns_of_the_report(tmp_path):
    file = tmp_path / "r.json"
    jm(*SERVE, "--device", "ref", "--steps", "60", "--input-tokens", "1:20", "--output-tokens", "2:9", "--requests", "12", "--running", "4",
       "--step-tokens", "16", "--ttft", "1s", "--json", file)
    s = json.loads(file.read_text())["serving"]
    (row,) = csv.DictReader(io.StringIO(jm("report", "--format", "csv", file).stdout))
    for key, (part, figure) in {"ttft_p50_s": ("ttft", "p50"), "ttft_p99_s": ("ttft", "p99"), "tpot_p50_s": ("tpot", "p50"),
                                "tpot_p99_s": ("tpot", "p99"), "latency_p99_s": ("latency", "p99")}.items():
        assert float(row[f"{key}_mean"]) == pytest.approx(s[part][figure], rel=1e-6) and s[part][figure] > 0
    assert float(row["goodput_per_s_mean"]) == pytest.approx(s["goodput"], rel=1e-6) and s["goodput"] > 0
