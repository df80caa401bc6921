#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Examines the power sensors of a machine: how often each signal changes, whether the driver's time stamps are those of the
sensor, and the difference between counter and integration. Changes no setting.

sensor.py JOULEMARK [--source nvml:raw] [--seconds 10] [--keep DIR] [-- LOAD...]

Reads as fast as --interval allows while LOAD runs (default: sleep SECONDS) and prints JSON. With --keep
the recording stays in DIR, for `--source replay:DIR` and as test data.
"""
import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile


def intervals(times):
    """Median and the middle half of the gaps between changes, in seconds."""
    gaps = [b - a for a, b in zip(times, times[1:])]
    if len(gaps) < 4:
        return None
    quarter = statistics.quantiles(gaps, n=4)
    return {"changes": len(times), "median_s": quarter[1], "q1_s": quarter[0], "q3_s": quarter[2],
            "min_s": min(gaps)}


def changes(readings):
    """When a signal took a new value; a run of equal ones counts once."""
    times, last = [], None
    for t, value in readings:
        if value != last:
            times.append(t)
        last = value
    return times[1:]


def look_at(folder):
    with open(folder / "meters.csv", newline="") as f:
        signals = list(csv.DictReader(f))
    readings = {s["signal"]: [] for s in signals}
    with open(folder / "readings.csv", newline="") as f:
        for row in csv.DictReader(f):
            if row["value"]:
                readings[row["signal"]].append((float(row["t_s"]), float(row["value"])))
    return [{"meter": s["meter"], "quantity": s["quantity"], "stamps_are_the_sensors": s["stamped"] == "1",
             "declared_refresh_s": float(s["refresh_s"] or 0) or None,
             "seen": intervals(changes(readings[s["signal"]]))} for s in signals]


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ask.add_argument("joulemark")
    ask.add_argument("--source", default="nvml:raw")
    ask.add_argument("--interval", default="1ms")
    ask.add_argument("--seconds", type=float, default=10)
    ask.add_argument("--keep")
    own, load = sys.argv[1:], []
    if "--" in own:
        load = own[own.index("--") + 1:]
        own = own[:own.index("--")]
    args = ask.parse_args(own)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.keep or f"{scratch}/recording")
        done = subprocess.run([args.joulemark, "measure", "--source", args.source, "--interval", args.interval,
                               "--csv", folder, "--json", f"{scratch}/record.json", "--",
                               *(load or ["sleep", str(args.seconds)])], stdout=sys.stderr)
        record = json.loads(pathlib.Path(f"{scratch}/record.json").read_text())
        meters = [{k: m[k] for k in ("id", "joules_counter", "joules_integrated", "error_sampling_joules",
                                     "watts_mean", "watts_max", "covered_s")} for m in record["meters"]]
        json.dump({"signals": look_at(folder), "meters": meters, "wall_s": record["wall_s"]}, sys.stdout,
                  indent=1)
        print()
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
