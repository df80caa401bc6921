# SPDX-License-Identifier: Apache-2.0
"""joulemark report: series by host, set of devices and driver; --pool devices with the card as a factor."""
import copy
import csv
import io
import itertools
import random

import numpy
import pytest

import page_data
from jm import USAGE, jm, sentence
from reports import report, summary, write

T975 = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 6: 2.4469, 7: 2.3646, 8: 2.3060, 9: 2.2622,
        10: 2.2281, 11: 2.2010, 12: 2.1788, 13: 2.1604, 14: 2.1448}


def one(cap, joules, seconds=10.0, host="node1", cards=("a",), driver="550.54", repeat=1, model="NVIDIA H100",
        reference=False):
    """A run of a command of 100 items under a cap."""
    meters = [{"id": f"nvml:GPU-{c}", "label": f"GPU {i} {model}", "device": f"GPU-{c}", "source": "nvml", "scope": "gpu",
               "covered_by": None, "overlaps": None, "origin": "measured", "joules": joules / len(cards),
               "watts_mean": joules / seconds / len(cards), "watts_max": None, "watts_median": None}
              for i, c in enumerate(cards)]
    parameters = {"command": ["work"], "options": {}, "settings": {"gpu.power": "as found" if reference else f"{cap}W"}}
    return {
        "schema": "joulemark.run/1", "id": f"{cap:032x}", "started": f"2026-01-01T00:00:00.{repeat:03}Z", "clock": "real",
        "status": "ok", "command": ["work"], "phase": "marked", "unit": "item", "items": 100, "exit_status": 0,
        "throughput": 100 / seconds, "devices": len(cards), "meters": meters, "total": {"joules_measured": joules},
        "phases": [{"name": "marked", "start_s": 0, "end_s": seconds, "items": 100}],
        "quality": {"grade": "C", "reasons": []},
        "provenance": {"host": host, "cpu": "cpu", "drivers": {"nvidia": driver},
                       "devices": [{"id": f"GPU-{c}", "name": f"GPU {i} {model}", "source": "nvml"}
                                   for i, c in enumerate(cards)]},
        "case": {"id": f"{cap:032x}", "parameters": parameters, "repeat": repeat, "block": repeat, "position": 1,
                 "reference": reference, "seed": 1},
        "settings": [{"knob": "gpu.power", "device": f"GPU-{c}", "unit": "W", "requested": cap, "accepted": cap,
                      "enforced": cap, "state": "binding"} for c in cards],
    }


def repeats(joules, **more):
    return [one(300, j, repeat=i + 1, **more) for i, j in enumerate(joules)]


# ---- without --pool


@pytest.mark.parametrize("other, said", [
    ({"host": "node2"}, "on node2"),
    ({"cards": ("b",)}, "GPU-b"),
    ({"cards": ("a", "b")}, "GPU-a, GPU-b"),
    ({"driver": "560.28"}, "nvidia 560.28"),
])
def test_another_machine_is_another_series(tmp_path, other, said):
    rows = repeats([1000, 1010, 990]) + repeats([2000, 2010, 1990], **other)
    series = summary(write(tmp_path, rows))["series"]
    assert [s["points"][0]["metrics"]["joules_per_item"]["mean"] for s in series] == pytest.approx([10, 20])
    assert said in series[1]["title"] and series[0]["title"] != series[1]["title"]
    table = report(write(tmp_path, rows))
    assert f"machine node1, 1 x NVIDIA H100 (GPU-a), nvidia 550.54" in table and said.removeprefix("on ") in table


def test_the_order_of_devices_and_their_indices_are_not_the_machine(tmp_path):
    rows = repeats([1000, 1010], cards=("a", "b")) + repeats([1020, 1030], cards=("b", "a"))
    (series,) = summary(write(tmp_path, rows))["series"]
    assert series["runs_ok"] == 4


def test_a_reference_on_another_machine_is_none(tmp_path):
    """Block 1 of one host is not that of another."""
    rows = [one(700, 2000, reference=True), one(300, 1500), one(700, 4000, host="node2", reference=True),
            one(300, 3000, host="node2")]
    series = summary(write(tmp_path, rows))["series"]
    gains = [p["metrics"]["energy_gain_percent"]["mean"] for s in series for p in s["points"]]
    assert gains == pytest.approx([0, 25, 0, 25])


