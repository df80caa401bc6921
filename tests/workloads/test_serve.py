# SPDX-License-Identifier: Apache-2.0
"""Serving: requests are answered, counted and timed; a request's tokens do not depend on what runs beside it."""
import csv
import json
import os
import pathlib
import re

import numpy
import pytest

from jm import SOURCE, USAGE, jm, sentence
from reports import report
from runs import FAILED, one
from serving import SERVE

CPU = pathlib.Path(os.environ["JM_BUILD"]) / "backends/cpu.so"
DEVICES = ["ref"] + (["cpu"] if CPU.exists() else [])


def done_in_window(rows, window):
    """Rows of --requests-csv whose answer ended after the window began and not after it ended."""
    ends = [float(row["arrival_s"]) + float(row["latency_s"]) for row in rows]
    begin, end = window["begin_s"] + 2e-9, window["begin_s"] + window["seconds"] + 2e-9
    return [row for row, t in zip(rows, ends) if begin < t <= end]


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
    covered = done_in_window(rows, s["window"])
    assert s["span"] == "window" and 0 < len(covered) == s["window"]["requests_done"] < len(rows)
    assert covered == [row for row in rows if row["in_window"] == "1"]
    for key in ("ttft", "tpot", "latency"):
        values = numpy.array([float(row[f"{key}_s"]) for row in covered if row[f"{key}_s"]])
        assert s[key]["mean"] == pytest.approx(values.mean(), rel=1e-6)
        assert s[key]["max"] == pytest.approx(values.max(), rel=1e-6)
        for percent in (50, 90, 99):
            assert s[key][f"p{percent}"] == pytest.approx(numpy.percentile(values, percent), rel=1e-6)


def test_a_run_without_a_window_has_figures_of_all_requests(tmp_path):
    lines = tmp_path / "requests.csv"
    r = one(*SERVE, "--device", "ref", "--steps", "40", "--requests", "4", "--output-tokens", "5", "--input-tokens", "4",
            "--running", "100", "--requests-csv", lines)
    rows = list(csv.DictReader(lines.open()))
    s = r["serving"]
    assert s["window"] is None and s["span"] == "all" and {row["in_window"] for row in rows} == {"0"}
    assert s["latency"]["mean"] == pytest.approx(numpy.mean([float(row["latency_s"]) for row in rows]), rel=1e-6)


def test_the_first_records_of_serve_are_still_reported(tmp_path):
    """They had neither a window nor what is told of it."""
    r = one(*SERVE, "--device", "ref", "--steps", "12", "--input-tokens", "3", "--output-tokens", "4", "--requests", "8")
    for key in ("requests_preempted", "span", "itl", "goodput", "mean_running", "padding", "cache_use", "window"):
        del r["serving"][key]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(r))
    done = jm("report", path)
    assert done.returncode == 0 and "figures are of all requests" in " ".join(done.stdout.split())


def test_each_run_of_a_sweep_writes_a_list_of_its_own(tmp_path):
    lines = tmp_path / "requests.csv"
    done = one(*SERVE, "--device", "ref", "--steps", "20", "--arrival", "closed", "--running", "2,3", "--repeat", "2",
               "--input-tokens", "2", "--output-tokens", "3", "--requests-csv", lines)
    names = {f"requests.{r['case']['id'][:8]}-{r['case']['repeat']}.csv": r for r in done}
    assert {f.name for f in tmp_path.glob("*.csv")} == set(names) and len(names) == 4
    for name, r in names.items():
        rows = list(csv.DictReader((tmp_path / name).open()))
        assert len(rows) == r["serving"]["requests_done"] > 0


