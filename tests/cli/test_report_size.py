# SPDX-License-Identifier: Apache-2.0
"""joulemark report over thousands of records: memory and processor time grow with their number only."""
import json
import os
import sqlite3
import subprocess
import time

import pytest

import many_records
from jm import BIN
from reports import report


def cost(store):
    """Seconds of processor time and the most memory, in MB, of a table."""
    with subprocess.Popen([BIN, "report", str(store)], stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime, usage.ru_maxrss / 1e3


def test_cost_grows_with_the_number_of_records(tmp_path):
    costs = {}
    for n in (500, 4000):
        many_records.make(tmp_path / f"{n}.db", n, caps=n // 10)
        costs[n] = cost(tmp_path / f"{n}.db")
    # unless malloc is a sanitizer's: 10,000 records must fit into 300 MB
    per_record = (costs[4000][1] - costs[500][1]) / 3500
    assert per_record < 0.030 or "asan" in os.environ.get("JM_BUILD", ""), costs
    assert costs[4000][0] < 8 * 2.5 * costs[500][0], costs  # linear but for what is slower in a larger memory


@pytest.mark.skipif("asan" in os.environ.get("JM_BUILD", ""), reason="a sanitizer's malloc takes most of the time")
def test_a_table_takes_little_longer_than_parsing_the_records(tmp_path):
    """What records have in common and their details are not parsed; Python's parser is written in C."""
    many_records.make(tmp_path / "a.db", 4000, caps=400)
    db = sqlite3.connect(tmp_path / "a.db")
    texts = [row[0] for row in db.execute("SELECT record FROM record_t")]
    began = time.process_time()
    for text in texts:
        json.loads(text)
    parsing = time.process_time() - began
    report = min(cost(tmp_path / "a.db")[0] for _ in range(2))
    assert report < 1.5 * parsing, (report, parsing)


@pytest.mark.parametrize("kind", ["json", "csv", "md"])
def test_a_store_and_its_records_as_json_give_the_same_report(tmp_path, kind):
    """The store is read without the details, text by text; JSON files are parsed whole."""
    store = tmp_path / "a.db"
    many_records.make(store, 60, caps=6)
    from_json = tmp_path / "a.json"
    from_json.write_text(json.dumps(many_records.read(store)))
    assert report("--format", kind, store) == report("--format", kind, from_json)
