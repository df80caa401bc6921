#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The ratios of 'joulemark tune', each beside its aim, as a table in Markdown: tuning.py [--build build] [--rounds N]
[--zeus SECONDS] [-- WORK...]

Simulated (bench/tuning.c): 100 seeds of noise on devices whose truth is known. Measured: the throughput of native work
under a tuner by that of the same work alone, in turns; the tuner searches and holds the limit of a simulated GPU, which
the work does not use, so that only the cost of tuning remains; on a GPU it reads the energy of that one. WORK is what follows 'joulemark run', such as
'gpt-117m --device cuda:0 --batch 32 --precision bf16'; without it a product on the processor. Without --rounds nothing is measured.

Zeus' power-limit optimizer (--zeus 600: jobs of ten minutes, side by side): the objective of a whole job with its search, of joulemark by
that of Zeus, on one GPU of the fake NVML each (capped_work.py), by its true energy. Zeus with its own defaults (40 steps at each limit,
from 700 to 200 W in steps of 25 W), and with 8 steps. Its search goes through limits that a slowdown of 5 % forbids, so that its jobs are
slower than that; joulemark is compared at 5 % and at the slowdown that these jobs have as a whole. Zeus' packages are installed from PyPI at the first time (tools/requirements-peers.txt).
"""
import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import capped_work

TOP = pathlib.Path(__file__).resolve().parent.parent
PRODUCT = ["gemm", "--device", "cpu"]
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}  # Student's t by the number of values


def simulated(build):
    """Lines of the table: of one kind of device and all objectives the worst."""
    lines = subprocess.run([build / "bench" / "tuning"], check=True, capture_output=True, text=True).stdout.splitlines()
    folded = {}
    for row in map(json.loads, lines):
        where = row["where"].split(", ")[0] if row["ratio"].startswith("tuned") else row["where"]
        if row["ratio"].startswith("search"):
            where = "all of these"
        key = row["ratio"], where
        same = folded.setdefault(key, {**row, "where": where})
        worse = max if row["most"] else min
        same.update(worst=worse(same["worst"], row["worst"]), good=min(same["good"], row["good"]))
    ratios = [ratio for ratio, _ in folded]
    return sorted(folded.values(), key=lambda row: ratios.index(row["ratio"]))


def throughput(build, work, seconds, tuned, folder):
    record, tune = pathlib.Path(folder) / "run.json", pathlib.Path(folder) / "tune.json"
    run = [build / "joulemark", "run", *work, "--seconds", str(seconds), f"--json={record}"]
    sources = "nvml,sim:h100x1" if any("cuda" in word for word in work) else "sim:h100x1"
    under = [build / "joulemark", "tune", "--source", sources, "--control", "sim:h100x1", "--window", "0.3s", "--within", f"{seconds / 3}s", f"--json={tune}", "--"]
    done = subprocess.run(under * tuned + run, check=False, env={**os.environ, "JM_STATE": folder}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    if tuned and json.loads(tune.read_text())["tune"]["choice"] == "open":
        sys.exit("The work ended before the search did; give more --seconds.")
    return json.loads(record.read_text())["throughput"]


def measured(build, work, rounds, seconds):
    """Of each round the logarithm of the ratio; both in random order."""
    rng, logs = random.Random(1), []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            came = {tuned: throughput(build, work, seconds, tuned, folder) for tuned in rng.sample([False, True], 2)}
            logs.append(math.log(came[True] / came[False]))
    half = T95.get(rounds, 2.2) * statistics.stdev(logs) / math.sqrt(rounds)
    return math.exp(statistics.fmean(logs)), math.exp(half) - 1


COMPARED = [  # objective of joulemark and of Zeus, steps of Zeus at each limit
    ("energy", "energy", 40),
    ("energy", "energy", 8),
    ("zeus:0.5", "zeus:0.5", 40),
    ("zeus:0.5", "zeus:0.5", 8),
    ("slowdown:5%", "slowdown:5%", 40),
    ("slowdown:13%", "slowdown:5%", 40),
    ("slowdown:5%", "slowdown:5%", 8),
    ("slowdown:6%", "slowdown:5%", 8),
]


def cost(objective, job):
    """Of a whole job; with a limit of the time it is the energy."""
    return 0.5 * job["joules"] + 0.5 * 700 * job["seconds"] if objective == "zeus:0.5" else job["joules"]


def start_job(build, folder, objective, seconds, zeus_steps=None):
    """The process of a job under Zeus, or under joulemark; its result is in folder/result.json."""
    folder.mkdir()
    library = folder / "libnvidia-ml.so.1"  # pynvml loads it by this name
    library.symlink_to(build / "tests/peers/libnvidia-ml-fake.so")
    env = {**os.environ, "JM_FAKE_NVML": "gpus=1;wave=const;power=700;response=1", "JM_FAKE_NVML_STATE": str(folder / "driver"),
           "JM_STATE": str(folder / "state"), "JM_NVML_LIB": str(library), "LD_LIBRARY_PATH": str(folder),
           "PYTHONPATH": str(build / "packages-peers")}
    work = [sys.executable, str(TOP / "bench/capped_work.py"), str(library), str(round(seconds * capped_work.rate(700))), str(folder / "result.json")]
    if zeus_steps:
        work += ["--zeus", objective, "--steps", str(zeus_steps)]
    else:
        work = [build / "joulemark", "tune", "--source", "nvml", "--objective", objective, "--items-regex", "step", f"--json={folder}/tune.json", "--", *work]
    with open(folder / "said", "w", encoding="utf-8") as said:
        return subprocess.Popen(work, env=env, stdout=subprocess.DEVNULL, stderr=said)


def against_zeus(build, seconds):
    """Of each row of COMPARED the jobs of joulemark and of Zeus."""
    os.environ.update(JM_BUILD=str(build), JM_BIN=str(build / "joulemark"))
    sys.path[:0] = [str(TOP / "tests/kit")]
    from packages import packages  # pylint: disable=import-outside-toplevel
    packages("peers")
    with tempfile.TemporaryDirectory() as top:
        keys = {(own, None) for own, _, _ in COMPARED} | {(objective, steps) for _, objective, steps in COMPARED}
        jobs = {(objective, steps): pathlib.Path(top) / f"{objective.replace(':', '-').rstrip('%')}-{steps}" for objective, steps in sorted(keys, key=str)}
        started = [start_job(build, folder, objective, seconds, steps) for (objective, steps), folder in jobs.items()]
        if any([job.wait() for job in started]):
            sys.exit("".join((folder / "said").read_text(encoding="utf-8")[-500:] for folder in jobs.values()))
        came = {key: json.loads((folder / "result.json").read_text(encoding="utf-8")) for key, folder in jobs.items()}
        for key, folder in jobs.items():
            if not key[1]:
                came[key]["search_s"] = json.loads((folder / "tune.json").read_text(encoding="utf-8"))["tune"]["search_s"]
    for own, objective, steps in COMPARED:
        yield own, objective, steps, came[own, None], came[objective, steps]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=TOP / "build")
    p.add_argument("--rounds", type=int, default=0, choices=[0, *T95], help="of both runs, 2 to 10; 0: none (0)")
    p.add_argument("--seconds", type=float, default=60, help="of each run (60)")
    p.add_argument("--zeus", type=float, metavar="SECONDS", help="of each job beside Zeus' (none)")
    p.add_argument("work", nargs="*", default=PRODUCT)
    args = p.parse_args()
    print("| ratio | of | aim | reached by, of 100 | worst |\n|---|---|--:|--:|--:|")
    for row in simulated(args.build):
        print(f"| {row['ratio']} | {row['where']} | {'≤' if row['most'] else '≥'} {row['aim']:.2f} | {row['good']} | {row['worst']:.3f} |")
    if args.rounds:
        ratio, half = measured(args.build.resolve(), args.work, args.rounds, args.seconds)
        print(f"| native work under a tuner / without | {' '.join(args.work)} | ≥ 0.995 | {args.rounds} rounds | {ratio:.4f} ± {half:.4f} |")
    for objective, theirs, steps, own, zeus in against_zeus(args.build.resolve(), args.zeus) if args.zeus else []:
        print(f"| job of {args.zeus:.0f} s / under Zeus | {objective}; Zeus {theirs} with {steps} steps | ≤ 0.99 | "
              f"search {own['search_s']:.0f} s / {zeus['search_s']:.0f} s, {own['cap']:.0f} W / {zeus['cap']:.0f} W, "
              f"time {own['seconds'] / args.zeus:.3f} / {zeus['seconds'] / args.zeus:.3f} of that at 700 W | {cost(theirs, own) / cost(theirs, zeus):.3f} |")


if __name__ == "__main__":
    main()
