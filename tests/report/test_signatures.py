# SPDX-License-Identifier: Apache-2.0
"""Signatures of kernels: watts of the parts of a GPU, activity, intensity, and their correlation, against numpy."""
import copy
import csv
import io
import json
import re

import numpy as np
import pytest

from jm import SOURCE, jm
from pages import CHROMIUM, browse, make_page
from reports import report, summary, write

BANDWIDTH = 4e12
SECONDS = 10.0
# of each GPU: total, core, io, memory; share of time in which the memory moves data; shape m, n, k
KERNELS = {"small": ((480.0, 250.0, 60.0, 90.0), 0.30, (4096, 4096, 512)),
           "wide": ((560.0, 300.0, 75.0, 95.0), 0.22, (8192, 8192, 1024)),
           "deep": ((690.0, 420.0, 70.0, 80.0), 0.10, (8192, 8192, 8192)),
           "long": ((640.0, 380.0, 90.0, 85.0), 0.15, (4096, 16384, 4096))}
RATE = 300.0  # products/s of each GPU


def meter(name, scope, watts, covered_by=None, rest=None, activity=None):
    out = {"id": name, "label": name, "device": name.split("/")[0], "source": "toy", "scope": scope, "covered_by": covered_by,
           "overlaps": None, "origin": "measured", "joules": watts * SECONDS, "covered_s": SECONDS, "watts_mean": watts,
           "watts_max": None, "watts_median": None,
           "signals": [{"quantity": "dram-activity", "unit": "1", "mean": activity},
                       {"quantity": "sm-activity", "unit": "1", "mean": 0.9}] if activity else []}
    return out | ({"rest_joules": rest * SECONDS} if rest is not None else {})


def gpu(name, watts, activity, parts):
    total, *each = watts
    scopes = ("gpu-core", "gpu-io", "gpu-memory")
    shown = [(s, w) for s, w in zip(scopes, each) if s in parts]
    rest = total - sum(w for _, w in shown)
    return [meter(name, "gpu", total, rest=rest if shown else None, activity=activity),
            *(meter(f"{name}/{s}", s, w, covered_by=name) for s, w in shown)]


def run(kernel, parts=("gpu-core", "gpu-io", "gpu-memory"), more_watts=0.0, repeat=1, workload="gemm", activity=True):
    watts, dram, (m, n, k) = KERNELS[kernel]
    watts = (watts[0] + more_watts, *watts[1:])
    meters = [x for name in ("A", "B") for x in gpu(name, watts, dram if activity else None, parts)]
    options, name = {"m": str(m), "n": str(n), "k": str(k)}, f"{m * n + k:032x}"
    return {
        "schema": "joulemark.run/1", "id": name, "started": f"2026-01-01T00:00:0{repeat}.000Z", "clock": "real", "status": "ok",
        "workload": workload, "options": options, "device": "toy:0", "precision": "bf16", "unit": "product", "phase": "steady",
        "items": 2 * RATE * SECONDS, "throughput": 2 * RATE, "throughput_per_device": RATE, "devices": 2,
        "flops_model_per_item": 2.0 * m * n * k, "flops_executed_per_item": 2.0 * m * n * k,
        "bytes_per_item": 2.0 * (m * k + k * n + m * n), "meters": meters, "total": {"joules_measured": 2 * watts[0] * SECONDS},
        "phases": [{"name": "steady", "start_s": 0, "end_s": SECONDS, "items": 2 * RATE * SECONDS}], "settings": [],
        "provenance": {"host": "node", "cpu": "cpu", "devices": [
            {"id": d, "name": f"GPU {d}", "source": "toy", "hardware": {"memory_bytes_per_s": BANDWIDTH}} for d in "AB"]},
        "case": {"id": name, "repeat": repeat, "block": repeat, "position": 1, "reference": False, "seed": 1,
                 "parameters": {"workload": workload, "options": options, "settings": {}, "device": "toy:0"}},
    }


