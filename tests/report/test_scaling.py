# SPDX-License-Identifier: Apache-2.0
"""One work on more and more devices: throughput beside the ideal, energy and time, in the text, in Markdown and on the page."""
import json
import re

import pytest

import page_data
from jm import jm
from pages import CHROMIUM, browse
from reports import records


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
    dom = browse(tmp_path / "page.html", "--dump-dom", "--window-size=1280,12000")
    chart = dom.split("<h3>Shares of a step")[1].split("</svg>")[0]
    assert re.findall(r"<text[^>]*>(compute alone|overlapped|exposed)</text>", chart) == ["compute alone", "overlapped", "exposed"]
    assert re.findall(r"<text[^>]*>([124])</text>", chart) == ["1", "2", "4"]
