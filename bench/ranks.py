#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks of one thread against one rank of two threads, at the same global batch: joulemark run on the device cpu.

ranks.py [--hosts] [--repeat N] [--steps S] [--program build/joulemark]

--hosts: two ranks of one thread on two hosts, by transport net, against the same two on one host, by transport local. The
hosts are two network namespaces of this machine, joined by a pair of virtual cables (veth; needs root).

The two alternate, N times each, so that other load on the machine affects both equally. Prints two ratios, each the median
of the pairs with minimum and maximum: of throughputs, which is valid on an idle machine; and of the processor time for a
step (all threads and ranks, including busy waiting; the difference of a run of S steps and one of a single step), which
other programs hardly change. 1.00: ranks, or hosts, cost nothing.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys

WORK = {
    "resnet18, batch 16": (["resnet18"], 16),
    "gpt of 17 M, batch 16 x 256": (["gpt", "--layers", "4", "--hidden", "512", "--heads", "8", "--vocab", "8192",
                                    "--context", "256", "--seq", "256"], 16),
}


def used():
    u = resource.getrusage(resource.RUSAGE_CHILDREN)
    return u.ru_utime + u.ru_stime


def run_once(program, words, _):
    return [subprocess.Popen([program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]


def run_hosts(hosts, words, port):
    return [hosts.start(i, [*words, "--launcher", "started"], hosts.environment(i, port=port)) for i in range(2)]


def measure(start, target, work, batch, ranks, threads, steps, port):
    """Throughput, and seconds of processors."""
    words = ["run", *work, "--device", "cpu", "--batch", str(batch // ranks), "--threads", str(threads),
             "--warmup", "1", "--steps", str(steps), "--source", "null", "--json", "-", *(["--ranks", str(ranks)] if ranks > 1 else [])]
    before = used()
    calls = start(target, words, port)
    told = [call.communicate() for call in calls]
    if any(call.returncode for call in calls):
        raise SystemExit("".join(err for _, err in told))
    return json.loads(told[0][0])["throughput"], used() - before


def run(start, target, work, batch, ranks, threads, steps, port):
    """Throughput, and steps per second of the processor's time."""
    short, (throughput, cpu) = (measure(start, target, work, batch, ranks, threads, n, port + i) for i, n in enumerate((1, steps)))
    return throughput, (steps - 1) / (cpu - short[1])


def spread(values):
    return [round(f(values), 3) for f in (statistics.median, min, max)]


def compare(first, second, args):
    port = 20000
    for name, (work, batch) in WORK.items():
        load, pairs = os.getloadavg()[0], []
        for _ in range(args.repeat):
            pairs.append([run(*way[:2], work, batch, *way[2:], args.steps, port := port + 2) for way in (first, second)])
        print(json.dumps({"work": name, "pairs": args.repeat,
                          "ratio_throughput": spread([one[0] / two[0] for one, two in pairs]),
                          "ratio_per_cpu_second": spread([one[1] / two[1] for one, two in pairs]),
                          "cpu_s_per_step": [round(1 / statistics.median(pair[i][1] for pair in pairs), 3) for i in (0, 1)],
                          "load": round(load, 1)}), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--hosts", action="store_true")
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--program", default="build/joulemark")
    args = p.parse_args()
    os.environ |= {"OMP_WAIT_POLICY": "passive", "JM_BIN": args.program}
    two = run_once, args.program, 2, 1
    if not args.hosts:
        return compare(two, (run_once, args.program, 1, 2), args)
    sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / "tests/kit")]
    import netns
    if netns.why_not():
        raise SystemExit(netns.why_not())
    hosts = netns.Hosts()
    try:
        return compare((run_hosts, hosts, 2, 1), two, args)
    finally:
        hosts.close()


if __name__ == "__main__":
    main()
