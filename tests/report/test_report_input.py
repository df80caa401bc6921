# SPDX-License-Identifier: Apache-2.0
"""joulemark report: odd records, odd files and odd command lines."""
import json
import os
import shutil
import unicodedata

import pytest

from jm import FAILURE, USAGE, jm, sentence
import page_data
from reports import DATA, records, report, summary, write
from runs import limit_files


def of_options(*options, **more):
    """A record of `run train` for each of these options, without knobs."""
    rows = records(n=len(options))
    for r, given in zip(rows, options):
        r.update(workload="train", settings=[], **more)
        r["case"].update(reference=False, parameters={"workload": "train", "options": given})
    return rows


# ---- files


def test_the_same_run_counts_once(tmp_path):
    rows = records()
    once, copy = write(tmp_path, rows, "a.json"), write(tmp_path, rows[3:10], "b.json")
    done = jm("report", once, copy)
    assert done.returncode == 0 and done.stdout == report(once)
    assert "Ignored 7 repeated records" in done.stderr
    assert "Ignored 1 repeated record;" in jm("report", once, write(tmp_path, rows[:1], "d.json")).stderr
    for r in rows:  # another run with the same figures is another run
        r["started"] = "2001-02-03T04:05:06Z"
    twice = summary(once, write(tmp_path, rows, "c.json"))
    assert len(twice["cases"]) == 2 * len(rows)


def test_a_copy_of_a_store_counts_once(tmp_path):
    store, copy, page = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "page.html"
    done = jm("run", "sim", "--device", "sim:h100x1", "--seconds", 1, "--repeat", 2, "--store", store)
    assert done.returncode == 0, done.stderr
    shutil.copy(store, copy)
    report("--html", page, store, copy)
    text = page.read_text().split('<script type="application/json" id="jm-data">')[1].split("</script>")[0]
    data = json.loads(text)
    assert data["runs"]["n"] == 2 and [t["record"] for t in data["traces"]] == [0]


@pytest.mark.parametrize("make, words", [
    (lambda path: path.mkdir(), "cannot be read: Is a directory"),
    (lambda path: path.write_text(""), "neither a store nor JSON"),
    (lambda path: path.write_bytes(b"SQLite format 3\0"), "store"),
    (lambda path: path.write_bytes(bytes(range(256))), "neither a store nor JSON"),
    (lambda path: path.write_text('[{"schema": "joulemark.run/1"}] more'), "neither a store nor JSON"),
    (lambda path: path.write_text("[" * 100_000), "neither a store nor JSON"),
    (lambda path: path.write_text('[{"schema": "joulemark.run/1"},\n]'), "a value expected in line 2"),
    (lambda path: path.write_text('[{"schema": "joulemark.run/1"}\n{}]'), "',' or ']' expected in line 2"),
    (lambda path: path.write_text('{"schema": "joulemark.run/1"}\n\n{"schema": "joule'), "near '\"joule' in line 3"),
])
def test_files_that_are_none_of_ours(tmp_path, make, words):
    path = tmp_path / "input"
    make(path)
    text = sentence(jm("report", path), FAILURE)
    assert str(path) in text and words in text


def test_a_pipe_is_read_from_its_beginning():
    """As in `joulemark report <(joulemark run ... --json -)`."""
    reading, writing = os.pipe()
    with open(writing, "wb") as pipe:
        pipe.write(json.dumps(records(n=7)[:1]).encode())
    text = report(f"/dev/fd/{reading}", pass_fds=[reading])
    os.close(reading)
    assert text.startswith("resnet50 on sim:h200x4")


