# SPDX-License-Identifier: Apache-2.0
"""Instruments that answer questions, on a TCP port or on a terminal (a serial port to the program): lines of text, or
messages that a subclass takes apart."""
import contextlib
import os
import pty
import socket
import threading
import time
import tty


class Manner:
    """How a peer sends its answers; a test may change `mode` at any time: good, silent, drip (a byte each 0.3 s), huge
    (`announced` and then bytes without end), parts (a line each 0.7 s), half (the connection ends in the middle of an
    answer)."""

    def __init__(self, announced=b"", filling=b"1" * 65536):
        self.mode, self.announced, self.filling = "good", announced, filling

    def send(self, write, answer):
        mode = self.mode
        if mode == "good":
            write(answer)
        elif mode == "drip":
            for i in range(len(answer)):
                time.sleep(0.3)
                if self.mode != mode:
                    break
                write(answer[i:i + 1])
        elif mode == "parts":
            for line in answer.splitlines(keepends=True):
                time.sleep(0.7)
                write(line)
        elif mode == "huge":
            write(self.announced)
            while self.mode == mode:
                write(self.filling)
        elif mode == "half":
            write(answer[:len(answer) // 2])
            raise ConnectionAbortedError


def end_connection(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


class Instrument:
    """answer(line) returns the lines to send. What a test may change: slow (seconds), silent, manner."""

    def __init__(self, serial=False):
        self.slow, self.silent, self.seen, self.over = 0, False, [], False
        self.lock, self.manner = threading.Lock(), Manner()
        self.server = None
        if serial:
            self.master, other = pty.openpty()
            tty.setraw(other)
            self.keep, self.where, self.port = other, os.ttyname(other), 0
        else:
            self.where, self.port = "127.0.0.1", 0
        self.ports = []
        self.plug()

    def plug(self):
        """Takes connections, after unplug() on the port that it had before."""
        if self.where == "127.0.0.1":
            self.server = socket.create_server((self.where, self.port))
            self.port = self.server.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def answer(self, line):
        raise NotImplementedError

    def split(self, received):
        """The questions in these bytes, and the bytes behind the last one."""
        *lines, rest = received.split(b"\n")
        return [line.decode().strip() for line in lines], rest

    def encode(self, replies):
        return "".join(reply + "\r\n" for reply in replies).encode()

    def serve(self, read, write):
        rest = b""
        while more := read(4096):
            questions, rest = self.split(rest + more)
            for question in questions:
                with self.lock:
                    self.seen.append(question)
                time.sleep(self.slow)
                replies = self.answer(question) if not self.silent else []
                if replies:
                    self.manner.send(write, self.encode(replies))

    def run(self):
        with contextlib.suppress(OSError):
            if not self.server:
                self.serve(lambda n: os.read(self.master, n), lambda data: os.write(self.master, data))
            while self.server:
                client, _ = self.server.accept()
                self.ports.append(client)
                with contextlib.suppress(OSError):
                    self.serve(client.recv, client.sendall)
                end_connection(client)

    def unplug(self):
        """Ends the connection and takes no other one."""
        for end in [self.server, *self.ports]:
            if end:
                end_connection(end)

    def stop(self):
        self.unplug()
        if not self.server:
            os.close(self.keep)
            os.close(self.master)
