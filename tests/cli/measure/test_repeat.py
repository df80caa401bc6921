# SPDX-License-Identifier: Apache-2.0
"""measure --repeat and --until: energy of one run of a command that is short for its sensors."""
import json

import pytest

from jm import USAGE, jm, sentence
from measured import fakes


def drawn(begin, end):
    """Joules of a GPU with "wave=square;low=100;high=600;period=0.13" between two times of CLOCK_MONOTONIC, in seconds."""
    def until(t):
        whole, part = divmod(t, 0.13)
        return 45.5 * whole + 600 * min(part, 0.065) + 100 * max(part - 0.065, 0)
    return until(end) - until(begin)


def test_until_repeats_for_the_given_time(tmp_path):
    """The GPU's power depends on the time alone, so that the truth is known however late everything runs."""
    log = tmp_path / "log"
    done = jm("measure", "--json", "-", "--source", "nvml", "--until", "1s", "--", "sh", "-c", f"echo >>{log}; sleep 0.04",
              env=fakes("gpus=1;wave=square;low=100;high=600;period=0.13"))
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    found, runs = record["repeats"], len(log.read_text())
    assert found["runs"] == runs and found["groups"] >= 4 and found["seconds"] >= 1
    groups = [p for p in record["phases"] if p["name"] == "repeat"]
    assert record["phase"] == "repeats" and len(groups) == found["groups"]
    assert sum(g["end_s"] - g["start_s"] for g in groups) == pytest.approx(found["seconds"], abs=1e-3)
    (energy,) = found["energy"]
    start = record["start_ns"] * 1e-9
    truth = sum(drawn(start + g["start_s"], start + g["end_s"]) for g in groups) / runs
    bound = sum(g["total"]["error_measured_joules"] for g in groups) / runs
    assert energy["joules"] == pytest.approx(truth, abs=bound) and bound < truth
    assert f"{runs} runs in {found['groups']} groups" in done.stderr


def test_starts_are_shifted_against_the_sensor(tmp_path):
    # of a slow sensor: a group ends after ten refreshes, and two runs take less than 2 s on a busy machine
    folder = tmp_path / "sys/class/hwmon/hwmon0"
    folder.mkdir(parents=True)
    for name, text in (("name", "power_meter"), ("power1_average_interval", "200"), ("power1_average", "100000000")):
        (folder / name).write_text(f"{text}\n", encoding="utf-8")
    done = jm("measure", "--json", "-", "--source", "hwmon:channel=power_meter/power1,covers=/", "--interval", "5ms",
              "--repeat", "8", "--", "sleep", "0.04", env={"JM_ROOT": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["repeats"]["runs"] == 8
    (energy,) = record["repeats"]["energy"]  # nothing is known of the sensor's accuracy
    assert energy["error_joules"] is None and energy["error_spread_joules"] >= 0 and "(spread only)" in done.stderr
    groups = [p for p in record["phases"] if p["name"] == "repeat"]
    assert len(groups) == 4  # of two runs each
    pauses = [b["start_s"] - a["end_s"] for a, b in zip(groups, groups[1:])]
    # at least the golden ratio's parts of a refresh of 200 ms: 0.618, 0.236, 0.854
    assert [pause >= part * 0.2 for pause, part in zip(pauses, (0.618, 0.236, 0.854))] == [True] * 3


def test_a_run_that_fails_ends_it():
    done = jm("measure", "--json", "-", "--source", "sim:h100x1", "--repeat", "5", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert json.loads(done.stdout)["repeats"]["runs"] == 1 and "Run 1 ended with status 3" in done.stderr


@pytest.mark.parametrize("args", [("--repeat", "3", "--until", "2s", "--", "true"), ("--repeat", "3", "--for", "1s"),
                                  ("--until", "1s", "--store", "x.db", "--", "true"), ("--repeat", "1", "--", "true")])
def test_what_does_not_go_together(args):
    done = jm("measure", "--source", "sim:h100x1", *args)
    assert done.returncode == USAGE and sentence(done)