def test_hosts_are_in_the_csv(tmp_path):
    path = write(tmp_path, repeats([1000, 1010]) + repeats([2000], host="node2"))
    for more, n in ([], 2), (["--cases"], 3):
        rows = list(csv.DictReader(io.StringIO(report("--format", "csv", *more, path))))
        assert len(rows) == n and [r["host"] for r in rows] == ["node1"] * (n - 1) + ["node2"]
        assert rows[0]["devices"] == "GPU-a" and rows[0]["drivers"] == "nvidia 550.54"


def test_simulated_runs_have_no_machine(tmp_path):
    rows = repeats([1000, 1010]) + repeats([1020], host="node2")
    for r in rows:
        r["clock"] = "simulated"
    (series,) = summary(write(tmp_path, rows))["series"]
    assert series["machine"] == "" and series["runs_ok"] == 3


# ---- with it


def fit(rows, value):
    """Setting + card by least squares over dummies: means with the cards' effects weighted to sum 0, and half of
    the 95 % interval of each."""
    caps = sorted({r["settings"][0]["requested"] for r in rows})
    cards = sorted({(r["provenance"]["host"], r["provenance"]["devices"][0]["id"]) for r in rows})
    x = numpy.zeros((len(rows), len(caps) + len(cards)))
    for row, r in zip(x, rows):
        row[caps.index(r["settings"][0]["requested"])] = 1
        row[len(caps) + cards.index((r["provenance"]["host"], r["provenance"]["devices"][0]["id"]))] = 1
    y = numpy.array([value(r) for r in rows])
    p = numpy.linalg.pinv(x) @ y
    counts = x[:, len(caps):].sum(axis=0)
    shift = (counts * p[len(caps):]).sum() / counts.sum()
    dof = len(rows) - numpy.linalg.matrix_rank(x)
    variance = ((y - x @ p) ** 2).sum() / dof
    # the mean of a setting as a linear function of the parameters that can be estimated
    means, widths = {}, {}
    for i, cap in enumerate(caps):
        a = numpy.zeros(x.shape[1])
        a[i] = 1
        a[len(caps):] = counts / counts.sum()
        means[cap] = p[i] + shift
        widths[cap] = T975[dof] * (variance * a @ numpy.linalg.pinv(x.T @ x) @ a) ** 0.5
    return means, widths


def cards_of(rng, missing=()):
    """Three cards of which one takes a fifth more, three caps, two repeats."""
    effect = {"a": 0, "b": 40, "c": 200}
    return [one(cap, 1000 + cap / 2 + effect[card] + rng.gauss(0, 3), seconds=10 + cap / 1000 + rng.gauss(0, 0.01),
                host=f"node{card}", cards=(card,), repeat=repeat)
            for card, cap, repeat in itertools.product("abc", (300, 400, 500), (1, 2)) if (card, cap) not in missing]


@pytest.mark.parametrize("missing", [(), [("a", 300), ("c", 500)], [("a", 300), ("a", 400), ("b", 500)]])
def test_pooled_cards_are_a_factor(tmp_path, missing):
    rows = cards_of(random.Random(4), missing)
    (series,) = summary("--pool", "devices", write(tmp_path, rows))["series"]
    assert series["machines"] == 3
    for name, value in (("joules_per_item", lambda r: r["total"]["joules_measured"] / 100),
                        ("throughput", lambda r: r["throughput"])):
        means, widths = fit(rows, value)
        for p, cap in zip(series["points"], sorted(means)):
            stat = p["metrics"][name]
            assert stat["mean"] == pytest.approx(means[cap], rel=1e-9)
            assert stat["high95"] - stat["mean"] == pytest.approx(widths[cap], rel=1e-3)


def test_pooling_says_so_and_finds_what_cards_would_hide(tmp_path):
    path = write(tmp_path, cards_of(random.Random(5)))
    table = report("--pool", "devices", path)
    text = " ".join(table.split())
    assert "3 sets of 1 x NVIDIA H100 pooled, nvidia 550.54: nodea (GPU-a), nodeb (GPU-b), nodec (GPU-c)" in text
    assert "the set is a factor" in text and "removed from means and intervals" in text
    (series,) = summary("--pool", "devices", path)["series"]
    verdict = next(v for v in series["verdicts"] if v["metric"] == "joules_per_item")
    assert verdict["kind"] == "best" and verdict["text"] == "300 W"


