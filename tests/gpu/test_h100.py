# SPDX-License-Identifier: Apache-2.0
"""Runs of one H100 (H100 80GB HBM3 SXM, 700 W, driver 580.159.04) and of one H200, as they were stored: tests/data/h100
and h200."""
import contextlib
import json
import re
import shutil
import sqlite3

import pytest

from jm import SOURCE, jm

DATA = SOURCE / "tests" / "data" / "h100"
H200 = SOURCE / "tests" / "data" / "h200"


def cells(row):
    """The cells of a row of a table, without the commas between thousands."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", row).split()


def raw(path):
    """Rate and joules per item of each run, from the records themselves: {axis value: (items/s, J/item)}."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        records = [json.loads(text) for (text,) in db.execute("SELECT record FROM records")]
    return records


@pytest.mark.parametrize("name,axis,unit", [("resnet50", "batch", "image"), ("gpt-800m", "accumulate", "token")])
def test_tables_are_the_records(tmp_path, name, axis, unit):
    path = tmp_path / "a.db"
    shutil.copy(DATA / f"{name}.db", path)
    done = jm("report", path, "--format", "json")
    assert done.returncode == 0, done.stderr
    shown = json.dumps(json.loads(done.stdout))
    assert "measured" in shown
    text = jm("report", path, "--width", "300", "--columns", "all").stdout
    (head,) = [re.split(r"\s{2,}", row.strip()) for row in text.splitlines() if row.startswith(axis)]
    for record in raw(path):
        if record["status"] != "ok":
            continue
        (gpu,) = [m for m in record["meters"] if m["scope"] == "gpu"]
        value = record["options"][axis]
        (line,) = [cells(row) for row in text.splitlines() if cells(row)[:1] == [value]]
        assert float(line[head.index(f"{unit}/s")]) == pytest.approx(record["throughput"], rel=1e-3)
        assert record["unit"] == unit
        # by the driver's own counter, and by integration of power within 2 %
        assert gpu["joules_counter"] == pytest.approx(gpu["joules_integrated"], rel=0.02)
        assert float(line[head.index("W")]) == pytest.approx(
            gpu["joules"] * record["throughput"] / record["items"], rel=1e-3)


def test_global_batches_of_the_paper():
    """Items are those of whole steps, which the device had finished: 16 to 4096 sequences of 2048 tokens."""
    records = raw(DATA / "gpt-800m.db")
    assert sorted(8 * int(r["options"]["accumulate"]) for r in records) == [16, 64, 256, 1024, 4096]
    for r in records:
        (steady,) = [p for p in r["phases"] if p["name"] == "steady"]
        assert r["items"] == r["steps"] * 8 * int(r["options"]["accumulate"]) * 2048
        assert r["throughput"] == pytest.approx(r["items"] / (steady["end_s"] - steady["start_s"]), rel=1e-3)
        assert r["alignment"]["error_ns"] < 1e5 and r["verified"]


def test_models_name_what_is_compared(tmp_path):
    """Two stores of one work: each system has the model of its GPU; of two cards of one model the id is enough."""
    files = [shutil.copy(folder / f"{name}.db", tmp_path / f"{folder.name}-{name}.db")
             for folder in (DATA, H200) for name in ("resnet50", "gpt-800m")]
    text = jm("compare", "--published", *files, "--width", "200").stdout
    names = set(re.findall(r"cuda:0, bf16, (.*?\))  ", text))
    assert names == {"1 x NVIDIA H100 80GB HBM3 (GPU-88208d89)", "1 x NVIDIA H100 80GB HBM3 (GPU-9231c766)",
                     "1 x NVIDIA H200 (GPU-a9d1bfa3)"}
    assert "nvidia 580" not in text  # the same driver


def test_memory_that_is_not_enough_is_a_result(tmp_path):
    path = tmp_path / "a.db"
    shutil.copy(DATA / "resnet50.db", path)
    text = " ".join(jm("report", path, "--published").stdout.split())
    assert "2048, repeat 1" in text and "batch 2048 needs 89.25 GB" in text
    assert "Published, not measured here: resnet50 training" in text and "H100 94 GB 300 - 1312.8" in text


def test_sources_stay_with_their_rows_at_80_columns(tmp_path):
    """28 published rows in one table; a letter in each names its source below."""
    path = shutil.copy(DATA / "resnet50.db", tmp_path / "a.db")
    table = jm("report", path, "--published", "--width", "80").stdout.split("Published, not measured here")[1]
    source = dict(re.findall(r"^  source (.): (.*)$", table, re.M))
    assert sorted(source.values()) == ["arXiv 2409.12994, Table III", "arXiv 2603.16164, Table 3"]
    rows = [line.split() for line in table.splitlines() if re.match(r"(H100|H200|MI300X|Graphcore) ", line)]
    assert len(rows) == 28 and all(len(line) <= 80 for line in table.splitlines())
    assert all(("Table III" in source[row[-1]]) == (row[0] == "Graphcore") for row in rows)


@pytest.mark.parametrize("name,unit", [("resnet50", "image"), ("gpt-800m", "token")])
def test_single_runs_of_an_h200(tmp_path, name, unit):
    path = tmp_path / "a.db"
    shutil.copy(H200 / f"{name}.db", path)
    (record,) = raw(path)
    assert record["ran_on"]["name"].startswith("NVIDIA H200") and record["unit"] == unit and record["verified"]
    (gpu,) = [m for m in record["meters"] if m["scope"] == "gpu"]
    assert gpu["joules_counter"] == pytest.approx(gpu["joules_integrated"], rel=0.02)
    text = jm("report", path, "--published", "--width", "200").stdout
    (line,) = [cells(row) for row in text.splitlines() if cells(row)[:1] == ["all"]]
    assert float(line[1]) == pytest.approx(record["throughput"], rel=1e-3)
    assert float(line[2]) == pytest.approx(gpu["joules"] * record["throughput"] / record["items"], rel=1e-3)
    assert float(line[3]) == pytest.approx(1e3 * gpu["joules"] / record["items"], rel=1e-3)
    if name == "resnet50":  # the paper's own H200, in the same table
        assert "H200 141 GB 700 - 2148.6" in " ".join(text.split())
    else:
        assert "GH200 47,505 arXiv 2409.12994" in " ".join(text.split())
