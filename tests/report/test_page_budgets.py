# SPDX-License-Identifier: Apache-2.0
"""The limits under a power budget on the page: its data, and what the chart and its table say."""
import re

import pytest

import page_data
from pages import CHROMIUM, browse, make_page
from reports import records

BROWSER = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: the page was not opened in a browser")
#          s     W of each of two devices
CHANGES = [(-0.5, 300.0, 400.0), (2.25, 280.0, 400.0), (2.5, 280.0, 420.0), (4.0, None, 420.0)]


def budget():
    limits = [{"device": f"gpu{i}", "found": 700.0, "limit": w, "watts": None} for i, w in enumerate((280.0, 420.0))]
    return {"watts": 750.0, "share": "marginal", "knob": "gpu.power", "progress": "items", "limits": limits, "enforced_most_watts": 700.0,
            "changes": [{"start_s": t, "watts": list(w)} for t, *w in CHANGES], "holds": True, "first_rate": 1.0, "rate": 2.0,
            "visits": 3, "moves": 1, "moves_kept": 1, "lost": 0, "warmup_s": 0.0, "stopped": None}


@pytest.fixture(name="page", scope="module")
def page_of_two_runs(tmp_path_factory):
    rows = [r for r in records("h100x4") if r["status"] == "ok"][:3]
    return make_page(tmp_path_factory.mktemp("page"), [rows[0], *(r | {"budget": budget()} for r in rows[1:])])


def test_page_has_the_limits_of_each_run_under_a_budget(page):
    data = page_data.of(page.read_text())
    assert sorted(page_data.runs(data)[b["run"]]["record"] for b in data["budgets"]) == [1, 2]
    for b in data["budgets"]:
        assert b["changes"] == dict(zip(("start_s", "watts"), ([c[0] for c in CHANGES], [[c[1] for c in CHANGES], [c[2] for c in CHANGES]])))


@BROWSER
def test_chart_has_the_sum_below_the_budget(page):
    text = page.read_text().replace("</body>", "<script>document.querySelectorAll('details.behind').forEach((d) => (d.open = true));</script></body>")
    page.write_text(text)
    chart = browse(page, "--dump-dom", "--window-size=1280,5000").split("<h3>Limits under the budget of 750")[1].split("</section>")[0]
    assert "The highest sum was 700 of 750" in chart and ">budget</text>" in chart
    rows = [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in re.findall(r"<tr>(.*?)</tr>", chart)]
    unknown = "\u2013"
    assert [row for row in rows if row] == [["-0.50", "700", "300", "400"], ["2.25", "680", "280", "400"],
                                            ["2.50", "700", "280", "420"], ["4.00", unknown, unknown, "420"]]
