# SPDX-License-Identifier: Apache-2.0
"""check --rules: which published rules the meters of a record satisfy, and what is missing."""
import copy
import json

import pytest

from jm import jm

TRAINING, INFERENCE = "MLPerf Training power", "MLPerf Inference power"
LEVELS = tuple(f"EE HPC WG level {level}" for level in (1, 2, 3))


@pytest.fixture(name="base", scope="module")
def a_node_by_its_hardware_monitor(tmp_path_factory):
    root = tmp_path_factory.mktemp("rules")
    folder = root / "sys/class/hwmon/hwmon0"
    folder.mkdir(parents=True)
    for name, text in (("name", "power_meter"), ("power1_average", "500000000"), ("power1_average_interval", "20")):
        (folder / name).write_text(f"{text}\n")
    done = jm("measure", "--json", "-", "--source", "hwmon:channel=power_meter/power1,covers=/", "--", "sleep", "0.3",
              env={"JM_ROOT": str(root)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ideal(base):
    """The record of a PTDaemon's analyser, a run of 100 s."""
    record = copy.deepcopy(base)
    record["wall_s"] = 100.0
    (meter,) = record["meters"]
    meter.update(source="ptd", joules=50000.0, error_calibration_joules=400.0, gaps=0)
    (signal,) = [s for s in meter["signals"] if s["quantity"] == "power"]
    signal.update(refresh_s=1.0, samples=100)
    return record, meter, signal


def rules(record, tmp_path):
    file = tmp_path / "record.json"
    file.write_text(json.dumps(record))
    text = jm("check", "--rules", "--at-least", "none", file).stdout
    found, name = {}, None
    for line in text.splitlines():
        for known in (TRAINING, INFERENCE, *LEVELS):
            if f"      {known}:" in line:
                name = known
                found[name] = [line.strip()]
        if "not judged" in line:
            name = None
        if name and line.startswith("        - "):
            found[name].append(line.strip(" -"))
    return found, text


def test_everything_is_there(base, tmp_path):
    found, text = rules(ideal(base)[0], tmp_path)
    found = {name: lines for name, lines in found.items() if name not in LEVELS}
    assert found == {TRAINING: [f"{TRAINING}: what can be judged is satisfied"],
                     INFERENCE: [f"{INFERENCE}: what can be judged is satisfied"]}
    assert "Only MLPerf's own workflow makes a submission" in text


@pytest.mark.parametrize("change, rule, words", [
    (lambda r, m, s: m.update(origin="simulated"), TRAINING, "No meter measures the whole node"),
    (lambda r, m, s: m.update(covered_by="x"), TRAINING, "No meter measures the whole node"),
    (lambda r, m, s: m.update(scope="gpu"), INFERENCE, "at the wall"),
    (lambda r, m, s: m.update(source="ipmi"), INFERENCE, "at the wall"),
    (lambda r, m, s: m.update(source="modbus"), INFERENCE, "PTDaemon"),
    (lambda r, m, s: s.update(refresh_s=5.0), TRAINING, "every 5 s"),
    (lambda r, m, s: r.update(wall_s=59.0), TRAINING, "59 readings"),
    (lambda r, m, s: s.update(samples=2), TRAINING, "number of readings of the node is unknown"),  # a constant power
    (lambda r, m, s: s.update(samples=2, refresh_s=None), TRAINING, "How often the meter of the node is read is unknown"),
    (lambda r, m, s: m.update(gaps=1), TRAINING, "no readings at times"),
    (lambda r, m, s: m.update(error_calibration_joules=2600.0), TRAINING, "accurate to 5.2 %"),
    (lambda r, m, s: m.update(error_calibration_joules=600.0), INFERENCE, "accurate to 1.2 %"),
    (lambda r, m, s: m.update(error_calibration_joules=None), TRAINING, "accuracy of the meter of the node is unknown"),
])
def test_what_is_missing_is_named(base, tmp_path, change, rule, words):
    record, meter, signal = ideal(base)
    change(record, meter, signal)
    found, text = rules(record, tmp_path)
    assert "not satisfied" in found[rule][0], text
    assert [line for line in found[rule][1:] if words in line], text


def test_only_on_demand(base, tmp_path):
    file = tmp_path / "record.json"
    file.write_text(json.dumps(base))
    assert "MLPerf" not in jm("check", "--at-least", "none", file).stdout


# ---- the levels of the EE HPC WG: their limits as numbers of its document, methodology.tex and text/reporting.tex ----


def counted(base):
    """The record of an analyser with an energy counter over a core phase of 90 s in a run of 100 s: level 3."""
    record, meter, _ = ideal(base)
    meter.update(joules_counter=meter["joules"], covered_s=90.0)
    energy = dict(meter["signals"][0], quantity="energy", unit="J", refresh_s=1.0, samples=90)
    meter["signals"].insert(0, energy)
    one = {"id": meter["id"], "joules": 5000.0, "error_joules": 10.0, "watts_mean": 500.0}
    (phase,) = record["phases"]
    record["phase"] = "steady"
    record["phases"] = [dict(phase, name=name, start_s=start, end_s=end, meters=[dict(one)])
                        for name, start, end in (("setup", 0, 2), ("warmup", 2, 7), ("steady", 7, 97), ("verify", 97, 100))]
    return record, meter, energy


def levels(record, tmp_path):
    """What is missing for each level."""
    found, text = rules(record, tmp_path)
    for name in LEVELS:
        assert ("what can be judged is satisfied" in found[name][0]) == (len(found[name]) == 1), text
    return [found[name][1:] for name in LEVELS], text


def test_an_integrating_analyser_reaches_level_3(base, tmp_path):
    missing, text = levels(counted(base)[0], tmp_path)
    assert missing == [[], [], []], text
    for words in ("a tenth of the compute nodes and 15 nodes", "an eighth of the compute nodes and 15 nodes", "all of it."):
        assert words in " ".join(text.split()), text


def test_power_readings_reach_level_2(base, tmp_path):
    record, meter, _ = counted(base)
    del meter["signals"][0]
    missing, text = levels(record, tmp_path)
    assert missing[:2] == [[], []] and len(missing[2]) == 1 and "counter" in missing[2][0], text


def core(record, seconds):
    record["phases"][2]["end_s"] = 7 + seconds


@pytest.mark.parametrize("change, first, words", [  # first: the lowest level that it takes away
    (lambda r, m, s: m.update(source="ipmi"), 1, "before the conversion of power"),
    (lambda r, m, s: m.update(origin="estimated"), 1, "No meter measures the whole node"),
    (lambda r, m, s: core(r, 59), 1, "at least 60 s"),
    (lambda r, m, s: r.update(phase="lost"), 1, "duration of the core phase is unknown"),
    (lambda r, m, s: m.update(gaps=1), 1, "no readings at times"),
    (lambda r, m, s: m.update(error_calibration_joules=0.051 * m["joules"]), 1, "5 % is required"),
    (lambda r, m, s: m.update(error_calibration_joules=0.021 * m["joules"]), 2, "2 % is required"),
    (lambda r, m, s: m.update(error_calibration_joules=0.011 * m["joules"]), 3, "1 % is required"),
    (lambda r, m, s: r["phases"][1]["meters"][0].update(joules=None), 2, "phase 'warmup' is unknown"),
    (lambda r, m, s: r["phases"][0].update(meters=[]), 2, "phase 'setup' is unknown"),
    (lambda r, m, s: s.update(samples=9), 2, "10 are needed"),
    (lambda r, m, s: s.update(refresh_s=6.0), 3, "more than 5 s inside the core phase"),
    (lambda r, m, s: m.update(covered_s=79.0), 3, "more than 5 s inside the core phase"),
    (lambda r, m, s: m.update(joules_counter=None), 3, "does not come from a counter"),
])
def test_what_a_level_lacks_is_named(base, tmp_path, change, first, words):
    record, meter, energy = counted(base)
    change(record, meter, energy)
    missing, text = levels(record, tmp_path)
    for level, sentences in enumerate(missing, 1):
        assert bool(sentences) == (level >= first), text
        if "is required" in words:
            words = f"{(5, 2, 1)[level - 1]} % is required"
        assert level < first or [s for s in sentences if words in s], text


def test_ten_readings_in_the_core_phase(base, tmp_path):
    """A reading each 9.5 s: nine in 90 s, though ten in the run."""
    record, _, energy = counted(base)
    energy.update(refresh_s=9.5)
    missing, text = levels(record, tmp_path)
    assert ["at most 10 %" in missing[0][0], "at most 10 %" in missing[1][0]] == [True, True], text
    assert all("There are 9 readings" in " ".join(m) for m in missing[1:]), text


def test_slow_readings_of_power_are_no_samples_each_second(base, tmp_path):
    record, meter, _ = counted(base)
    del meter["signals"][0]
    meter["signals"][0].update(refresh_s=5.0, samples=20)
    missing, text = levels(record, tmp_path)
    assert all(any("once a second" in s for s in m) for m in missing[:2]), text
