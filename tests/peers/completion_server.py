# SPDX-License-Identifier: Apache-2.0
"""A server of /v1/completions whose answers are programmed; it logs when it took a request and wrote each event.

completion_server.py PORT LOG --key KEY  likewise, with a key
completion_server.py PORT LOG [WAY...]   request number i is answered in the i-th way, those after the last one well
"""
import http.server
import json
import os
import socket
import struct
import sys
import threading
import time

PAUSE = 0.002  # s between two events
ERROR = {"error": {"error": {"message": "no memory"}}, "error_text": {"error": "no memory"},
         "error_object": {"object": "error", "message": "no memory"}}
TEXT = {"zero": "\0", "beyond": "\N{GRINNING FACE}", "long": "x" * (1 << 20)}  # of each token
USAGE = {"huge": 5e9, "half": 2.5, "negative": -1, "text": "3"}  # numbers of tokens that are none


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    request_queue_size = 1000

    def __init__(self, port, log, ways, key=None, model="programmed", alone_s=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.alone_s, self.alone = alone_s, threading.Lock()  # one request at a time has the server for so long
        self.model = model
        self.log, self.ways, self.key, self.lock, self.n = open(log, "a", encoding="utf-8"), ways, key, threading.Lock(), 0

    def take(self):
        with self.lock:
            self.n += 1
            return self.ways[self.n - 1] if self.n <= len(self.ways) else "well"

    def note(self, line):
        with self.lock:
            self.log.write(json.dumps(line) + "\n")
            self.log.flush()

    def handle_error(self, request, client_address):
        pass  # clients may go away


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def whole(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        if self.server.key and self.headers["Authorization"] != f"Bearer {self.server.key}":
            self.whole(401, {})
        elif self.path != "/v1/models":
            self.whole(404, {})
        else:
            self.whole(200, {"data": [{"id": self.server.model}]})

    def event(self, text):
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def piece(self, times, text, reason=None):
        times.append(time.monotonic())
        self.event(json.dumps({"choices": [{"text": text, "finish_reason": reason}]}))
        time.sleep(PAUSE)

    def comment(self):
        self.wfile.write(b"3\r\n:\n\n\r\n")
        self.wfile.flush()
        time.sleep(PAUSE)

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def stream(self, way, asked, times):
        """Writes the pieces; False when the answer is to break off."""
        n = asked["max_tokens"] * (2 if way in ("twice", "twice_uncounted") else 1)
        size = 2 if way == "merge" else 1
        if way == "begins":  # with an event that is no token
            self.piece([], "")
        for i in range(0, n, size):
            if way in ("reset", "stall", "drip", "cut") and i:
                return False
            last = i + size >= n
            self.piece(times, "" if way == "tail" and last else TEXT.get(way, "x" * size), "length" if last else None)
        return True

    def do_POST(self):
        taken = time.monotonic()
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        way, times = self.server.take(), []
        note = {"way": way, "taken": taken, "asked": asked, "times": times}
        if way == "exit":
            os._exit(7)
        elif way.isdigit():
            self.whole(int(way), {"error": {"message": f"status \x1b[31m{way}"}})
        elif way == "bare":
            self.send_response(302)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif way == "garbage":
            self.whole(200, {"no": "events"})
        elif way == "close":
            self.close_connection = True
        else:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.answer(way, asked, times)
        self.server.note(note)

    def answer(self, way, asked, times):
        if self.server.alone_s:
            with self.server.alone:
                time.sleep(self.server.alone_s)
        if way == "mark":
            self.wfile.write(b"3\r\n\xef\xbb\xbf\r\n")
        if way in ERROR:
            self.event(json.dumps(ERROR[way]))
        elif way != "empty" and not self.stream(way, asked, times):
            if way == "reset":
                self.reset()
            elif way == "stall":
                time.sleep(600)
            while way == "drip":  # until the client has left
                self.comment()
            self.close_connection = True
            return
        if way not in ("no_usage", "twice_uncounted", "empty"):
            usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": USAGE.get(way, max(len(times), asked["max_tokens"]))}
            self.event(json.dumps({"choices": [], "usage": usage}))
        if way != "no_done":
            self.event("[DONE]")
        if way == "behind":
            self.event(json.dumps({"choices": [{"text": "x"}], "usage": {"prompt_tokens": 1, "completion_tokens": 99}}))
        self.wfile.write(b"0\r\n\r\n")


if __name__ == "__main__":
    key = sys.argv[sys.argv.index("--key") + 1] if "--key" in sys.argv else None
    Server(int(sys.argv[1]), sys.argv[2], [] if key else sys.argv[3:], key).serve_forever()
