# SPDX-License-Identifier: Apache-2.0
"""joulemark report: the conditions for naming a best setting, its comparison, and the worst state among runs."""
import copy

import pytest

import page_data
from reports import FIXTURES, best_within, expected, interval, records, report, setting, summary, write
from runs import one
from serving import SERVE


def series_of(tmp_path, rows):
    (series,) = summary(write(tmp_path, rows))["series"]
    return series, {v["metric"]: v for v in series["verdicts"]}


def energy_of(record, factor):
    """All its joules, and nothing else, times the factor."""
    for m in record["meters"]:
        for key in ("joules", "joules_counter", "joules_integrated"):
            m[key] = m[key] * factor if m[key] is not None else None
    record["total"]["joules_simulated"] *= factor


def test_energy_of_two_origins_tells_nothing(tmp_path):
    rows = records()
    for r in rows[::2]:
        r["total"] |= {"joules_measured": r["total"]["joules_simulated"], "joules_simulated": None}
        for m in r["meters"]:
            m["origin"] = "measured"
    series, verdicts = series_of(tmp_path, rows)
    assert series["origin"] == "mixed" and verdicts["throughput"]["kind"] != "none"
    assert all(v["kind"] == "none" and "of others not" in v["why"] for k, v in verdicts.items() if k != "throughput")


@pytest.mark.parametrize("knob, more", [("gpu.power", {"soft": True}), ("soft.pause", {})])
def test_a_soft_control_tells_nothing(tmp_path, knob, more):
    rows = records()
    for r in rows:
        r["case"]["parameters"] = {knob: r["case"]["parameters"]["gpu.power"]}
        for s in r["settings"]:
            s.update(knob=knob, **more)
    _, verdicts = series_of(tmp_path, rows)
    assert {v["kind"] for v in verdicts.values()} == {"none"} and "soft control" in verdicts["throughput"]["why"]


def test_figures_that_differ_by_rounding_are_alike(tmp_path):
    """Each repeat of each setting is the same run, but for the last bit of its energy."""
    rows, one = records(), next(r for r in records() if r["case"]["reference"])
    same = ("meters", "total", "phases", "throughput", "throughput_per_device", "items", "wall_s")
    for i, r in enumerate(rows):
        r.update(copy.deepcopy({k: one[k] for k in same}))
        energy_of(r, 1 + 1e-15 * (i % 7))
    _, verdicts = series_of(tmp_path, rows)
    assert verdicts["joules_per_item"]["kind"] == "tie" and len(verdicts["joules_per_item"]["tied"]) == 7


def test_the_reference_of_a_block_is_the_mean_of_its_references(tmp_path):
    rows = records()
    more = [copy.deepcopy(r) for r in rows if r["case"]["reference"]]
    for r in more:
        r["started"] = "2001-02-03T04:05:06Z"
        energy_of(r, 3)
    points = [{p["label"]: p["metrics"]["energy_gain_percent"]["mean"] for p in series_of(tmp_path, all_of)[0]["points"]
               if not p["reference"]} for all_of in (rows, rows + more)]
    for label, gain in points[0].items():
        # against e_ref it was gain; against (e_ref + 3 e_ref) / 2 it is
        assert points[1][label] == pytest.approx(100 - (100 - gain) / 2, abs=1e-6)


@pytest.mark.parametrize("grades, worst", [("ABA", "B"), ("BAC", "C"), ("DCB", "D"), (["A", "none", "D"], "none"),
                                           (["D", "A", "none"], "none")])
def test_the_grade_is_the_worst(tmp_path, grades, worst):
    rows = records(n=3)
    for r, grade in zip(rows, grades):
        r["quality"] = {"grade": grade, "reasons": []}
    assert series_of(tmp_path, rows)[0]["grade"] == worst


def test_the_grade_is_that_of_the_runs_that_give_figures(tmp_path):
    """A case that ran out of memory has no energy; those beside it were measured as before."""
    rows = records(n=3)
    for r in rows:
        r["quality"] = {"grade": "B", "reasons": ["No meter covers the node."]}
    rows[1].update(status="failed", exit_status=None, reason="Out of memory.",
                   quality={"grade": "none", "reasons": ["No energy was measured."]})
    series = series_of(tmp_path, rows)[0]
    assert series["grade"] == "B" and series["grade_reasons"] == ["No meter covers the node."]