def rows_of(tmp_path, records):
    found = summary(write(tmp_path, records))["signatures"]
    return found["rows"], found["correlations"]


def test_a_row_has_the_mean_watts_of_one_gpu_and_of_its_parts(tmp_path):
    [row], _ = rows_of(tmp_path, [run("deep"), run("deep", more_watts=20, repeat=2)])
    assert row["runs"] == 2 and row["origin"] == "measured"
    assert row["watts"] == pytest.approx({"total": 700, "core": 420, "io": 70, "memory": 80, "rest": 130})
    assert row["normalised"] == pytest.approx({k: v / 420 for k, v in row["watts"].items()})
    assert row["activity"] == pytest.approx({"sm": 0.9, "dram": 0.1, "tensor": None, "nvlink": None})


def test_a_kernel_is_named_by_its_own_options(tmp_path):
    """Those of other kernels of the report are not its."""
    records = [run(kernel) for kernel in KERNELS]
    for i, size in enumerate(("1.5", "3")):
        other = run("deep", workload="allgather")
        other["options"] = other["case"]["parameters"]["options"] = {"size": size}
        other["id"] = other["case"]["id"] = f"{i + 9:032x}"
        records.append(other)
    names = [row["kernel"] for row in rows_of(tmp_path, records)[0]]
    assert len(names) == len(KERNELS) + 2
    for name in names:
        keys = [word.split("=")[0] for word in name.split(", ") if "=" in word]
        assert sorted(keys) == (["size"] if name.startswith("allgather") else ["k", "m", "n"]), name


def test_only_memory_is_known_as_on_hopper(tmp_path):
    rows, _ = rows_of(tmp_path, [run(k, parts=("gpu-memory",)) for k in KERNELS])
    for row, (watts, _, _) in zip(rows, sorted(KERNELS.values(), key=lambda v: [r["watts"]["total"] for r in rows].index(v[0][0]))):
        assert row["watts"] == pytest.approx({"total": watts[0], "core": None, "io": None, "memory": watts[3],
                                              "rest": watts[0] - watts[3]})
        assert row["normalised"]["rest"] == pytest.approx(row["watts"]["rest"] / rows[0]["watts"]["rest"])


def test_intensity_by_shape_and_by_bytes_that_the_memory_moved(tmp_path):
    rows, _ = rows_of(tmp_path, [run(k) for k in KERNELS])
    by_total = {watts[0]: (dram, shape) for watts, dram, shape in KERNELS.values()}
    for row in rows:
        dram, (m, n, k) = by_total[row["watts"]["total"]]
        flops = 2 * m * n * k
        assert row["intensity"]["theoretical"] == pytest.approx(flops / (2 * (m * k + k * n + m * n)))
        assert row["intensity"]["measured"] == pytest.approx(flops * RATE / (dram * BANDWIDTH))


def test_unknown_activity_is_no_zero(tmp_path):
    [row], _ = rows_of(tmp_path, [run("deep", activity=False)])
    assert set(row["activity"].values()) == {None} and row["intensity"]["measured"] is None


def test_correlation_is_pearsons_over_the_kernels(tmp_path):
    rows, found = rows_of(tmp_path, [run(k) for k in KERNELS])
    assert {(c["intensity"], c["part"]) for c in found} == {
        (i, p) for i in ("theoretical", "measured") for p in ("core", "io", "memory", "rest", "total")}
    for c in found:
        x, y = [r["intensity"][c["intensity"]] for r in rows], [r["watts"][c["part"]] for r in rows]
        assert c["r"] == pytest.approx(np.corrcoef(x, y)[0, 1]) and c["kernels"] == len(KERNELS)


