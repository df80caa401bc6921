# SPDX-License-Identifier: Apache-2.0
"""joulemark report over thousands of records: memory and processor time grow with their number only."""
import json
import os
import sqlite3
import subprocess
import time

import pytest

import long_traces
import many_records
import page_data
from jm import BIN, jm
from reports import records, report, write


def cost(store):
    """Seconds of processor time and the most memory, in MB, of a table."""
    with subprocess.Popen([BIN, "report", str(store)], stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime, usage.ru_maxrss / 1e3


@pytest.fixture(name="large", scope="module")
def store_of_4000_records(tmp_path_factory):
    store = tmp_path_factory.mktemp("large") / "4000.db"
    many_records.make(store, 4000, caps=400)
    return store


def test_cost_grows_with_the_number_of_records(large, tmp_path):
    many_records.make(tmp_path / "500.db", 500, caps=50)
    costs = {500: cost(tmp_path / "500.db"), 4000: cost(large)}
    # unless malloc is a sanitizer's: 10,000 records must fit into 300 MB
    per_record = (costs[4000][1] - costs[500][1]) / 3500
    assert per_record < 0.030 or "asan" in os.environ.get("JM_BUILD", ""), costs
    assert costs[4000][0] < 8 * 2.5 * costs[500][0], costs  # linear but for what is slower in a larger memory


@pytest.mark.skipif("asan" in os.environ.get("JM_BUILD", ""), reason="a sanitizer's malloc takes most of the time")
def test_a_table_takes_little_longer_than_parsing_the_records(large):
    """What records have in common and their details are not parsed; Python's parser is written in C."""
    db = sqlite3.connect(large)
    texts = [row[0] for row in db.execute("SELECT record FROM record_t")]
    pairs = []
    for _ in range(5):  # in turns, because other tests load the machine
        began = time.process_time()
        for text in texts:
            json.loads(text)
        parsing = time.process_time() - began
        pairs.append((cost(large)[0], parsing))
    assert min(report / parsing for report, parsing in pairs) < 1.5, pairs


@pytest.mark.skipif("asan" in os.environ.get("JM_BUILD", ""), reason="a sanitizer's malloc takes most of the time")
def test_a_table_of_a_json_file_takes_no_longer_than_python_takes_to_parse_it(tmp_path):
    many_records.make(tmp_path / "a.db", 2000, caps=200)
    text = json.dumps(many_records.read(tmp_path / "a.db"))
    (tmp_path / "a.json").write_text(text)
    pairs = []
    for _ in range(5):  # in turns, because other tests load the machine
        began = time.process_time()
        json.loads(text)
        parsing = time.process_time() - began
        pairs.append((cost(tmp_path / "a.json")[0], parsing))
    assert min(report / parsing for report, parsing in pairs) < 1, pairs


@pytest.mark.parametrize("kind", ["json", "csv", "md"])
def test_a_store_and_its_records_as_json_give_the_same_report(tmp_path, kind):
    """The store is read without the details, text by text; JSON files are parsed whole."""
    store = tmp_path / "a.db"
    many_records.make(store, 60, caps=6)
    from_json = tmp_path / "a.json"
    from_json.write_text(json.dumps(many_records.read(store)))
    assert report("--format", kind, store) == report("--format", kind, from_json)


SERVED = ("serve", "--model", "llama", "--layers", 1, "--hidden", 32, "--heads", 2, "--kv-heads", 2, "--context", 64, "--device", "ref",
          "--input-tokens", "1:8", "--output-tokens", "1:4", "--warmup", 1, "--requests", 8, "--steps", 20, "--ttft", "1ms", "--tpot", "1ms")
WORK = {"phases": [("sim", "--device", "sim:h100x4", "--seconds", 2)],
        "requests": [SERVED],
        "kernels": [("sim", "--device", "sim:mi300xx8", "--response", kernel, "--seconds", 2) for kernel in ("product", "stream", "all-gather")]}


@pytest.mark.parametrize("work", WORK)
def test_large_input_gives_the_same_report(tmp_path, work):
    """Above 8 MB details of records are not read: nothing that is reported may be one. Blanks make the file as large."""
    store, small, large = tmp_path / "a.db", tmp_path / "a/records.json", tmp_path / "b/records.json"
    for words in WORK[work]:
        assert jm("run", *words, "--store", store).returncode == 0
    for file, blanks in (small, 0), (large, 9_000_000):
        file.parent.mkdir()
        file.write_text(json.dumps(many_records.read(store)) + blanks * " ")
    for kind in "table", "md", "csv", "json", "latex":
        assert report("--format", kind, small) == report("--format", kind, large)


def test_a_page_of_12_works_on_3_machines_is_small(tmp_path):
    rows = []
    for work in range(12):
        for machine in ("h100x4", "h200x4", "mi300x4"):
            text = json.dumps([r for r in records("h200x4") if r["status"] == "ok"][:4])
            rows += json.loads(text.replace("sim:h200x4", f"sim:{machine}").replace("resnet50", f"net{work}"))
    out = tmp_path / "page.html"
    report("--html", out, write(tmp_path, rows))
    data = page_data.of(out.read_text())
    assert data["runs"]["n"] == 144 and len(data["series"]) == 36
    assert out.stat().st_size < 1.5e6


def test_long_traces_are_thinned_and_keep_their_peaks(tmp_path):
    store, out, n = tmp_path / "a.db", tmp_path / "page.html", 50_000
    many_records.make(store, 30, caps=10)
    long_traces.add(store, 4, n)
    report("--html", out, store)
    data = page_data.of(out.read_text())
    assert len(data["traces"]) == 4
    readings = dict((ns / 1e9, mw / 1e3) for ns, mw in long_traces.wave(n))
    for trace in data["traces"]:
        (meter,) = trace["meters"]
        points = page_data.points(meter)
        assert trace["readings"] == n and 1000 < len(points) < 2900
        assert max(points, key=lambda p: p[1]) == (n // 3 / 1000, 950)
        assert min(points, key=lambda p: p[1]) == (n // 2 / 1000, 7)
        assert all(abs(readings[t] - w) < 0.051 for t, w in points)  # nothing but readings


def test_a_large_store_is_read_without_the_details_of_most_runs(tmp_path):
    """Above 8 MB: those of the runs with a trace are read one by one; what tables show of signals is no detail."""
    store, out = tmp_path / "a.db", tmp_path / "page.html"
    many_records.make(store, 600, caps=20)
    long_traces.add(store, 20, 100)
    assert store.stat().st_size > 9e6
    report("--html", out, store)
    data = page_data.of(out.read_text())
    runs = page_data.runs(data)
    assert len(runs) == 600 and len(data["traces"]) == 20
    assert all(r["hertz"] is not None for r in runs)
    (detail,) = data["details"]
    shown, record = detail["phase_table"], many_records.read(store)[runs[detail["run"]]["record"]]
    kilojoules = {row[0]: float(row[shown["titles"].index("kJ")].split()[0]) for row in shown["rows"]}
    assert kilojoules == {p["name"]: pytest.approx(p["total"]["joules_simulated"] / 1e3, abs=6e-4)
                          for p in record["phases"] if p["total"]["joules_simulated"]}
    assert detail["meters"][0]["joules_counter"] > 0