def test_the_report_shows_latencies_goodput_and_joules(tmp_path):
    served = ["--device", "ref", "--seconds", "3", "--arrival", "closed", "--running", "2,3", "--input-tokens", "3",
              "--output-tokens", "2:5", "--ttft", "1s"]
    done = one(*(x for x in SERVE if x not in ("--source", "null")), "--source", "estimate", *served)
    path = tmp_path / "records.json"
    path.write_text(json.dumps(done))
    lines = {line.split("|")[1].strip() + " " + line.split("|")[2].strip(): line.split("|")
             for line in report(path, "--format", "md").splitlines() if line.count("|") > 4}
    for r in done:
        running, s = r["case"]["parameters"]["options"]["running"], r["serving"]
        for key, name in (("ttft", "first token (TTFT)"), ("tpot", "each token after it (TPOT)"),
                          ("itl", "between two tokens"), ("latency", "whole answer")):
            shown = [float(x) for x in lines[f"{running} {name}"][3:6]]
            assert shown == pytest.approx([1e3 * s[key][k] for k in ("mean", "p50", "p99")], rel=2e-3)
        w = s["window"]
        phase = next(p for p in r["phases"] if p["name"] == "window")
        joules = phase["total"]["joules_estimated"]
        each = [joules / n for n in (w["tokens_out"], w["tokens_in"] + w["tokens_out"], w["requests_done"])]
        assert [w[f"joules_per_{k}"] for k in ("output_token", "token", "request")] == pytest.approx(each, rel=1e-9)
        shown = [float(x) for x in lines[f"{running} {w['requests_done']}"][3:7]]
        assert shown == pytest.approx([s["goodput"], *each], rel=2e-3)


@pytest.mark.parametrize("bounds, word", [
    (["--ttft", "1us", "--tpot", "1000s"], "no"), (["--ttft", "1000s", "--tpot", "1us"], "no"), ([], "-"),
    (["--ttft", "1000s", "--tpot", "1000s"], "yes"), (["--ttft", "1000s"], "yes")])
def test_the_report_says_whether_the_bounds_are_kept(tmp_path, bounds, word):
    path = tmp_path / "record.json"
    path.write_text(json.dumps(one(*SERVE, "--device", "ref", "--steps", "60", "--arrival", "single", "--input-tokens", "3",
                                   "--output-tokens", "3", *bounds)))
    rows = report(path, "--format", "md").splitlines()
    at = next(i for i, row in enumerate(rows) if "p99 in bounds" in row)
    assert rows[at + 2].split("|")[-2].strip() == word


@pytest.mark.parametrize("kib, holds_all", [(76000, False), (1000000, True)])
def test_without_cache_pages_the_memory_is_filled_as_describe_plans(tmp_path, kib, holds_all):
    """16 requests of 4,004 tokens would need 4,016 pages. The long one comes too late to be computed."""
    (tmp_path / "lengths").write_text("input,output\n" + "4,4\n" * 40 + "4000,4\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemAvailable: {kib} kB\n")
    net = ["llama", "--layers", "2", "--hidden", "32", "--heads", "4", "--kv-heads", "2", "--context", "4096"]
    r = one("run", "serve", "--source", "null", "--warmup", "1", "--selftest", "0", "--precision", "f32", "--model", *net, "--device",
            "ref", "--steps", "20", "--arrival", "single", "--lengths", tmp_path / "lengths", env={"JM_ROOT": str(tmp_path)})
    pages = int(re.search(r"(\d+) pages", r["detail"])[1])
    budget = kib * 1024 * 0.95 - 64e6  # the reserve of a run on this machine's memory
    planned = json.loads(jm("describe", *net, "--serve", "--device", "ref", "--precision", "f32", "--request-tokens", "4004",
                            "--memory", budget / 1e9, "--json", "-").stdout)
    assert r["status"] == "ok" and (pages == 4016) == holds_all
    assert holds_all or abs(pages - planned["cache_pages"]) <= 1


