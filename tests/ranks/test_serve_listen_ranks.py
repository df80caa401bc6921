# SPDX-License-Identifier: Apache-2.0
"""serve --listen --ranks: clients of one server whose replicas answer them. Answers are those of a server with one replica; the clients here
are Python's own."""
import contextlib
import csv
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from gangs import children
from jm import BIN, HANGS_S
from runs import FAILED
from serving import LISTEN, SERVE, ask, leave_after, listening, streamed
from slurm import free_ports

TWO = ["--ranks", "2", "--threads", "1"]
LONG = ["100000" if word == "64" else word for word in LISTEN]  # answers that take hours
SINGLE = ["1" if word == "4" and LONG[i - 1] == "--running" else word for i, word in enumerate(LONG)]  # and of which each replica runs one
MOST = 30  # tokens of an answer
PROMPTS = [[(7 * i + 3 * k + i * k) % 256 for k in range(1 + 5 * i % 23)] for i in range(12)]


def greedy(port, prompt, tokens=MOST):
    status, text = ask(port, {"prompt": prompt, "max_tokens": tokens})
    assert status == 200
    return json.loads(text)["choices"][0]["token_ids"]


@pytest.fixture(name="truth", scope="module")
def answers_of_one_replica(tmp_path_factory):
    with listening(tmp_path_factory.mktemp("alone")) as (port, _):
        return [greedy(port, prompt) for prompt in PROMPTS]


class Client(threading.Thread):
    """Asks once. May leave: after `leaves` events of a stream, or seconds of a whole answer."""

    def __init__(self, port, number, tokens, stream, leaves=None):
        super().__init__()
        self.port, self.number, self.tokens, self.stream, self.leaves = port, number, tokens, stream, leaves
        self.got, self.error = None, None

    def run(self):
        try:
            self.got = self.leave() if self.leaves is not None else self.stay()
        except (OSError, AssertionError, ValueError) as e:
            self.error = repr(e)

    def stay(self):
        status, text = ask(self.port, {"prompt": PROMPTS[self.number], "max_tokens": self.tokens, "stream": self.stream})
        assert status == 200, text
        if not self.stream:
            return json.loads(text)["choices"][0]["token_ids"]
        return [token for event in streamed(text) for token in event["choices"][0]["token_ids"]]

    def leave(self):
        body = json.dumps({"prompt": PROMPTS[self.number], "max_tokens": self.tokens, "stream": self.stream})
        with socket.create_connection(("127.0.0.1", self.port), timeout=HANGS_S) as s:
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            if not self.stream:
                time.sleep(self.leaves / 100)
                return None
            seen = b""
            while seen.count(b"data: ") < self.leaves and (more := s.recv(4096)):
                seen += more
        return None


def sums_are_those_of_the_ranks(record, rows):
    s = record["serving"]
    assert record["verified"] is True and [one["rank"] for one in s["ranks"]] == [0, 1]
    # one whose client left with the last tokens counts as done by its replica alone
    assert 0 <= sum(one["requests_done"] for one in s["ranks"]) - s["requests_done"] <= s["requests_failed"]
    assert s["requests_done"] == len(rows) and s["tokens_out"] == sum(int(row["output_tokens"]) for row in rows)
    assert s["tokens_in"] == sum(int(row["input_tokens"]) for row in rows)


@pytest.mark.parametrize("more", [[], ["--cache-pages", "6", "--steps-ahead", "1"]], ids=["plain", "preempted"])
def test_200_random_clients_of_which_some_leave(tmp_path, truth, more):
    draw, rows, answers = random.Random(28), tmp_path / "requests.csv", tmp_path / "answers.jsonl"
    with listening(tmp_path, *TWO, *more, "--requests-csv", rows, "--answers", answers) as (port, end):
        clients = [Client(port, draw.randrange(len(PROMPTS)), draw.randint(1, MOST), draw.random() < 0.6,
                          draw.randint(0, 4) if draw.random() < 0.25 else None) for _ in range(200)]
        for client in clients:
            client.start()
            time.sleep(0 if more else draw.expovariate(100))  # all at once, so that a fast machine runs out of pages, too
        for client in clients:
            client.join(HANGS_S)
        assert greedy(port, PROMPTS[0]) == truth[0]
        time.sleep(1)  # until it is noticed that the last ones have left
        record = end()
    stayed = [client for client in clients if client.leaves is None]
    assert [client.error for client in clients if client.error] == [] and len(stayed) > 100
    for client in stayed:
        assert client.got == truth[client.number][:client.tokens]
    s, rows = record["serving"], list(csv.DictReader(rows.open()))
    assert s["requests_offered"] == 201 == s["requests_done"] + s["requests_failed"]
    assert not more or s["preemptions"] > 0
    assert len(stayed) + 1 <= s["requests_done"] <= 201 and min(one["requests_done"] for one in s["ranks"]) > 20
    sums_are_those_of_the_ranks(record, rows)
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    assert len(lines) == s["requests_done"] and len({line["request"] for line in lines}) == len(lines)
    for line in lines:
        whole = truth[PROMPTS.index(line["prompt_tokens"])]
        assert line["tokens"] == whole[:len(line["tokens"])]


