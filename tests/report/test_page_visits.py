# SPDX-License-Identifier: Apache-2.0
"""The search of a tuner on the page: its data, and what the charts and their tables say of visits whose means are known."""
import html
import re

import numpy as np
import pytest

import page_data
from pages import CHROMIUM, browse, make_page
from reports import records, report, write

BROWSER = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: the page was not opened in a browser")
KEYS = ["start_s", "stage", "found", "value", "second", "objective", "objective_error", "aside"]
#         W     objective of each visit; the first value is the setting found
SEEN = {700: [1.01, 0.99], 400: [0.78, 0.82, 0.80], 300: [0.9]}
HALF = 0.03
SHOW = "<script>document.querySelectorAll('details.behind').forEach((d) => (d.open = true));</script></body>"


def visit(i, value, objective, **more):
    return {"start_s": 2.0 * i, "stage": "coarse" if i < 4 else "confirm", "found": value == 700, "value": float(value),
            "seconds": 2.0, "items": 100.0, "joules": 500.0, "error_sampling_joules": 1.0, "objective": objective,
            "objective_error": HALF, "aside": False, **more}


def tune(chosen):
    visits = [visit(i, value, x) for i, (value, x) in enumerate((v, x) for v in SEEN for x in SEEN[v])]
    visits.append(visit(len(visits), 400, 5.0, aside=True))
    changes = {f"{what}{kind}_percent": None for what in ("objective", "energy", "time") for kind in ("", "_error")}
    return {"objective": "edp", "knob": "gpu.power", "unit": "W", "devices": ["gpu0"], "min": 200.0, "max": 700.0, "step": 5.0,
            "found": 700.0, "progress": "items", "origin": "simulated", "window_s": 2.0, "within_s": 60.0, "choice": "better",
            "why": "Because it is <b>better</b>.", "chosen_found": False, "chosen": float(chosen), "searches": 1, "drifts": 0,
            "lost": 0, "outliers": 1, "warmup_s": 0.0, "search_s": 14.0, "hold_s": 9.0, "stopped": None, **changes,
            "saved_joules": None, "saved_error_joules": None, "visits": visits}


@pytest.fixture(name="tuned", scope="module")
def page_of_tuned_runs(tmp_path_factory):
    rows = [r for r in records("h100x4") if r["status"] == "ok"][:3]
    rows[1]["tune"], rows[2]["tune"] = tune(400), tune(300)
    return rows, make_page(tmp_path_factory.mktemp("page"), rows)


def test_page_has_the_visits_of_each_tuned_run(tuned):
    rows, page = tuned
    data = page_data.of(page.read_text())
    record = [page_data.runs(data)[t["run"]]["record"] for t in data["visits"]]
    assert sorted(record) == [1, 2]
    for t, of in zip(data["visits"], record):
        assert t["visits"] == {key: [v.get(key) for v in rows[of]["tune"]["visits"]] for key in KEYS}
        assert t["chosen"] == rows[of]["tune"]["chosen"]


def cells(table):
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.S) for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)]
    text = [[html.unescape(re.sub(r"<[^>]*>", "", c)).replace("\u00a0", " ").strip() for c in row] for row in rows]
    return [row for row in text if row and re.match(r"\d", row[0])]


@BROWSER
def test_charts_say_what_the_visits_say(tuned):
    page = tuned[1]
    page.write_text(page.read_text().replace("</body>", SHOW))
    dom = browse(page, "--dump-dom", "--window-size=1280,5000")
    search = dom.split("<h3>Search of gpu.power")[1].split("</section>")[0]
    text = search.replace("\u00a0", " ").replace("&nbsp;", " ")
    assert ">held</text>" in search and "Because it is &lt;b&gt;better&lt;/b&gt;." in text and "Grey squares" in text
    shown = cells(search)
    assert [row[:2] for row in shown] == [["300 W", "1"], ["400 W", "3"], ["700 W (found)", "2"]]
    for value, row in zip(sorted(SEEN), shown):
        mean, half = (float(x) for x in row[2].split(" ± "))
        assert mean == pytest.approx(np.mean(SEEN[value]), abs=0.006)
        assert half == pytest.approx(HALF / np.sqrt(len(SEEN[value])), abs=0.003)
    visits = dom.split("<h3>Visits of the search")[1].split("</section>")[0]
    assert len(cells(visits)) == 7 and [row[-1] for row in cells(visits)].count("yes") == 1
    assert [w for w in ("coarse", "golden", "confirm") if f">{w}</text>" in visits] == ["coarse", "confirm"]


@BROWSER
def test_two_knobs_are_a_map(tmp_path):
    """A setting is a pair: one cap under two clocks is two of them."""
    row, t = records("h100x4")[0], tune(400)
    for i, v in enumerate(t["visits"]):
        v["second"] = None if v["found"] else (1.5e9 if i % 2 else 1.2e9)
    t["second"] = {"knob": "gpu.clock", "unit": "Hz", "devices": ["gpu0"], "min": 0.9e9, "max": 1.98e9, "step": 0.0,
                   "found": None, "chosen": 1.2e9}
    page = make_page(tmp_path, [row | {"tune": t}])
    page.write_text(page.read_text().replace("</body>", SHOW))
    search = browse(page, "--dump-dom", "--window-size=1280,5000").split("<h3>Search of gpu.power and gpu.clock")[1].split("</section>")[0]
    assert ">held</text>" in search and "gpu.clock in MHz</text>" in search
    pairs = {(v["value"], v["second"]) for v in t["visits"] if not v["aside"]}
    text = {f"{x:.0f} W, " + (f"{y / 1e6:.0f} MHz" if y else "no limit (found)") for x, y in pairs}
    assert {row[0] for row in cells(search)} == text and len(text) == 4


@BROWSER
def test_knobs_of_one_name_are_told_apart_by_their_devices(tmp_path):
    row, t = records("h100x4")[0], tune(400)
    t["devices"] = ["gpu0"]
    t["second"] = {key: t[key] for key in ("knob", "unit", "min", "max", "step", "found", "chosen")} | {"devices": ["gpu1"]}
    for v in t["visits"]:
        v["second"] = None if v["found"] else 300.0
    page = make_page(tmp_path, [row | {"tune": t}])
    page.write_text(page.read_text().replace("</body>", SHOW))
    dom = browse(page, "--dump-dom", "--window-size=1280,5000")
    assert "<h3>Search of gpu.power of gpu0 and gpu.power of gpu1" in dom
    assert "gpu.power of gpu0 in W</text>" in dom and "gpu.power of gpu1 in W</text>" in dom


@BROWSER
def test_page_without_a_tuner_has_no_search(tmp_path):
    assert "<h3>Search of" not in browse(make_page(tmp_path, records("h100x4")), "--dump-dom")


@pytest.mark.parametrize("place", range(4))
def test_the_curve_is_in_order_where_the_value_found_is_unknown(tmp_path, place):
    """As that of an unreadable clock, wherever it was visited among the others."""
    row = next(r for r in records("h100x4") if r["status"] == "ok")
    visits = [visit(i, value, 1.0) for i, value in enumerate([900, 300, 600])]
    visits.insert(place, {**visit(place, 700, 1.0), "value": None})
    row["tune"] = {**tune(300), "knob": "gpu.clock", "found": None, "visits": visits}
    curve = report("--phases", write(tmp_path, [row])).partition("objective  energy")[2].splitlines()[1:5]
    assert [re.match(r" *(\d*)", line)[1] for line in curve if "found" not in line] == ["300", "600", "900"], curve
