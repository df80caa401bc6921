# SPDX-License-Identifier: Apache-2.0
"""serve --ranks: replicas that answer the requests of one queue. What all have done is compared with one rank's answers, and with figures
computed anew from the list of requests."""
import csv
import json
import os
import re
import signal
import subprocess
import time

import numpy
import pytest

from gangs import Running, devices, interrupted_record
from jm import BIN, BUILD, HANGS_S
from runs import FAILED, one
from serving import SERVE
from slurm import free_ports

LENGTHS = ["--input-tokens", "1:20", "--output-tokens", "1:9", "--running", "4", "--step-tokens", "16"]
DEVICES = ["ref", "cpu"]
ROUNDED = 2e-9  # s, of times in the list of requests


def served(tmp_path, *options, ranks=2, device="cpu", env=None):
    """Record, rows of --requests-csv by request, answers by request."""
    lines, answers = tmp_path / "requests.csv", tmp_path / "answers.jsonl"
    r = one(*SERVE, "--device", device, "--threads", "1", *options, "--ranks", ranks, "--requests-csv", lines, "--answers", answers, env=env)
    rows = {int(row["request"]): {k: float(v) if v else numpy.nan for k, v in row.items()} for row in csv.DictReader(lines.open())}
    return r, rows, {a["request"]: a for a in map(json.loads, answers.read_text().splitlines())}


def spans(rows):
    """Of requests: arrival, first token, end, in seconds from the first arrival."""
    return numpy.array([[row["arrival_s"], row["arrival_s"] + row["ttft_s"], row["arrival_s"] + row["latency_s"]]
                        for _, row in sorted(rows.items())])


def sums_are_those_of_the_ranks(r, rows, n):
    s = r["serving"]
    assert r["verified"] is True and [one["rank"] for one in s["ranks"]] == list(range(n))
    assert sum(one["requests_done"] for one in s["ranks"]) == s["requests_done"] == len(rows)
    assert sum(one["tokens_out"] for one in s["ranks"]) == s["tokens_out"] == sum(row["output_tokens"] for row in rows.values())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("more", [[], ["--temperature", "0.8", "--top-k", "20"], ["--steps-ahead", "1"]], ids=["greedy", "drawn", "ahead"])
def test_answers_do_not_depend_on_the_rank(tmp_path, device, more):
    options = ["--requests", "24", "--steps", "40", *LENGTHS, *more]
    _, _, alone = served(tmp_path, *options, ranks=1, device=device)
    for _ in range(6):
        r, rows, shared = served(tmp_path, *options, ranks=3, device=device)
        sums_are_those_of_the_ranks(r, rows, 3)
        if min(share["requests_done"] for share in r["serving"]["ranks"]) > 0:  # else a busy machine had let one rank wait
            break
    common = set(alone) & set(shared)
    assert set(range(24)) <= common
    for i in common:
        assert [shared[i][key] for key in ("prompt_tokens", "tokens")] == [alone[i][key] for key in ("prompt_tokens", "tokens")]
    assert min(share["requests_done"] for share in r["serving"]["ranks"]) > 0


