# SPDX-License-Identifier: Apache-2.0
"""measure --residue: a node whose components, board, supply and outlet are known, replayed."""
import json
import re

import pytest

import page_data
from jm import jm
from pages import browse, CHROMIUM
from reports import report

# meter, scope, covers, W
NODE = [("memory", "gpu-memory", "gpu/a/memory", 80), ("gpu", "gpu", "gpu/a", 400), ("cpu", "package", "cpu/0", 200),
        ("board", "node", "/", 900), ("supply", "psu", "/", 940), ("outlet", "outlet", "/", 1000)]
REST = {"gpu": 320, "board": 300, "supply": 40, "outlet": 60}
HEAD = "signal,meter,label,device,scope,origin,covers,quantity,unit,step,wrap,refresh_s,window_s,accuracy,stamped\n"


@pytest.fixture(name="node")
def recorded_node(tmp_path):
    (tmp_path / "meters.csv").write_text(HEAD + "".join(
        f"{i},t:{name},{name},,{scope},measured,{covers},power,W,1,,0.02,0,0.01,1\n"
        for i, (name, scope, covers, _) in enumerate(NODE)))
    (tmp_path / "readings.csv").write_text("signal,t_s,value\n" + "".join(
        f"{i},{k * 0.02:.9f},{watts + (k % 2) * 1e-3}\n" for i, (*_, watts) in enumerate(NODE) for k in range(300)))
    (tmp_path / "phases.csv").write_text("name,start_s,end_s,items\n")
    (tmp_path / "clock.csv").write_text("t_s,wall_ns\n0.000000000,1700000000000000000\n")
    return f"replay:{tmp_path}"


def test_each_level_less_the_one_below(node):
    done = jm("measure", "--source", node, "--json", "-", "--", "sleep", "1.5")
    record = json.loads(done.stdout)
    (phase,) = record["phases"]
    seconds = phase["end_s"] - phase["start_s"]
    for meters, key in ((record["meters"], "label"), (phase["meters"], "id")):
        rest = {m[key].removeprefix("replay:t:"): m for m in meters if "rest_joules" in m}
        assert set(rest) == set(REST)
        for name, watts in REST.items():
            assert rest[name]["rest_joules"] == pytest.approx(watts * seconds, rel=0.01)
            assert rest[name]["rest_error_joules"] > 0
    assert not any("whole node" in reason for reason in record["quality"]["reasons"])
    # only the outlet counts
    assert record["total"]["joules_replayed"] == pytest.approx(1000 * seconds, rel=0.01)


def test_the_table(node):
    done = jm("measure", "--source", node, "--residue", "--", "sleep", "0.5")
    rows = [line.split() for line in done.stderr.splitlines() if line.startswith("  command ")]
    shares = {row[1]: row[-2:] for row in rows if row[-1] == "%"}
    assert {name: " ".join(share) for name, share in shares.items()} == {
        "gpu": "80 %", "board": "33 %", "supply": "4 %", "outlet": "6 %"}
    done = jm("measure", "--source", "sim:h100x1", "--residue", "--width", "80", "--", "true")
    assert "rest" in done.stderr and all(len(line) <= 80 for line in done.stderr.splitlines())


def test_the_page_splits_the_outlet(node, tmp_path):
    """Each watt of the outlet is in one bar: those of the components and the rest of each level."""
    store, page = tmp_path / "a.db", tmp_path / "a.html"
    assert jm("measure", "--source", node, "--store", store, "--", "sleep", "1.5").returncode == 0
    report(store, "--html", page)
    data = page_data.of(page.read_text())
    (detail,), (trace,) = data["details"], data["traces"]
    seconds = detail["phases"][0][2] - detail["phases"][0][1]
    parts = {name.removeprefix("replay:t:"): rows[0] for name, rows in detail["parts"].items()}
    assert set(parts) == {name for name, *_ in NODE}
    for name, *_, watts in NODE:
        joules, rest, error = parts[name]
        assert joules == pytest.approx(watts * seconds, rel=0.01)
        assert (rest is None) == (name not in REST)
        assert rest is None or (rest == pytest.approx(REST[name] * seconds, rel=0.01) and error > 0)
        (means,) = [m["means"] for m in trace["meters"] if m["label"] == name]
        assert len(means) == 60 and all(w == pytest.approx(watts, abs=0.06) for w in means[:55] if w is not None)
        assert sum(w is not None for w in means) > 50
    if not CHROMIUM:
        pytest.skip("chromium is not installed: the page was not opened in a browser")
    dom = browse(page, "--dump-dom", "--window-size=1280,2400")
    chart = dom.split("<h3>Parts and residue")[1].split("</svg>")[0]
    bars = re.findall(r'<path d="M[\d.]+ [\d.]+l[\d.]+ 0l0 ([\d.]+)l-[\d.]+ 0Z" fill="([^"]*)"', chart)
    heights = [float(h) for h, _ in bars if float(h) > 4][-6:]
    assert len(heights) == 6
    want = [80, REST["gpu"], 200, REST["board"], REST["supply"], REST["outlet"]]
    assert [1000 * h / sum(heights) for h in heights] == pytest.approx(want, abs=1)
