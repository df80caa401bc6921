#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks joulemark in random ways and compares the remaining state with the truth that the attacked side stores.

    make attack [SECONDS=3600] [SEED=N] [SUITES="kills journals"]
    tests/attack/attack.py --seed 7 --suite kills --round 12      repeats one round

Each suite gets an equal share of the time. The seed is printed first; a round that fails prints the command
that repeats it, the others continue, and the status is 1. Every round has its own random generator, seeded by seed, suite and
number, so a round does not depend on earlier rounds (only the scheduling of processes varies).

A suite is a file suite_NAME.py in this folder with

    class Suite:
        \"\"\"One line: what is attacked, and what the truth is read from.\"\"\"
        def __init__(self, folder):   an empty folder of its own
        def round(self, rng):         one attack; raises AssertionError with what is wrong, and returns a word
                                      or a list of words that say what was done: they are counted
        def close(self):              ends what the suite has started

Suites need no registration. A suite may keep state between rounds (a store, fake GPUs), but no round may depend on an
earlier one. After a failed round the suite starts again in another folder.
"""
import argparse
import collections
import importlib.util
import os
import pathlib
import random
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / folder) for folder in ("", "kit", "peers"))]
os.environ["JM_BUILD"] = os.path.abspath(os.environ.get("JM_BUILD", HERE.parent.parent / "build"))
os.environ.setdefault("JM_BIN", os.path.join(os.environ["JM_BUILD"], "joulemark"))
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
sys.dont_write_bytecode = True
import conftest  # noqa: E402,F401  signals that our caller ignores arrive at what we attack


def suites():
    return {path.stem.removeprefix("suite_"): path for path in sorted(HERE.glob("suite_*.py"))}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Suite


class Attack:
    """One suite's rounds, and what came of them."""

    def __init__(self, name, path, seed):
        self.name, self.seed, self.make, self.suite = name, seed, load(path), None
        self.rounds, self.failed, self.counts = 0, 0, collections.Counter()
        self.folders = tempfile.TemporaryDirectory(prefix=f"attack-{name}-")
        os.chmod(self.folders.name, 0o755)  # other users may have to reach into it

    def one(self, number):
        rng = random.Random(f"{self.seed}/{self.name}/{number}")
        self.rounds += 1
        try:
            if self.suite is None:
                folder = os.path.join(self.folders.name, str(number))
                os.mkdir(folder)
                self.suite = self.make(folder)
            words = self.suite.round(rng)
            self.counts.update([words] if isinstance(words, str) else words)
        except Exception as problem:  # the suite's own defects count as well: nothing fails in silence
            self.failed += 1
            print(f"FAILED {self.name} round {number}: {type(problem).__name__}: {problem}\n"
                  f"       again: tests/attack/attack.py --seed {self.seed} --suite {self.name} --round {number}",
                  flush=True)
            if not isinstance(problem, AssertionError):
                traceback.print_exc()
            self.end()

    def run(self, seconds):
        number, until = 0, time.monotonic() + seconds
        while number == 0 or time.monotonic() < until:
            self.one(number)
            number += 1

    def end(self):
        suite, self.suite = self.suite, None
        try:
            if suite:
                suite.close()
        except Exception as problem:
            self.failed += 1
            print(f"FAILED {self.name} while it was ended: {type(problem).__name__}: {problem}", flush=True)

    def report(self, seconds):
        counts = ", ".join(f"{n} {word}" for word, n in sorted(self.counts.items()))
        print(f"{'FAILED' if self.failed else 'ok':6} {self.name:10} {seconds:5.0f} s  "
              f"{self.rounds - self.failed} rounds held, {self.failed} failed  {counts}", flush=True)


def attack(names, seed, seconds, number=None):
    end, failed, rounds = time.monotonic() + seconds, 0, 0
    for i, name in enumerate(names):
        began = time.monotonic()
        one = Attack(name, suites()[name], seed)
        with one.folders:
            if number is not None:
                one.one(number)
            else:
                one.run((end - began) / (len(names) - i))
            one.end()
        one.report(time.monotonic() - began)
        failed += one.failed
        rounds += one.rounds
    print(f"{rounds - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None, help="of everything random; else drawn and printed")
    parser.add_argument("--seconds", type=float, default=600, help="for all suites together")
    parser.add_argument("--suite", action="append", choices=sorted(suites()), help="only this one; may be repeated")
    parser.add_argument("--round", type=int, default=None, help="only this round of each suite")
    parser.add_argument("--list", action="store_true", help="name the suites")
    args = parser.parse_args()
    if args.list:
        for name, path in suites().items():
            print(f"{name:10} {(load(path).__doc__ or '').splitlines()[0]}")
        return 0
    seed = random.SystemRandom().randrange(10**9) if args.seed is None else args.seed
    print(f"attack: seed {seed}, {args.seconds:g} s", flush=True)
    return attack(args.suite or list(suites()), seed, args.seconds, args.round)


if __name__ == "__main__":
    sys.exit(main())