def test_figures_are_those_of_all_requests(tmp_path):
    r, rows, answers = served(tmp_path, "--requests", "30", "--seconds", "1", *LENGTHS, "--cache-pages", "5", "--ttft", "20ms", "--tpot", "1s")
    sums_are_those_of_the_ranks(r, rows, 2)
    s, w = r["serving"], r["serving"]["window"]
    covered = [row for row in rows.values() if row["in_window"]]
    assert s["span"] == "window" and w["requests_done"] == len(covered) > 0
    for key in ("ttft", "tpot", "latency"):
        x = [row[f"{key}_s"] for row in covered if not numpy.isnan(row[f"{key}_s"])]
        for percent in (50, 90, 99):
            assert s[key][f"p{percent}"] == pytest.approx(numpy.percentile(x, percent), rel=1e-6, abs=ROUNDED)
        assert s[key]["mean"] == pytest.approx(numpy.mean(x), rel=1e-6, abs=ROUNDED)
    gaps = numpy.concatenate([numpy.diff(answers[int(row["request"])]["token_s"]) for row in covered])
    assert s["itl"]["p99"] == pytest.approx(numpy.percentile(gaps, 99), rel=1e-6)
    good = sum(row["ttft_s"] <= 0.02 and not row["tpot_s"] > 1 for row in covered)
    assert s["goodput"] == pytest.approx(good / w["seconds"], rel=1e-6)
    # the window begins when as many as both replicas run have begun, and ends when as many are not done
    first, ended = (sorted(column) for column in spans(rows).T[1:])
    assert w["begin_s"] >= first[7] - ROUNDED
    at = s["requests_offered"] - 8 - 2
    assert at >= len(ended) or w["begin_s"] + w["seconds"] == pytest.approx(ended[at], abs=ROUNDED)
    # tokens of both in the window; and of the steps, which began before it
    inside = sum(w["begin_s"] + ROUNDED < rows[i]["arrival_s"] + t <= w["begin_s"] + w["seconds"] + ROUNDED
                 for i, a in answers.items() for t in a["token_s"])
    assert inside <= w["tokens_out"] <= inside + 8 * 9  # those of answers that are not done are in no list
    assert w["tokens_out"] <= r["items"] <= s["tokens_out"] + 8 * 9
    assert 0 < s["mean_running"] <= 4 and 0 < s["cache_use"] <= 1


def test_each_replica_has_running_requests_of_closed_arrivals(tmp_path):
    r, rows, _ = served(tmp_path, "--arrival", "closed", "--running", "3", "--input-tokens", "2", "--output-tokens", "2:6", "--seconds", "0.5",
                        ranks=3)
    sums_are_those_of_the_ranks(r, rows, 3)
    span = spans(rows)
    assert r["serving"]["requests_offered"] - len(rows) <= 9  # under way at the end
    for t in span[:, 0]:
        assert ((span[:, 0] <= t) & (span[:, 2] > t + ROUNDED)).sum() <= 9
    assert {round(share["mean_running"], 3) for share in r["serving"]["ranks"]} == {3}


def test_one_at_a_time_is_one_of_all(tmp_path):
    r, rows, _ = served(tmp_path, "--arrival", "single", *LENGTHS, "--seconds", "0.5")
    sums_are_those_of_the_ranks(r, rows, 2)
    span = spans(rows)
    assert (span[1:, 0] >= span[:-1, 2] - ROUNDED).all()
    assert r["serving"]["mean_running"] == pytest.approx(1)


def test_two_replicas_are_a_queue_with_two_servers(tmp_path):
    """One place each, in the order of arrival: request i begins when all but one of those before it have ended."""
    table = tmp_path / "lengths.csv"
    table.write_text("input,output,arrival_s\n" + "4,8,0\n" * 30 + "4,8,1000\n")
    r, rows, _ = served(tmp_path, "--arrival", "file", "--lengths", table, "--running", "1", "--steps", "60")
    sums_are_those_of_the_ranks(r, rows, 2)
    assert len(rows) >= 7 and {row["arrival_s"] for row in rows.values()} == {0}
    assert r["serving"]["requests_offered"] == 30
    for i, row in rows.items():
        ends = sorted(rows[k]["latency_s"] for k in range(i) if k in rows)
        assert len(ends) >= i - 1 and (i < 2 or row["ttft_s"] > ends[i - 2])


def test_requests_that_wait_at_the_end_are_offered(tmp_path):
    table = tmp_path / "lengths.csv"
    table.write_text("input,output,arrival_s\n" + "4,32,0\n" * 5000 + "4,8,1000\n")
    r, rows, _ = served(tmp_path, "--arrival", "file", "--lengths", table, "--running", "2", "--steps", "20", "--ttft", "1ms", device="ref")
    assert r["serving"]["requests_offered"] == 5000 and len(rows) < 100
    assert max(rows, default=0) < len(rows) + 4  # in their order, but for those under way


