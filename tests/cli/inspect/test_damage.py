# SPDX-License-Identifier: Apache-2.0
"""Damaged records, plans and stores are refused with a message, never used, and never cause a crash."""
import copy
import json
import random
import shutil
import sqlite3

import pytest

from damage import WRONG, change_plan, make_store, paths, put, survives
from jm import FAILURE, jm, sentence
from reports import records, report, summary, write
from runs import NULL

FORMATS = ["table", "md", "csv", "json", "html"]


# ---- records


@pytest.mark.parametrize("kind", FORMATS)
def test_a_command_that_is_not_utf8_is_reported(tmp_path, kind):
    path = tmp_path / "a.json"
    done = jm("measure", "--source", "null", "--json", path, "--", "true", b"\xff\xfe".decode(errors="surrogateescape"))
    assert done.returncode == 0, done.stderr
    assert json.loads(path.read_text())["command"] == ["true", None]
    text = report("--format", kind, "--output", "-", path)
    assert "true ?" in text


@pytest.mark.parametrize("path, value, place", [
    (("meters", 0, "joules"), "20000", "meters[0].joules"),
    (("meters",), {}, "meters"),
    (("meters", 1), None, "meters[1]"),
    (("meters", 0, "origin"), "guessed", "meters[0].origin"),
    (("meters", 0, "covered_s"), -1, "meters[0].covered_s"),
    (("command",), [1], "command[0]"),
    (("case", "repeat"), -1, "case.repeat"),
    (("case", "id"), 7, "case.id"),
    (("case", "parameters"), ["a"], "case.parameters"),
    (("settings", 0, "knob"), None, "settings[0].knob"),
    (("settings", 0, "state"), "kept", "settings[0].state"),
    (("quality", "reasons"), [3], "quality.reasons[0]"),
    (("phases", 0, "start_s"), "0", "phases[0].start_s"),
    (("provenance", "host"), 5, "provenance.host"),
    (("unit",), "long", "unit"),
    (("exit_status",), 3.5, "exit_status"),
])
def test_a_value_that_the_schema_forbids_is_left_out_by_its_place(tmp_path, path, value, place):
    """The others are reported as if it were not there, and the exit status says that something is missing."""
    rows = records(n=3)
    expected = report(write(tmp_path, [rows[0], rows[2]], "good.json"))
    put(rows[1], path, 200_000 * "x" if value == "long" else value)
    done = jm("report", write(tmp_path, rows, "bad.json"))
    assert done.returncode == 1 and done.stdout == expected
    (text,) = [line for line in done.stderr.splitlines() if "Omitted: " in line]
    assert "record 1 of" in text and "bad.json" in text and f": {place} is " in text
    assert sentence(done) == "1 damaged record was omitted; the exit status is 1."


def test_nothing_but_damaged_records_is_no_report(tmp_path):
    rows = records(n=2)
    for r in rows:
        r["meters"] = 3
    done = jm("report", write(tmp_path, rows))
    assert "no record" in sentence(done, FAILURE) and done.stderr.count("Omitted: ") == 2


@pytest.mark.parametrize("damage", ["json_set(record, '$.meters', 3)", "substr(record, 1, 50)", "NULL"])
def test_a_damaged_record_of_a_store_is_left_out(tmp_path, damage):
    store = tmp_path / "a.db"
    assert jm(*NULL, "--repeat", 3, "--store", store).returncode == 0
    db = sqlite3.connect(store)
    db.execute(f"UPDATE record_t SET record = {damage} WHERE repeat = 2")
    db.commit()
    db.close()
    done = jm("report", "--format", "json", store)
    assert done.returncode == 1 and len(json.loads(done.stdout)["cases"]) == 2
    (text,) = [line for line in done.stderr.splitlines() if "Omitted: " in line]
    assert "repeat 2" in text and str(store) in text


