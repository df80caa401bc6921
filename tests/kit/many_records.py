# SPDX-License-Identifier: Apache-2.0
"""A store of many records: those of one short sweep of a simulated node, repeated with other figures.

many_records.py STORE N [CAPS]    N records, of CAPS settings (100)"""
import json
import random
import sqlite3
import sys
import tempfile

from jm import jm


def read(path):
    db = sqlite3.connect(path)
    records = [json.loads(row[0]) for row in db.execute("SELECT record FROM records")]
    db.close()
    return records


def sweep(folder):
    """The records of a sweep, as joulemark writes them."""
    path = f"{folder}/one.db"
    done = jm("run", "sim", "--device", "sim:h100x4", "--set", "gpu.power=300W,700W", "--seconds", 2, "--store", path)
    assert done.returncode == 0, done.stderr
    return path, read(path)


def scale(record, factor):
    for place in [record["total"], *record["meters"]]:
        for key, value in place.items():
            if key.startswith(("joules", "watts")) and isinstance(value, float):
                place[key] = value * factor


def make(store, n, caps=100):
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path, (first, *_) = sweep(folder)
        with open(path, "rb") as one, open(store, "wb") as out:
            out.write(one.read())
    db = sqlite3.connect(store)
    for table in ("chunk_t", "trace_t", "record_t", "case_t", "plan_t"):
        db.execute(f"DELETE FROM {table}")
    text = json.dumps(first)
    for i in range(n):
        cap, repeat = 200 + i % caps, i // caps + 1
        record = json.loads(text)
        case_id = f"{cap:032x}"
        if repeat == 1:
            db.execute("INSERT INTO case_t(n, id, parameters) VALUES (?, ?, '{}')", (cap, case_id))
        record["case"].update(id=case_id, repeat=repeat, block=repeat, reference=not i % caps)
        record["case"]["parameters"]["settings"] = {"gpu.power": f"{cap}W"}
        record.update(id=case_id, started=f"2026-01-01T00:00:{i % 60:02}.{i % 1000:03}Z")
        for row in record["settings"]:
            row.update(requested=cap, accepted=cap, enforced=cap)
        scale(record, rng.gauss(1 + cap / 1000, 0.01))
        db.execute("INSERT INTO record_t(case_n, repeat, status, attempt, started, workload, record)"
                   " VALUES (?, ?, 'ok', 1, ?, 'sim', ?)",
                   (cap, repeat, record["started"], json.dumps(record, separators=(",", ":"))))
    db.commit()
    db.execute("VACUUM")
    db.close()


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:]))
