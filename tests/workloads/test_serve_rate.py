# SPDX-License-Identifier: Apache-2.0
"""--rate max: the highest rate within bounds, compared with a queue of a known time per request that is computed here."""
import contextlib
import csv
import json
import math
import random
import re
import signal
import subprocess
import threading
import time

import numpy
import pytest

from completion_server import Server
from fake_gpus import wait_for
from jm import BIN, jm
from runs import one
from serving import SERVE

TIME, BOUND = 0.02, 0.15  # s for which a request has the server; of the time to the first token
ALONE = ["run", "serve-client", "--source", "null", "--warmup", "0", "--input-tokens", "3", "--output-tokens", "1", "--seconds", "1"]
MAX = ["--arrival", "poisson", "--rate", "max", "--trial-requests", "100"]


@contextlib.contextmanager
def server(tmp_path, **more):
    one_server = Server(0, tmp_path / "log", more.pop("ways", []), **more)
    threading.Thread(target=one_server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{one_server.server_address[1]}"
    finally:
        one_server.shutdown()
        one_server.server_close()


def p99_of_a_queue(rate, seed, n=20000):
    """Of the time from arrival to the end, where one request after the other takes TIME (Lindley's recursion)."""
    draw, wait, times = random.Random(seed), 0.0, []
    for _ in range(n):
        times.append(wait + TIME)
        wait = max(0.0, wait + TIME - draw.expovariate(rate))
    return numpy.percentile(times, 99)


def test_the_rate_is_that_at_which_a_queue_reaches_the_bound(tmp_path):
    with server(tmp_path, alone_s=TIME) as url:
        r = one(*ALONE, "--url", url, *MAX, "--ttft", f"{BOUND}s", timeout=600)
    found = r["serving"]["rate_search"]
    assert 0 < found["kept"] < found["broken"] <= 1.05 * found["kept"] and 3 <= found["trials"] <= 24
    assert found["kept"] < 1 / TIME  # no queue has an end beyond it
    # trials are short, and a busy machine takes time of its own, which lowers the rate
    assert p99_of_a_queue(found["kept"] / 1.5, 1) < BOUND
    assert p99_of_a_queue(found["broken"] * 4, 1) > BOUND
    assert f"{found['kept']:.4g} requests/s" in r["note"]


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_the_run_has_the_rate_that_was_found(tmp_path, ranks):
    path = tmp_path / "requests.csv"
    for bound in "50ms", "500ms", "5s":  # a busy machine keeps the first at no rate
        done = jm(*SERVE, "--device", "ref", "--ranks", ranks, "--seconds", "4", "--input-tokens", "8", "--output-tokens", "4", "--ttft", bound, *MAX,
                  "--requests-csv", path, "--json", "-", timeout=600)
        if "No rate keeps" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    r = json.loads(done.stdout)
    rate, times = r["serving"]["rate_search"]["kept"], [float(row["arrival_s"]) for row in csv.DictReader(path.open())]
    assert r["verified"] is True and len(times) > 15  # a slow machine has a low rate
    # the mean of n exponential times lies within 5 standard errors of 1 / rate
    mean = (times[-1] - times[0]) / (len(times) - 1)
    assert abs(mean * rate - 1) < 5 / math.sqrt(len(times) - 1)
    assert r["serving"]["requests_offered"] < 6 * rate + 20  # those of the trials do not count


# one request after the other on a simulated GPU: each has it for the same time
QUEUE = ["run", "serve", "--model", "llama3-8b", "--device", "sim:h100x1", "--precision", "bf16", "--running", 1, "--input-tokens", 1024,
         "--output-tokens", 1, "--step-tokens", 1024, "--warmup", "5s", "--seconds", 60, "--ttft", f"{BOUND}s", "--arrival", "poisson"]


def replaced(words, option, value):
    at = words.index(option) + 1
    return [*words[:at], value, *words[at + 1:]]


def times_of(path):
    """Times to the first token, of all and of those in the window, and the arrivals."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    ttft = numpy.array([float(row["ttft_s"]) for row in rows])
    return ttft, ttft[[row["in_window"] == "1" for row in rows]], numpy.array([float(row["arrival_s"]) for row in rows])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_rate_of_short_trials_is_lowered_until_the_whole_run_keeps_the_bounds(tmp_path, seed):
    path = tmp_path / "requests.csv"
    r = one(*QUEUE, "--rate", "max", "--trial-requests", 50, "--seed", seed, "--requests-csv", path)
    found, (ttft, of_window, arrivals) = r["serving"]["rate_search"], times_of(path)
    assert found["confirmed"] is True and r["serving"]["p99_in_bounds"] is True
    busy, wait, waits = ttft.min(), 0.0, []
    for gap in numpy.diff(arrivals, prepend=arrivals[0]):  # Lindley's recursion
        wait = max(0.0, wait + busy * bool(waits) - gap)
        waits.append(wait)
    assert numpy.allclose(waits + busy, ttft, atol=1e-6)
    assert numpy.percentile(of_window, 99) <= BOUND
    one(*QUEUE, "--rate", found["broken"], "--seed", seed, "--requests-csv", path)
    ttft, of_window, _ = times_of(path)
    assert max(numpy.percentile(ttft, 99), numpy.percentile(of_window, 99)) > BOUND and found["broken"] <= 1.0501 * found["kept"]


def test_a_run_whose_length_is_in_steps_confirms_nothing():
    steps = [*QUEUE[:QUEUE.index("--seconds")], "--steps", 20, *QUEUE[QUEUE.index("--seconds") + 2:]]
    assert one(*steps, "--rate", "max", "--trial-requests", 50)["serving"]["rate_search"]["confirmed"] is None


def test_ctrl_c_ends_the_wait_for_a_request_of_a_trial(tmp_path):
    """The third request never ends; failures after it end the trial."""
    programmed = Server(0, tmp_path / "log", ["well", "well", "stall", *["500"] * 1000])
    threading.Thread(target=programmed.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{programmed.server_address[1]}"
    words = ["run", "serve-client", "--source", "null", "--url", url, *MAX, "--tpot", "60s", "--silence", "1000s",
             "--input-tokens", "3", "--output-tokens", "2"]
    client = subprocess.Popen([BIN, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert wait_for(lambda: programmed.n >= 6 or client.poll() is not None)
        time.sleep(0.3)  # for the end of the trial; an earlier signal is to end the program as well
        client.send_signal(signal.SIGINT)
        said = client.communicate(timeout=240)[1]
    finally:
        client.kill()
        client.wait()
        programmed.shutdown()
        programmed.server_close()
    assert client.returncode == 130 and "has not ended" not in said, said


def test_a_trial_that_is_lost_has_each_request_of_each_rank_once():
    """Ranks leave such a trial one after the other, and those that are still in it must take no request that rank 0 does not count."""
    done = jm("run", "serve", "--model", "llama", "--layers", "2", "--hidden", "32", "--heads", "4", "--kv-heads", "2", "--context", "64", "--precision", "f32",
              "--threads", "1", "--ranks", "6", "--running", "4", "--step-tokens", "16", "--input-tokens", "1:20", "--output-tokens", "1:9", *MAX,
              "--ttft", "20ms", "--tpot", "3ms", "--warmup", "0", "--seconds", "0.1", "--json", "-", timeout=600)
    if "No rate" not in done.stderr:  # a busy machine keeps the bounds at none
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["verified"] is True


@pytest.mark.parametrize("more", [["--output-tokens", "4"], ["--phase", "prefill"]])
def test_without_a_bound_of_the_first_token_the_search_ends_where_requests_only_wait(more):
    r = one(*SERVE, "--device", "ref", *MAX, "--tpot", "100s", "--input-tokens", "30", "--running", "4", "--seconds", "0.3",
            *more, timeout=600)
    s = r["serving"]
    found, answered = s["rate_search"], s["window"]["requests_done"] / s["window"]["seconds"]
    assert found["broken"] is None and found["kept"] > answered and found["trials"] < 12
    assert "beyond what the server answers" in r["note"] and s["goodput"] == pytest.approx(answered)


def test_bounds_that_no_rate_keeps_are_said(tmp_path):
    with server(tmp_path, alone_s=TIME) as url:
        r = one(*ALONE, "--url", url, *MAX, "--ttft", "1ms", status=1)
    assert "No rate keeps --ttft" in r["reason"] and float(re.search(r"first token after ([0-9.]+) s", r["reason"])[1]) >= TIME


@pytest.mark.parametrize("bounds", [["--ttft"], ["--ttft", "--tpot"]])
def test_a_search_that_finds_no_rate_has_no_note_of_one(bounds):
    """The time of a request alone is within the bound, which leaves no time to wait."""
    alone = float(re.search(r"after ([0-9.]+) s", one(*replaced(QUEUE, "--ttft", "1ms"), "--rate", "max", status=1)["reason"])[1])
    more = ["--tpot", "1s"] if "--tpot" in bounds else []
    r = one(*replaced(QUEUE, "--ttft", f"{alone * 1.01}s"), *more, "--rate", "max", status=1)
    assert re.search(rf"No rate down to [0-9.]+ requests per second keeps {' and '.join(bounds)};", r["reason"]), r["reason"]
    assert "highest rate" not in (r["note"] or "")


@pytest.mark.parametrize("options, word", [
    (["--arrival", "poisson", "--rate", "max"], "--ttft"), (["--rate", "max", "--ttft", "1s"], "--arrival"),
    (["--arrival", "poisson", "--rate", "most", "--ttft", "1s"], "max")])
def test_what_the_search_needs_is_said(options, word):
    r = jm(*SERVE, "--device", "ref", "--steps", "2", *options)
    assert r.returncode != 0 and word in r.stdout + r.stderr