def test_a_failed_run_has_no_trace(tmp_path):
    store, page, flag = tmp_path / "a.db", tmp_path / "page.html", tmp_path / "flag"
    script = f"sleep 0.3; [ -e '{flag}' ] || {{ touch '{flag}'; exit 9; }}"
    done = jm("run", "--source", "estimate", "--repeat", 2, "--store", store, "--", "sh", "-c", script)
    assert done.returncode == 1, done.stderr
    report("--html", page, store)
    text = page.read_text().split('<script type="application/json" id="jm-data">')[1].split("</script>")[0]
    data = json.loads(text)
    (trace,) = data["traces"]
    assert [r["ok"] for r in sorted(page_data.runs(data), key=lambda r: r["record"])] == [0, 1] and trace["record"] == 1


def test_a_store_is_never_replaced_by_a_report(tmp_path):
    """`report --html a.db b.db` is easily typed."""
    store = tmp_path / "a.db"
    assert jm("run", "null", "--source", "null", "--steps", 1, "--warmup", 0, "--store", store).returncode == 0
    text = " ".join(jm("report", store).stdout.split())
    assert "energy: unknown, because no meter has the readings" in text and "quality none: no energy is known" in text
    assert "simulated" not in text and "EDP" not in text
    before = store.read_bytes()
    for words in (("--html", store), ("--output", store), ("--format", "csv", "--output", store)):
        assert "is a store" in sentence(jm("report", *words, store), USAGE)
        assert store.read_bytes() == before


