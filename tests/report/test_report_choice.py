# SPDX-License-Identifier: Apache-2.0
"""The best setting within a limit of slowdown that the user gives, the command that applies it; figures that would have
no effect."""
import csv
import io
import json
import shlex
from statistics import mean

import page_data
import pytest

from jm import USAGE, jm, sentence
from reports import FIXTURES, best_within, costs, expected, interval, records, report, setting, summary, write


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("limit", [2, 5, 12, 40])
def test_limits_of_slowdown(tmp_path, name, limit):
    """The setting that saves most among those whose whole interval is within the limit, computed another way."""
    rows = records(name)
    good = best_within(rows, limit)
    text = report("--max-slowdown", f"{limit}%", "--width", "300", write(tmp_path, rows))
    title, answer, *_ = text[text.index("Best setting: "):].splitlines()
    assert title == f"Best setting: least energy while at most {limit} % slower than the reference"
    if not good:
        assert answer.startswith("  No best setting")
        return
    gain = {s: interval(v)[0] for (ref, s), v in expected(rows, "energy_gain_percent").items() if not ref}
    best = max(good, key=lambda s: gain[s.replace(" ", "")])
    assert answer.strip().removeprefix("no clear best: ").startswith(best)
    page = tmp_path / "page.html"
    report("--max-slowdown", limit, "--html", page, write(tmp_path, rows))
    data = page_data.of(page.read_text())
    (series,) = data["series"]
    assert data["slowdown_percent"] == limit
    assert series["points"][series["within"]["leading"]]["label"] == best


def next_line(text):
    (line,) = [line for line in text.splitlines() if line.startswith("  Next: ")]
    return shlex.split(line.removeprefix("  Next: "))


def test_the_next_command_sets_the_best_setting(tmp_path):
    rows = records("h200x4")
    text = report("--max-slowdown", "40%", write(tmp_path, rows))
    best = text[text.index("Best setting: "):].splitlines()[1].strip().removeprefix("no clear best: ").split(" W")[0]
    command = next_line(text)
    assert command[:4] == ["joulemark", "set", "--device", rows[0]["device"]] and command[4:] == [f"gpu.power={best}W"]
    done = jm(*command[1:], "--", "true", env={"JM_STATE": str(tmp_path / "state")})
    assert done.returncode == 0 and f"{best} W" in done.stderr


def test_the_next_command_on_a_machine(tmp_path):
    rows = records("h200x4")
    for r in rows:
        r["device"] = "cuda:0"
        r["total"]["joules_measured"] = r["total"]["joules_simulated"]
        for part in [*r["meters"], *r["phases"]]:
            if "origin" in part:
                part["origin"] = "measured"
            for key in [k for k in part if k.endswith("_simulated")]:
                part[key.replace("_simulated", "_measured")] = part[key]
    command = next_line(report("--max-slowdown", "40%", write(tmp_path, rows)))
    assert command[:3] == ["sudo", "joulemark", "set"] and command[3].startswith("gpu.power=")


def test_the_smallest_limit_with_an_answer(tmp_path):
    rows = records("h100x4")
    path = write(tmp_path, rows)
    text = " ".join(report("--max-slowdown", "0.5%", "--width", "300", path).split())
    assert "No best setting" in text
    limit = int(text.split("With --max-slowdown ")[1].split("%")[0])
    assert best_within(rows, limit) and not best_within(rows, limit - 1)


SOMETHING = [(["--pue", "1.4"], "--price or --carbon"), (["--figures-from", "x"], "--price or --carbon"),
             (["--currency", "EUR"], "--price"), (["--rated-power", "900"], "--rack-power"), (["--rack-reserve", "27%"], "--rack-power")]


@pytest.mark.parametrize("words, needs", SOMETHING, ids=lambda words: words[0] if isinstance(words, list) else "")
def test_a_figure_without_effect_is_refused(tmp_path, words, needs):
    said = sentence(jm("report", *words, write(tmp_path, records())), USAGE)
    assert words[0] in said and "has no effect without" in said and needs in said


def test_a_price_makes_its_column(tmp_path):
    path = write(tmp_path, records())
    source = ["--figures-from", "contract of 2026-01"]
    assert "energy cost" not in report(path)
    assert "energy cost per" in report("--price", "0.3", *source, path).split("\n\n")[1]
    assert "energy cost EUR per" in report("--price", "0.3", "--currency", "EUR", *source, path).split("\n\n")[1]
    assert "carbon" in report("--carbon", "300", *source, path).split("\n\n")[1]
    chosen = report("--price", "0.3", *source, "--columns", "throughput", path).split("\n\n")[1]
    assert "cost" not in chosen


def test_an_impossible_utilisation_is_told(tmp_path):
    rows = records()
    for r in rows:
        r["flops_model_per_item"] = 4.8e10
    path = write(tmp_path, rows)
    (series,) = summary("--peak-flops", 989e12, path)["series"]
    high = max(p["metrics"]["mfu_percent"]["mean"] for p in series["points"])
    assert 0 < high < 100 and "impossible" not in report("--peak-flops", 989e12, path)
    text = " ".join(report("--peak-flops", 989e9, path).split())
    assert f"{1000 * high:.4g} % is impossible" in text and "989e12" in text
    for row in csv.DictReader(io.StringIO(report("--peak-flops", 989e9, "--format", "csv", path))):
        assert row["mfu_percent_mean"] == "" and float(row["throughput_mean"]) > 0


