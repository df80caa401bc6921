#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether serve-client on one processor keeps 500 requests/s whose answers have 100 tokens/s, so 256 of them at a time.

    bench/client_speed.py build/joulemark [--seconds 10] [--client 1] [--server 0]

--client, --server: the processors of both. The server writes each token when it is due, each in an event of its own. Aim: 99 of 100
requests are sent within 1 ms of their time.
"""
import argparse
import collections
import json
import os
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time

RATE, TOKENS, EACH_S = 500, 52, 0.01  # the first token at once: an answer takes 0.51 s


def chunk(event):
    data = f"data: {event}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


MODELS = b'{"data":[{"id":"paced"}]}'
MODELS = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(MODELS), MODELS)
BEGIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = chunk('{"choices":[{"text":"x","finish_reason":null}]}')
LAST = chunk('{"choices":[{"text":"x","finish_reason":"length"}]}')


class Server:
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.ready, self.due = selectors.DefaultSelector(), collections.deque()
        self.listener.setblocking(False)
        self.ready.register(self.listener, selectors.EVENT_READ)

    def serve(self):
        while True:
            wait = self.due[0][0] - time.monotonic() if self.due else 1
            for key, _ in self.ready.select(max(0, wait)):
                self.accept() if key.data is None else self.read(key.fileobj, key.data)
            while self.due and self.due[0][0] <= time.monotonic():
                self.write(*self.due.popleft())

    def accept(self):
        line, _ = self.listener.accept()
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ready.register(line, selectors.EVENT_READ, bytearray())

    def read(self, line, got):
        try:
            data = line.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self.ready.unregister(line)
            line.close()
            return
        got += data
        head, found, body = bytes(got).partition(b"\r\n\r\n")
        fields = dict(part.lower().split(b": ", 1) for part in head.split(b"\r\n")[1:])
        if not found or len(body) < int(fields.get(b"content-length", 0)):
            return
        got.clear()
        if head.startswith(b"GET"):
            line.sendall(MODELS)
            return
        asked = json.loads(body)
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": asked["max_tokens"]}
        end = LAST + chunk(json.dumps({"choices": [], "usage": usage})) + chunk("[DONE]") + b"0\r\n\r\n"
        line.sendall(BEGIN + TOKEN)
        self.due.append((time.monotonic() + EACH_S, line, asked["max_tokens"] - 1, end))

    def write(self, due, line, left, end):
        """All answers have the same pace, so that what is due last stands last."""
        try:
            line.sendall(TOKEN if left > 1 else end)
        except OSError:
            return
        if left > 1:
            self.due.append((due + EACH_S, line, left - 1, end))


def start_server(processor):
    """(process, port)"""
    server = Server()
    child = os.fork()
    if not child:
        os.sched_setaffinity(0, {processor})
        server.serve()
    return child, server.listener.getsockname()[1]


def run(options, port):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "record.json")
        command = [options.joulemark, "run", "serve-client", "--source", "null", "--url", f"http://127.0.0.1:{port}", "--arrival", "poisson",
                   "--rate", RATE, "--running", 1024, "--input-tokens", 16, "--output-tokens", TOKENS, "--warmup", "1s", "--seconds",
                   options.seconds, f"--json={out}"]
        done = subprocess.run(["taskset", "-c", str(options.client), *map(str, command)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout[-600:] + done.stderr[-600:])
        with open(out, encoding="utf-8") as f:
            return json.load(f)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("joulemark")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--client", type=int, default=1)
    parser.add_argument("--server", type=int, default=0)
    options = parser.parse_args()
    child, port = start_server(options.server)
    try:
        begin = time.monotonic()
        record = run(options, port)
        span, used = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    serving = record["serving"]
    late, tpot = serving["server"]["late"], serving["tpot"]
    print(f"{serving['requests_done'] / options.seconds:.0f} requests/s, {record['throughput']:.0f} tokens/s, "
          f"{serving['mean_running']:.0f} at a time, {serving['requests_failed']} failed")
    print(f"sent late: median {1e3 * late['p50']:.3f} ms, p99 {1e3 * late['p99']:.3f} ms, maximum {1e3 * late['max']:.3f} ms (aim: p99 below 1 ms)")
    print(f"time per token: median {1e3 * tpot['p50']:.3f} ms, p99 {1e3 * tpot['p99']:.3f} ms (written every {1e3 * EACH_S:g} ms)")
    print(f"processor time of the client and its start {used.ru_utime + used.ru_stime:.1f} s in {span:.1f} s")


if __name__ == "__main__":
    main()