def test_where_all_failed_no_meter_is_blamed(tmp_path):
    rows = records(n=3)
    for r in rows:
        r.update(status="failed", exit_status=None, reason="Out of memory.", meters=[],
                 total={**r["total"], "joules_simulated": None}, quality={"grade": "none", "reasons": ["No energy was measured."]})
    text = " ".join(report(write(tmp_path, rows)).split())
    assert "energy: unknown, because no run succeeded" in text
    assert "no meter" not in text and "quality" not in text


def test_the_worst_state_of_all_devices_and_repeats(tmp_path):
    """One device of one repeat broke the cap; what was enforced has both ends."""
    rows = [r for r in records() if r["case"]["parameters"]["gpu.power"] in ("300W", "500W")]
    first = next(r for r in rows if r["case"]["parameters"]["gpu.power"] == "300W")
    first["settings"][1].update(state="violated", enforced=310, accepted=295)
    first["settings"][2].update(enforced=290)
    points = {p["label"]: p for p in series_of(tmp_path, rows)[0]["points"]}
    (setting,) = points["300 W"]["settings"]
    assert points["300 W"]["state"] == "violated" and not points["300 W"]["eligible"]
    assert points["500 W"]["state"] == "binding"
    assert (setting["accepted"], setting["enforced_min"], setting["enforced_max"]) == (295, 290, 310)


def repeated(rows):
    """Each repeat of a setting as its first one, so that nothing varies."""
    first = {}
    for r in rows:
        if r["status"] == "ok":
            one = first.setdefault((r["case"]["reference"], setting(r)), copy.deepcopy(r))
            r.update(copy.deepcopy({k: one[k] for k in ("meters", "total", "phases", "throughput",
                                                        "throughput_per_device", "items", "wall_s")}))
    return rows


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("sure", [True, False])
def test_the_best_setting_within_five_percent(tmp_path, name, sure):
    """600 W loses 3.4 to 4.2 %: within the limit only where the interval is narrow."""
    rows = repeated(records(name)) if sure else records(name)
    gain, loss = ({s: interval(v) for (ref, s), v in expected(rows, metric).items() if not ref}
                  for metric in ("energy_gain_percent", "time_loss_percent"))
    (series,) = summary(write(tmp_path, rows))["series"]
    kept = {p["label"] for p in series["points"] if p["eligible"]}
    good = {s for s in gain if sum(loss[s]) <= 5 and gain[s][0] - gain[s][1] > 0 and s.replace("W", " W") in kept}
    line = next((row for row in " ".join(report(write(tmp_path, rows), "--width", "300").split("\n")).split("  ")
                 if row.endswith("more time; simulated)")), None)
    assert bool(good) == bool(line) == sure
    if good:
        best = max(good, key=lambda s: gain[s][0])
        tied = [s for s in good if s != best and sum(gain[s]) >= gain[best][0] - gain[best][1]]
        assert line.strip().startswith("no clear best: " * bool(tied) + best.replace("W", " W")), line
        assert all(s.replace("W", " W") in line for s in tied)
        assert float(line.split("(")[1].split()[0]) == pytest.approx(gain[best][0], rel=1e-2)


@pytest.mark.parametrize("name", FIXTURES)
def test_table_and_page_name_the_same_settings_within_five_percent(tmp_path, name):
    """700 W saves nothing by its mean, but its interval is so wide that it may save more than 600 W."""
    rows = repeated(records(name))
    for r in rows:
        if setting(r) == "700W" and not r["case"]["reference"]:
            energy_of(r, [0.85, 1, 1.12][r["case"]["repeat"]])
    assert sorted(best_within(rows, 5)) == ["600 W", "700 W"]
    page, path = tmp_path / "page.html", write(tmp_path, rows)
    assert "no clear best: 600 W, 700 W per GPU (" in report(path)
    report("--html", page, path)
    data = page_data.of(page.read_text())
    (series,) = data["series"]
    within = series["within"]
    assert [series["points"][i]["label"] for i in within["at"]] == ["600 W", "700 W"]
    assert (within["kind"], series["points"][within["leading"]]["label"]) == ("tie", "600 W")
    assert data["slowdown_percent"] == 5