@pytest.mark.parametrize("script, told", [("exit 3", "ended with status 3"), ("kill -9 $$", "killed by signal 9")])
def test_the_reason_of_a_measured_command(tmp_path, script, told):
    path = tmp_path / "r.json"
    jm("measure", "--device", "sim:h100x1", f"--json={path}", "--", "sh", "-c", script)
    assert json.loads(path.read_text())["exit_status"]
    assert told in report(path) and "no reason" not in report(path)


def test_a_recording_is_not_replaced(tmp_path):
    words = ["measure", "--device", "sim:h100x1", "--csv", tmp_path / "z", "--", "touch", tmp_path / "ran"]
    assert jm(*words).returncode == 0
    first = (tmp_path / "z/readings.csv").read_bytes()
    (tmp_path / "ran").unlink()
    assert "holds a recording" in sentence(jm(*words), USAGE)
    assert (tmp_path / "z/readings.csv").read_bytes() == first and not (tmp_path / "ran").exists()


def by_objective(rows, objective):
    """The setting with the best mean by another objective than a limit of slowdown, from the raw meters."""
    cost = {}
    for r in rows:
        if r["status"] == "ok" and "violated" not in {s["state"] for s in r["settings"]}:
            cost.setdefault((r["case"]["reference"], setting(r)), []).append(costs(r))
    watts = {k: interval([e / d for d, e in v]) for k, v in cost.items()}
    score = {
        "energy": lambda v: mean(e for d, e in v),
        "edp": lambda v: mean(e * d for d, e in v),
        "ed2p": lambda v: mean(e * d * d for d, e in v),
        "power": lambda v: -mean(1 / d for d, e in v),
    }[objective.split(":")[0]]
    fit = [k for k in cost if not objective.startswith("power:") or sum(watts[k]) <= float(objective[6:-1])]
    return min(fit, key=lambda k: score(cost[k]), default=None)


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("objective", ["energy", "edp", "ed2p", "power:2000W", "power:1W"])
def test_other_objectives(tmp_path, name, objective):
    rows = records(name)
    page, path = tmp_path / "page.html", write(tmp_path, rows)
    best = by_objective(rows, objective)
    text = report("--objective", objective, path)
    report("--objective", objective, "--html", page, path)
    data = page_data.of(page.read_text())
    (series,) = data["series"]
    assert data["objective"] == objective.split(":")[0] and data["within_title"] in text
    if best is None:
        assert series["within"]["leading"] is None and "No best setting: the mean power of each setting" in text
        return
    point = series["points"][series["within"]["leading"]]
    assert point["reference"] == best[0] and best[1].replace("W", " W") in point["label"]
    assert series["within"]["answer"].startswith(("no clear best: " if series["within"]["kind"] == "tie" else "") + point["label"])


def test_a_setting_that_only_its_interval_excludes_is_named(tmp_path):
    """The budget lies above the mean power of the fastest cap, within half of its interval."""
    rows = [r for r in records("h100x4") if r["status"] == "ok"]
    per = {}
    for r in rows:
        if not r["case"]["reference"]:
            per.setdefault(setting(r), []).append(costs(r))
    fastest = max(per, key=lambda k: mean(1 / d for d, e in per[k]))
    watts, half = interval([e / d for d, e in per[fastest]])
    text = " ".join(report("--objective", f"power:{watts + half / 2:.6f}W", write(tmp_path, rows)).split())
    excluded = text.partition(" is faster, but its ")[0].rpartition("; ")[2]
    assert half > 0 and len(excluded) < 20 and fastest.replace("W", " W") in excluded


def test_an_objective_is_given_once(tmp_path):
    path = write(tmp_path, records("h200x4"))
    assert report("--objective", "slowdown:40%", path) == report("--max-slowdown", "40%", path)
    for wrong in (["--objective", "zeus:0.5"], ["--objective", "power:12"], ["--objective", "eds:1"],
                  ["--objective", "edp", "--max-slowdown", "10%"]):
        assert "objective" in sentence(jm("report", *wrong, path), USAGE)


@pytest.mark.parametrize("option, formats", [
    (["--why"], ["table"]), (["--phases"], ["table"]), (["--title", "x"], ["html"]), (["--columns", "n"], ["table", "md", "latex"]),
    (["--published"], ["table", "md", "csv", "json", "html"])])
def test_an_option_that_a_format_has_no_place_for_is_refused(tmp_path, option, formats):
    for name in ("table", "md", "latex", "csv", "json", "html", "openmetrics"):
        done = jm("report", *option, "--format", name, "--output", tmp_path / name, write(tmp_path, records()))
        assert done.returncode == (0 if name in formats else USAGE), (name, done.stderr)
        assert name in formats or f"{option[0]} has no effect here" in sentence(done, USAGE)
