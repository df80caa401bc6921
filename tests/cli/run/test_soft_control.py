# SPDX-License-Identifier: Apache-2.0
"""Soft control: pauses that hold a power, a share of the multiprocessors, thermal steady state; on a simulated node
whose physics is known, and refused on devices that do not support it."""
import json
import re

import pytest

from jm import USAGE, jm, sentence


def sim(*words, device="sim:h100x1", status=0):
    done = jm("run", "sim", "--device", device, *words, "--json", "-")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout), done


def steady(record):
    return next(p for p in record["phases"] if p["name"] == "steady")


def watts(record):
    p = steady(record)
    return p["total"]["joules_simulated"] / (p["end_s"] - p["start_s"])


def test_power_is_held_by_pauses():
    records, _ = sim("--hold-power", "130W,300,550", "--seconds", 60)
    full, _ = sim("--seconds", 60)
    got = {r["soft"]["hold_watts"]: r for r in records}
    assert set(got) == {130, 300, 550}
    for target, r in got.items():
        assert watts(r) == pytest.approx(target, rel=0.005)
        assert r["soft"]["busy_share"] == pytest.approx(r["throughput"] / full["throughput"], rel=0.05)
        assert r["case"]["parameters"]["options"]["hold-power"] == f"{target:.0f}W"
        assert r["soft"]["state"] == "held" and r["soft"]["watts"] == pytest.approx(watts(r), rel=1e-6)
    assert 0.07 < got[130]["soft"]["busy_share"] < got[300]["soft"]["busy_share"] < got[550]["soft"]["busy_share"] < 1
    assert "soft" not in full and watts(full) > 650


def test_the_table_says_that_pauses_lower_the_power():
    words = ["run", "sim", "--device", "sim:h100x1", "--steps", 20, "--warmup", 2]
    held, plain = (" ".join(jm(*words, *more).stdout.split()) for more in (["--hold-power", "300"], []))
    assert "pauses between steps lower the mean power" in held and "no limit that a driver enforces" in held
    assert "soft control" not in plain


def test_all_gpus_of_a_node_hold_it_together():
    record, _ = sim("--hold-power", "1600W", "--seconds", 60, device="sim:h100x4")
    assert watts(record) == pytest.approx(1600, rel=0.005)


def test_a_power_that_the_work_does_not_draw_makes_no_pause():
    record, _ = sim("--hold-power", "5kW", "--seconds", 20)
    soft = record["soft"]
    assert (soft["hold_watts"], soft["busy_share"], soft["state"]) == (5000, 1, "not reached")
    assert soft["watts"] == pytest.approx(watts(record)) and watts(record) < 710


def test_a_power_below_that_of_an_idle_device_is_missed():
    """An idle GPU draws more than 40 W; the warm-up does not wait for what cannot come."""
    record, done = sim("--hold-power", "40W", "--seconds", 20)
    soft = record["soft"]
    assert soft["state"] == "missed" and soft["watts"] == pytest.approx(watts(record)) and watts(record) > 50
    assert f"{soft['watts']:.4g} W" in " ".join(done.stderr.split()) and "above the 40 W of --hold-power" in " ".join(done.stderr.split())
    warm = next(p for p in record["phases"] if p["name"] == "warmup")
    assert warm["end_s"] - warm["start_s"] < 20


def test_the_table_says_by_how_much_a_power_was_missed():
    done = jm("run", "sim", "--device", "sim:h100x1", "--seconds", 20, "--hold-power", "40W,300W,5kW")
    text = " ".join(done.stdout.split())
    assert re.search(r"300 W held, 40 W missed by \+\d+ % \([0-9.]+ W\), 5000 W not reached; this is a soft control", text)