def test_systems_are_not_mixed(tmp_path):
    """Each host correlates and normalises its own rows; what is of two origins says so."""
    here, there = ([run(k) for k in KERNELS] for _ in range(2))
    for i, record in enumerate(there):
        record["provenance"]["host"], record["id"], record["case"]["id"] = "other", f"{i:032x}", f"{i:032x}"
        for m in record["meters"]:
            m["joules"] *= 2
    there[0]["meters"][0]["origin"] = "estimated"
    rows, found = rows_of(tmp_path, here + there)
    of = {host: [r for r in rows if host in r["setting"]] for host in ("node", "other")}
    assert [len(r) for r in of.values()] == [len(KERNELS)] * 2
    assert {c["kernels"] for c in found} == {len(KERNELS)} and len({c["setting"] for c in found}) == 2
    assert [r["normalised"]["total"] for r in of["node"]] == pytest.approx([r["normalised"]["total"] for r in of["other"]])
    assert sorted(r["origin"] for r in of["other"]) == ["measured"] * 3 + ["mixed"]


def test_two_kernels_have_no_correlation_and_other_work_no_signature(tmp_path):
    assert rows_of(tmp_path, [run("deep"), run("wide")])[1] == []
    assert summary(write(tmp_path, [run("deep", workload="train")]))["signatures"] is None
    assert summary(write(tmp_path, [run("deep", parts=(), activity=False)]))["signatures"] is None


def test_turns_of_overlap_are_rows(tmp_path):
    record = run("deep", workload="overlap", activity=False)
    turns = {"product": (600, 400), "collective": (300, 100), "both": (660, 380)}
    record["phases"] += [
        {"name": name, "start_s": 3 * i + k, "end_s": 3 * i + k + 0.5, "items": 1, "meters": [
            {"id": f"{d}{part}", "joules": 0.5 * w, **({"rest_joules": 0.5 * (total - core)} if not part else {})}
            for d in "AB" for part, w in (("", total), ("/gpu-core", core))]}
        for i in range(3) for k, (name, (total, core)) in enumerate(turns.items())]
    rows, _ = rows_of(tmp_path, [record])
    assert [r["kernel"].rsplit(": ")[1] for r in rows] == list(turns)
    for row, (total, core) in zip(rows, turns.values()):
        assert row["watts"]["total"] == pytest.approx(total) and row["watts"]["core"] == pytest.approx(core)
        assert row["watts"]["rest"] == pytest.approx(total - core)
    assert rows[0]["intensity"]["theoretical"] > 0 and rows[1]["intensity"]["theoretical"] is None


def test_text_and_markdown_have_the_rows(tmp_path):
    path = write(tmp_path, [run(k) for k in KERNELS])
    text = report(path, env={"COLUMNS": "400"})
    rows = summary(path)["signatures"]["rows"]
    table = text.split("Signatures of kernels")[1]
    for row in rows:
        [line] = [x for x in table.splitlines() if x.startswith(row["kernel"])]
        assert f"{row['watts']['core']:.1f}" in line.split(), line
    markdown = report("--format", "md", path).split("## Signatures of kernels")[1]
    cells = list(csv.reader(io.StringIO("\n".join(x for x in markdown.splitlines() if x.startswith("|"))), delimiter="|"))
    assert {r["kernel"] for r in rows} <= {c[1].strip() for c in cells}


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: the page was not opened in a browser")
def test_page_shows_them(tmp_path):
    page = browse(make_page(tmp_path, [run(k) for k in KERNELS]), "--dump-dom")
    assert "Signatures of kernels" in page and "measured FLOP/B" in page and "Pearson" in page


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: the page was not opened in a browser")
def test_labels_of_many_kernels_have_what_tells_them_apart_and_lie_beside_each_other(tmp_path):
    """48 bars of 16 runs: no label repeats what all have in common; in the plane no label covers another one."""
    runs = json.loads((SOURCE / "tests/data/h200x2/overlap.json").read_text())
    dom = browse(make_page(tmp_path, runs), "--dump-dom", "--window-size=1280,4000")
    text = re.compile(r'<text[^>]*transform="(?:matrix\([^)]*|translate\(([-\d.]+) ([-\d.]+))\)"[^>]*>([^<]*)</text>')
    bars = [t for _, _, t in text.findall(dom.split("<h3>Signatures of kernels")[1].split("</svg>")[0])]
    rows = [f"{buffers}, {size} GB, {ctas}{turn}" for buffers, size, ctas in
            ((r["options"]["buffers"], r["options"]["size"], f"max-ctas={r['options']['max-ctas']}, " if "max-ctas" in r["options"] else "") for r in runs)
            for turn in ("product", "collective", "both")]
    assert len(rows) == 48 and set(rows) <= set(bars) and not [t for t in bars if "cuda:0" in t or "bf16" in t or "size" in t]
    plane = text.findall(dom.split("<h3>Efficiency against throughput")[1].split("</svg>")[0])
    labels = [(float(x), float(y), len(t) * 5) for x, y, t in plane if ", " in t and float(x) > 0]
    assert 6 <= len(labels) <= len(runs)
    for i, (x, y, width) in enumerate(labels):
        assert not [o for o in labels[:i] if abs(o[1] - y) < 10 and o[0] < x + width and x < o[0] + o[2]], (x, y)


