# SPDX-License-Identifier: Apache-2.0
"""check --rules: which published rules the meters of a record satisfy, and what is missing."""
import copy
import json

import pytest

from jm import jm

TRAINING, INFERENCE = "MLPerf Training power", "MLPerf Inference power"


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
        for known in (TRAINING, INFERENCE):
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
