#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kills during a sweep on fake GPUs whose limits persist after every process, as in a driver.

    JM_BIN=build/joulemark JM_BUILD=build tests/kit/kill_sweep.py [COUNT [SEED]]

COUNT random SIGKILLs each of the program, of the guard, and of both. After each, every limit has its
former value (set by the guard, by the program, or by the next start or `joulemark restore`), the store is intact, and no
finished record was lost or repeated. test_kill_sweep.py runs a few of each."""
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("JM_BUILD", os.path.abspath("build"))

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "peers"))

from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN

FOUND = [700.0, 555.0, 700.0, 600.0]
POINTS, REPEATS = 3, 3  # with the reference, which these devices do not share
WHO = ("program", "guard", "both")


class Sweep:
    def __init__(self, folder, seed):
        self.folder, self.rng, self.stores = folder, random.Random(seed), 0
        self.gpus = FakeGpus(folder, 4, "wave=square;response=1")
        self.env = {**os.environ, **self.gpus.env}
        for setting in ("gpu.power@GPU-1=555W", "gpu.power@GPU-3=600W"):
            subprocess.run([BIN, "set", setting], env=self.env, check=True, capture_output=True)
        for name in self.gpus.journals():
            os.remove(os.path.join(self.gpus.env["JM_STATE"], "knobs", name))
        assert self.gpus.limits() == FOUND
        self.done = {}  # finished records of the store at hand, as text
        self.tally = {"kills": 0, "cases": 0, "settings made when killed": 0, "stores": 0}
        self.new_store()

    def new_store(self):
        self.stores += 1
        self.store = os.path.join(self.folder, f"sweep-{self.stores}.db")
        self.done = {}

    def start(self):
        args = ["run", "null", "--source", "nvml", "--step-time", "20ms", "--steps", "3", "--warmup",
                "0", "--set", "gpu.power=300W,400W", "--repeat", str(REPEATS), "--store", self.store]
        return subprocess.Popen([BIN, *args], env=self.env, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    def check_limits(self, who, seconds=20):
        assert wait_for(lambda: self.gpus.limits() == FOUND, seconds), \
            f"after a kill of {who}: {self.gpus.limits()} instead of {FOUND}"

    def check_store(self):
        if not os.path.exists(self.store):
            return
        db = sqlite3.connect(self.store)
        try:
            if not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                return  # killed before it had tables
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            now = {(row[0], row[1]): row[2] for row in db.execute(
                "SELECT case_id, repeat, record FROM records WHERE status = 'ok'")}
            assert db.execute("SELECT count(*) FROM records").fetchone()[0] == len(now), "a failed case"
            assert not db.execute("SELECT 1 FROM record_t GROUP BY case_n, repeat HAVING count(*) > 1"
                                  ).fetchall()
        finally:
            db.close()
        for key, text in self.done.items():
            assert now.get(key) == text, f"finished record {key} was lost or done again"
        self.done = now

    def check_whole(self):
        """The sweep is complete, each case with its settings and its trace."""
        self.check_store()
        assert len(self.done) == POINTS * REPEATS, len(self.done)
        for text in self.done.values():
            record = json.loads(text)
            want = record["case"]["parameters"]["settings"]["gpu.power"]
            got = [s["enforced"] for s in sorted(record["settings"], key=lambda s: s["device"])]
            assert got == (FOUND if want == "as found" else [float(want[:-1])] * 4), (want, got)
            assert len(record["meters"]) >= 4 and record["status"] == "ok"
        db = sqlite3.connect(self.store)
        traced = db.execute("SELECT count(DISTINCT record_n) FROM chunk_t").fetchone()[0]
        db.close()
        assert traced == POINTS * REPEATS
        self.tally["cases"] += len(self.done)
        self.tally["stores"] += 1
        self.new_store()

    def finish(self, child):
        """It ends by itself, well."""
        stderr = child.communicate(timeout=240)[1]
        assert child.returncode == 0, f"{child.returncode}: {stderr}"
        assert self.gpus.limits() == FOUND
        self.check_whole()

    def one(self, who):
        child = self.start()
        try:
            child.wait(timeout=self.rng.uniform(0.02, 2.5))
            self.finish(child)
            return False
        except subprocess.TimeoutExpired:
            pass
        guard = guard_of(child.pid)
        if guard is None and who != "program":
            kill(child.pid)
            child.communicate()
            return False
        self.tally["settings made when killed"] += self.gpus.limits() != FOUND
        if who != "program":
            kill(guard)
        if who != "guard":
            kill(child.pid)
            child.communicate()
        if who == "program":
            self.check_limits(who)
        elif who == "guard":
            self.finish(child)
        elif self.rng.random() < 0.5:
            subprocess.run([BIN, "restore"], env=self.env, check=True, capture_output=True)
            assert self.gpus.limits() == FOUND, "joulemark restore"
        self.check_store()
        self.tally["kills"] += 1
        return True


def sweep_kills(folder, count, seed=1):
    sweep = Sweep(folder, seed)
    for who in WHO:
        kills = 0
        while kills < count:
            kills += sweep.one(who)
        sweep.finish(sweep.start())
    return sweep.tally


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        tally = sweep_kills(folder, count, seed)
    print(f"{count} SIGKILLs each of program, guard and both: every limit as found, stores whole;",
          ", ".join(f"{value} {key}" for key, value in tally.items()),
          f"in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
