# SPDX-License-Identifier: Apache-2.0
"""The metrics table of AMD MI300A sockets, written into a tree by the layout of the driver's header."""
import os
import struct
import threading
import time

PARTS = ("socket", "ccd", "xcd", "aid", "hbm")
# struct hsmp_metric_table, packed to four bytes: what stands before and behind the figures that are read
TABLE = struct.Struct("<I3I3Q3I Q5Q 4I16I8Q96Q 4I24I2I 2I16Q 3I3QIQ4Q 6I 8I")
WATTS = {0: (100, 300, 60, 90), 1: (80, 250, 50, 70)}  # of ccd, xcd, aid and hbm of each socket


def table(joules, watts, stamp, limit=550):
    head = [7, 50 << 10, 60 << 10, 55 << 10, 0, 0, 0, limit << 10, 600 << 10, int(watts * 1024)]
    energy = [int(j * 65536) for j in (sum(joules), *joules)]
    rest = [0] * (4 + 16 + 8 + 96 + 4 + 24 + 2 + 2 + 16 + 3 + 3 + 1 + 1 + 4 + 6 + 8)
    return TABLE.pack(*head, stamp, *energy, *rest)


def path(root, socket, acpi=False):
    folder = (root / f"sys/bus/platform/devices/AMDI0097:{socket:02}" if acpi
              else root / f"sys/devices/platform/amd_hsmp/socket{socket}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "metrics_bin"


def write(file, data):
    """At once and in place, as the program keeps the file open."""
    fd = os.open(file, os.O_CREAT | os.O_WRONLY)
    os.pwrite(fd, data, 0)
    os.close(fd)


class Firmware(threading.Thread):
    def __init__(self, root, acpi=False):
        super().__init__(daemon=True)
        self.root, self.acpi, self.over = root, acpi, threading.Event()
        self.begin = time.monotonic()
        self.fill()

    def fill(self):
        t = time.monotonic() - self.begin
        for socket, watts in WATTS.items():
            write(path(self.root, socket, self.acpi),
                  table([5e5 + w * t for w in watts], sum(watts), int(t * 1e8) + 1))

    def run(self):
        while not self.over.wait(0.01):
            self.fill()