def test_texts_of_a_series_say_in_how_many_runs_a_power_was_held(tmp_path):
    """At a cap of 200 W the work never draws 300 W. A run that failed, and one that was not to hold a power, do not count."""
    records, _ = sim("--hold-power", "300W", "--set", "gpu.power=200W,400W,600W,700W", "--seconds", 20)
    plain, _ = sim("--set", "gpu.power=500W,700W", "--seconds", 20)
    failed = next(r for r in records if r["settings"][0]["requested"] == 600)
    failed |= {"status": "failed", "reason": "it was killed"}
    del failed["soft"]
    file = tmp_path / "r.json"
    file.write_text(json.dumps([*plain, *records]))
    for form in ("table", "md", "latex"):
        text = " ".join(jm("report", file, "--format", form).stdout.replace("-{}-", "--").split())
        assert ("--hold-power: pauses between steps lower the mean power to the value asked for: 300 W held in 2 and not reached in 1 "
                "of 3 runs; this is a soft control") in text, text
        assert "nan" not in text
    series, = (s for s in json.loads(jm("report", file, "--format", "json").stdout)["series"] if s["soft"])
    assert series["soft"][0].startswith("--hold-power: ") and "300 W held in 2 and not reached in 1 of 3 runs" in series["soft"][0]


def test_steady_state_is_waited_for():
    record, _ = sim("--steady", "5min", "--seconds", 5)
    s = record["steady"]
    assert s["reached"] and 10 <= s["waited_s"] < 300 and abs(s["kelvin"]) <= 1 and abs(s["watts_share"]) <= 0.01
    warm = next(p for p in record["phases"] if p["name"] == "warmup")
    assert warm["end_s"] - warm["start_s"] >= s["waited_s"]


def test_steady_state_has_a_limit():
    record, done = sim("--steady", "3s", "--seconds", 5)
    assert record["steady"]["reached"] is False and record["steady"]["waited_s"] < 5
    assert record["status"] == "ok" and "steady" in done.stderr and "3 s" in done.stderr
    assert record["steady"]["kelvin"] is None and "the temperature is unknown" in done.stderr and "nan" not in done.stderr


def test_power_cannot_be_held_without_a_meter():
    record, _ = sim("--hold-power", "300W", "--seconds", 20, "--source", "context:cooling=air", status=1)
    assert "no meter" in record["reason"] and "--source" in record["reason"] and record["steps"] == 0


def test_a_meter_without_readings_is_said_in_seconds():
    """Before the end of the warm-up, which else lasts 30 s; a meter that has readings is waited for."""
    done = jm("run", "copy", "--device", "ref", "--seconds", 1, "--source", "null", "--hold-power", "50W", "--json", "-")
    record = json.loads(done.stdout)
    waited = re.search(r"because nothing \(source null\) had no reading of power or energy in (\d+) s", record["reason"])
    assert done.returncode == 1 and 5 <= int(waited[1]) < 30 and "joulemark doctor" in record["reason"]
    assert record["steps"] == 0


@pytest.mark.parametrize("words, says", [
    (["--sm-share", "0"], "range"), (["--sm-share", "half"], "half"), (["--hold-power", "400Hz"], "400Hz")])
def test_wrong_values_are_refused(words, says):
    done = jm("run", "gemm", "--device", "ref", *words)
    assert says in sentence(done, USAGE)


@pytest.mark.parametrize("option, value", [("--sm-share", "50"), ("--hold-power", "400W")])
def test_commands_cannot_be_held(option, value):
    assert option in sentence(jm("run", option, value, "--", "true"), USAGE)


def test_a_share_is_refused_where_there_are_no_multiprocessors():
    done = jm("run", "gemm", "--m", 8, "--n", 8, "--k", 8, "--device", "ref", "--source", "sim:h100x1", "--steps", 1,
              "--sm-share", "50,100", "--json", "-")
    by_share = {r["case"]["parameters"]["options"]["sm-share"]: r for r in json.loads(done.stdout)}
    assert done.returncode == 125 and "cannot be restricted" in by_share["50"]["reason"]
    assert by_share["50"]["exit_status"] == 125 and by_share["100"]["status"] == "ok"
