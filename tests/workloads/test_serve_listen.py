# SPDX-License-Identifier: Apache-2.0
"""serve --listen: clients over HTTP get the answers that the model gives without them, and both sides count alike."""
import collections
import contextlib
import csv
import http.client
import json
import socket
import statistics
import threading
import time

import pytest

from jm import SOURCE, jm
from runs import one
from serving import LISTEN, MODEL, SERVE, ask, leave_after, listening, streamed


# what would change an answer
REFUSED = [("n", 2), ("n", 2.0), ("n", "2"), ("best_of", 3), ("logprobs", 1), ("logprobs", 0), ("echo", True), ("suffix", "end"),
           ("stop", "x"), ("stop", ["x"]), ("stop_token_ids", [2]), ("presence_penalty", 0.5), ("frequency_penalty", -1),
           ("repetition_penalty", 1.1), ("min_p", 0.1), ("logit_bias", {"5": -100}), ("seed", 1.5), ("top_k", 2.5), ("stream", 1), ("guided_json", {"type": "object"}),
           ("response_format", {"type": "json_object"}), ("bad_words", ["x"]), ("allowed_token_ids", [1]), ("truncate_prompt_tokens", 5)]


def test_answers_are_those_without_clients(tmp_path):
    answers = tmp_path / "answers.jsonl"
    one(*SERVE, "--device", "ref", "--steps", "30", "--input-tokens", "2:9", "--output-tokens", "2:6", "--requests", "6",
        "--answers", answers)
    truth = [json.loads(line) for line in answers.read_text().splitlines()][:6]
    with listening(tmp_path) as (port, end):
        for t in truth:
            asked = {"prompt": t["prompt_tokens"], "max_tokens": len(t["tokens"])}
            status, text = ask(port, asked)
            whole = json.loads(text)
            assert status == 200 and whole["choices"][0]["token_ids"] == t["tokens"]
            assert whole["choices"][0]["text"] == "".join(f"{token} " for token in t["tokens"])
            assert whole["usage"]["prompt_tokens"] == len(t["prompt_tokens"])
            assert whole["usage"]["completion_tokens"] == len(t["tokens"])
            status, text = ask(port, {**asked, "stream": True, "stream_options": {"include_usage": True}})
            *pieces, usage = streamed(text)
            assert [p["choices"][0]["token_ids"] for p in pieces] == [[token] for token in t["tokens"]]
            assert "".join(p["choices"][0]["text"] for p in pieces) == whole["choices"][0]["text"]
            assert [p["choices"][0]["finish_reason"] for p in pieces] == [None] * (len(pieces) - 1) + ["length"]
            assert usage["usage"] == whole["usage"] and usage["choices"] == []
        record = end()
    assert record["verified"] is True and record["serving"]["requests_done"] == 12
    assert record["serving"]["tokens_out"] == 2 * sum(len(t["tokens"]) for t in truth)


def test_client_and_server_count_alike(tmp_path):
    sides = tmp_path / "client.csv", tmp_path / "server.csv"
    with listening(tmp_path, "--requests-csv", sides[1]) as (port, end):
        client = one("run", "serve-client", "--source", "null", "--url", f"http://127.0.0.1:{port}", "--warmup", "0",
                     "--input-tokens", "2:20", "--output-tokens", "2:9", "--vocab", "256", "--arrival", "closed",
                     "--running", "4", "--seconds", "3", "--requests-csv", sides[0])["serving"]
        server = end()["serving"]
    rows = [list(csv.DictReader(side.open())) for side in sides]
    assert client["requests_failed"] == 0 and client["requests_done"] == len(rows[0]) > 10
    # the end of the client's run leaves at most the running ones to the server alone
    assert 0 <= server["requests_offered"] - client["requests_done"] <= 4
    assert server["requests_done"] - client["requests_done"] <= max(4, 0.01 * client["requests_done"])
    assert sum(int(row["output_tokens"]) for row in rows[0]) == client["tokens_out"]
    assert 0 <= server["tokens_out"] - client["tokens_out"] <= max(4 * 9, 0.01 * client["tokens_out"])
    assert client["server"]["other_prompt"] == client["server"]["other_length"] == client["server"]["tokens_merged"] == 0
    lengths = [collections.Counter((row["input_tokens"], row["output_tokens"]) for row in side) for side in rows]
    assert not lengths[0] - lengths[1]


def timed_answer(port, tokens, ret):
    """An answer as a client without any code of joulemark sees it: by a socket of its own, each event with the time of its arrival."""
    body = json.dumps({"prompt": [3, 1, 4, 1, 5], "max_tokens": tokens, "stream": True})
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
    line.request("POST", "/v1/completions", body)
    begin = time.monotonic()
    answer = line.getresponse()
    times = [time.monotonic() - begin for event in iter(answer.readline, b"data: [DONE]\n") if event.startswith(b"data: {")]
    ret[tokens] = times


