#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Settings that need no rights, batch and share of the multiprocessors: what the tuner's search finds (search_runs.c; each visit a
run of its own) against a full sweep of the same pairs in the same call. Prints the ratio of the joules per token, with its aim:

    bench/soft_tuner.py BUILD [--seconds 1.5] [--within 100] [-- MODEL OPTION...]

Without -- it is gpt-117m --device cuda:0 --precision bf16. In the end the pair that is held and the best one of the sweep run in turns, three
times each; these runs alone give the ratio, as the best of a sweep of single runs is partly luck."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

BATCHES, SHARES = [4, 16, 32, 64], [34, 56, 78, 100]
FOUND = 8, 100  # where a user may begin


class Work:
    def __init__(self, build, words, seconds):
        self.run = [build / "joulemark", "run", *words, "--warmup", "0.3s", "--selftest", "0", "--seconds", f"{seconds}s", "--quiet", "--json"]

    def visit(self, batch, share):
        """(seconds, items, joules) of the steady part, and the seconds of the whole run."""
        begin = time.monotonic()
        done = subprocess.run([*self.run, "--batch", str(batch), "--sm-share", str(share)], check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"soft_tuner: batch {batch}, share {share}: {done.stderr[-400:]}")
        record = json.loads(done.stdout)
        joules = next(filter(None, (record["total"][f"joules_{origin}"] for origin in ("measured", "simulated", "estimated"))), None)
        if not joules or not record["throughput"]:
            sys.exit(f"soft_tuner: batch {batch}, share {share}: the energy or the rate is unknown: {done.stderr[-400:]}")
        return (record["items"] / record["throughput"], record["items"], joules), time.monotonic() - begin


def search(build, work, within):
    words = ["energy", within, BATCHES[0], BATCHES[-1], 4, FOUND[0], SHARES[0], SHARES[-1], 2, FOUND[1]]
    visits = 0
    with subprocess.Popen([build / "bench/search_runs", *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as searcher:
        for line in searcher.stdout:
            if line.startswith("held"):
                return tuple(map(round, map(float, line.split()[1:]))), visits
            what, wall = work.visit(*map(round, map(float, line.split())))
            visits += 1
            print(*what, wall, file=searcher.stdin, flush=True)
    sys.exit("soft_tuner: the search failed")


def joules_per_item(work, pair):
    (_, items, joules), _ = work.visit(*pair)
    return joules / items


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    p.add_argument("--seconds", type=float, default=1.5, help="of each run")
    p.add_argument("--within", type=float, default=100, help="s, of the search")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = p.parse_args(sys.argv[1:at])
    work = Work(args.build, sys.argv[at + 1:] or ["gpt-117m", "--device", "cuda:0", "--precision", "bf16"], args.seconds)
    begin = time.monotonic()
    swept = {(batch, share): joules_per_item(work, (batch, share)) for batch in BATCHES for share in SHARES}
    for batch in BATCHES:
        print(f"batch {batch:3}: " + ", ".join(f"{share} % {1e3 * swept[batch, share]:.3f} mJ" for share in SHARES))
    between = time.monotonic()
    held, visits = search(args.build, work, args.within)
    ended = time.monotonic()
    best = min(swept, key=swept.get)
    rows = {pair: [] for pair in (held, best)}
    for _ in range(3):
        for pair, row in rows.items():
            row.append(joules_per_item(work, pair))
    ratio = statistics.median(rows[held]) / statistics.median(rows[best])
    spread = max((max(row) - min(row)) / statistics.median(row) for row in rows.values())
    print(f"sweep {between - begin:.0f} s, best {best}; search {ended - between:.0f} s, {visits} visits, holds {held}; found {FOUND}")
    print(f"energy per item, tuned / best of the sweep: {ratio:.3f}   (aim 1.03; runs of one pair differ by up to {100 * spread:.1f} %)")


if __name__ == "__main__":
    main()
