#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Harms the last rank of a run while it measures steps, and looks whether the others end.

    harm_rank.py killed|stopped BUILD RANKS RUN'S ARGUMENTS...

Prints one line of JSON: the seconds until the run ended, its status and its reason, and the ranks that are left. Status 0: it
ended within 10 s, the reason names the rank, and no rank is left.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
LIMIT_S = 10
START_S = 240  # until steps are measured: kernels may have to be timed first


def ranks_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(child) for child in f.read().split()]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def measures_steps(run, program, env):
    """False: the run ended before, or does not begin."""
    end = time.monotonic() + START_S
    while run.poll() is None and time.monotonic() < end:
        told = subprocess.run([program, "status", "--json"], env=env, capture_output=True, text=True, check=False).stdout
        if re.search(r'"phase":\s*"steady"', told):
            return True
        time.sleep(0.1)
    return False


def harm(run, how, world):
    """Its ranks, and seconds until the run has ended; None: it has not."""
    ranks = ranks_of(run.pid)[-world:]
    began = time.monotonic()
    os.kill(ranks[-1], SIGNALS[how])
    try:
        run.wait(timeout=3 * LIMIT_S)
    except subprocess.TimeoutExpired:
        return ranks, None
    return ranks, time.monotonic() - began


def main():
    how, build, world, *words = sys.argv[1:]
    program, world = os.path.join(build, "joulemark"), int(world)
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "record.json")
        env = {**os.environ, "JM_STATE": os.path.join(folder, "state")}
        with open(os.path.join(folder, "errors"), "w+", encoding="utf-8") as errors:
            run = subprocess.Popen([program, "run", *words, "--ranks", str(world), "--json", record], env=env,
                                   stdout=subprocess.DEVNULL, stderr=errors)
            try:
                if not measures_steps(run, program, env):
                    errors.seek(0)
                    sys.exit("no step was measured: " + errors.read()[-500:])
                ranks, seconds = harm(run, how, world)
                left = [pid for pid in ranks if is_running(pid)]
            finally:
                run.terminate()
                run.wait()
        with open(record, encoding="utf-8") as f:
            reason = json.load(f)["reason"]
    print(json.dumps({"how": how, "ranks": world, "seconds": seconds and round(seconds, 2), "status": run.returncode,
                      "reason": reason, "left": left}), flush=True)
    named = f"Rank {world - 1} of {world} (process {ranks[-1]})" in (reason or "")
    return 0 if named and seconds and seconds <= LIMIT_S and not left else 1


if __name__ == "__main__":
    sys.exit(main())
