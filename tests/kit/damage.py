# SPDX-License-Identifier: Apache-2.0
"""Damage to records, plans and stores, for tests and for the suite of attacks."""
import json
import re
import sqlite3

from jm import FAILURE, USAGE, jm, sentence

WRONG = [None, True, -1, 0, 2**62, -1.5, 1e300, "", "x" * 200_000, [], [None], {}, {"a": None}]


def paths(value, at=()):
    """Of every value within this one."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*at, key)
        yield from paths(one, (*at, key))


def put(value, path, new):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def survives(done):
    """By a result or a sentence, within the exit statuses that are promised."""
    assert done.returncode in (0, 1, USAGE, FAILURE), (done.returncode, done.stderr[-2000:])
    crash = re.search(r"killed by signal (4|5|6|7|8|11)\b|SIG(ILL|ABRT|BUS|FPE|SEGV)|Sanitizer|runtime error", done.stderr)
    assert not crash, done.stderr[-2000:]  # of a worker
    if done.returncode in (USAGE, FAILURE):
        sentence(done)
    return done


def make_store(path):
    done = jm("run", "sim", "--device", "sim:h100x1", "--set", "gpu.power=300W,400W", "--seconds", 1, "--repeat", 2,
              "--store", path)
    assert done.returncode == 0, done.stderr


def change_plan(store, change):
    db = sqlite3.connect(store)
    plan = json.loads(db.execute("SELECT plan FROM plan_t").fetchone()[0])
    change(plan)
    db.execute("UPDATE plan_t SET plan = ?", (json.dumps(plan),))
    db.execute("DELETE FROM record_t WHERE repeat = 2")
    db.commit()
    db.close()
