# SPDX-License-Identifier: Apache-2.0
"""One work on more and more devices: throughput beside the ideal, energy and time, in the text, in Markdown and on the page."""
import json
import re

import pytest

import page_data
from jm import SOURCE, jm
from pages import CHROMIUM, browse
from reports import records, summary


def table(text, title):
    """Rows of numbers below a title."""
    lines = text.split("Scaling over devices\n")[1].split(f"{title}\n")[1].split("\n\n")[0].splitlines()
    return [[float(x.replace(",", "")) for x in line.split()] for line in lines[1:]]


def made(tmp_path, cases):
    """A file of records: (devices, batch, throughput, W)."""
    first = next(r for r in records("h200x4") if r["status"] == "ok")
    rows = []
    for i, (n, batch, rate, watts) in enumerate(cases):
        r = json.loads(json.dumps(first))
        phase = next(p for p in r["phases"] if p["name"] == r["phase"])
        seconds = phase["end_s"] - phase["start_s"]
        phase["items"] = rate * seconds
        r.update(device=f"sim:h200x{n}", devices=n, settings=[], throughput=rate, throughput_per_device=rate / n, items=rate * seconds)
        r["total"]["joules_simulated"] = watts * seconds
        options = {"ranks": str(n)} | ({"batch": str(batch)} if batch else {})
        r["options"] = options
        r["case"] |= {"id": f"{i:032x}", "reference": False, "parameters": {"workload": "resnet50", "device": r["device"], "options": options}}
        rows.append(r)
    path = tmp_path / "records.json"
    path.write_text(json.dumps(rows))
    return path


CASES = [(1, 32, 1000, 500), (2, 32, 1900, 900), (4, 32, 3600, 1700), (2, 16, 1700, 800), (4, 8, 2400, 1200)]


def expected(rows):
    return [[n, rate, round(100 * rate / (n * 1000), 1), watts, watts / rate, 1e6 / rate] for n, _, rate, watts in rows]


def close(found, wanted):
    return len(found) == len(wanted) and all(
        len(f) == len(w) and all(abs(x - y) <= 1e-3 * abs(y) + 1e-12 for x, y in zip(f, w)) for f, w in zip(found, wanted))


def test_weak_and_strong_scaling_beside_the_ideal(tmp_path):
    path = made(tmp_path, CASES)
    text = jm("report", "--width", 120, path).stdout
    weak, strong = CASES[:3], [CASES[0], CASES[3], CASES[4]]
    assert close(table(text, "resnet50, batch 32 on each device (weak scaling)"), expected(weak)), text
    assert close(table(text, "resnet50, batch 32 of all together (strong scaling)"), expected(strong)), text
    assert "## Scaling over devices: resnet50, batch 32 on each device (weak scaling)" in jm("report", "--format", "md", path).stdout
    assert jm("report", "--html", tmp_path / "page.html", path).returncode == 0
    page = page_data.of((tmp_path / "page.html").read_text())["scalings"]
    assert [[(r["devices"], r["mean"], round(r["share"], 1)) for r in one["rows"]] for one in page] == [
        [(n, rate, share) for n, rate, share, *_ in expected(rows)] for rows in (weak, strong)]


def test_other_work_and_one_number_of_devices_have_no_table(tmp_path):
    assert "Scaling" not in jm("report", made(tmp_path, CASES[:1] * 2)).stdout
    assert "Scaling" not in jm("report", made(tmp_path, [(1, 32, 1000, 500), (2, 48, 1900, 900)])).stdout


def test_work_without_a_batch_scales_by_devices(tmp_path):
    text = jm("report", "--width", 120, made(tmp_path, [(8, None, 6000, 4000), (1, None, 1000, 500)])).stdout
    assert close(table(text, "resnet50"), [[1, 1000, 100.0, 500, 0.5, 1000], [8, 6000, 75.0, 4000, 4000 / 6000, 1e6 / 6000]]), text


def on(tmp_path, cases, change):
    """The records of the cases, each changed by its index, in one file; and the report."""
    path = made(tmp_path, cases)
    rows = json.loads(path.read_text())
    for i, r in enumerate(rows):
        change(i, r)
    path.write_text(json.dumps(rows))
    return jm("report", "--width", 120, path).stdout


def test_other_kinds_of_machine_are_no_scaling(tmp_path):
    """Two GPUs of a fast machine beside one of a slow machine say nothing; two hosts alike do."""
    def machine(model):
        def change(i, r):
            r.update(clock="real", device=",".join(f"cuda:{k}" for k in range(i + 1)))
            r["provenance"] = {**r["provenance"], "host": f"node{i}", "cpu": "cpu", "drivers": {"nvidia": "550"}, "devices": [
                {"id": f"GPU-{i}{k}", "name": f"GPU {k} {model(i)}", "source": "nvml"} for k in range(i + 1)]}
        return change
    cases = [(1, 32, 1000, 500), (2, 32, 9000, 900)]
    assert "Scaling over devices" in on(tmp_path, cases, machine(lambda i: "H100"))
    assert "Scaling over devices" not in on(tmp_path, cases, machine(lambda i: ["A100", "H100"][i]))


