# SPDX-License-Identifier: Apache-2.0
"""A small network that is served, and clients of it."""
import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess

from jm import BIN

MODEL = ["--model", "llama", "--layers", "2", "--hidden", "32", "--heads", "4", "--kv-heads", "2", "--context", "64"]
SERVE = ["run", "serve", "--source", "null", "--warmup", "1", "--selftest", "0", "--precision", "f32", *MODEL]
LISTEN = [*SERVE, "--device", "ref", "--listen", "127.0.0.1:0", "--seconds", "3600", "--running", "4"]


@contextlib.contextmanager
def listening(tmp_path, *options, base=LISTEN):
    """(port, function that ends the run and returns its record)"""
    record = tmp_path / "served.json"
    run = subprocess.Popen([BIN, *base, *options, "--json", record], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    def end():
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=240)[1]
        assert record.exists(), said
        return json.loads(record.read_text())

    end.run = run

    try:
        line = next(line for line in run.stderr if "Requests are taken" in line)
        yield int(re.search(r":(\d+)/v1", line)[1]), end
    finally:
        run.kill()
        run.wait()


def ask(port, body, path="/v1/completions"):
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
    line.request("POST", path, body if isinstance(body, (bytes, str)) else json.dumps(body))
    answer = line.getresponse()
    return answer.status, answer.read().decode()


def streamed(text):
    events = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def leave_after(port, events, tokens):
    """A client that closes its connection after the first events of a streamed answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=240) as s:
        body, seen = json.dumps({"prompt": [1, 2, 3], "max_tokens": tokens, "stream": True}), b""
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        while seen.count(b"data: ") < events:
            seen += s.recv(4096)