def test_full_disk_leaves_the_old_report(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old")
    text = sentence(jm("report", "--html", page, DATA / "h200x4.json", preexec_fn=limit_files(50_000)), FAILURE)
    assert str(page) in text and page.read_text() == "old" and os.listdir(tmp_path) == ["page.html"]


# ---- command lines


@pytest.mark.parametrize("words, said", [
    (["--html", "a.html", "--output", "b.html"], "either --html"),
    (["--html", "a.html", "--format", "csv"], "either --html"),
    (["--cases"], "--format csv"),
    (["--cases", "--format", "json"], "--format csv"),
    (["--cases", "--format", "csv", "--published"], "--published"),
    (["--k", ""], "--k"), (["--k", "2,"], "--k"), (["--k", "2,2.0"], "twice"), (["--k", "1e9"], "--k"),
    (["--k", "1.1,1.2,1.3,1.4,1.5,1.6,1.7,1.8,1.9"], "at most 8"),
    (["--width", "19"], "range"), (["--add-watts", "-1"], "range"), (["--add-watts", "x"], "--add-watts"),
])
def test_options_that_contradict_or_say_nothing(tmp_path, words, said):
    done = jm("report", *words, DATA / "h200x4.json", cwd=tmp_path)
    assert said in sentence(done, USAGE) and not done.stdout and not os.listdir(tmp_path)


def test_the_page_may_go_to_standard_output(tmp_path):
    text = report("--html", "-", DATA / "h200x4.json", cwd=tmp_path)
    assert text == report("--format", "html", "--output", "-", DATA / "h200x4.json")
    assert text.startswith("<!DOCTYPE html>") and not os.listdir(tmp_path)


# ---- records


def test_an_option_that_only_some_records_have(tmp_path):
    rows = of_options({"batch": "4"}, {"batch": "4", "seq": "64"}, {"batch": "4", "seq": "128"})
    for order in (rows, rows[::-1], [rows[1], rows[0], rows[2]]):
        doc = summary(write(tmp_path, order, "r.json"))
        assert [d["name"] for d in doc["dimensions"]] == ["seq"] and len(doc["series"]) == 1
        assert [p["label"] for p in doc["series"][0]["points"]] == ["-", "64", "128"]


def test_long_words_that_differ_at_their_end(tmp_path):
    path = "/a/long/way/to/" + 60 * "x" + "/{}.bin"
    rows = of_options(*({"text": path.format(name)} for name in ("one", "two", "three")))
    (series,) = summary(write(tmp_path, rows, "r.json"))["series"]
    labels = [p["label"] for p in series["points"]]
    assert sorted(label.rsplit("/", 1)[1] for label in labels) == ["one.bin", "three.bin", "two.bin"]


def test_settings_of_many_devices(tmp_path):
    """They differ in the last of eight devices only."""
    rows = records(n=2)
    for r, last in zip(rows, ("300W", "400W")):
        r["case"].update(reference=False, parameters={"workload": "x", "settings": {
            f"gpu.power@GPU-00000000-0000-{i}": last if i == 7 else "200W" for i in range(8)}})
    (series,) = summary(write(tmp_path, rows, "r.json"))["series"]
    assert [p["runs_ok"] for p in series["points"]] == [1, 1]


def test_long_names_of_devices_are_shown_in_short(tmp_path):
    """As `get` prints them; all of three settings can be read, and devices whose names begin alike are two."""
    uuids = [f"GPU-{i}000000{i}-fa4e-4000-8000-00000000000{i}" for i in range(3)]
    rows = records(n=3)
    for r, devices, last in zip(rows, (uuids, uuids, [*uuids[:2], uuids[2][:-1] + "x"]), ("300W", "400W", "300W")):
        r["case"].update(reference=False, parameters={"workload": "x", "settings": {
            f"gpu.power@{uuid}": watts for uuid, watts in zip(devices, ("350W", "350W", last))}})
    (series,) = summary(write(tmp_path, rows, "r.json"))["series"]
    assert sorted(p["label"].partition(" (")[0] for p in series["points"]) == [
        f"GPU-00000000 350W, GPU-10000001 350W, GPU-20000002 {watts}" for watts in ("300W", "300W", "400W")]


def test_a_title_tells_a_series_from_others_of_its_name(tmp_path):
    """Options of other work tell nothing."""
    rows = of_options(*({"model": "a", "batch": batch, "lr": "1"} for batch in ("4", "8")), {"model": "b", "eps": "2"},
                      precision="f32", device="cpu")
    for r in rows[:2]:
        r["settings"] = records(n=1)[0]["settings"]  # so that knobs are the points, and options the series
    series = summary(write(tmp_path, rows, "r.json"))["series"]
    assert [s["title"] for s in series] == [
        "train a on cpu, f32, batch=4", "train a on cpu, f32, batch=8", "train b on cpu, f32"]


def test_names_of_phases_stay_text(tmp_path):
    (row,) = records(n=1)
    for p in row["phases"]:
        p["name"] += "\x1b[31m\x07\x9b"
    done = jm("report", write(tmp_path, [row], "r.json"))
    assert done.returncode == 0 and f"{row['phases'][0]['name'][:-7]}?[31m??" in done.stdout, done.stdout
    assert {c for c in done.stdout if unicodedata.category(c) == "Cc"} == {"\n"}


@pytest.mark.parametrize("kind", ["table", "md", "csv", "json", "html"])
def test_what_others_wrote_stays_text(tmp_path, kind):
    """No half of a character where a text was cut, and nothing that a terminal obeys."""
    rows = records(n=7)
    for i, r in enumerate(rows):
        r.update(command=["train", "\x1b[2J" + "é" * (120 + i), "a\nb"], unit="Bröt\x1bchen" + "ö" * 20, workload=None)
        r["case"]["parameters"] = {"é" * 50 + str(i % 2): "ü" * (47 + i) + "\x07"}
        r["settings"] = []
    rows[1].update(status="failed", reason="\x1b]0;title\x07" + "ß" * 600)
    rows[2]["quality"]["reasons"] = ["ß" * 2000 + "\x1b[31m"]
    done = jm("report", "--format", kind, "--output", "-", write(tmp_path, rows, "r.json"))
    assert done.returncode == 0, done.stderr
    assert "é" in done.stdout or kind in ("json", "html")
    if kind in ("table", "md"):
        assert {c for c in done.stdout if unicodedata.category(c) == "Cc"} == {"\n"}
    if kind == "json":
        titles = [s["title"] for s in json.loads(done.stdout)["series"]]
        assert all(t.startswith("train ?[2Jé") and t.endswith("...") for t in titles), titles