def options(**more):
    def change(i, r):
        r["options"] |= {key: value[i] for key, value in more.items()}
        r["case"]["parameters"]["options"] = r["options"]
    return change


def test_the_first_row_of_equals_is_that_of_as_many_ranks(tmp_path):
    """Ranks that share a device are other work than one on each, in whatever order they come."""
    cases = [(1, 32, 1500, 500), (1, 32, 1000, 500), (2, 32, 1800, 900)]
    for order in (0, 1, 2), (1, 0, 2), (2, 0, 1), (2, 1, 0):
        text = on(tmp_path, [cases[i] for i in order], options(ranks=["412"[i] for i in order]))
        assert close(table(text, "resnet50, batch 32 on each device (weak scaling)"), expected(cases[1:])), text


def test_the_largest_batch_is_the_one_that_was_found(tmp_path):
    def change(found):
        def put(i, r):
            options(batch=["max", "max"])(i, r)
            if found:
                r["plan"] = {"batch": found[i]}
        return put
    cases = [(1, 1, 1000, 500), (2, 1, 1900, 900)]
    assert close(table(on(tmp_path, cases, change([48, 48])), "resnet50, batch 48 on each device (weak scaling)"), expected(cases))
    assert close(table(on(tmp_path, cases, change([48, 24])), "resnet50, batch 48 of all together (strong scaling)"), expected(cases))
    assert "Scaling" not in on(tmp_path, cases, change(None))


def test_the_largest_batch_is_known_in_large_input_too(tmp_path):
    """Above 8 MB details of records are not read."""
    def change(i, r):
        options(batch=["max", "max"])(i, r)
        r["plan"] = {"batch": 48}
        r["padding"] = " " * 5_000_000
    cases = [(1, 1, 1000, 500), (2, 1, 1900, 900)]
    assert close(table(on(tmp_path, cases, change), "resnet50, batch 48 on each device (weak scaling)"), expected(cases))


def test_ranks_that_share_a_model_have_one_batch(tmp_path):
    cases = [(4, 8, 1000, 500), (8, 8, 1900, 900), (8, 4, 1800, 900)]
    text = on(tmp_path, cases, options(tp=["2"] * 3, pp=["2"] * 3))
    rows = [[n, rate, round(100 * rate / (n * 250), 1), watts, watts / rate, 1e6 / rate] for n, _, rate, watts in cases]
    assert close(table(text, "resnet50, batch 8 of each model (weak scaling)"), rows[:2]), text
    assert close(table(text, "resnet50, batch 8 of all together (strong scaling)"), [rows[0], rows[2]]), text


def test_labels_have_what_differs_in_their_own_series():
    """What only other series of the report differ in is left out, files that a run writes too; GPUs are counted in each row."""
    folder = SOURCE / "tests/data/h200x4"
    series = {s["title"].split()[1]: s for s in summary(folder / "train.db", folder / "llama3-8b.json")["series"]}
    assert [p["label"] for p in series["gpt-117m"]["points"]] == ["1", "2", "4"]
    divided = next(p["label"] for p in series["llama3-8b"]["points"] if "tp 2" in p["label"])
    assert "pp 2" in divided and "accumulate 8" in divided and not divided.endswith("-")
    assert "sum over 1 to 4 GPUs" in " ".join(jm("report", folder / "train.db").stdout.split())


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: the page was not opened in a browser")
def test_shares_of_a_step_over_batch_and_sequence(tmp_path):
    """Computation alone, beside transfers, and waits, of ranks on several devices, are bars up to 100 %."""
    path = made(tmp_path, [(8, batch, 1000, 500) for batch in (1, 2, 4)])
    rows = json.loads(path.read_text())
    for r, concurrent in zip(rows, (0.1, 0.25, 0.5)):
        rank = {"step_s": 0.1, "compute_s": 0.08, "overlapped_s": 0.1 * concurrent, "exposed_s": 0.02, "late_ranks_s": 0.005, "stage_s": 0.0,
                "kinds": [{"kind": "sum", "busy_s": 0.02 + 0.1 * concurrent, "exposed_s": 0.02, "overlapped_s": 0.1 * concurrent}]}
        r["communication"] = {"transport": "nccl", "concurrent_share": concurrent, "ranks": [rank, rank]}
    path.write_text(json.dumps(rows))
    assert jm("report", "--html", tmp_path / "page.html", path).returncode == 0
    (steps,) = (t for s in page_data.of((tmp_path / "page.html").read_text())["series"] for t in s["tables"])
    assert steps["shares"] == [pytest.approx(ms) for ms in ([70, 10, 20], [55, 25, 20], [30, 50, 20])]
    dom = browse(tmp_path / "page.html", "--dump-dom", "--window-size=1280,12000")
    chart = dom.split("<h3>Shares of a step")[1].split("</svg>")[0]
    assert re.findall(r"<text[^>]*>(compute alone|overlapped|exposed)</text>", chart) == ["compute alone", "overlapped", "exposed"]
    assert re.findall(r"<text[^>]*>([124])</text>", chart) == ["1", "2", "4"]
