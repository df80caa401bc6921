# SPDX-License-Identifier: Apache-2.0
"""A power meter over Modbus/TCP: libmodbus' own server (modbus_meter.c), whose registers are in a file."""
import socket
import struct
import subprocess

from jm import BUILD

SERVER = BUILD / "tests" / "peers" / "modbus_meter"


def words(kind, address, value):
    """A float32, high word first, as two registers."""
    high, low = struct.unpack(">HH", struct.pack(">f", value))
    return f"{kind} {address} {high}\n{kind} {address + 1} {low}\n"


class Meter:
    def __init__(self, folder):
        self.file = folder / "registers"
        self.file.write_text("", encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process = None

    def start(self):
        self.process = subprocess.Popen([SERVER, str(self.port), self.file], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def source(self, text):
        return f"modbus:host=127.0.0.1,port={self.port},{text}"
