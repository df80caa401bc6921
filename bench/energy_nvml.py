#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the energy of a square wave through the fake NVML, in real time, with the truth.

energy_nvml.py JOULEMARK FALSE_NVML [runs [variant...]]
A variant is a piece of JM_FAKE_NVML, as "stamp=sensor" or "nosupport=83".
"""
import json
import math
import os
import subprocess
import sys
import tempfile

LOW, HIGH, PERIOD, SHIFT, GPUS = 100.0, 600.0, 2.0, 0.237, 8


def joules_until(t, gpu):
    """Integral of the wave from 0 to t + its shift; high comes first."""
    t += gpu * SHIFT
    whole = math.floor(t / PERIOD)
    rest = t - whole * PERIOD
    return (whole * (LOW + HIGH) * PERIOD / 2 + min(rest, PERIOD / 2) * HIGH
            + max(0.0, rest - PERIOD / 2) * LOW)


def measure(joulemark, nvml, variant, length):
    """Relative errors, and whether the bound holds them, of every GPU in one run."""
    wave = f"gpus={GPUS};wave=square;low={LOW};high={HIGH};period={PERIOD};shift={SHIFT}"
    env = dict(os.environ, JM_NVML_LIB=nvml, JM_FAKE_NVML=wave + (";" + variant if variant else ""))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "record.json")
        subprocess.run([joulemark, "measure", "--source", "nvml", "--json", path, "--", "sleep",
                        str(length)], env=env, check=True, stderr=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as f:
            record = json.load(f)
    phase = next(p for p in record["phases"] if p["name"] == "command")
    begin, end = (record["start_ns"] * 1e-9 + phase[k] for k in ("start_s", "end_s"))
    meters = [m for m in record["meters"] if m["scope"] == "gpu"]
    for gpu, meter in enumerate(meters):
        truth = joules_until(end, gpu) - joules_until(begin, gpu)
        error = meter["joules"] - truth
        yield error / truth, abs(error) <= meter["error_sampling_joules"]


def main():
    joulemark, nvml = sys.argv[1:3]
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    for variant in sys.argv[4:] or ["", "stamp=sensor", "nosupport=83"]:
        for length in (3.3, 7.3):
            all_ = [x for _ in range(runs) for x in measure(joulemark, nvml, variant, length)]
            errors = [abs(e) for e, _ in all_]
            print(f"{variant or 'as on an H100':14} {length} s: mean {100 * sum(errors) / len(errors):.3f} %,"
                  f" worst {100 * max(errors):.3f} %, bound holds {sum(h for _, h in all_)} of {len(all_)}",
                  flush=True)


if __name__ == "__main__":
    main()
