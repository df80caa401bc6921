#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks of one thread against one rank of two threads, at the same global batch: joulemark run on the device cpu.

ranks.py [--repeat N] [--seconds S] [--program build/joulemark]

The two take turns, N times each, so that what else the machine does meets both alike; the ratio is that of each pair's
throughputs: the median, the least and the most. 1.00: ranks cost nothing.
"""
import argparse
import json
import os
import statistics
import subprocess

WORK = {
    "resnet18, batch 16": (["resnet18"], 16),
    "gpt of 21 M, batch 8 x 256": (["gpt", "--layers", "4", "--hidden", "512", "--heads", "8", "--vocab", "8192",
                                    "--context", "256", "--seq", "256"], 8),
}


def run(args, work, batch, ranks, threads):
    command = [args.program, "run", *work, "--device", "cpu", "--batch", str(batch // ranks), "--threads", str(threads),
               "--warmup", "1", "--seconds", str(args.seconds), "--source", "null", "--json", "-"]
    command += ["--ranks", str(ranks)] if ranks > 1 else []
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    if done.returncode:
        raise SystemExit(done.stderr)
    record = json.loads(done.stdout)
    exposed = (record.get("communication") or {}).get("exposed_s_per_step")
    return record["throughput"], exposed and exposed * record["steps"] / (record["items"] / record["throughput"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--program", default="build/joulemark")
    args = p.parse_args()
    load = os.getloadavg()[0]
    for name, (work, batch) in WORK.items():
        pairs = [(run(args, work, batch, 2, 1), run(args, work, batch, 1, 2)) for _ in range(args.repeat)]
        ratios = [two[0] / one[0] for two, one in pairs]
        print(json.dumps({"work": name, "pairs": args.repeat, "ratio": round(statistics.median(ratios), 3),
                          "least": round(min(ratios), 3), "most": round(max(ratios), 3),
                          "two_ranks_items_s": [round(two[0], 1) for two, _ in pairs],
                          "two_threads_items_s": [round(one[0], 1) for _, one in pairs],
                          "exposed_share": round(statistics.median(two[1] for two, _ in pairs), 4),
                          "load_before": load}), flush=True)


if __name__ == "__main__":
    main()
