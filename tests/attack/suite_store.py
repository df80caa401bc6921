# SPDX-License-Identifier: Apache-2.0
"""Damage to stores, plans and records, and kills while a store is written."""
import copy
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time

import damage
from jm import BIN, jm
from runs import comparable, records

SWEEP = ["run", "sim", "--device", "sim:h100x1", "--set", "gpu.power=300W,400W", "--seconds", "1", "--repeat", "2"]
FORMATS = ["table", "md", "csv", "json", "html"]


def finished(path):
    """The records that are whole in the file, read without joulemark: {(case, repeat): record}."""
    return {(r["case"]["id"], r["case"]["repeat"]): comparable(r) for r in records(path)}


class Suite:
    """Bytes of a store, values of plans and records, and SIGKILL while it is written; the truth is what an undamaged
    run of the same plan keeps, and that nothing ends by a signal or without a sentence."""

    def __init__(self, folder):
        self.folder = str(folder)
        self.whole, self.store = f"{self.folder}/whole.db", f"{self.folder}/a.db"
        damage.make_store(self.whole)
        self.truth = finished(self.whole)
        with open(self.whole, "rb") as file:
            self.content = file.read()

    def round(self, rng):
        for suffix in ("", "-wal", "-shm", "-journal"):
            if os.path.exists(self.store + suffix):
                os.remove(self.store + suffix)
        kinds = {"bytes": self.bytes, "cut": self.cut, "plan": self.plan, "record": self.record, "json": self.json,
                 "kill": self.kill}
        kind = rng.choice(sorted(kinds))
        kinds[kind](rng)
        return kind

    def read_all(self, rng):
        damage.survives(jm("report", "--format", rng.choice(FORMATS), "--output", f"{self.folder}/out", self.store))
        damage.survives(jm("run", "--store", self.store, "--resume"))
        damage.survives(jm(*SWEEP, "--store", self.store))

    def write(self, content):
        with open(self.store, "wb") as file:
            file.write(content)

    def bytes(self, rng):
        content = bytearray(self.content)
        for _ in range(rng.choice([1, 2, 8, 64, 512])):
            content[rng.randrange(len(content))] = rng.randrange(256)
        self.write(content)
        self.read_all(rng)

    def cut(self, rng):
        at = rng.randrange(len(self.content))
        self.write(self.content[:at] + rng.choice([b"", bytes(len(self.content) - at)]))
        self.read_all(rng)

    def plan(self, rng):
        shutil.copy(self.whole, self.store)
        damage.change_plan(self.store, lambda plan: self.change(plan, rng))
        self.read_all(rng)

    def change(self, value, rng):
        places = list(damage.paths(value))
        for place in rng.sample(places, rng.choice([1, 1, 2, 5])):
            try:
                damage.put(value, place, copy.deepcopy(rng.choice(damage.WRONG)))
            except (KeyError, IndexError, TypeError):
                pass  # its parent is damaged already

    def record(self, rng):
        shutil.copy(self.whole, self.store)
        db = sqlite3.connect(self.store)
        n, text = rng.choice(db.execute("SELECT n, record FROM record_t").fetchall())
        record = json.loads(text)
        self.change(record, rng)
        db.execute("UPDATE record_t SET record = ? WHERE n = ?", (json.dumps(record), n))
        db.commit()
        db.close()
        self.read_all(rng)

    def json(self, rng):
        rows = copy.deepcopy(records(self.whole))
        self.change(rows, rng)
        with open(f"{self.folder}/a.json", "w", encoding="utf-8") as file:
            json.dump(rows, file)
        damage.survives(jm("report", "--format", rng.choice(FORMATS), "--output", f"{self.folder}/out",
                           f"{self.folder}/a.json"))

    def kill(self, rng):
        """Kills at random moments; what is finished stays, and in the end all is as without kills."""
        before = {}
        for _ in range(rng.choice([1, 3])):
            with subprocess.Popen([BIN, *SWEEP, "--store", self.store], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True) as process:
                time.sleep(rng.random() * 0.4)
                os.killpg(process.pid, signal.SIGKILL)
            after = finished(self.store) if self.is_made() else {}
            assert before.items() <= after.items(), "a finished record is gone or has changed"
            before = after
        done = jm(*SWEEP, "--store", self.store)
        assert done.returncode == 0, done.stderr
        assert finished(self.store) == self.truth, "other records than without kills"

    def is_made(self):
        """Has the store its tables? A kill may come before."""
        if not os.path.exists(self.store):
            return False
        db = sqlite3.connect(self.store)
        try:
            return db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'records'").fetchone()[0] > 0
        finally:
            db.close()

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)