def test_what_cards_differ_by_is_no_drift(tmp_path):
    """Each card is as fast in its last repeat as in its first; one that slows down by 1 % in each repeat is told."""
    def cards(slower):
        rng = random.Random(7)
        return write(tmp_path, [one(cap, 1000, seconds=(10 + faster) * rng.gauss(1, 1e-4) * (1 + slower * repeat), host=f"node{card}",
                                    cards=(card,), repeat=repeat)
                                for card, faster in (("a", 0), ("b", 0.3), ("c", 0.6)) for cap in (300, 400, 500) for repeat in (1, 2, 3)])
    (series,) = summary("--pool", "devices", cards(0))["series"]
    assert series["warnings"] == []
    (series,) = summary("--pool", "devices", cards(0.01))["series"]
    drift = next(w for w in series["warnings"] if "throughput drifts" in w)
    assert "by -1.9" in drift or "by -2.0" in drift, drift


def test_cards_that_share_no_setting_yield_no_verdict(tmp_path):
    rows = [one(cap, 1000 + cap + i, cards=(card,), repeat=i + 1)
            for card, cap in (("a", 300), ("b", 400)) for i in range(3)]
    (series,) = summary("--pool", "devices", write(tmp_path, rows))["series"]
    assert all(v["kind"] == "none" and "cannot be separated" in v["why"] for v in series["verdicts"])
    assert all(p["metrics"]["joules_per_item"]["high95"] is None for p in series["points"])
    assert "cannot be separated" in " ".join(report("--pool", "devices", write(tmp_path, rows)).split())


@pytest.mark.parametrize("other", [{"model": "NVIDIA H200"}, {"cards": ("b", "c")}, {"driver": "560.28"}])
def test_other_models_numbers_and_drivers_are_not_pooled(tmp_path, other):
    more = {"cards": ("b",), **other}
    rows = repeats([1000, 1010, 990]) + repeats([2000, 2010, 1990], **more)
    series = summary("--pool", "devices", write(tmp_path, rows))["series"]
    assert [s["runs_ok"] for s in series] == [3, 3]


def test_pooling_one_machine_changes_nothing(tmp_path):
    path = write(tmp_path, [r for r in cards_of(random.Random(6)) if r["provenance"]["host"] == "nodea"])
    assert report("--pool", "devices", path) == report(path)


def test_there_is_nothing_else_to_pool(tmp_path):
    rows = copy.deepcopy(repeats([1000]))
    assert "devices" in sentence(jm("report", "--pool", "hosts", write(tmp_path, rows)), USAGE)


def test_ranks_on_two_hosts_are_of_one_machine_that_names_both(tmp_path):
    (row,) = repeats([1000])
    row["hosts"] = [{"name": name, "machine": None, "ranks": [rank], "start_s": 0.0, "start_doubt_s": 0.0, "phases": [], "settings": None}
                    for rank, name in enumerate(("node1", "node2"))]
    path = write(tmp_path, [row])
    assert "hosts node1, node2" in " ".join(report(path).split())
    (machine,) = page_data.of(report("--html", "-", path))["machines"]
    assert (machine["host"], machine["hosts"]) == ("node1", "node1, node2")


@pytest.mark.parametrize("a, b, outliers", [
    ([1000, 1001, 999, 1000, 1002, 998], [1100], []),  # another card is none
    ([1000, 1001, 999, 1500, 1002, 998], [2000, 2001, 1999, 2000, 2002, 1998], [1500]),  # near the median of all
    ([1000, 1001, 999, 1500], [2000, 2001, 1999, 2000, 2002, 9000], [1500, 9000]),
    ([1000, 1001, 1500], [2000, 2001, 9000], [])])  # too few of each
def test_an_outlier_is_one_among_the_runs_of_its_card(tmp_path, a, b, outliers):
    rows = repeats(a) + repeats(b, cards=("b",))
    random.Random(4).shuffle(rows)
    doc = summary("--pool", "devices", write(tmp_path, rows))
    (series,) = doc["series"]
    assert series["points"][0]["outliers"] == len(outliers)
    assert sorted(rows[c["record"]]["total"]["joules_measured"] for c in doc["cases"] if c["outlier"]) == outliers
