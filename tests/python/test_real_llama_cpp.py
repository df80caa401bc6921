# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's server and `run serve` make the same greedy tokens of small random networks, asked by serve-client. The source of
llama.cpp is in the package llama-cpp-python; building it takes a quarter of an hour the first time, so `make check STEPS=long` does."""
import contextlib
import http.server
import json
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

import llama_cpp
import llama_files
from runs import one

TOKENS, REQUESTS, VOCAB = 24, 6, 320
SCALED = {"rope_theta": 10000.0, "rope_scaling": llama_files.LLAMA3}
KINDS = {"llama2": (8, {}), "llama3": (2, {"rope_theta": 500000.0}), "llama3_1": (2, SCALED),
         "llama3_2_tied": (1, {"tie_word_embeddings": True, **SCALED})}
LOAD = ["--source", "null", "--warmup", "0", "--arrival", "all", "--requests", REQUESTS, "--running", 4, "--input-tokens", "3:40",
        "--output-tokens", TOKENS]


class Between(http.server.BaseHTTPRequestHandler):
    """Hands requests on to the server behind, and notes prompts and texts."""
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(self.server.behind + self.path)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        text = self.answer(urllib.request.Request(self.server.behind + self.path, body, {"Content-Type": "application/json"}))
        events = [json.loads(part) for part in re.findall(r"^data: (\{.*)$", text, re.M)]
        told = "".join(event["choices"][0]["text"] for event in events if event["choices"])
        self.server.told[tuple(json.loads(body)["prompt"])] = told

    def answer(self, request):
        with urllib.request.urlopen(request, timeout=120) as answer:
            self.send_response(answer.status)
            self.end_headers()
            read = []
            while line := answer.readline():
                read.append(line)
                self.wfile.write(line)
        return b"".join(read).decode()


@contextlib.contextmanager
def served(file):
    """The URL before a server of llama.cpp, and the texts that it told. It computes in F32 as run serve does: its cache would be
    F16 and its flash attention has sums of its own, and either may turn a near tie. One thread: more would wait for each other."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    behind = f"http://127.0.0.1:{port}"
    with subprocess.Popen([*llama_cpp.server(), "-m", str(file), "--port", str(port), "-c", "1024", "-np", "4", "-t", "1",
                           "-ctk", "f32", "-ctv", "f32", "-fa", "off"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        between = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between)
        between.behind, between.told = behind, {}
        threading.Thread(target=between.serve_forever, daemon=True).start()
        try:
            await_ready(process, behind)
            yield f"http://127.0.0.1:{between.server_address[1]}", between.told
        finally:
            process.kill()  # when asked to end, it waits for the answers that serve-client no longer reads
            between.shutdown()
            between.server_close()


def await_ready(process, url):
    for _ in range(600):
        with contextlib.suppress(OSError, urllib.error.URLError):
            with urllib.request.urlopen(url + "/health", timeout=5):
                return
        assert process.poll() is None, "the server of llama.cpp has ended"
        time.sleep(0.1)
    pytest.fail("the server of llama.cpp is not ready")


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_equal_those_of_llama_cpp(kind, tmp_path):
    kv_heads, more = KINDS[kind]
    llama_cpp.server()  # or the test is skipped
    net, file, answers = tmp_path / "net", tmp_path / "net.gguf", tmp_path / "answers"
    llama_files.make(net, llama_files.config(64, 96, 2, 8, kv_heads, VOCAB, 256, **more), 0.3)
    llama_cpp.convert(net, file)
    r = one("run", "serve", *LOAD, "--from", net, "--device", "cpu", "--precision", "f32", "--steps", 80, "--answers", answers)
    assert r["verified"] is True
    lines = [json.loads(line) for line in answers.read_text().splitlines()][:REQUESTS]
    prompts = [tuple(line["prompt_tokens"]) for line in lines]
    assert len(lines) == REQUESTS and len({token for line in lines for token in line["tokens"]}) > 20
    with served(file) as (url, told):
        for seconds in (2, 20, 200):  # all answers are told, on a slow machine too
            r = one("run", "serve-client", *LOAD, "--url", url, "--vocab", VOCAB, "--seconds", seconds)
            assert r["serving"]["requests_failed"] == 0
            if all(prompt in told for prompt in prompts):
                break
        assert [llama_files.words(told[prompt]) for prompt in prompts] == [line["tokens"] for line in lines]