def test_simulated_rows_are_marked(tmp_path):
    record = copy.deepcopy(run("deep"))
    for m in record["meters"]:
        m["origin"] = "simulated"
    record["total"] = {"joules_simulated": 2 * 690 * SECONDS}
    other = copy.deepcopy(record)
    other["options"]["m"] = other["case"]["parameters"]["options"]["m"] = "128"
    other["case"]["id"] = other["id"] = f"{1:032x}"
    done = jm("report", write(tmp_path, [record, other]))
    assert "Nothing here was measured" in " ".join(done.stdout.split())


def test_the_simulated_suite_has_the_parts_that_its_node_is_made_of(tmp_path):
    """XCD, IOD and HBM are what the node's data file says of the power of a GPU; caps that it does not honour are marked."""
    data = json.loads((SOURCE / "sim/data/mi300x.json").read_text())
    assumed = {k: v["value"] for k, v in data["assumed"].items()}
    store = tmp_path / "s.db"
    done = jm("run", SOURCE / "suites/components-simulated.yaml", "--store", store, "--quiet")
    assert done.returncode == 0, done.stderr
    rows = json.loads(report("--format", "json", store))["signatures"]["rows"]
    assert len(rows) == 3 * 4 + 4 and {r["origin"] for r in rows} == {"simulated"} and {r["runs"] for r in rows} == {3}
    for row in rows:
        watts = row["watts"]
        [own] = [r["assumed"] for name, r in data["responses"].items() if f" {name} " in row["kernel"]]
        parts = {k: assumed[f"{k}_idle_watts"] + own[f"{k}_share"]["value"] * (watts["total"] - assumed["idle_watts"]) for k in ("core", "io", "memory")}
        assert {k: watts[k] for k in parts} == pytest.approx(parts, rel=0.01)
        assert watts["rest"] == pytest.approx(watts["total"] - sum(parts.values()), rel=0.01)
        assert (row["state"] == "violated") == row["setting"].startswith("gpu.power 300 W"), row
    largest = {name: max((r["watts"][k], k) for r in rows if f" {name} " in r["kernel"] for k in parts)[1] for name in ("product", "stream", "all-gather")}
    assert largest == {"product": "core", "stream": "memory", "all-gather": "io"}
    first = {name: next(r for r in rows if f" {name} " in r["kernel"]) for name in ("product", "stream", "all-gather")}
    for row in rows:
        [base] = [r for name, r in first.items() if f" {name} " in row["kernel"]]
        assert row["normalised"] == pytest.approx({k: v and v / base["watts"]["core"] for k, v in row["watts"].items()})
    assert done.stdout.count("gpu.power 300 W, gpu.clock unchanged (violated)") >= 3
