# SPDX-License-Identifier: Apache-2.0
"""Gives the first records of a store long power traces, coded as lib/trace/codec.h says.

long_traces.py STORE TRACES READINGS"""
import json
import random
import sqlite3
import struct
import sys

STEP = 0.001  # W
MULTIPLE = 0


def varint(value, out):
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)


def zigzag(value):
    return value << 1 if value >= 0 else -value * 2 - 1


def chunks(readings, size=4096):
    """readings: (ns, milliwatts) in order of time -> rows of t0, t1, how many, bytes."""
    for first in range(0, len(readings), size):
        part = readings[first:first + size]
        out, t, dt, last = bytearray(), part[0][0], 0, 0
        for ns, milliwatts in part:
            varint(zigzag(ns - t - dt), out)
            varint(zigzag(milliwatts - last) << 3 | MULTIPLE, out)
            dt, t, last = ns - t, ns, milliwatts
        head = b"jmT1" + struct.pack("<IIIqqd", len(part), len(out), len(part), part[0][0], part[-1][0], STEP)
        yield part[0][0], part[-1][0], len(part), head + bytes(out)


def wave(n, seed=1):
    """n readings at 1 kHz between 300 and 400 W, one peak of 950 W and one low of 7 W."""
    rng = random.Random(seed)
    values = [[i * 1_000_000, 300_000 + rng.randrange(100_000)] for i in range(n)]
    values[n // 3][1], values[n // 2][1] = 950_000, 7_000
    return values


def add(store, n_traces, n_readings):
    meters = [{"id": "node", "label": "node", "device": "", "source": "sim", "scope": "node",
               "origin": "simulated", "covers": "/",
               "signals": [{"quantity": "power", "step": STEP, "wrap": 0.0, "refresh_ns": 1_000_000,
                            "window_ns": 0, "accuracy": None, "stamped": True}]}]
    rows = list(chunks(wave(n_readings)))
    db = sqlite3.connect(store)
    for (n,) in db.execute("SELECT n FROM record_t WHERE repeat = 1 ORDER BY case_n LIMIT ?", (n_traces,)).fetchall():
        db.execute("INSERT INTO trace_t(record_n, meters) VALUES (?, ?)", (n, json.dumps(meters)))
        db.executemany("INSERT INTO chunk_t(record_n, signal, t0_ns, t1_ns, readings, data)"
                       " VALUES (?, 0, ?, ?, ?, ?)", [(n, *row) for row in rows])
    db.commit()
    db.close()


if __name__ == "__main__":
    add(sys.argv[1], *map(int, sys.argv[2:]))
