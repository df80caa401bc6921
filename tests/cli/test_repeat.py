# SPDX-License-Identifier: Apache-2.0
"""measure --repeat and --until: energy of one run of a command that is short for its sensors."""
import json
import os
import threading
import time

import pytest

from jm import USAGE, jm, sentence


IDLE, BUSY = 100, 600


class Sensor(threading.Thread):
    """Every 20 ms the mean power since the last time, of a node that draws more while the command works."""

    def __init__(self, root):
        super().__init__(daemon=True)
        folder = root / "sys/class/hwmon/hwmon0"
        folder.mkdir(parents=True)
        for name, text in (("name", "power_meter"), ("power1_average_interval", "20")):
            (folder / name).write_text(f"{text}\n")
        self.file, self.log, self.over = folder / "power1_average", root / "log", threading.Event()
        self.log.touch()
        self.put(IDLE)

    def put(self, watts):
        fd = os.open(self.file, os.O_CREAT | os.O_WRONLY)
        os.pwrite(fd, f"{int(watts * 1e6):010}\n".encode(), 0)
        os.close(fd)

    def busy(self, begin, end):
        """Seconds of work between two times, by what the command wrote when it began and ended."""
        times = [int(t) * 1e-9 for t in self.log.read_text().split()]
        times += [end] * (len(times) % 2)
        return sum(max(0, min(off, end) - max(on, begin)) for on, off in zip(times[::2], times[1::2]))

    def run(self):
        last = time.time()
        while not self.over.wait(0.02):
            now = time.time()
            self.put(IDLE + (BUSY - IDLE) * self.busy(last, now) / (now - last))
            last = now


@pytest.fixture(name="node")
def node_whose_power_follows(tmp_path):
    sensor = Sensor(tmp_path)
    sensor.start()
    work = f"date +%s%N >>{sensor.log}; sleep 0.04; date +%s%N >>{sensor.log}"
    yield tmp_path, ("--source", "hwmon:channel=power_meter/power1,covers=/", "--interval", "5ms"), ("sh", "-c", work)
    sensor.over.set()
    sensor.join()


def repeats(node, *args, env=None):
    root, source, command = node
    done = jm("measure", "--json", "-", *source, *args, "--", *command, env={"JM_ROOT": str(root), **(env or {})})
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    times = [int(t) * 1e-9 for t in (root / "log").read_text().split()]
    return record, sum(times[1::2]) - sum(times[::2]), len(times) // 2, done.stderr


def test_until_enough_was_measured(node):
    record, busy_s, runs, text = repeats(node, "--until", "1s")
    found = record["repeats"]
    assert found["runs"] == runs and found["groups"] >= 4 and found["seconds"] >= 1
    assert found["refresh_s"] == pytest.approx(0.02)
    (energy,) = found["energy"]
    truth = (BUSY * busy_s + IDLE * (found["seconds"] - busy_s)) / runs
    # a group of 0.2 s has two edges, at each of which the sensor says what was a refresh ago
    assert energy["joules"] == pytest.approx(truth, abs=2 * energy["error_spread_joules"] + 0.2 * truth)
    assert energy["error_joules"] is None and "(spread only)" in text  # nothing is known of the sensor's accuracy
    assert record["phase"] == "repeats" and [p["name"] for p in record["phases"]].count("repeat") == found["groups"]
    assert f"{runs} runs in {found['groups']} groups" in text


def test_starts_are_shifted_against_the_sensor(node):
    # of a slow sensor: a group ends after ten refreshes, and two runs take less than 2 s on a busy machine
    (node[0] / "sys/class/hwmon/hwmon0/power1_average_interval").write_text("200\n", encoding="utf-8")
    record, *_ = repeats(node, "--repeat", "8")
    assert record["repeats"]["runs"] == 8
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
