# SPDX-License-Identifier: Apache-2.0
"""Functions that the tests of `run` share: short runs, and the contents of their stores."""
import json
import resource
import sqlite3

from jm import jm

FAILED = 1  # exit status: a case failed
SIM = ["run", "sim", "--device", "sim:h100x4", "--seconds", "2"]
NULL = ["run", "null", "--source", "null", "--step-time", "5ms", "--warmup", "0", "--steps", "3"]
COMMAND = ["run", "--source", "null"]


def records(path):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return [json.loads(row[0]) for row in db.execute("SELECT record FROM records")]
    finally:
        db.close()


def query(path, sql):
    db = sqlite3.connect(path)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def comparable(record):
    """Without what names the moment."""
    return {k: v for k, v in record.items() if k not in ("started", "provenance")}


def one(*args, status=0, **more):
    args = list(args)
    at = args.index("--") if "--" in args else len(args)
    done = jm(*args[:at], "--json", "-", *args[at:], **more)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def sweep(store, *more, **kwargs):
    return jm(*SIM, "--set", "gpu.power=300W,400W,700W", "--repeat", "4", "--store", store, *more,
              **kwargs)


def limit_files(size):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit
