# SPDX-License-Identifier: Apache-2.0
"""joulemark report: figures from the user's values, from the order of the runs and from peaks, compared with numpy."""
import json
import re

import numpy as np
import pytest

from jm import USAGE, jm, sentence
from reports import DATA, costs, records, report, setting, summary, write

FIGURES = ["--price", 0.25, "--currency", "EUR", "--carbon", 380, "--pue", 1.2, "--figures-from", "contract, 2026-01"]
T_975 = {3: 3.18245, 5: 2.57058, 6: 2.44691, 8: 2.30600, 9: 2.26216, 10: 2.22814}  # Student's t, tables


def means(rows, of):
    """{(reference, setting): mean of of(row)} of the runs that succeeded."""
    out = {}
    for r in rows:
        if r["status"] == "ok":
            out.setdefault((r["case"]["reference"], setting(r)), []).append(of(r))
    return {k: np.mean(v) for k, v in out.items()}


def shown(data, metric):
    """{(reference, setting): mean of the metric} as the report has it."""
    (series,) = data["series"]
    ok = {c["point"]: c for c in data["cases"] if c["ok"]}
    return {(p["reference"], i): p["metrics"][metric]["mean"] for i, p in enumerate(series["points"])}, ok


def match(data, rows, metric, of):
    values, cases = shown(data, metric)
    want = means(rows, of)
    n = 0
    for (reference, i), value in values.items():
        if i not in cases:
            continue
        key = reference, setting(rows[cases[i]["record"]])
        assert value == pytest.approx(want[key], rel=1e-9), (metric, key)
        n += 1
    assert n > 3


@pytest.mark.parametrize("name", ["h100x4", "mi300x4"])
def test_formulas_are_those_of_their_papers(tmp_path, name):
    rows = records(name)
    for r in rows:
        r["flops_model_per_item"], r["flops_executed_per_item"] = 24e9, 32e9
    data = summary(*FIGURES, "--peak-flops", 989.4e12, "--zeus-eta", 0.3, write(tmp_path, rows))
    kwh = 1.2 / 3.6e6
    match(data, rows, "ed2p", lambda r: costs(r)[1] * costs(r)[0] ** 2)
    match(data, rows, "cost_per_million", lambda r: 1e6 * costs(r)[1] * kwh * 0.25)
    match(data, rows, "carbon_g_per_million", lambda r: 1e6 * costs(r)[1] * kwh * 380)
    match(data, rows, "mfu_percent", lambda r: 100 * r["throughput_per_device"] * 24e9 / 989.4e12)
    match(data, rows, "hfu_percent", lambda r: 100 * r["throughput_per_device"] * 32e9 / 989.4e12)
    limit = np.mean([sum(s["enforced"] for s in r["settings"] if s["unit"] == "W")
                     for r in rows if r["status"] == "ok" and r["case"]["reference"]])
    match(data, rows, "zeus_cost", lambda r: 0.3 * costs(r)[1] + 0.7 * limit * costs(r)[0])


def test_the_measured_peak_is_that_of_matrix_products_on_the_same_device(tmp_path):
    rows = [r for r in records("h100x4") if r["status"] == "ok"]
    for r in rows:
        r["flops_model_per_item"], r["flops_executed_per_item"] = 24e9, 32e9
    gemms = json.loads(json.dumps(rows[:3]))
    for i, (r, rate) in enumerate(zip(gemms, (700, 750, 600))):
        r.update(workload="gemm", flops_executed_per_item=1e12, flops_model_per_item=1e12, throughput_per_device=rate)
        r["case"].update(id=f"{i:032x}", parameters={"workload": "gemm"})
    gemms[2]["device"] = "sim:other"
    data = summary(write(tmp_path, rows + gemms))
    work = next(s for s in data["series"] if s["parameters"].get("workload") != "gemm")
    for p in work["points"]:
        m = p["metrics"]
        per = m["throughput_per_device"]["mean"]
        assert m["mfu_measured_percent"]["mean"] == pytest.approx(100 * per * 24e9 / 750e12)
        assert m["hfu_measured_percent"]["mean"] == pytest.approx(100 * per * 32e9 / 750e12)
        assert m["mfu_percent"]["mean"] is None  # no figure of the vendor was given
    assert summary(write(tmp_path, rows, "alone.json"))["series"][0]["points"][0]["metrics"]["mfu_measured_percent"]["mean"] is None


def test_no_figure_no_cost():
    m = summary(DATA / "h100x4.json")["series"][0]["points"][0]["metrics"]
    assert m["cost_per_million"]["mean"] is None and m["carbon_g_per_million"]["mean"] is None
    assert "figures-from" in sentence(jm("report", "--price", 0.2, DATA / "h100x4.json"), USAGE)
    text = report(*FIGURES, DATA / "h100x4.json")
    assert "0.25 EUR per kWh, 380 gCO2e per kWh, PUE 1.2; source: contract, 2026-01" in text


def test_pareto_front_by_brute_force(tmp_path):
    for name in ("h100x4", "h200x4", "mi300x4"):
        (series,) = summary(DATA / f"{name}.json")["series"]
        xy = {i: (p["metrics"]["throughput"]["mean"], p["metrics"]["items_per_joule"]["mean"])
              for i, p in enumerate(series["points"]) if p["eligible"]}
        front = {i for i, (x, y) in xy.items()
                 if not any(u >= x and v >= y and (u, v) != (x, y) for u, v in xy.values())}
        assert {i for i, p in enumerate(series["points"]) if p["pareto"]} == front and front


def test_runs_of_two_nodes_count_the_rest_of_both_and_say_what_one_of_them_needs():
    rows = records("h100x4")
    two = [{**r, "hosts": [{"name": name, "machine": name} for name in ("n1", "n2")]} for r in rows]
    args = ("report", "--format", "json", "--rack-power", "70kW", "--add-watts", "100W", "-")
    one, both = (json.loads(jm(*args, input=json.dumps(r), stdin=None).stdout)["series"][0]["points"] for r in (rows, two))
    for a, b in zip(one, both):
        x, y = (p["metrics"]["watts_mean"]["mean"] for p in (a, b))
        if x is None:
            continue
        assert y == pytest.approx(x + 100)
        assert b["capacity"]["mean_watts"] == pytest.approx(y / 2) and b["capacity"]["nodes_mean"] == int(2 * 70e3 / y)
        assert b["capacity"]["throughput_mean"] == pytest.approx(int(2 * 70e3 / y) * b["metrics"]["throughput"]["mean"] / 2)
    text = jm("report", "--add-watts", "100W", "-", input=json.dumps(two), stdin=None).stdout
    assert "100 W assumed for the rest of each node" in " ".join(text.split())


def test_nodes_of_a_rack():
    rows = records("h100x4")
    for r in rows:
        for i, m in enumerate(r["meters"]):
            m["watts_p99"] = 500.0 + i + r["case"]["repeat"]
            m["watts_max"] = 600.0 + i + r["case"]["repeat"]
    text = json.dumps(rows)
    done = jm("report", "--format", "json", "--rack-power", "70kW", "--rack-reserve", "27%", "--rated-power", "10.2kW", "-",
              input=text, stdin=None)
    data = json.loads(done.stdout)
    (series,) = data["series"]
    for i, p in enumerate(series["points"]):
        runs = [r for c, r in ((c, rows[c["record"]]) for c in data["cases"]) if c["point"] == i and c["ok"]]
        if not runs:
            continue
        of_node = {what: max(sum(m[f"watts_{what}"] for m in r["meters"] if m["covered_by"] is None) for r in runs)
                   for what in ("p99", "max")}
        of_node |= {"rated": 10.2e3, "mean": p["metrics"]["watts_mean"]["mean"]}
        got = p["capacity"]
        assert got["usable_watts"] == pytest.approx(51.1e3) and got["nodes_rated"] == 5  # as the paper's rack has
        for what, watts in of_node.items():
            assert got[f"{what}_watts"] == pytest.approx(watts)
            assert got[f"nodes_{what}"] == int(51.1e3 / watts)
            assert got[f"throughput_{what}"] == pytest.approx(got[f"nodes_{what}"] * p["metrics"]["throughput"]["mean"])
    words = " ".join(jm("report", "--rack-power", "70kW", "--rack-reserve", "27%", "--rated-power", "10.2kW", "-", input=text,
                        stdin=None).stdout.split())
    assert "rack of 70,000 W with a reserve of 27 % at" in words and "by rated power (10,200 W) 5 with" in words
    (best,) = [p for p in data["series"][0]["points"] if p["label"] == "400 W" and not p["reference"]]
    assert f"by the maximum ({best['capacity']['max_watts']:,.0f} W) {best['capacity']['nodes_max']} with".replace(",", "") \
        in words.replace(",", "")


def sweep(change):
    """Runs of 4 settings x 4 repeats whose throughput is changed by change(repeat 0..3, rng)."""
    rng = np.random.default_rng(3)
    first = next(r for r in records("h100x4") if r["status"] == "ok")
    rows = []
    for k in range(4):
        for repeat in range(4):
            r = json.loads(json.dumps(first))
            r["case"].update(id=f"{k:032x}", repeat=repeat + 1, block=repeat + 1, reference=k == 0)
            r["case"]["parameters"]["gpu.power"] = f"{300 + 100 * k}W"
            for s in r["settings"]:
                s.update(requested=300 + 100 * k, accepted=300 + 100 * k, enforced=300 + 100 * k)
            rate = 1000 * (k + 1) * change(repeat, rng)
            r["throughput"], r["throughput_per_device"] = rate, rate / 4
            rows.append(r)
    return rows


def test_drift_is_a_warning(tmp_path):
    rows = sweep(lambda repeat, rng: (1 - 0.01 * repeat) * rng.normal(1, 0.001))
    (series,) = summary(write(tmp_path, rows))["series"]
    text, = [w for w in series["warnings"] if "throughput drifts" in w]
    y = np.array([r["throughput"] for r in rows]).reshape(4, 4)
    y = (y / y.mean(axis=1, keepdims=True) - 1).ravel()
    x = np.tile(np.arange(4) - 1.5, 4)
    slope = x @ y / (x @ x)
    dof = 16 - 4 - 1
    half = 2.20099 * np.sqrt(((y - slope * x) ** 2).sum() / dof / (x @ x))  # t of 11 degrees of freedom
    drift, bound = map(float, re.search(r"by ([-+\d.]+) % ± ([\d.]+) %", text).groups())
    assert drift == pytest.approx(300 * slope, abs=0.006) and bound == pytest.approx(300 * half, abs=0.006)
    assert text in report("--width", 1000, write(tmp_path, rows, "again.json"))


def test_first_runs_that_differ_are_a_warning(tmp_path):
    rows = sweep(lambda repeat, rng: (0.97 if repeat == 0 else 1) * rng.normal(1, 0.001))
    (series,) = summary(write(tmp_path, rows))["series"]
    text, = [w for w in series["warnings"] if "First runs differ: the throughput" in w]
    y = np.array([r["throughput"] for r in rows]).reshape(4, 4)
    logs = np.log(y[:, 0]) - np.log(y[:, 1:].mean(axis=1))
    half = T_975[3] * logs.std(ddof=1) / 2
    percent, low, high = map(float, re.search(r"is ([\d.]+) % lower .*interval ([-+\d.]+) to ([-+\d.]+) %", text).groups())
    assert -percent == pytest.approx(100 * (np.exp(logs.mean()) - 1), abs=0.006)
    assert low == pytest.approx(100 * (np.exp(logs.mean() - half) - 1), abs=0.006)
    assert high == pytest.approx(100 * (np.exp(logs.mean() + half) - 1), abs=0.006)


def test_runs_without_trend_give_no_warning(tmp_path):
    (series,) = summary(write(tmp_path, sweep(lambda repeat, rng: rng.normal(1, 0.001))))["series"]
    assert series["warnings"] == []


def test_latex_is_escaped_and_complete(tmp_path):
    rows = records("mi300x4")
    for r in rows:
        r["workload"] = r["case"]["parameters"]["workload"] = r"50%_of$ {x}\input&#~^"
    text = report("--format", "latex", *FIGURES, write(tmp_path, rows))
    assert r"50\%\_of\$ \{x\}\textbackslash{}input\&\#\textasciitilde{}\textasciicircum{}" in text
    body = text.split(r"\begin{tabular}{")[1].split(r"\end{tabular}")[0]
    columns = len(body.split("}")[0])
    lines = [line for line in body.splitlines()[1:] if line.endswith(r"\\")]
    assert len(lines) == 1 + len(summary(DATA / "mi300x4.json")["series"][0]["points"])
    assert all(len(re.split(r"(?<!\\)&", line)) == columns for line in lines)
    assert text.count(r"\begin{") == text.count(r"\end{") == 2 and "(" in body  # a violated cap
    assert all(ord(c) < 128 for c in body), "needs no package for its symbols"


def test_racks_that_share_their_power_feed_more_nodes():
    args = ["--rack-power", "70kW", "--rack-reserve", "27%", "--rated-power", "9kW"]
    alone, four = ({p["label"]: p["capacity"] for p in summary(*args, *more, DATA / "h100x4.json")["series"][0]["points"]}
                   for more in ([], ["--racks", 4]))
    for label, c in four.items():
        assert c["usable_watts"] == pytest.approx(4 * alone[label]["usable_watts"]) == pytest.approx(4 * 51.1e3)
        assert (c["nodes_rated"], alone[label]["nodes_rated"]) == (22, 5)
        if c["nodes_mean"]:
            assert c["nodes_mean"] == int(4 * 51.1e3 / c["mean_watts"]) and c["nodes_mean"] >= 4 * alone[label]["nodes_mean"]
            assert c["throughput_mean"] * alone[label]["nodes_mean"] == pytest.approx(c["nodes_mean"] * alone[label]["throughput_mean"])
    text = " ".join(report(*args, "--racks", 4, DATA / "h100x4.json").split())
    assert "Nodes in 4 racks that share their power, each of 70,000 W with a reserve of 27 % at" in text
    assert "by rated power (9,000 W) 22 (20 if each rack keeps its own) with" in text
    assert "--rack-power" in sentence(jm("report", "--racks", 2, DATA / "h100x4.json"), USAGE)
