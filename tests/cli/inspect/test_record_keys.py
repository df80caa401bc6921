# SPDX-License-Identifier: Apache-2.0
"""The table of a record's keys: records, the files in docs, the store's view and CSV agree with it."""
import csv
import io
import json
import re
import sqlite3

import jsonschema
import pytest

from jm import SOURCE, jm

SIM = ["run", "sim", "--device", "sim:h100x2", "--set", "gpu.power=300W,500W", "--seconds", "20"]


def keys():
    """{path: {column of the table: text}} from `help --keys`."""
    rows = [[cell.strip() for cell in line.strip("|\n").split(" | ")] if " | " in line else []
            for line in jm("help", "--keys").stdout.splitlines() if line.startswith("|")]
    head = rows[0]
    return {row[0].strip("` "): dict(zip(head, row)) for row in rows if row and row[0].startswith("`")}


def value_at(record, path):
    for name in path.split("."):
        record = record.get(name) if record is not None else None
    return record


def strict(schema):
    """The same, but a key that it does not know is an error."""
    if isinstance(schema, dict):
        schema = {k: strict(v) for k, v in schema.items()}
        if "properties" in schema:
            schema["additionalProperties"] = False
    elif isinstance(schema, list):
        schema = [strict(v) for v in schema]
    return schema


@pytest.fixture(name="store", scope="module")
def swept_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "s.db"
    done = jm(*SIM, "--store", path)
    assert done.returncode == 0, done.stderr
    return path


def records_of(store):
    with sqlite3.connect(store) as db:
        return [json.loads(row[0]) for row in db.execute("SELECT record FROM records")]


@pytest.mark.parametrize("option, file", [("--schema", "record.schema.json"), ("--keys", "record_keys.md")])
def test_files_in_docs_are_the_programs(option, file):
    assert jm("help", option).stdout == (SOURCE / "docs" / file).read_text(encoding="utf-8")


def test_schema_and_table_have_the_same_keys():
    def paths(schema, above):
        for name, node in schema["properties"].items():
            yield above + name
            inner, mark = (node["items"], "[].") if "items" in node else (node, ".")
            if "properties" in inner:
                yield from paths(inner, above + name + mark)

    assert list(paths(json.loads(jm("help", "--schema").stdout), "")) == list(keys())
    assert all(row["meaning"] and row["since"] for row in keys().values())


@pytest.mark.parametrize("args", [
    ["measure", "--source", "null", "--json", "-", "--", "true"],
    ["run", "null", "--source", "null", "--steps", "3", "--warmup", "0", "--json", "-"],
    [*SIM, "--json", "-"],
    ["run", "train", "--model", "gpt", "--layers", 1, "--hidden", 16, "--heads", 2, "--ffn", 32, "--seq", 8, "--batch",
     1, "--vocab", 256, "--context", 100, "--profile", "--device", "cpu", "--source", "null", "--steps", 2, "--warmup",
     0, "--json", "-"],
    ["run", "--source", "null", "--json", "-", "--", "false"],
])
def test_every_key_that_is_written_is_in_the_table(args):
    done = jm(*args)
    found = json.loads(done.stdout)
    schema = strict(json.loads(jm("help", "--schema").stdout))
    for record in found if isinstance(found, list) else [found]:
        jsonschema.validate(record, schema, jsonschema.Draft7Validator)
        if args[0] == "run":
            missing = [p for p, row in keys().items() if row["written"] == "of a case" and p not in record]
            assert not missing


def test_columns_of_the_view(store):
    """As docs/running.md tells them, and with what the records hold."""
    text = (SOURCE / "docs" / "running.md").read_text(encoding="utf-8")
    told = re.search(r"^\| `results` \| (.*), and a column for each key that has one in ", text, re.M)[1].split(", ")
    with sqlite3.connect(store) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(results)")]
        rows = [dict(zip(names, row)) for row in db.execute("SELECT * FROM results")]
    columns = {row["column"]: path for path, row in keys().items() if row["column"]}
    assert names == told + [name for name in columns if name not in told]
    records = records_of(store)
    assert len(rows) == len(records) > 2
    for row, record in zip(rows, records):
        for column, path in columns.items():
            assert row[column] == value_at(record, path), column


def test_columns_of_the_csv(store):
    out = jm("report", store, "--format", "csv", "--cases").stdout
    columns = {row["column"]: path for path, row in keys().items() if row["column"]}
    by_run = {(r["id"], r["case"]["repeat"]): r for r in records_of(store)}
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == len(by_run)
    for row in rows:
        record = by_run[row["case_id"], int(row["repeat"])]
        assert set(columns) <= set(row)
        for name in set(columns) - {"host", "devices"}:  # in CSV they describe the machine that was measured
            value = value_at(record, columns[name])
            if isinstance(value, bool):
                assert row[name] == ("yes" if value else "no"), name
            elif isinstance(value, float):
                assert float(row[name]) == pytest.approx(value, rel=1e-9), name
            else:
                assert row[name] == ("" if value is None else str(value)), name
