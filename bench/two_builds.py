#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of two build folders, which run alternately, so that a busy machine affects both equally.

    bench/two_builds.py BUILD_BEFORE BUILD_AFTER [--runs 40] [--day]

Per row: the median of each, their ratio, and the 95 % interval of the ratio from resampled pairs. --day adds the
simulated days of bench/sim_day and bench/sampler_cost (build both with ninja first), of which there are runs / 10.
"""
import argparse
import os
import random
import re
import resource
import statistics
import subprocess
import tempfile
import time


def one(command, env):
    """Wall and processor milliseconds, and what it printed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    out = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall * 1e3, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3, out


def start_up(build, env):
    wall, cpu, _ = one([f"{build}/joulemark", "--version"], env)
    return {"--version, wall ms": wall, "--version, processor ms": cpu}


def measure(build, env):
    wall, cpu, _ = one([f"{build}/joulemark", "measure", "--", "/bin/true"], env)
    return {"measure -- true, wall ms": wall, "measure -- true, processor ms": cpu}


def sim_day(build, env):
    return {"sim_day, processor ms": one([f"{build}/bench/sim_day"], env)[1]}


def sampler_day(build, env):
    """A build from before the part had a name runs all parts."""
    out = one([f"{build}/bench/sampler_cost", "day"], env)[2]
    sampling, energies = re.search(r"100 Hz: ([\d.]+) s, and ([\d.]+) s for the energies", out).groups()
    return {"a day of 8 GPUs, sampled: s": float(sampling), "its energies: s": float(energies)}


def interval(pairs):
    """Of the ratio of the medians."""
    rng = random.Random(1)
    ratios = []
    for _ in range(1000):
        drawn = rng.choices(pairs, k=len(pairs))
        ratios.append(statistics.median(b for _, b in drawn) / max(statistics.median(a for a, _ in drawn), 1e-9))
    ratios.sort()
    return ratios[25], ratios[974]


def compare(fn, builds, runs, env):
    rows = {}
    for i in range(runs):
        turn = builds if i % 2 else builds[::-1]
        found = {build: fn(build, env) for build in turn}
        for name, value in found[builds[0]].items():
            rows.setdefault(name, []).append((value, found[builds[1]][name]))
    for name, pairs in rows.items():
        before, after = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
        low, high = interval(pairs)
        print(f"{name:32} {before:9.3f} -> {after:9.3f}  x{after / max(before, 1e-9):.3f} ({low:.3f} to {high:.3f})",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs=2, metavar="BUILD")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--day", action="store_true", help="the simulated days, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "JM_STATE": folder + "/state", "TMPDIR": folder}
        for fn in (start_up, measure):
            compare(fn, args.builds, args.runs, env)
        for fn in (sim_day, sampler_day) if args.day else ():
            compare(fn, args.builds, max(2, args.runs // 10), env)


if __name__ == "__main__":
    main()
