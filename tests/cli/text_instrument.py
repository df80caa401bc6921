# SPDX-License-Identifier: Apache-2.0
"""Instruments that answer lines of text, on a TCP port or on a terminal (a serial port to the program)."""
import contextlib
import os
import pty
import socket
import threading
import time
import tty


class Instrument(threading.Thread):
    """answer(line) returns the lines to send. What a test may change: slow (seconds), silent, garbage."""

    def __init__(self, serial=False):
        super().__init__(daemon=True)
        self.slow, self.silent, self.seen, self.over = 0, False, [], False
        self.lock = threading.Lock()
        self.server = None
        if serial:
            self.master, other = pty.openpty()
            tty.setraw(other)
            self.keep, self.where, self.port = other, os.ttyname(other), 0
        else:
            self.server = socket.create_server(("127.0.0.1", 0))
            self.where, self.port = "127.0.0.1", self.server.getsockname()[1]
        self.ports = []
        self.start()

    def answer(self, line):
        raise NotImplementedError

    def serve(self, read, write):
        rest = b""
        while True:
            more = read(4096)
            if not more:
                return
            *lines, rest = (rest + more).split(b"\n")
            for line in lines:
                text = line.decode().strip()
                with self.lock:
                    self.seen.append(text)
                time.sleep(self.slow)
                for reply in self.answer(text) if not self.silent else ():
                    write(reply.encode() + b"\r\n")

    def run(self):
        with contextlib.suppress(OSError):
            if not self.server:
                self.serve(lambda n: os.read(self.master, n), lambda data: os.write(self.master, data))
            while self.server:
                client, _ = self.server.accept()
                self.ports.append(client)
                with contextlib.suppress(OSError):
                    self.serve(client.recv, client.sendall)

    def unplug(self):
        """Ends the connection and takes no other one."""
        for end in [self.server, *self.ports]:
            if end:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def stop(self):
        self.unplug()
        if not self.server:
            os.close(self.keep)
            os.close(self.master)