def test_clients_that_go_away_free_the_places_of_all_replicas(tmp_path):
    with listening(tmp_path, *TWO, base=LONG) as (port, end):
        for _ in range(8):  # both replicas have four places
            leave_after(port, 1, 90000)
        for _ in range(4):
            assert ask(port, {"prompt": [1, 2], "max_tokens": 6})[0] == 200
        assert json.loads(ask_models(port))["data"][0]["id"] == "llama"
        time.sleep(1)
        s = end()["serving"]
    assert (s["requests_offered"], s["requests_done"], s["requests_failed"]) == (12, 4, 8)


def ask_models(port):
    with socket.create_connection(("127.0.0.1", port), timeout=HANGS_S) as s:
        s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: s.recv(4096), b"")).split(b"\r\n\r\n", 1)[1].split(b"\r\n")[1]


def test_an_idle_replica_takes_what_comes_while_the_other_is_busy(tmp_path):
    with listening(tmp_path, *TWO, base=SINGLE) as (port, end):
        with socket.create_connection(("127.0.0.1", port), timeout=HANGS_S) as s:
            body = json.dumps({"prompt": [1], "max_tokens": 90000, "stream": True})
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            assert b"200" in s.recv(4096)
            for _ in range(3):
                greedy(port, [1, 2], 3)
        shares = end()["serving"]["ranks"]
    assert sorted(one["requests_done"] for one in shares) == [0, 3]


@pytest.mark.parametrize("stream", [True, False])
def test_a_replica_that_is_killed_is_named_to_its_clients_and_by_the_run(tmp_path, stream):
    texts = told_when_the_last_is_killed(tmp_path, 2, stream)
    assert sum("Replica 1, which computed this answer, has ended" in text for text in texts) == 1, texts
    for text in texts:
        assert stream or text.startswith("HTTP/1.1 503"), text
        assert "[DONE]" not in text and "finish_reason\":\"length" not in text


def test_replicas_that_are_ended_because_another_failed_are_not_named(tmp_path):
    texts = told_when_the_last_is_killed(tmp_path, 3, True)
    assert not [text for text in texts if "Replica 1" in text], texts


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("whom", ["all", "parent"])
def test_a_server_that_is_stopped_names_no_replica(tmp_path, whom, stream):
    """SIGTERM ends the replicas, too; clients are told what those of a server with one replica are."""
    texts = []
    with listening(tmp_path, *TWO, base=SINGLE) as (port, end):
        run, clients = end.run, clients_of(port, stream, 3, texts)
        for pid in [run.pid, *(children(run.pid) if whom == "all" else [])]:
            os.kill(pid, signal.SIGTERM)
        for one in clients:
            one.join(HANGS_S)
        run.communicate(timeout=HANGS_S)
    assert len(texts) == 3 and all("The server ends before this answer is complete." in text for text in texts), texts


def clients_of(port, stream, n, texts):
    """Clients whose requests take hours; what they get goes to texts."""
    def client():
        with contextlib.suppress(OSError):
            texts.append(ask_until_broken(port, stream))

    clients = [threading.Thread(target=client) for _ in range(n)]
    for one in clients:
        one.start()
    time.sleep(1.5)
    return clients


def told_when_the_last_is_killed(tmp_path, replicas, stream):
    """What clients get: one of each replica, and one that waits."""
    with listening(tmp_path, "--ranks", str(replicas), "--threads", "1", base=SINGLE) as (port, end):
        victim = children(end.run.pid)[replicas - 1]
        texts = []
        clients = clients_of(port, stream, replicas + 1, texts)
        os.kill(victim, signal.SIGKILL)
        for one in clients:
            one.join(HANGS_S)
        err = end.run.communicate(timeout=HANGS_S)[1]
    assert end.run.returncode == FAILED
    assert re.search(rf"Rank {replicas - 1} of {replicas} \(process {victim}\) was killed by signal 9", err), err
    assert len(texts) == replicas + 1 and all("so does the server" in text for text in texts), texts
    return texts


def ask_until_broken(port, stream):
    """All bytes of an answer that is not whole."""
    body, seen = json.dumps({"prompt": [1], "max_tokens": 90000, "stream": stream}), b""
    with socket.create_connection(("127.0.0.1", port), timeout=HANGS_S) as s:
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        with contextlib.suppress(ConnectionResetError):
            while more := s.recv(65536):
                seen += more
                if b"\r\n0\r\n\r\n" in seen:
                    break
    return seen.decode()


def test_the_end_of_the_run_is_told_to_those_who_wait(tmp_path):
    with listening(tmp_path, *TWO, base=SINGLE) as (port, end):
        said = []
        clients = [threading.Thread(target=lambda: said.append(ask_until_broken(port, True))) for _ in range(4)]
        for one in clients:
            one.start()
        time.sleep(1)
        s = end()["serving"]
        for one in clients:
            one.join(HANGS_S)
    assert s["requests_offered"] == 4 and s["requests_done"] == s["requests_failed"] == 0
    assert all("The server ends before this answer is complete." in text and "[DONE]" not in text for text in said) and len(said) == 4


def test_replicas_of_several_calls_are_refused_with_what_to_do():
    env = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "JM_GANG_SECRET": "0123456789abcdef"}
    words = [BIN, *SERVE, "--device", "ref", "--ranks", "2", "--listen", "127.0.0.1:0", "--seconds", "1", "--launcher", "started"]
    calls = [subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**env, "RANK": str(rank)})
             for rank in range(2)]
    told = " ".join(calls[0].communicate(timeout=HANGS_S)[0].split())
    calls[1].communicate(timeout=HANGS_S)
    assert calls[0].returncode == FAILED and "on several hosts start one run on each" in told, told