LONG = 200  # tokens, at least


def differences(tmp_path):
    """What a client measures by what the server says, of 9 answers that differ in their lengths, three at a time: medians. They
    take so long that the milliseconds in which a busy machine wakes a client are no percent."""
    rows, seen = tmp_path / "requests.csv", {}
    with listening(tmp_path, "--requests-csv", rows, base=[{"32": "128", "64": "512"}.get(word, word) for word in LISTEN]) as (port, end):
        for first in range(LONG, LONG + 9, 3):
            clients = [threading.Thread(target=timed_answer, args=(port, first + k, seen)) for k in range(3)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
        record = end()
    told = {int(row["output_tokens"]): row for row in csv.DictReader(rows.open())}
    assert told.keys() == seen.keys() == set(range(LONG, LONG + 9)) and all(len(times) == n for n, times in seen.items())
    assert record["serving"]["tokens_out"] == sum(seen)
    off = {"latency": [times[-1] / float(told[n]["latency_s"]) for n, times in seen.items()],
           "time per token": [(times[-1] - times[0]) / (n - 1) / float(told[n]["tpot_s"]) for n, times in seen.items()]}
    return {name: abs(statistics.median(ratios) - 1) for name, ratios in off.items()}


def test_an_independent_client_measures_the_same_within_1_percent(tmp_path):
    """In one of three rounds: a busy machine wakes a client late, and a wrong figure is wrong in each."""
    for _ in range(3):
        off = differences(tmp_path)
        if max(off.values()) < 0.01:
            return
    assert max(off.values()) < 0.01, off


def test_draws_of_a_client_follow_its_rule_and_seed(served):
    def tokens(**rule):
        status, text = ask(served, {"prompt": [1, 2, 3], "max_tokens": 20, **rule})
        assert status == 200
        return json.loads(text)["choices"][0]["token_ids"]

    greedy = tokens()
    assert tokens(temperature=0) == tokens(temperature=5, top_k=1) == tokens(temperature=5, top_p=0) == greedy
    drawn = tokens(temperature=5, seed=3)
    assert drawn == tokens(temperature=5, seed=3) != tokens(temperature=5, seed=4)
    assert len(set(drawn)) > 5


@pytest.mark.parametrize("body, word", [
    ("", "no JSON"), ("[1]", "no JSON object"), ('{"prompt": "a\\u0000"}', "\\u0000"), ({"prompt": []}, "1 to"), ({"prompt": [1, -1]}, "whole number"),
    ({"prompt": [999]}, "whole number"), ({"prompt": "text"}, "no tokenizer"), ({"prompt": [1], "max_tokens": 0}, "max_tokens"),
    ({"prompt": [1] * 60, "max_tokens": 60}, "context"), ({"prompt": [1], "n": 2}, "'n'"), ({}, "prompt"), ({"prompt": [1], "temperature": -1}, "temperature"),
    ({"prompt": [[1], [2]]}, "list of 2 prompts"), ({"prompt": ["a", "b"]}, "list of 2 prompts"), ({"prompt": ""}, "not empty"),
    ({"prompt": [[]]}, "1 to"), *(({"prompt": [1], name: value}, f"'{name}'") for name, value in REFUSED)])
def test_what_is_not_served_is_refused(served, body, word):
    status, text = ask(served, body)
    assert status == 400 and word in json.loads(text)["error"]["message"]


def test_another_model_is_not_found(served):
    """As vLLM answers; without a name it is the one that is served."""
    status, text = ask(served, {"prompt": [1], "max_tokens": 2, "model": "another"})
    error = json.loads(text)["error"]
    assert status == 404 and "'llama'" in error["message"] and error["type"] == "not_found_error" and error["code"] == 404
    answers = [ask(served, {"prompt": [1], "max_tokens": 2, **named}) for named in ({"model": "llama"}, {"model": None}, {"model": ""}, {})]
    assert {status for status, _ in answers} == {200} and {json.loads(text)["model"] for _, text in answers} == {"llama"}
    assert ask(served, {"prompt": [1], "model": 5})[0] == 400


def test_a_model_has_the_name_of_its_folder_too(tmp_path):
    folder = tmp_path / "net"
    one("run", "llama", *MODEL[2:], "--source", "null", "--device", "ref", "--precision", "f32", "--warmup", 0, "--batch", 1, "--seq", 8,
        "--steps", 1, "--save", f"{folder}/")
    with listening(tmp_path, "--from", folder) as (port, _):
        assert [ask(port, {"prompt": [1], "max_tokens": 2, "model": name})[0] for name in ("llama", str(folder), "net")] == [200, 200, 404]


def test_what_changes_nothing_is_not_refused(served):
    idle = {"n": 1.0, "best_of": 1, "presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1, "min_p": 0,
            "logit_bias": {}, "logprobs": None, "echo": False, "suffix": "", "stop": [], "seed": None, "stream": None,
            "ignore_eos": True, "user": "somebody"}
    status, text = ask(served, {"prompt": [1, 2], "max_tokens": 3, **idle})
    assert status == 200 and text and json.loads(text)["choices"] == json.loads(ask(served, {"prompt": [1, 2], "max_tokens": 3})[1])["choices"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with listening(tmp_path_factory.mktemp("served")) as (port, _):
        yield port


def test_bad_lines_do_not_end_the_server(served):
    for line in (b"\x00" * 100, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                 b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\n{", b"G" * 100000):
        with socket.create_connection(("127.0.0.1", served)) as s:
            with contextlib.suppress(OSError):
                s.sendall(line)
    assert ask(served, {"prompt": [1]}, "/v1/chat")[0] == 404
    with socket.create_connection(("127.0.0.1", served)) as s:  # of 9 MB the server reads none
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9437184\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 413")
    assert ask(served, {"prompt": [1], "max_tokens": 2})[0] == 200


@pytest.mark.parametrize("ahead", ["0", "1"])
def test_a_client_that_goes_away_frees_its_place(tmp_path, ahead):
    """All four places, for hours."""
    with listening(tmp_path, "--steps-ahead", ahead, base=["100000" if word == "64" else word for word in LISTEN]) as (port, end):
        for _ in range(4):
            leave_after(port, 1, 90000)
        for _ in range(6):
            assert ask(port, {"prompt": [1, 2], "max_tokens": 6})[0] == 200
            time.sleep(0.05)
        s = end()["serving"]
    assert (s["requests_offered"], s["requests_done"], s["requests_failed"]) == (10, 6, 4)


def test_pieces_of_text_are_those_of_the_whole_text(tmp_path):
    """Tokens of bytes: characters of several tokens, and bytes that are none."""
    with listening(tmp_path, "--tokenizer", SOURCE / "tests/data/tokenizers/llama3.json", "--vocab", "702") as (port, _):
        for seed in range(5):
            asked = {"prompt": "Größe 漢字", "max_tokens": 40, "temperature": 50, "seed": seed}
            whole = json.loads(ask(port, asked)[1])["choices"][0]
            pieces = [event["choices"][0] for event in streamed(ask(port, {**asked, "stream": True})[1])]
            assert [token for piece in pieces for token in piece["token_ids"]] == whole["token_ids"] and len(pieces) == 40
            assert "".join(piece["text"] for piece in pieces) == whole["text"] and "\ufffd" in whole["text"]


def test_a_text_that_is_longer_than_the_context_is_refused_with_its_length(tmp_path):
    """Read by the thread of long questions; a token each, after that of the begin."""
    with listening(tmp_path, "--tokenizer", SOURCE / "tests/data/tokenizers/llama3.json", "--vocab", "702") as (port, _):
        status, text = ask(port, {"prompt": "<" * 500000, "max_tokens": 2})
        assert status == 400 and "have 500003 tokens" in text


def test_a_whole_answer_ends_when_its_client_has_left(tmp_path):
    """Its tokens are made for nobody: it fails long before they are all made."""
    with listening(tmp_path, base=["100000" if word == "64" else word for word in LISTEN]) as (port, end):
        with socket.create_connection(("127.0.0.1", port)) as s:
            body = json.dumps({"prompt": [1, 2], "max_tokens": 90000})
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            assert ask(port, {"prompt": [1], "max_tokens": 2})[0] == 200  # so the other one was taken
        for _ in range(10):
            assert ask(port, {"prompt": [1], "max_tokens": 2})[0] == 200
            time.sleep(0.05)
        s = end()["serving"]
    assert (s["requests_done"], s["requests_failed"]) == (11, 1)


@pytest.mark.parametrize("options, word", [
    (["--listen", "127.0.0.1:0", "--arrival", "single"], "--arrival"), (["--listen", "127.0.0.1:0", "--input-tokens", "3:5"], "--input-tokens"),
    (["--listen", "127.0.0.1:0", "--output-tokens", "9"], "--output-tokens"), (["--listen", "127.0.0.1:0", "--requests", "3"], "--requests"),
    (["--listen", "8000"], "address and a port"), (["--listen", "127.0.0.1:99999"], "address and a port"),
    (["--listen", "nobody:80"], "no IPv4"), (["--listen", "127.0.0.1:0", "--text", "x"], "omit --text"),
    (["--tokenizer", "x"], "--tokenizer")])
def test_what_cannot_be_listened_to_is_said(options, word):
    r = jm(*SERVE, "--device", "ref", "--steps", "2", *options)
    assert r.returncode != 0 and word in r.stdout + r.stderr
