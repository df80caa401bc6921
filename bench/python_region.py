#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a region and of a mark in a Python program: python_region.py [--build build] [--rounds N]

In microseconds, the median of the rounds with minimum and maximum: wall time, and processor time of the calling thread,
which other programs hardly change. The ratio is that of wall times to two calls of time.perf_counter(), which a program
needs at least to know how long something took. All alternate in each round, so that other load on the machine affects all
equally. `region` is a begin and an end, `mark` one message to `joulemark measure`, `send` the same bytes by a socket of
Python.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
CALLS = 2000


def per_call_us(function):
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(CALLS):
        function()
    return (time.perf_counter() - wall) / CALLS * 1e6, (time.thread_time() - cpu) / CALLS * 1e6


def measure(rounds):
    import joulemark  # pylint: disable=import-outside-toplevel

    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.connect(os.environ["JM_PROGRESS"])

    def clock():
        time.perf_counter()
        time.perf_counter()

    with joulemark.measure("sim:h100x1") as m:
        def region():
            with m.region("region"):
                pass

        def credit():
            m.credit(1)

        def mark():
            joulemark.mark("mark", 1)

        def send():
            own.send(b"jm1 %d mark send 1" % time.monotonic_ns())

        functions = {"clock": clock, "send": send, "region": region, "credit": credit, "mark": mark}
        found = [{name: per_call_us(f) for name, f in functions.items()} for _ in range(rounds)]
    for name in functions:
        values = {"us": [r[name][0] for r in found], "cpu_us": [r[name][1] for r in found],
                  "ratio": [r[name][0] / r["clock"][0] for r in found]}
        print(json.dumps({"what": name, **{key: [round(f(v), 2) for f in (statistics.median, min, max)]
                                           for key, v in values.items()}}))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", type=pathlib.Path, default=TOP / "build")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.inside:
        measure(args.rounds)
        return
    env = {**os.environ, "PYTHONPATH": str(TOP / "python"), "JM_LIBRARY": str(args.build / "libjoulemark.so.0")}
    subprocess.run([args.build / "joulemark", "measure", "--quiet", "--source", "null", "--output", os.devnull, "--", sys.executable,
                    __file__, "--inside", "--rounds", str(args.rounds)], env=env, check=True)


if __name__ == "__main__":
    main()