def test_a_record_in_a_store_is_checked_too(tmp_path):
    store = tmp_path / "a.db"
    assert jm(*NULL, "--store", store).returncode == 0
    db = sqlite3.connect(store)
    db.execute("UPDATE record_t SET record = json_set(record, '$.meters', 'none')")
    db.commit()
    db.close()
    assert "meters is text" in jm("report", store).stderr
    for command in ([*NULL, "--store", store], ["run", "--store", store, "--resume"]):
        text = sentence(jm(*command), FAILURE)
        assert "repeat 1" in text and str(store) in text and "meters is text" in text


def test_keys_that_are_not_known_are_let_pass(tmp_path):
    rows = records(n=7)
    expected = summary(write(tmp_path, rows, "a.json"))
    for r in rows:
        r["later"] = {"a": [1, None]}
        r["meters"][0]["later"] = None
    assert summary(write(tmp_path, rows, "b.json")) == expected


def test_random_damage_to_records_is_no_crash(tmp_path):
    rng = random.Random(1)
    rows = records("h200x4")
    places = list(paths(rows))
    for kind in FORMATS * 6:
        damaged = copy.deepcopy(rows)
        for place in rng.sample(places, rng.choice([1, 1, 3])):
            try:
                put(damaged, place, rng.choice(WRONG))
            except (KeyError, IndexError, TypeError):
                pass  # its parent is damaged already
        survives(jm("report", "--format", kind, "--output", "/dev/null", write(tmp_path, damaged)))


# ---- plans


@pytest.mark.parametrize("path, value, place", [
    (("what",), [], "what"),
    (("what", "settings"), "gpu.power", "what.settings"),
    (("what", "settings", 0, "knob"), None, "what.settings[0].knob"),
    (("what", "settings", 0, "values"), [], "what.settings[0].values"),
    (("what", "settings", 0, "values"), ["300W", None], "what.settings[0].values[1]"),
    (("what", "settings", 0, "selector"), 1, "what.settings[0].selector"),
    (("what", "options"), {"response": "x"}, "what.options.response"),
    (("what", "device"), [], "what.device"),
    (("what", "seconds"), -1, "what.seconds"),
    (("what", "workload"), ["sim"], "what.workload"),
    (("found", 0, "device"), None, "found[0].device"),
    (("how", "sources"), [None], "how.sources[0]"),
    (("repeat",), 10**9, "repeat"),
    (("seed",), "1", "seed"),
])
def test_a_damaged_plan_is_refused_by_its_place(tmp_path, path, value, place):
    store = tmp_path / "a.db"
    make_store(store)
    change_plan(store, lambda plan: put(plan, path, value))
    text = sentence(jm("run", "--store", store, "--resume"), FAILURE)
    assert str(store) in text and f": {place} is " in text


def test_a_plan_without_work_is_refused(tmp_path):
    store = tmp_path / "a.db"
    make_store(store)
    change_plan(store, lambda plan: plan["what"].pop("workload"))
    assert "either a workload or a command" in sentence(jm("run", "--store", store, "--resume"), FAILURE)


def test_random_damage_to_a_plan_is_no_crash(tmp_path):
    rng = random.Random(2)
    whole, store = tmp_path / "whole.db", tmp_path / "a.db"
    make_store(whole)
    for _ in range(25):
        shutil.copy(whole, store)

        def damage(plan):
            put(plan, rng.choice(list(paths(plan))), rng.choice(WRONG))
        change_plan(store, damage)
        survives(jm("run", "--store", store, "--resume"))


def test_random_damage_to_a_store_is_no_crash(tmp_path):
    rng = random.Random(3)
    whole, store = tmp_path / "whole.db", tmp_path / "a.db"
    make_store(whole)
    data = whole.read_bytes()
    for _ in range(30):
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 4, 64])):
            damaged[rng.randrange(16, len(damaged))] = rng.randrange(256)
        store.write_bytes(bytes(damaged))
        survives(jm("report", "--html", tmp_path / "page.html", store))
        survives(jm("run", "--store", store, "--resume"))
