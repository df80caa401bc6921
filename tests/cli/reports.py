# SPDX-License-Identifier: Apache-2.0
"""What the tests of `report` share: hand-made records, and reports of them."""
import json

from jm import SOURCE, jm

DATA = SOURCE / "tests/data/report"


def records(name="h200x4", n=None):
    return json.loads((DATA / f"{name}.json").read_text())[:n]


def report(*args, **more):
    done = jm("report", *args, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def summary(*args):
    return json.loads(report("--format", "json", *args))


def write(tmp_path, value, name="records.json"):
    path = tmp_path / name
    path.write_text(json.dumps(value))
    return path
