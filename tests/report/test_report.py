# SPDX-License-Identifier: Apache-2.0
"""joulemark report: figures against numpy, golden tables, text and bad input."""
import csv
import io
import json
import os
import re

import numpy as np
import pytest

from jm import FAILURE, USAGE, jm, sentence
from reports import costs, expected, setting, DATA, FIXTURES, NASTY, T_975, records, report, summary, write


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("metric", ["throughput", "joules_per_item", "items_per_wh", "edp", "eds_k1.5",
                                    "eds_k2", "energy_gain_percent", "time_loss_percent",
                                    "gain_minus_loss"])
def test_statistics_are_numpys(name, metric):
    series, = summary(DATA / f"{name}.json")["series"]
    truth = expected(records(name), metric)
    assert len(series["points"]) == len(truth) == 7
    for point in series["points"]:
        values = np.array(truth[point["reference"], point["label"].replace(" W", "W")
                                if not point["reference"] else "default"])
        stat = point["metrics"][metric]
        assert stat["n"] == len(values)
        assert stat["mean"] == pytest.approx(values.mean(), rel=1e-9, abs=1e-9)
        assert stat["median"] == pytest.approx(np.median(values), rel=1e-9, abs=1e-9)
        assert stat["sd"] == pytest.approx(values.std(ddof=1), rel=1e-7, abs=1e-9)
        half = T_975[len(values) - 1] * values.std(ddof=1) / np.sqrt(len(values))
        assert stat["high95"] - stat["mean"] == pytest.approx(half, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("name", FIXTURES)
def test_verdicts_follow_the_intervals(name):
    series, = summary(DATA / f"{name}.json")["series"]
    for verdict in series["verdicts"]:
        better = series["metrics"][verdict["metric"]]["better"]
        kept = [(i, p["metrics"][verdict["metric"]]) for i, p in enumerate(series["points"])
                if p["state"] != "violated"]
        best, stat = max(kept, key=lambda x: better * x[1]["mean"])
        tied = [i for i, s in kept if s["low95"] <= stat["high95"] and stat["low95"] <= s["high95"]]
        enforced = {series["points"][i]["settings"][0]["enforced_max"] for i in tied}
        assert verdict["leading"] == best
        assert verdict["kind"] == ("best" if len(enforced) == 1 else "tie")
        if verdict["kind"] == "tie":
            assert verdict["tied"] == tied and "no clear best" in verdict["text"]


def test_eds_2_and_gain_minus_loss_agree():
    for name in FIXTURES:
        series, = summary(DATA / f"{name}.json")["series"]
        for p in series["points"]:
            m = p["metrics"]
            assert m["gain_minus_loss"]["mean"] == pytest.approx(200 * (1 - m["eds_k2"]["mean"]), abs=1e-8)


@pytest.mark.parametrize("kind", ["table", "md", "latex"])
def test_only_signs_that_a_table_has_are_explained(kind):
    words = {name: " ".join(report("--format", kind, DATA / f"{name}.json").split()) for name in ("h100x4", "mi300x4")}
    assert "violated" in words["mi300x4"] and "violated" not in words["h100x4"]
    assert all("is an outlier" not in text and " interval over " in text for text in words.values())


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("kind", ["txt", "md"])
def test_golden(name, kind):
    """To renew after a look at the difference: JM_RENEW=1 and the same command."""
    path = DATA / f"{name}.{kind}"
    args = ["--format", "md"] if kind == "md" else ["--width", "80"]
    text = report(*args, DATA / f"{name}.json")
    if os.environ.get("JM_RENEW"):
        path.write_text(text)
    assert text == path.read_text()


def test_order_of_the_records_does_not_matter(tmp_path):
    rows = records("h100x4")
    assert report(write(tmp_path, rows[::-1])) == report(DATA / "h100x4.json")
    lines = tmp_path / "lines.json"
    lines.write_text("\n".join(json.dumps(r) for r in rows))
    assert report(lines) == report(DATA / "h100x4.json")
    assert report("-", stdin=open(DATA / "h100x4.json", encoding="utf-8")) == report(DATA / "h100x4.json")


def test_a_table_says_simulated_once():
    text = report(DATA / "h100x4.json")
    assert "each counted once, simulated;" in text.split("gpu.power")[0]  # above the first figure
    assert text.split("quality")[0].count("simulated") == 1
    rows = report("--columns", "all", "--width", "1000", DATA / "h100x4.json").splitlines()
    figures = [line for line in rows if re.match(r"(default|\d+ W) .*±", line)]
    assert len(figures) > 5 and all(line.endswith("simulated") for line in figures)


def test_columns_of_the_table():
    def titles(*args):
        text = report(*args, "--width", "1000", DATA / "h200x4.json")
        return re.split(r"  +", next(line for line in text.splitlines() if line.startswith("gpu.power")))
    few, every = titles(), titles("--columns", "all")
    assert 5 <= len(few) <= 7 and set(few) < set(every) and len(every) > 15
    assert titles("--columns", "edp,n,enforced")[:3] == ["gpu.power", "enforced", "n"]
    assert titles("--columns", "edp,n,enforced")[3].startswith("EDP ")
    assert "did you mean 'edp'" in sentence(jm("report", "--columns", "edq", DATA / "h200x4.json"), USAGE)
    assert "no column 'watts'" in sentence(jm("report", "--columns", "n,watts", DATA / "h200x4.json"), USAGE)
    assert "empty name" in sentence(jm("report", "--columns", "n,,edp", DATA / "h200x4.json"), USAGE)


def test_the_prefix_of_a_column_is_in_its_title(tmp_path):
    """GPUs of more than 1,000 W: their energy in an hour is in kWh."""
    rows = records("h200x4")
    for r in rows:
        for m in r["meters"]:
            if m["scope"] == "gpu" and m["watts_mean"]:
                m["watts_mean"] *= 4
    of_reference = [m["watts_mean"] for r in rows if r["status"] == "ok" and r["case"]["reference"] for m in r["meters"] if m["scope"] == "gpu"]
    text = report("--columns", "wh_per_gpu_hour", write(tmp_path, rows))
    assert "kWh/GPU/h" in text
    shown = re.search(r"^.* \*.*? ([\d.]+) ± ", text, re.M)[1]
    assert float(shown) == pytest.approx(sum(of_reference) / len(of_reference) / 1000, rel=0.01) and sum(of_reference) > 1000 * len(of_reference)


def test_help_lists_every_column():
    metrics = {name.removesuffix("_mean") for name in report("--format", "csv", DATA / "h200x4.json").splitlines()[0].split(",")
               if name.endswith("_mean")}
    assert len(metrics) > 20
    listed = set(re.findall(r"[\w.]+", jm("report", "--help").stdout))
    assert {re.sub(r"^eds_k[\d.]+$", "eds_kK", name) for name in metrics} <= listed


@pytest.mark.parametrize("values, shown", [
    ([120828, 120949, 121070], "120,950 ± 300"), ([2799.95, 2800, 2800.05], "2800 ± 1"),
    ([10, 11, 12], "11.0 ± 2.5"), ([0.99, 1.0, 1.01], "1.000 ± 0.025"), ([5, 5, 5], "5.000")])
def test_digits_follow_the_interval(tmp_path, values, shown):
    """Student's t for three runs is 4.30; what stands behind the interval's first digits is not shown."""
    rows = [json.loads(json.dumps(records("h200x4", 1)[0])) for _ in values]
    for i, (r, watts) in enumerate(zip(rows, values)):
        r["case"] |= {"repeat": i + 1, "block": i}
        steady = next(p for p in r["phases"] if p["name"] == r["phase"])
        r["total"]["joules_simulated"] = watts * (steady["end_s"] - steady["start_s"])
    text = report("--columns", "watts_mean", write(tmp_path, rows))
    assert f" {shown}\n" in text, text


def test_digits_are_grouped_for_people_only():
    """121,070 ± 1,260 in tables for people; files for programs have 121100."""
    grouped = re.compile(r"\d[\u00a0\u202f,' ]\d{3}\b")
    rows = DATA / "h100x4.json"
    for kind in ("table", "md", "latex"):
        assert "121,070 ± 1,260".replace("±", "$\\pm$" if kind == "latex" else "±") in report("--format", kind, rows)
    series = summary(rows)["series"][0]
    assert series["points"][0]["metrics"]["throughput"]["mean"] > 1e5
    assert "121100 ± 1300 token/s" in [v["value"] for v in series["verdicts"]]
    for line in report("--format", "csv", rows).splitlines()[1:]:
        assert not [cell for cell in next(csv.reader([line]))[8:] if grouped.search(cell)]


@pytest.mark.parametrize("kind", ["table", "md", "latex"])
def test_thousands_are_grouped_in_a_column_that_has_larger_numbers(tmp_path, kind):
    """The slowest setting does 3,890 tokens/s beside 121,100; the column of watts has no number from 10,000 on."""
    rows = records("h100x4")
    for r in rows:
        if r["status"] == "ok" and r["settings"][0]["requested"] == 200:
            r["throughput"] /= 10
            next(p for p in r["phases"] if p["name"] == r["phase"])["items"] /= 10
    text = report("--format", kind, write(tmp_path, rows)).replace("$\\pm$", "±")
    text = re.sub("± +", "± ", text)
    assert "3,890 ± 70" in text and "121,070 ± 1,260" in text and "2620 ± 8" in text, text


def test_power_of_several_devices_beside_a_setting_of_each(tmp_path):
    """The cap is one GPU's, W is the sum: both are said where they are shown; one GPU needs neither."""
    text = report("--width", 80, DATA / "h100x4.json")
    head = next(line for line in text.splitlines() if line.startswith("gpu.power"))
    assert "W, 4 GPUs" in head and len(max(text.splitlines(), key=len)) <= 80
    assert "gpu.power is set per GPU; power and energy are sums over 4 GPUs." in text
    one = [json.loads(json.dumps(r)) for r in records("h200x4")]
    for r in one:
        r["settings"], r["meters"] = r["settings"][:1], [m for m in r["meters"] if "gpu0" in m["id"]]
    alone = report(write(tmp_path, one))
    assert "per GPU" not in alone and "GPUs" not in alone and re.search(r" W +", alone)


def test_a_sweep_whose_columns_fit_is_one_table():
    """What a setting saves and costs stands beside its power: no second block on 80 columns."""
    assert report("--width", 80, DATA / "mi300x4.json").count("\ngpu.power ") == 1


def test_metrics_that_rank_alike_are_answered_once():
    """The energy saved ranks as the energy per item does, saved minus slower as EDS 2: the table omits what repeats."""
    verdicts = {v["metric"]: v for v in summary(DATA / "mi300x4.json")["series"][0]["verdicts"]}
    assert verdicts["energy_gain_percent"]["repeats"] == "joules_per_item"
    assert verdicts["gain_minus_loss"]["repeats"] == "eds_k2" and verdicts["edp"]["repeats"] is None
    text = report(DATA / "mi300x4.json").split("one metric alone\n")[1]
    assert re.findall(r"^  (\w+ [\w=. ]+?)  ", text, re.M) == [
        "highest throughput", "least energy per token", "least energy delay product", "lowest EDS k=1.5", "lowest EDS k=2"]
    assert "saving minus" in report("--k", "1.5", DATA / "h100x4.json")  # nothing else ranks like it


def test_settings_that_were_violated():
    series, = summary(DATA / "mi300x4.json")["series"]
    violated = [p for p in series["points"] if p["state"] == "violated"]
    assert [p["label"] for p in violated] == ["200 W", "300 W"]
    assert not any(p["eligible"] for p in violated)
    table = report(DATA / "mi300x4.json")
    row = next(line for line in table.splitlines() if line.startswith("200 W"))
    assert re.search(r"\(3843 ± 38\)", row) and "() violated: the device took more than the setting allows" in table


def test_failures_stay_with_their_reason():
    for kind in ("table", "md"):
        text = report("--format", kind, DATA / "h100x4.json")
        assert "Failed: 1 of 21 runs" in text and "killed by SIGKILL" in text
    rows = list(csv.DictReader(io.StringIO(report("--format", "csv", "--cases", DATA / "h100x4.json"))))
    failed = [r for r in rows if r["status"] == "failed"]
    assert len(rows) == 21 and len(failed) == 1
    assert "SIGKILL" in failed[0]["reason"] and failed[0]["throughput"] == ""


def test_reasons_of_many_runs_are_said_once(tmp_path):
    """Alike but for numbers: once for all runs; GPU 0 and GPU 1 of one run are two reasons."""
    rows = [r for r in records("h100x4") if r["status"] == "ok"]
    for i, r in enumerate(rows):
        r["quality"] = {"grade": "C", "reasons": [
            f"{2 + i / 7:.3g} s is too short for GPU {k}." for k in range(2)] + ["It is hot."]}
    (series,) = summary(write(tmp_path, rows))["series"]
    assert len(series["grade_reasons"]) == 3 and series["grade_reasons"][2] == "It is hot."
    assert [r.endswith(f"GPU {k}.") for k, r in enumerate(series["grade_reasons"][:2])] == [True] * 2
    path = write(tmp_path, rows)
    assert report("--why", path).count("too short") == 2
    assert "too short" not in report(path) and "report --why" in report(path)


def test_a_faulty_sensor_yields_no_verdict_by_energy(tmp_path):
    rows = records("h200x4")
    rows[1]["meters"][0]["fault"] = "counter-stuck"
    for verdict in summary(write(tmp_path, rows))["series"][0]["verdicts"]:
        assert verdict["metric"] == "throughput" or (
            verdict["kind"] == "none" and "sensor" in verdict["why"]), verdict
    for fault in ("none", "counter-reset", "no-readings"):  # of missing readings none is impossible
        rows[1]["meters"][0]["fault"] = fault
        sound = summary(write(tmp_path, rows))["series"][0]["verdicts"]
        assert any(v["metric"] != "throughput" and v["kind"] != "none" for v in sound)


def test_estimates_decide_nothing(tmp_path):
    rows = records("h200x4")
    for r in rows:
        r["device"], r["clock"] = "cpu", "real"
        r["total"] = {"joules_measured": None, "joules_estimated": r["total"]["joules_simulated"],
                      "joules_simulated": None}
        for m in r["meters"]:
            m["origin"] = "estimated"
    path = write(tmp_path, rows)
    for verdict in summary(path)["series"][0]["verdicts"]:
        if verdict["metric"] not in ("throughput", ):
            assert verdict["kind"] == "none" and "estimate" in verdict["why"]
    text = report(path)
    assert text.count("the energy is estimated, and an estimate cannot distinguish settings") == 1
    assert "No best setting by least energy per" in text and "each counted once, estimated;" in text


def test_one_repeat_decides_nothing(tmp_path):
    rows = [r for r in records("h200x4") if r["case"]["block"] == 0]
    for verdict in summary(write(tmp_path, rows))["series"][0]["verdicts"]:
        assert verdict["kind"] == "none" and "--repeat" in verdict["why"]


def test_no_reference_no_relation(tmp_path):
    rows = [r for r in records("h200x4") if not r["case"]["reference"]]
    series, = summary(write(tmp_path, rows))["series"]
    assert series["reference"] is None
    assert series["points"][0]["metrics"]["eds_k2"]["mean"] is None
    by = {v["metric"]: v for v in series["verdicts"]}
    assert by["joules_per_item"]["kind"] == "best"
    assert by["eds_k2"]["kind"] == "none" and "reference" in by["eds_k2"]["why"]


def test_unknown_energy_is_not_zero(tmp_path):
    rows = records("h200x4")
    for r in rows:
        r["meters"][1]["joules"] = r["total"]["joules_simulated"] = None
    path = write(tmp_path, rows)
    point = summary(path)["series"][0]["points"][0]
    assert point["metrics"]["joules_per_item"] == {"n": 0, "mean": None, "median": None, "sd": None,
                                                   "low95": None, "high95": None, "min": None, "max": None}
    rows = list(csv.DictReader(io.StringIO(report("--format", "csv", path))))
    assert rows[0]["joules_per_item_mean"] == "" and float(rows[0]["throughput_mean"]) > 0


def test_outliers_are_flagged_and_kept(tmp_path):
    rows, more = records("h200x4"), []
    for block in range(3, 6):
        for r in json.loads(json.dumps(rows[:7])):
            r["case"].update(block=block, repeat=block)
            more.append(r)
    strange = next(r for r in more if r["case"]["block"] == 5 and setting(r) == "300W")
    strange["throughput"] *= 3
    strange["throughput_per_device"] *= 3
    doc = summary(write(tmp_path, rows + more))
    point = next(p for p in doc["series"][0]["points"] if p["label"] == "300 W")
    assert point["outliers"] == 1 and point["metrics"]["throughput"]["n"] == 6
    assert point["metrics"]["throughput"]["max"] == pytest.approx(strange["throughput"])
    assert sum(c["outlier"] for c in doc["cases"]) == 1


def test_added_watts(tmp_path):
    plain = summary(DATA / "h200x4.json")
    more = summary("--add-watts", "100W", DATA / "h200x4.json")
    for a, b in zip(plain["series"][0]["points"], more["series"][0]["points"]):
        added = b["metrics"]["watts_mean"]["mean"] - a["metrics"]["watts_mean"]["mean"]
        assert added == pytest.approx(100, abs=1e-6)
        joules = [p["metrics"]["joules_per_item"]["mean"] for p in (a, b)]
        throughput = a["metrics"]["throughput"]["mean"]
        assert joules[1] - joules[0] == pytest.approx(100 / throughput, rel=1e-3)
    text = report("--add-watts", "100W", DATA / "h200x4.json")
    assert "100 W assumed for the rest of the node" in text


def test_other_k():
    doc = summary("--k", "1.2,3", DATA / "h200x4.json")
    assert doc["eds_k"] == [1.2, 3.0]
    m = doc["series"][0]["points"][3]["metrics"]
    assert "eds_k1.2" in m and "eds_k3" in m and "eds_k2" not in m
    for wrong in ("1", "abc", "2,,3", "1e9"):
        assert "--k" in sentence(jm("report", "--k", wrong, DATA / "h200x4.json"), USAGE)


def test_sweep_of_an_option(tmp_path):
    rows = []
    for i, r in enumerate(records("h200x4")[:6]):
        r["settings"] = []
        r["case"].update(parameters={"workload": "gpt", "options": {"batch": 2 ** (i // 2), "seq": 64}},
                         repeat=i % 2, block=i % 2, reference=False)
        rows.append(r)
    doc = summary(write(tmp_path, rows))
    assert [d["name"] for d in doc["dimensions"]] == ["batch"]
    assert [p["label"] for p in doc["series"][0]["points"]] == ["1", "2", "4"]
    assert [p["x"] for p in doc["series"][0]["points"]] == [1, 2, 4]


def test_settings_of_single_devices(tmp_path):
    rows = records("h200x4")[:2]
    for r, other in zip(rows, ("300W", "400W")):
        r["case"].update(reference=False, parameters={
            "workload": "x", "settings": {"gpu.power@GPU-a": "200W", "gpu.power@GPU-b": other}})
    series, = summary(write(tmp_path, rows))["series"]
    assert len(series["points"]) == 2
    assert any("GPU-a 200W, GPU-b 300W" in p["label"] for p in series["points"])


def test_two_works_are_two_series(tmp_path):
    doc = summary(*(DATA / f"{n}.json" for n in FIXTURES))
    assert len(doc["series"]) == 3 and len(doc["cases"]) == 63
    assert [s["runs_failed"] for s in doc["series"]] == [1, 0, 0]


def test_variables_of_a_command_are_not_options_of_native_work(tmp_path):
    """A size has no unit that is known, and what a command saves is an axis like others."""
    rows = records("h200x4")[:4]
    for i, r in enumerate(rows):
        options = {"size": str(i // 2), "save": "xy"[i % 2]}
        r.update(command=["work", *options.values()], workload=None, settings=[])
        r["case"].update(parameters={"command": r["command"], "options": options, "settings": {}}, template=["work", "{size}", "{save}"],
                         repeat=1, reference=False)
    labels = [p["label"] for p in summary(write(tmp_path, rows))["series"][0]["points"]]
    assert labels == ["save x, size 0", "save x, size 1", "save y, size 0", "save y, size 1"]


@pytest.mark.parametrize("workload, option", [
    ("train", "save"), ("train", "checkpoint"), ("serve", "answers"), ("serve", "requests-csv"), ("serve-client", "requests-csv")])
def test_a_file_that_a_run_writes_makes_no_setting_of_its_own(tmp_path, workload, option):
    rows = records("h200x4")[:2]
    for i, r in enumerate(rows):
        r.update(command=None, workload=workload, settings=[])
        r["case"].update(parameters={"options": {option: "xy"[i]}, "settings": {}}, repeat=1, reference=False)
    assert [p["label"] for p in summary(write(tmp_path, rows))["series"][0]["points"]] == ["all"]


def test_two_commands_are_two_series(tmp_path):
    rows = records("h200x4")[:4]
    for i, r in enumerate(rows):
        command = ["train", "small" if i < 2 else "large"]
        r.update(command=command, workload=None, settings=[])
        r["case"]["parameters"] = {"command": command, "options": {}, "settings": {}}
    text = report(write(tmp_path, rows))
    doc = summary(write(tmp_path, rows))
    assert [s["title"] for s in doc["series"]] and len(doc["series"]) == 2
    assert text.startswith("train small") and "train large" in text and "command=" not in text


def test_two_models_are_two_series(tmp_path):
    """Images/s of one network and of another are no settings to choose from."""
    rows = records("h200x4")[:4]
    for i, r in enumerate(rows):
        r.update(workload="train", settings=[])
        r["case"]["parameters"] = {"workload": "train", "settings": {},
                                   "options": {"model": "resnet50" if i < 2 else "vit-l16", "batch": 4 + i % 2}}
    doc = summary(write(tmp_path, rows))
    assert [s["title"].split(" on ")[0] for s in doc["series"]] == ["train resnet50", "train vit-l16"]
    assert [d["name"] for d in doc["dimensions"]] == ["batch"]


def test_measurement_of_a_command(tmp_path):
    r = records("h200x4")[0]
    for key in ("workload", "unit", "items", "throughput", "throughput_per_device", "case", "settings",
                "status", "reason", "device", "precision"):
        del r[key]
    r.update(command=["sleep", "30"], clock="real", id=None)
    for p in r["phases"]:
        p["items"] = None
    text = report(write(tmp_path, r))
    assert text.startswith("sleep 30\n") and "run/s" in text and "Best setting" not in text


def test_csv_is_rfc_4180(tmp_path):
    rows = records("h200x4")
    rows[0].update(status="failed", reason='it said "no", then\nstopped')
    text = report("--format", "csv", "--cases", write(tmp_path, rows))
    assert jm_bytes(tmp_path).count("\r\n") == 22
    parsed = list(csv.DictReader(io.StringIO(text)))
    assert len(parsed) == 21
    assert any(p["reason"] == 'it said "no", then\nstopped' for p in parsed)


def jm_bytes(tmp_path):
    out = tmp_path / "out.csv"
    report("--format", "csv", "--cases", "--output", out, tmp_path / "records.json")
    return out.read_bytes().decode()


def same(cell, value):
    return cell == "" if value is None else float(cell) == pytest.approx(value, rel=1e-9)


def test_csv_has_the_figures_of_json(tmp_path):
    rows = records("h100x4")
    for i, r in enumerate(rows):
        for k, s in enumerate(r["settings"]):
            s.update(accepted=s["requested"] + 5 + k, enforced=s["requested"] + 10 + k)
    path = write(tmp_path, rows)
    doc = summary("--add-watts", "7W", path)
    (series,), stats = doc["series"], {"mean", "median", "sd", "low95", "high95"}
    table = list(csv.DictReader(io.StringIO(report("--add-watts", "7W", "--format", "csv", path))))
    assert len(table) == len(series["points"])
    for row, p in zip(table, series["points"]):
        (setting,) = p["settings"]
        assert all(same(row[f"{name}_{s}"], values[s]) for name, values in p["metrics"].items() for s in stats)
        assert same(row["gpu.power_requested"], setting["requested"]) and row["gpu.power"] == setting["text"]
        assert same(row["gpu.power_accepted"], setting["requested"] + 5)
        assert same(row["gpu.power_enforced"], setting["requested"] + 13) and row["added_watts"] == "7"
        assert (row["reference"] == "yes", row["state"], row["runs_ok"], row["runs_failed"], row["outliers"]) == (
            p["reference"], p["state"], *(str(p[k]) for k in ("runs_ok", "runs_failed", "outliers")))
    table = list(csv.DictReader(io.StringIO(report("--add-watts", "7W", "--format", "csv", "--cases", path))))
    for row, c in zip(table, doc["cases"], strict=True):
        assert all(same(row[name], value) for name, value in c["values"].items())
        assert all(same(row[name], c[name]) for name in ("items", "seconds", "joules", "repeat", "block", "position"))
        assert (row["status"] == "ok", row["case_id"], row["origin"]) == (c["ok"], c["id"], c["origin"] or "")


@pytest.mark.parametrize("joules, unit", [(3.217e6, "MJ"), (3.217e3, "kJ"), (3.217, "J"), (3.217e-3, "mJ"),
                                          (3.217e-6, "µJ"), (3.217e-9, "nJ")])
def test_energy_has_a_prefix_that_fits(tmp_path, joules, unit):
    row, = records("h200x4")[:1]
    factor = joules / costs(row)[1]
    for m in row["meters"]:
        m["joules"] *= factor
    row["total"]["joules_simulated"] *= factor
    text = report(write(tmp_path, row))
    assert re.search(rf"\s{unit}/image\b", text) and "  3.217  " in text


def test_markdown_is_escaped(tmp_path):
    rows = records("h200x4")
    rows[3].update(status="failed", reason=NASTY)
    text = report("--format", "md", write(tmp_path, rows))
    assert "<script" not in text and "\\|" in text and "\\`a\\`" in text
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in tables}
    assert len(widths) == 2  # settings and verdicts


def test_bad_input(tmp_path):
    assert "cannot be read" in sentence(jm("report", tmp_path / "none.json"), FAILURE)
    broken = tmp_path / "broken.json"
    broken.write_text('[{"schema": ')
    assert "broken.json" in sentence(jm("report", broken), FAILURE)
    assert "joulemark.run/9" in sentence(jm("report", write(tmp_path, [{"schema": "joulemark.run/9"}])), FAILURE)
    assert "no record" in sentence(jm("report", write(tmp_path, [])), FAILURE)
    sentence(jm("report", write(tmp_path, [1])), FAILURE)
    assert "html" in sentence(jm("report", "--format", "htm", DATA / "h200x4.json"), USAGE)
    sentence(jm("report", "--output", tmp_path / "no/where", DATA / "h200x4.json"), FAILURE)
    with open("/dev/full", "w", encoding="ascii") as full:
        sentence(jm("report", DATA / "h200x4.json", stdout=full), FAILURE)


def test_phases_of_a_single_run_and_of_all_on_demand(tmp_path):
    """Seconds, joules, watts and items of each phase, worked out from the record another way."""
    rows = records("h200x4")
    one, = [r for r in rows if r["status"] == "ok"][:1]
    for p in one["phases"]:
        p["total"] = {"joules_simulated": 700 * (p["end_s"] - p["start_s"]), "error_simulated_joules": None}
    text = report(write(tmp_path, [one], "one.json"))
    for p in one["phases"]:
        cells = re.search(rf"^{p['name']} +(.*)$", text.split("Phases\n")[1], re.M).group(1).replace(",", "").split()
        assert float(cells[0]) == pytest.approx(p["end_s"] - p["start_s"], rel=1e-3) and float(cells[2]) == 700
        assert cells[3] == (f"{p['items']:.10g}" if p["items"] is not None else "-")
    assert "Phases" not in report(DATA / "h200x4.json")
    n_ok = sum(r["status"] == "ok" for r in rows)
    assert report("--phases", DATA / "h200x4.json").count("Phases of ") == n_ok


@pytest.mark.parametrize("rows, shown", [
    ([(500, 31), (12.34, 0.31)], ["500.00 ± 31.00", "12.34 ± 0.31"]), ([(300, 0.4), (700, 3.1)], ["300.0 ± 0.4", "700.0 ± 3.1"]),
    ([(500, 31), (1.234, 0.0031)], ["500 J ± 31 J", "1.234 J ± 0.003 J"]), ([(5100, 12), (900, 12)], ["5.100 ± 0.012", "0.900 ± 0.012"]),
    ([(2.6e6, 1e5), (31.2, 1.6)], ["2600 kJ ± 100 kJ", "31.2 J ± 1.6 J"]), ([(0.003, 0.0002), (81.3, 4)], ["3.00 mJ ± 0.20 mJ", "81.3 J ± 4.0 J"]),
    ([(2.6e6, None), (31.2, None)], ["2600 kJ", "31.20 J"]), ([(2600, None), (31.2, None)], ["2.600", "0.03120"])])
def test_decimals_of_a_column_of_joules(tmp_path, rows, shown):
    """One number for rows whose bounds are of like size; each row its own, and a unit that fits, where they differ by
    more than two decimals, or without bounds by more than 1,000."""
    one = next(r for r in records("h200x4") if r["status"] == "ok")
    for p, (joules, error) in zip(one["phases"], rows, strict=True):
        p |= {"items": None, "total": {"joules_simulated": joules, "error_simulated_joules": error}}
    table = report(write(tmp_path, [one], "one.json")).split("Phases\n")[1]
    lines, title = table.splitlines(), "energy" if "J" in shown[0] else "[kM]?J"
    at = re.search(rf" s +{title}(?=  )", lines[0]).span()
    assert [" ".join(line[at[0] + 2:at[1]].split()) for line in lines[1:1 + len(rows)]] == shown, table


def test_what_is_an_axis_is_not_in_the_title(tmp_path):
    """Precision and batch as columns: no title names one value of them, and what is constant stays in it."""
    rows = []
    for i, (batch, precision) in enumerate((b, p) for b in ("4", "8") for p in ("f32", "bf16")):
        r = json.loads(json.dumps(records("h200x4", 1)[0]))
        r["settings"], r["precision"] = [], precision
        r["case"] |= {"id": f"{i:032x}", "reference": False, "parameters": {
            "workload": "train", "options": {"model": "gpt-117m", "batch": batch}, "precision": precision}}
        r["workload"] = "train"
        rows.append(r)
    text = report(write(tmp_path, rows))
    assert text.startswith("train gpt-117m on sim:h200x4\n")
    assert re.search(r"^precision +batch +image/s", text, re.M) and len(re.findall(r"^b?f(?:32|16) +[48] ", text, re.M)) == 4
    text = report(write(tmp_path, rows[::2], "one.json"))  # one precision only
    assert text.startswith("train gpt-117m on sim:h200x4, f32\n") and re.search(r"^batch +image/s", text, re.M)


def test_options_devices_and_models_are_axes_of_a_sweep_of_caps(tmp_path):
    """One table; the title names none of their values, and each verdict is one setting."""
    rows = []
    for device in ("sim:h200x4", "sim:h100x4"):
        for batch in ("4", "8"):
            for r in json.loads(json.dumps(records("h200x4"))):
                r["device"] = r["case"]["parameters"]["device"] = device
                r["case"]["parameters"]["options"] = {"batch": batch}
                rows.append(r)
    text = report("--width", 100, write(tmp_path, rows))
    head, = re.findall(r"^device +batch +gpu\.power +.*image/s", text, re.M)
    assert head and text.count("Best setting by one metric alone") == 1
    assert text.splitlines()[0].startswith("resnet50") and not re.search("batch|sim:", text.splitlines()[0])
    n_points = len(summary(DATA / "h200x4.json")["series"][0]["points"])
    first = text.split("\n\n")[1].splitlines()
    assert len(first) == 1 + 4 * n_points
    assert {tuple(line.split()[:2]) for line in first[1:]} == {
        (d, b) for b in "48" for d in ("sim:h200x4", "sim:h100x4")}
    alone = report("--width", 1000, DATA / "h200x4.json")
    verdict = re.search(r"least energy per image +(.*)", alone).group(1)
    again = report("--width", 1000, write(tmp_path, rows))
    for device in ("sim:h200x4", "sim:h100x4"):
        for batch in "48":
            assert f"    device {device}, batch {batch}: {verdict}\n" in again.split("  least energy per image\n")[1]
