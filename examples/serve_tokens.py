#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Joules per token of a serving loop, in three lines: those with `m`.

serve_tokens.py [--source SOURCES] [--requests N]
"""
import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))  # not needed where it is installed
import joulemark  # pylint: disable=wrong-import-position


def serve(request):
    """Stands for the server: takes 5 ms, returns how many tokens it generated."""
    time.sleep(0.005)
    return 20 + request % 10


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--source", help="as for joulemark measure; the default is all that measure here")
    p.add_argument("--requests", type=int, default=200)
    args = p.parse_args()
    with joulemark.measure(args.source) as m, m.region("serve"):
        for request in range(args.requests):
            m.credit(serve(request))
    print(m["serve"].joules_per_item, "J per token,", m["serve"].items, "tokens,", m["serve"].origin)


if __name__ == "__main__":
    main()