def test_a_reason_that_holds_for_all_members_of_a_table_is_named_once(tmp_path):
    """Two batches without a meter: a verdict by throughput, and one line for the metrics that need energy."""
    rows = []
    for batch in ("4", "8"):
        for r in records("h100x4"):
            r["case"] = {**r["case"], "id": f"{batch}{r['case']['id'][1:]}",
                         "parameters": {**r["case"]["parameters"], "batch": batch}}
            r |= {"id": r["case"]["id"], "meters": [], "total": {}}
            rows.append(r)
    text = report(write(tmp_path, rows))
    assert text.count("there was no meter") == 2  # with the caption
    line = next(line for line in text.splitlines() if "No best setting by" in line)
    assert "energy per" in line and "most energy saved" in line and "throughput" not in line
    assert text.count("\n    batch 4: ") == 1 and text.count("\n    batch 8: ") == 1


def test_a_cap_at_which_latency_breaks_its_bounds_is_not_the_best(tmp_path):
    """One run of the cap with the least energy was late: the best one is that with the least energy of the others."""
    served = one(*SERVE, "--device", "ref", "--steps", "20", "--arrival", "single", "--input-tokens", "3", "--output-tokens", "3",
                 "--ttft", "1000s")["serving"]
    rows = records()
    for r in rows:
        r["serving"] = served | {"p99_in_bounds": True}
    series, before = series_of(tmp_path, rows)
    points = series["points"]
    late = points[before["joules_per_item"]["leading"]]["label"]
    next(r for r in rows if setting(r).replace("W", " W") == late)["serving"] = served | {"p99_in_bounds": False}
    series, verdicts = series_of(tmp_path, rows)
    means = {k[1].replace("W", " W"): interval(v)[0] for k, v in expected(rows, "joules_per_item").items()}
    kept = {p["label"] for p in series["points"] if p["eligible"]}
    assert kept == {p["label"] for p in points if p["eligible"]} - {late} and late in means
    assert series["points"][verdicts["joules_per_item"]["leading"]]["label"] == min(kept & means.keys(), key=means.get)
    text = report(write(tmp_path, rows))
    assert f"{late} >" in text and "exceeds --ttft or --tpot" in " ".join(text.split())


def test_a_cap_that_another_host_broke_is_not_best(tmp_path):
    """The record's own settings are those of its first host; ZeusCost counts the limits of both."""
    rows = [r for r in records() if r["case"]["reference"] or r["case"]["parameters"]["gpu.power"] in ("300W", "500W")]
    for r in rows:
        hosts = [copy.deepcopy(r["settings"]) for _ in range(2)]
        if r["case"]["parameters"]["gpu.power"] == "300W" and r["case"]["repeat"] == 2:
            hosts[1][0].update(state="violated", enforced=310, accepted=295)
        r["hosts"] = [{"name": f"node{rank}", "machine": None, "ranks": [rank], "start_s": 0.0, "start_doubt_s": 0.0, "phases": [],
                       "settings": settings} for rank, settings in enumerate(hosts)]
    both = series_of(tmp_path, rows)[0]["points"]
    points = {p["label"]: p for p in both}
    assert points["300 W"]["state"] == "violated" and not points["300 W"]["eligible"]
    (setting,) = points["300 W"]["settings"]
    assert (setting["accepted"], setting["enforced_max"]) == (295, 310)
    assert points["500 W"]["state"] == "binding" and points["500 W"]["eligible"]
    for r in rows:
        del r["hosts"]
    alone = {p["label"]: p for p in series_of(tmp_path, rows)[0]["points"]}
    assert alone["300 W"]["eligible"]
    zeus = [p["500 W"]["metrics"]["zeus_cost"]["mean"] for p in (alone, points)]
    per_second = alone["500 W"]["metrics"]["throughput"]["mean"]
    limit = sum(s["enforced"] for s in next(r for r in rows if r["case"]["reference"])["settings"])
    assert zeus[1] - zeus[0] == pytest.approx(0.5 * limit / per_second, rel=0.01)