def byte_of():
    """GPT-2's table of bytes: the printable ones stand for themselves, the n-th of the others is U+0100 + n."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + n): byte for n, byte in enumerate(others)}}


def test_the_text_of_an_answer_omits_only_tokens_that_the_tokenizer_does_not_know(tmp_path):
    tokenizer, text, answers = SOURCE / "tests/data/tokenizers/llama3.json", tmp_path / "text", tmp_path / "answers.jsonl"
    text.write_text("the readings\n")
    one(*SERVE, "--device", "ref", "--steps", "30", "--vocab", "1100", "--text", text, "--tokenizer", tokenizer, "--temperature", "50",
        "--output-tokens", "12", "--requests", "6", "--answers", answers)
    table, known = byte_of(), {number: word for word, number in json.loads(tokenizer.read_text())["model"]["vocab"].items()}
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    assert any(max(line["tokens"]) > 701 for line in lines) and any(min(line["tokens"]) < 700 for line in lines)
    for line in lines:
        words = "".join(known.get(token, "") for token in line["tokens"])
        assert line["text"] == bytes(table[letter] for letter in words).decode(errors="replace") and line["prompt"] == "the readings"


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
    (["--cache-pages", "1", "--input-tokens", "20"], "pages"),
    (["--cache-pages", "2", "--input-tokens", "1:32"], "need 4 pages")])
def test_what_cannot_be_served_is_said(options, word):
    r = jm(*SERVE, "--device", "ref", "--steps", "2", "--output-tokens", "4", "--input-tokens", "4", *options) \
        if "--input-tokens" not in options else jm(*SERVE, "--device", "ref", "--steps", "2", *options)
    assert r.returncode != 0 and word in r.stdout + r.stderr


@pytest.mark.parametrize("one_option, other, served", [
    ("--answers", "--requests-csv", False), ("--requests-csv", "--lengths", False), ("--answers", "--lengths", False),
    ("--answers", "--requests-csv", True)])
def test_a_file_of_two_options_is_refused_and_kept(one_option, other, served, tmp_path):
    """Devices may be named twice."""
    table = tmp_path / "table.csv"
    table.write_text("input,output\n3,2\n", encoding="utf-8")
    names = ["/dev/null"] * 2 if served else [table, tmp_path / "." / "table.csv"]
    r = jm(*SERVE, "--device", "ref", "--steps", "8", "--input-tokens" if other != "--lengths" else "--running", "4",
           one_option, names[0], other, names[1])
    assert (r.returncode == 0) == served and (f"{one_option} and {other} name one file" in r.stderr) != served, r.stderr
    assert table.read_text(encoding="utf-8") == "input,output\n3,2\n"


@pytest.mark.parametrize("option", ["--requests-csv", "--answers"])
def test_a_list_on_standard_output_comes_or_is_refused(option):
    """Where a record, or several cases, have that output, the list would be lost."""
    words = (*SERVE, "--device", "ref", "--steps", "12", "--input-tokens", "4", "--output-tokens", "2", option, "-")
    alone = jm(*words)
    assert alone.returncode == 0 and ("request,input_tokens" in alone.stdout or '"prompt_tokens"' in alone.stdout), alone.stderr
    for more in (("--json", "-"), ("--repeat", 2)):
        r = jm(*words, *more)
        assert r.returncode == 1 and "has no standard output of its own; name a file" in " ".join(r.stdout.split()), r.stdout
    aside = jm(*words[:-1], "/dev/stderr", "--json", "-")
    assert aside.returncode == 0 and ("request,input_tokens" in aside.stderr or '"prompt_tokens"' in aside.stderr), aside.stdout
    assert jm(*words[:-1], "/dev/null", "--json", "-").returncode == 0


@pytest.mark.skipif(not CPU.exists(), reason="backend cpu is absent")
@pytest.mark.parametrize("kv, verified", [("auto", False), ("f8e4m3", None)])
def test_so_few_wrong_tokens_are_not_judged_with_a_cache_of_8_bits(kv, verified, tmp_path):
    """8 of 8: with keys of 8 bits rounding may do that."""
    (tmp_path / "cpu.so").symlink_to(CPU.parent.parent / "tests/peers/faulty.so")
    env = {"JM_BACKENDS": str(tmp_path), "JM_FAULTY_FROM": str(CPU.parent), "JM_FAULTY": "2",
           # LeakSanitizer ends with a signal where a plug-in has opened another one
           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    serve = [{"f32": "bf16"}.get(word, word) for word in SERVE]
    r = one(*serve, "--kv", kv, "--device", "cpu", "--steps", "40", "--arrival", "closed", "--running", "4", "--input-tokens", "20",
            "--output-tokens", "1", "--step-tokens", "16", env=env, status=FAILED if verified is False else 0)
    assert r["verified"] is verified and re.match("[78] of 8 tokens", r["verify_reason"])


def test_a_model_without_a_step_is_refused():
    r = jm("run", "serve", "--source", "null", "--steps", "2", "--device", "ref", "--precision", "f32", "--model",
           "gpt-117m")
    assert "cannot be served" in sentence(r, USAGE)


@pytest.mark.parametrize("words, said", [(("--rate", "5"), "--arrival"), (("--listen", "8000"), "127.0.0.1:8000")])
def test_wrong_use_is_found_before_the_first_case(words, said):
    assert said in sentence(jm("run", "serve", "--source", "null", "--device", "ref", "--model", "llama3-8b", *words), USAGE)
