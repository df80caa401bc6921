# SPDX-License-Identifier: Apache-2.0
"""joulemark report: the order of settings."""
import random

import pytest

from reports import records, summary, write

MIXED = ["64", "128", "1:1024", "32", "256", "2:512", "512", "100:200", "16"]


def runs_of(changes):
    """A record for each {where: what}, otherwise alike, of no reference."""
    rows = []
    for i, change in enumerate(changes):
        row = records(n=1)[0]
        row["case"].update(reference=False, repeat=i, block=i, id=f"{i:032x}")
        row["settings"] = change.get("settings", [])
        row["case"]["parameters"] = {"workload": "resnet50", "device": "sim:h200x4", "precision": "bf16", **change["parameters"]}
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(8))
def test_runs_of_one_setting_are_one_row_among_numbers_and_words(tmp_path, seed):
    """Numbers stand in their order, and no other value, such as a range, stands between two runs of one."""
    changes = [{"parameters": {"options": {"input-tokens": value}}} for value in MIXED] * 5
    random.Random(seed).shuffle(changes)
    series, = summary(write(tmp_path, runs_of(changes)))["series"]
    assert {p["label"]: p["runs_ok"] for p in series["points"]} == dict.fromkeys(MIXED, 5) and len(series["points"]) == len(MIXED)
    numbers = [int(p["label"]) for p in series["points"] if ":" not in p["label"]]
    assert numbers == sorted(numbers)
    assert not any(":" in p["label"] for p in series["points"][:len(numbers)])  # words stand behind them


@pytest.mark.parametrize("seed", range(8))
def test_a_word_is_one_row_whatever_the_devices_took_it_for(tmp_path, seed):
    """As a default that another driver changes; other settings lie between the values that it had."""
    def change(power, watts):
        return {"parameters": {"gpu.power": power},
                "settings": [{"knob": "gpu.power", "device": "sim:h200x4/0", "unit": "W", "requested": None if power == "default" else watts,
                              "accepted": watts, "enforced": watts, "state": "binding"}]}
    changes = [change("default", watts) for watts in (700, 650, 600, 500, 400, 300)] + \
        [change(f"{watts}W", watts) for watts in (350, 450, 550, 620, 680)] * 3
    random.Random(seed).shuffle(changes)
    series, = summary(write(tmp_path, runs_of(changes)))["series"]
    assert sorted(p["runs_ok"] for p in series["points"]) == [3] * 5 + [6]