def test_decode_has_the_prompts_of_each_replica(tmp_path):
    r, rows, answers = served(tmp_path, "--phase", "decode", "--arrival", "closed", "--running", "4", "--input-tokens", "3:20", "--output-tokens",
                              "2:7", "--seconds", "0.5")
    sums_are_those_of_the_ranks(r, rows, 2)
    s = r["serving"]
    assert 4 < len({tuple(a["prompt_tokens"]) for a in answers.values()}) <= 8 and s["padding"] == 0
    assert r["items"] <= s["tokens_out"] + 8 * 7 and s["window"]["tokens_in"] == 0


def test_devices_are_counted_and_share_the_work(tmp_path):
    r, rows, _ = served(tmp_path, "--arrival", "closed", *LENGTHS, "--seconds", "1", device="later:0,later:1", env=devices(2))
    sums_are_those_of_the_ranks(r, rows, 2)
    assert r["devices"] == 2 and r["throughput_per_device"] == pytest.approx(r["throughput"] / 2)
    assert [rank["uuid"] for rank in r["gang"]["ranks"]] == ["GPU-0", "GPU-1"]


def test_wrong_answers_of_one_rank_are_wrong(tmp_path):
    (tmp_path / "cpu.so").symlink_to(BUILD / "tests/peers/faulty.so")
    env = {"JM_BACKENDS": str(tmp_path), "JM_FAULTY_FROM": str(BUILD / "backends"), "JM_FAULTY": "7"}
    r = one(*SERVE, "--device", "ref,cpu", "--ranks", "2", *LENGTHS, "--arrival", "closed", "--seconds", "1", status=FAILED, env=env)
    assert r["verified"] is False and "are others when their requests are served alone" in r["verify_reason"]


def test_a_rank_that_does_not_come_is_named():
    env = {**devices(2), "JM_FAKE_LATER_HANGS": "open/1", "JM_GANG_SECONDS": "1"}
    r = one(*SERVE, "--device", "later:0,later:1", "--ranks", "2", *LENGTHS, "--seconds", "1", status=FAILED, env=env)
    assert "Rank 1 has not joined the other ranks within 1 s" in r["reason"], r["reason"]


def test_ctrl_c_keeps_the_result_of_all(tmp_path):
    r, _ = interrupted_record(tmp_path / "r.json", *LENGTHS, work=SERVE)
    assert r["interrupted"] is True and r["verified"] is True
    assert sum(share["requests_done"] for share in r["serving"]["ranks"]) == r["serving"]["requests_done"] > 0


def test_ranks_of_several_calls_have_no_queue_in_common():
    env = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "JM_GANG_SECRET": "0123456789abcdef"}
    calls = [subprocess.Popen([BIN, *SERVE, "--device", "ref", "--ranks", "2", "--seconds", "1", "--launcher", "started"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**env, "RANK": str(rank)}) for rank in range(2)]
    told = calls[0].communicate(timeout=HANGS_S)[0]
    calls[1].communicate(timeout=HANGS_S)
    assert calls[0].returncode == FAILED and "all must be ranks of one call on one host: use --launcher local" in " ".join(told.split()), told


@pytest.mark.parametrize("options, said", [
    (["--hold-power", "100"], "omit it or --ranks"),
])
def test_what_is_of_one_rank_is_refused(options, said):
    r = one(*SERVE, "--device", "ref", "--ranks", "2", "--seconds", "1", *options, status=FAILED)
    assert said in r["reason"], r["reason"]


@pytest.mark.parametrize("number, victim", [(signal.SIGKILL, 0), (signal.SIGKILL, 2), (signal.SIGSTOP, 1)])
def test_a_rank_that_is_killed_or_stopped_ends_all(number, victim):
    """Others do not wait for its steps, and end nevertheless."""
    gang = Running(3, *LENGTHS, work=SERVE)
    assert gang.is_at_work()
    time.sleep(0.5)
    os.kill(gang.ranks[victim], number)
    status, err, _ = gang.ended()
    said = "was killed by signal 9" if number == signal.SIGKILL else "was stopped (SIGSTOP) for 4 s"
    assert status == FAILED and re.search(rf"Rank {victim} of 3 \(process {gang.ranks[victim]}\).*{re.escape(said)}", err), err
    assert gang.nothing_is_left()
