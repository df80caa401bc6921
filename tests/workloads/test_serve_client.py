# SPDX-License-Identifier: Apache-2.0
"""serve-client against a server whose answers are programmed; the truth is the server's own log."""
import collections
import contextlib
import csv
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from completion_server import Handler, Server
from fake_gpus import wait_for
from jm import BIN, catches, jm
from runs import one
from serving import SERVE

PEER = pathlib.Path(__file__).parent.parent / "peers/completion_server.py"
CLIENT = ["run", "serve-client", "--source", "null", "--warmup", "0", "--input-tokens", "3:9", "--output-tokens", "2:5"]
FAILURES = {"500": "status_5xx", "429": "status_4xx", "302": "status_other", "reset": "broken", "cut": "broken",
            "stall": "stalled", "error": "malformed", "error_text": "malformed", "error_object": "malformed", "garbage": "malformed", "empty": "malformed", "huge": "malformed",
            "half": "malformed", "negative": "malformed", "text": "malformed"}


@contextlib.contextmanager
def server(tmp_path, *ways, **more):
    log = tmp_path / "log"
    one_server = Server(0, log, list(ways), **more)
    threading.Thread(target=one_server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{one_server.server_address[1]}", log
    finally:
        one_server.shutdown()
        one_server.server_close()


def log_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def measured(tmp_path, url, *options):
    lines = tmp_path / "requests.csv"
    r = one(*CLIENT, "--url", url, "--requests-csv", lines, *options)
    return r, list(csv.DictReader(lines.open()))


def test_counts_and_times_follow_the_servers_log(tmp_path):
    with server(tmp_path) as (url, log):
        r, rows = measured(tmp_path, url, "--arrival", "single", "--seconds", "2")
    s, truth = r["serving"], log_of(log)
    assert r["status"] == "ok" and r["verified"] is None and s["server"]["model"] == "programmed"
    assert s["requests_failed"] == 0 and s["requests_done"] == len(rows) >= 5 and not r["note"]
    for row, t in zip(rows, truth):  # one at a time: in the order of the log
        assert int(row["input_tokens"]) == len(t["asked"]["prompt"])
        assert int(row["output_tokens"]) == t["asked"]["max_tokens"] == len(t["times"])
        # what the server saw lies within what the client saw
        assert float(row["ttft_s"]) > t["times"][0] - t["taken"]
        assert float(row["latency_s"]) > t["times"][-1] - t["taken"]
        assert float(row["tpot_s"]) > 0
    assert s["tokens_out"] == sum(int(row["output_tokens"]) for row in rows)
    assert s["tokens_in"] == sum(int(row["input_tokens"]) for row in rows)
    tokens = [token for t in truth for token in t["asked"]["prompt"]]
    assert min(tokens) >= 0 and 1000 < max(tokens) < 32000 and len(set(tokens)) > 0.9 * len(tokens)
    assert s["server"]["late"]["max"] < 60 and s["server"]["tokens_merged"] == 0


def test_the_requests_are_those_of_serve(tmp_path):
    served = tmp_path / "served.csv"
    one(*SERVE, "--device", "ref", "--steps", "40", "--arrival", "single", "--input-tokens", "3:9", "--output-tokens", "2:5",
        "--requests-csv", served)
    with server(tmp_path) as (url, _):
        _, rows = measured(tmp_path, url, "--arrival", "single", "--seconds", "1")
    truth = [(row["input_tokens"], row["output_tokens"]) for row in csv.DictReader(served.open())]
    both = min(len(truth), len(rows))
    assert both >= 5 and truth[:both] == [(row["input_tokens"], row["output_tokens"]) for row in rows[:both]]


def test_bad_answers_are_counted_and_said(tmp_path):
    ways = ["well", "500", "reset", "merge", "429", "stall", "tail", "cut", "no_usage", "error", "302", "no_done", "garbage",
            "huge", "half", "negative", "text", "empty", "error_text", "error_object", "well"]
    with server(tmp_path, *ways) as (url, log):
        r, rows = measured(tmp_path, url, "--arrival", "single", "--seconds", "5", "--silence", "500ms")
    s = r["serving"]
    truth = collections.Counter(FAILURES[way] for way in ways if way in FAILURES)
    assert {k: v for k, v in s["failures"].items() if v} == truth
    assert s["requests_failed"] == sum(truth.values()) and s["requests_done"] == len(rows)
    good = [i for i, way in enumerate(ways) if way not in FAILURES]
    assert [int(row["request"]) for row in rows[:len(good)]] == good
    assert all(float(row["ttft_s"]) > 0 and float(row["latency_s"]) > 0 for row in rows)
    asked = {t["way"]: t["asked"]["max_tokens"] for t in log_of(log) if t["way"] in ("merge", "tail", "no_usage", "no_done")}
    tokens = {ways[int(row["request"])]: int(row["output_tokens"]) for row in rows[:len(good)]}
    assert {way: tokens[way] for way in asked} == asked and len(asked) == 4
    assert s["server"]["no_usage"] == 1 and s["server"]["no_done"] == 1
    assert s["server"]["tokens_merged"] == asked["merge"] - (asked["merge"] + 1) // 2
    for words in ("1 with status 5xx", "2 with a broken connection", "1 with a server that was silent or took too long", "no usage", "[DONE]"):
        assert words in r["note"]


def test_what_is_unusual_in_an_answer_changes_no_figure(tmp_path):
    """The character 0 as a token, characters of four bytes, a byte order mark before the events, events behind [DONE]."""
    ways = ["zero", "beyond", "mark", "behind"] * 5
    with server(tmp_path, *ways) as (url, log):
        r, rows = measured(tmp_path, url, "--arrival", "single", "--seconds", "2")
    s, truth = r["serving"], log_of(log)
    assert s["requests_failed"] == 0 and len(rows) >= len(ways) and not r["note"]
    assert [int(row["output_tokens"]) for row in rows] == [t["asked"]["max_tokens"] for t in truth[:len(rows)]]
    assert s["server"]["tokens_merged"] == s["server"]["other_length"] == 0


def test_events_that_are_no_tokens_are_counted_and_said(tmp_path):
    """The server begins such an answer with an empty event before its first token."""
    ways = ["well", "begins", "begins", "well"]
    with server(tmp_path, *ways) as (url, log):
        r, rows = measured(tmp_path, url, "--arrival", "single", "--seconds", "2")
    s, truth = r["serving"], log_of(log)
    assert s["requests_failed"] == 0 and len(rows) > len(ways) and s["server"]["more_events"] == 2
    assert [int(row["output_tokens"]) for row in rows] == [t["asked"]["max_tokens"] for t in truth[:len(rows)]]
    assert r["note"] == "2 answers have more events than tokens: their first event may be no token, and then their TTFT is too early."


def test_a_server_that_does_not_stream_is_said(tmp_path):
    with server(tmp_path, *["garbage"] * 1000) as (url, _):
        done = jm(*CLIENT, "--url", url, "--arrival", "single", "--seconds", "1")
    assert done.returncode == 1 and "no stream of events" in " ".join(done.stdout.split())


def test_a_request_whose_connection_closes_is_not_sent_again(tmp_path):
    ways = ["well", "close", "well", "close"]
    with server(tmp_path, *ways) as (url, log):
        r, rows = measured(tmp_path, url, "--arrival", "single", "--seconds", "2")
    s = r["serving"]
    assert s["failures"]["broken"] == 2 and "2 with a broken connection" in r["note"]
    assert [int(row["request"]) for row in rows[:3]] == [0, 2, 4]
    assert len(log_of(log)) - s["requests_offered"] in (0, -1)  # the end cuts one


def test_a_connection_that_closed_while_it_was_idle_fails_no_request(tmp_path, monkeypatch):
    monkeypatch.setattr(Handler, "timeout", 0.02)
    with server(tmp_path) as (url, log):
        r, rows = measured(tmp_path, url, "--arrival", "poisson", "--rate", "8", "--seconds", "2")
    assert r["serving"]["requests_failed"] == 0 and 5 < len(rows) <= len(log_of(log))


def test_an_answer_that_never_ends_fails_after_the_time_that_is_given(tmp_path):
    """Bytes of it come all the time, so that its server is not silent."""
    with server(tmp_path, "well", "drip", "well") as (url, _):
        r, rows = measured(tmp_path, url, "--arrival", "single", "--seconds", "10", "--silence", "60s", "--answer-time", "4s")
    s = r["serving"]
    assert {k: v for k, v in s["failures"].items() if v} == {"stalled": 1} and s["requests_failed"] == 1
    assert [int(row["request"]) for row in rows[:2]] == [0, 2] and "1 with a server that was silent or took too long" in r["note"]


@pytest.mark.parametrize("way", ["twice", "twice_uncounted"])
def test_tokens_beyond_those_asked_for_count_once(tmp_path, way):
    with server(tmp_path, *[way] * 1000) as (url, log):
        r, rows = measured(tmp_path, url, "--arrival", "single", "--seconds", "1")
    s, truth = r["serving"], log_of(log)[:len(rows)]
    assert [int(row["output_tokens"]) for row in rows] == [2 * t["asked"]["max_tokens"] for t in truth] and len(rows) > 5
    assert s["server"]["other_length"] == len(rows) and s["server"]["tokens_merged"] == 0
    assert abs(r["items"] - sum(len(t["times"]) for t in truth)) <= 10  # the end cuts one answer
    last = max(rows, key=lambda row: int(row["output_tokens"]))  # its last token is the last one that was written
    t = truth[rows.index(last)]
    assert float(last["latency_s"]) > t["times"][-1] - t["taken"]


def test_a_server_that_fails_all_fails_the_run(tmp_path):
    with server(tmp_path, *["503"] * 1000) as (url, _):
        r = one(*CLIENT, "--url", url, "--seconds", "60", "--arrival", "closed", status=1)
    assert int(re.search(r"(\d+) requests failed one after the other", r["reason"])[1]) >= 100
    assert "status 503" in r["reason"]
    assert "\x1b" not in r["reason"]


def test_a_run_that_fails_keeps_what_was_done(tmp_path):
    lines, record = tmp_path / "requests.csv", tmp_path / "record.json"
    with server(tmp_path, *["well"] * 7, *["503"] * 1000) as (url, _):
        done = jm(*CLIENT, "--url", url, "--arrival", "closed", "--running", "2", "--seconds", "60", "--json", record,
                  "--requests-csv", lines)
    r = json.loads(record.read_text())
    s, reason = r["serving"], " ".join(r["reason"].split())
    assert done.returncode == 1 and r["status"] == "failed" and "requests failed one after the other" in reason
    assert s["requests_done"] == 7 == len(list(csv.DictReader(lines.open()))) and s["failures"]["status_5xx"] >= 100
    assert "with status 5xx" in r["note"] and s["latency"]["max"] > 0


def test_a_key_goes_to_loopback_alone(tmp_path):
    key = tmp_path / "key"
    key.write_text("secret\n")
    with server(tmp_path, key="secret") as (url, _):
        r = one(*CLIENT, "--url", url, "--key-file", key, "--arrival", "single", "--seconds", "0.2")
        assert r["status"] == "ok" and "secret" not in json.dumps(r)
        r = jm(*CLIENT, "--url", url, "--seconds", "0.2")
        assert r.returncode != 0 and "401" in r.stdout + r.stderr and "--key-file" in r.stdout + r.stderr
    for host in ("192.0.2.1:80", "localhost.example:80", "127.0.0.1.example", "127.0.0.1@192.0.2.1"):
        r = jm(*CLIENT, "--url", f"http://{host}", "--key-file", key)
        assert r.returncode != 0 and ("plain HTTP" in r.stdout + r.stderr or "user" in r.stdout + r.stderr)


@pytest.mark.parametrize("text, said", [("", "it is empty"), ("\nsecret", "is empty"), ("k" * 4095, "4,094 bytes")])
def test_a_key_that_is_none_is_not_sent(tmp_path, text, said):
    (tmp_path / "key").write_text(text)
    r = jm(*CLIENT, "--url", "http://127.0.0.1:1", "--key-file", tmp_path / "key", "--seconds", "1")
    assert r.returncode != 0 and said in " ".join((r.stdout + r.stderr).split())


def test_a_long_key_is_sent_whole(tmp_path):
    """Tokens of identity services have thousands of bytes."""
    (tmp_path / "key").write_text("k" * 3000 + "\r\n")
    with server(tmp_path, key="k" * 3000) as (url, _):
        assert one(*CLIENT, "--url", url, "--key-file", tmp_path / "key", "--arrival", "single", "--seconds", "0.2")["status"] == "ok"


def test_a_server_that_takes_no_key_is_not_asked_again(tmp_path):
    port, key = free_port(), tmp_path / "key"
    key.write_text("wrong\n")
    start = f"sleep 0.3; exec {sys.executable} {PEER} {port} {tmp_path / 'log'} --key right"
    begin = time.monotonic()
    r = jm(*CLIENT, "--url", f"http://127.0.0.1:{port}", "--start", start, "--key-file", key, "--ready", "50s", "--seconds", "1")
    assert r.returncode != 0 and "does not take the key" in r.stdout + r.stderr and time.monotonic() - begin < 40


def test_a_models_name_is_shown_without_what_a_terminal_obeys(tmp_path):
    name = "red \x1b[31m\r name"
    with server(tmp_path, model=name) as (url, log):
        r = one(*CLIENT, "--url", url, "--arrival", "single", "--seconds", "0.3")
    assert r["serving"]["server"]["model"] == "red ?[31m? name" and "\x1b" not in r["detail"] and "red ?" in r["detail"]
    assert {t["asked"]["model"] for t in log_of(log)} == {name}


def test_a_server_is_started_and_ended(tmp_path):
    port, log = free_port(), tmp_path / "log"
    start = f"sleep 0.3; exec {sys.executable} {PEER} {port} {log}"
    r = one(*CLIENT, "--url", f"http://127.0.0.1:{port}", "--start", start, "--arrival", "single", "--seconds", "0.5")
    assert r["serving"]["requests_done"] > 0
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("end", ["/v1", "/v1/", "/", "/v1/completions"])
def test_the_url_may_end_as_clients_of_openai_have_it(tmp_path, end):
    with server(tmp_path) as (url, _):
        assert one(*CLIENT, "--url", url + end, "--arrival", "single", "--seconds", "0.2")["serving"]["requests_done"] > 0
        r = jm(*CLIENT, "--url", url + "/v2", "--seconds", "0.2")
    assert r.returncode != 0 and "answers /v1/models with status 404; check the URL" in " ".join((r.stdout + r.stderr).split())


def test_the_last_reason_is_part_of_a_sentence(tmp_path):
    """Neither a status without a text nor a sentence leaves its marks before the full stop."""
    with server(tmp_path, *["bare"] * 1000) as (url, _):
        assert one(*CLIENT, "--url", url, "--seconds", "60", status=1)["reason"].endswith("; the last one: status 302.")
    with server(tmp_path, *["long"] * 1000) as (url, _):
        assert one(*CLIENT, "--url", url, "--seconds", "60", status=1)["reason"].endswith("An event is longer than 1048576 bytes.")


def test_names_of_models_without_an_end_are_said(tmp_path):
    with server(tmp_path, model="x" * (5 << 20)) as (url, _):
        r = one(*CLIENT, "--url", url, "--seconds", "1", status=1)
    assert "answers /v1/models with more than 4 MiB; check the URL." in r["reason"], r["reason"]


def test_a_run_in_which_no_request_was_done_fails(tmp_path):
    with server(tmp_path, *["drip"] * 100) as (url, _):
        r = one(*CLIENT, "--url", url, "--arrival", "closed", "--running", "2", "--seconds", "0.5", status=1)
    assert r["reason"].startswith("No request was done (sent: 2); measure longer (--seconds)"), r["reason"]
    assert r["serving"]["requests_done"] == 0 and r["serving"]["requests_offered"] == 2


def test_a_server_that_says_nothing_is_not_waited_for_longer_than_its_silence():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begin = time.monotonic()
        r = jm(*CLIENT, "--url", f"http://127.0.0.1:{mute.getsockname()[1]}", "--silence", "200ms", "--seconds", "1")
    assert r.returncode != 0 and "does not answer" in r.stdout + r.stderr and "its server runs" in r.stdout + r.stderr
    assert time.monotonic() - begin < 9


@pytest.mark.parametrize("options, word", [
    (["--url", "ftp://127.0.0.1"], "no URL"), (["--url", "http://127.0.0.1:1"], "does not answer"),
    (["--url", "http://"], "no URL"), (["--url", "https:///v1"], "no URL"),
    (["--url", "http://127.0.0.1:1", "--start", "exit 3"], "status 3"),
    (["--url", "http://127.0.0.1:1", "--start", "exec sleep 60", "--ready", "300ms"], "not ready"),
    (["--url", "http://127.0.0.1:1/" + "x" * 3000], "3019 bytes"),
    (["--arrival", "poisson"], "--rate"), (["--requests-csv", "/absent/x.csv"], "/absent"),
    (["--device", "sim:h100x1"], "give --real-time")])
def test_what_cannot_be_asked_is_said(options, word):
    r = jm(*CLIENT, "--seconds", "1", *options)
    assert r.returncode != 0 and word in r.stdout + r.stderr


def test_tpot_of_answers_in_one_event_cannot_be_judged(tmp_path):
    with server(tmp_path, *["merge"] * 4) as (url, _):
        r = jm("run", "serve-client", "--source", "null", "--url", url, "--arrival", "poisson", "--rate", "max", "--tpot", "1s", "--seconds", "1",
               "--output-tokens", "2")
    assert r.returncode != 0 and "cannot be judged" in " ".join((r.stdout + r.stderr).split())


def test_a_rate_beyond_what_can_be_sent_ends_in_time(tmp_path):
    """If a step sent all that had arrived in the one before, the second would send 50,000 requests, and each more than the
    one before. How far below that a step ends, this does not show."""
    with server(tmp_path) as (url, _):
        r = one(*CLIENT, "--url", url, "--arrival", "poisson", "--rate", "1000000", "--seconds", "0.3")
    assert 0 < r["serving"]["requests_offered"] < 50000 * r["steps"]


def test_a_server_that_answers_before_start_is_another_one(tmp_path):
    with server(tmp_path) as (url, _):
        r = jm(*CLIENT, "--url", url, "--start", "exec sleep 60", "--seconds", "1")
    assert r.returncode != 0 and "already" in r.stdout + r.stderr


def test_ctrl_c_keeps_the_record_of_a_run_that_failed(tmp_path):
    path = tmp_path / "failed.json"
    with server(tmp_path, *["500"] * 100000) as (url, log):
        client = subprocess.Popen([BIN, *CLIENT, "--url", url, "--seconds", "3600", "--arrival", "poisson", "--rate", "50",
                                   "--retries", "work=1", "--json", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            assert wait_for(lambda: len(log.read_text().splitlines()) > 20 or client.poll() is not None)
            client.send_signal(signal.SIGINT)
            words = client.communicate(timeout=240)[1]
        finally:
            client.kill()
            client.wait()
    record = json.loads(path.read_text())
    assert client.returncode == 130 and "FAILED: All" in words and "run again" not in words, words
    assert record["status"] == "failed" and "requests failed" in record["reason"] and record["steps"] > 0
    assert record["serving"]["requests_failed"] > 0 and record["serving"]["requests_done"] == 0


def test_ctrl_c_ends_the_wait_for_a_server(tmp_path):
    started = tmp_path / "started"
    client = subprocess.Popen([BIN, *CLIENT, "--url", f"http://127.0.0.1:{free_port()}", "--start", f"touch {started}; exec sleep 1000",
                               "--ready", "1000s"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert wait_for(lambda: started.exists() or client.poll() is not None)
        assert catches(client.pid, signal.SIGINT)
        client.send_signal(signal.SIGINT)
        words = client.communicate(timeout=240)[1]
    finally:
        client.kill()
        client.wait()
    assert client.returncode == 130 and "the result is kept" not in words and "as when a device" not in words, words
