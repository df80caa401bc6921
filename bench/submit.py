#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What `submit` costs: submit.py [--program JOULEMARK]

The time that it needs for plans of 10,000 cases, without that of Slurm's commands, for which stand-ins are called; and, where
Slurm of Debian can be started (root, slurm-wlm, munge), 60 cases of 1 s on two nodes, against the same two jobs started by hand.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/kit"))
import slurm  # noqa: E402

PLANS = {
    "10,000 cases of a workload": "work: gemm\nm: 1:100+1\nn: 1:100+1\nk: 64\n",
    "10,000 cases of a command": 'command: ["true", "{a}", "{b}"]\nvariables: {a: 1:100+1, b: 1:100+1}\n',
}
CASES = 'command: [sleep, "1"]\nvariables: {a: 1:60+1}\nsource: "null"\n'
REPEATS = 5


def timed(words, **more):
    before, begin = os.times(), time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    after = os.times()
    return time.monotonic() - begin, sum(after[2:4]) - sum(before[2:4])


def submit_many(program, folder):
    for name, text in (("sbatch", "echo 1"), ("squeue", ":")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "JM_STATE": str(folder / "state")}
    for name, plan in PLANS.items():
        (folder / "plan.yaml").write_text(plan)
        times = []
        for _ in range(REPEATS):
            shutil.rmtree(folder / "all.db.jobs", ignore_errors=True)
            times.append(timed([program, "submit", "plan.yaml", "--store", "all.db", "--parts", "1000"], cwd=folder, env=env))
        wall, used = zip(*times)
        print(f"submit of {name}: {statistics.median(wall):.2f} s ({min(wall):.2f} to {max(wall):.2f}), "
              f"{statistics.median(used):.2f} s of processor time ({min(used):.2f} to {max(used):.2f})")


def two_nodes(program, folder):
    reason = slurm.why_not()
    if reason:
        print(f"60 cases of 1 s on two nodes: not measured, {reason}")
        return
    (folder / "cluster").mkdir()
    cluster = slurm.Cluster(folder / "cluster")
    try:
        env = {**cluster.env, "JM_STATE": str(folder / "state")}
        (folder / "plan.yaml").write_text(CASES)
        begin = time.monotonic()
        subprocess.run([program, "submit", "plan.yaml", "--store", "two.db", "--parts", "2", "--quiet"], cwd=folder, env=env, check=True,
                       stdout=subprocess.DEVNULL)
        jobs = folder / "two.db.jobs"
        cluster.until(lambda: len(list(jobs.glob("*.end"))) == 2, 300)
        by_slurm = time.monotonic() - begin
    finally:
        cluster.close()
    file, = jobs.glob("*.json")
    begin = time.monotonic()
    children = [subprocess.Popen([program, "run", "--job", f"{file}:{i}", "--store", folder / f"{i}.db"], env=env,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(2)]
    failed = sum(child.wait() != 0 for child in children)
    by_hand = time.monotonic() - begin
    assert not failed and all(f.read_text().startswith("0 ") for f in jobs.glob("*.end"))
    print(f"60 cases of 1 s on two nodes: {by_slurm:.1f} s by Slurm, {by_hand:.1f} s by hand: {by_hand / by_slurm:.3f} of its rate")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/joulemark")
    program = os.path.abspath(parser.parse_args().program)
    with tempfile.TemporaryDirectory(prefix="joulemark-submit.") as name:
        submit_many(program, pathlib.Path(name))
        two_nodes(program, pathlib.Path(name))


if __name__ == "__main__":
    main()
