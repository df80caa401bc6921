#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks of one thread against one rank of two threads, at the same global batch: joulemark run on the device cpu.

ranks.py [--repeat N] [--steps S] [--program build/joulemark]

The two alternate, N times each, so that other load on the machine affects both equally. Prints two ratios, each the median
of the pairs with minimum and maximum: of throughputs, which is valid on an idle machine; and of the processor time for a
step (all threads and ranks, including busy waiting; the difference of a run of S steps and one of a single step), which
other programs hardly change. 1.00: ranks cost nothing.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess

WORK = {
    "resnet18, batch 16": (["resnet18"], 16),
    "gpt of 17 M, batch 16 x 256": (["gpt", "--layers", "4", "--hidden", "512", "--heads", "8", "--vocab", "8192",
                                    "--context", "256", "--seq", "256"], 16),
}


def run_once(program, work, batch, ranks, threads, steps):
    command = [program, "run", *work, "--device", "cpu", "--batch", str(batch // ranks), "--threads", str(threads),
               "--warmup", "1", "--steps", str(steps), "--source", "null", "--json", "-"]
    command += ["--ranks", str(ranks)] if ranks > 1 else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["throughput"], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(program, work, batch, ranks, threads, steps):
    """Throughput, and steps per second of the processor's time."""
    short, (throughput, cpu) = (run_once(program, work, batch, ranks, threads, n) for n in (1, steps))
    return throughput, (steps - 1) / (cpu - short[1])


def spread(values):
    return [round(f(values), 3) for f in (statistics.median, min, max)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--program", default="build/joulemark")
    args = p.parse_args()
    for name, (work, batch) in WORK.items():
        load = os.getloadavg()[0]
        pairs = [[run(args.program, work, batch, ranks, threads, args.steps) for ranks, threads in ((2, 1), (1, 2))]
                 for _ in range(args.repeat)]
        print(json.dumps({"work": name, "pairs": args.repeat,
                          "ratio_throughput": spread([two[0] / one[0] for two, one in pairs]),
                          "ratio_per_cpu_second": spread([two[1] / one[1] for two, one in pairs]),
                          "cpu_s_per_step": [round(1 / statistics.median(pair[i][1] for pair in pairs), 3) for i in (0, 1)],
                          "load": round(load, 1)}), flush=True)


if __name__ == "__main__":
    main()
