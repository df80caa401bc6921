# SPDX-License-Identifier: Apache-2.0
"""Graphcore IPUs by a fake module gcipuinfo: values as text with units, N/A, boards shared by several IPUs."""
import json

import pytest

from gcipu_module import module
from jm import jm, sentence


def measure(env, seconds=1):
    done = jm("measure", "--json", "-", "--interval", "50ms", "--source", "gcipuinfo:period=50ms", "--", "sleep",
              seconds, env=env)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    return record, {m["id"].removeprefix("gcipuinfo:"): m for m in record["meters"]}


def test_each_ipu_and_one_without_a_value(tmp_path):
    """N/A in the middle does not shift the IPUs behind it."""
    rows = [("0131.1", "80.50W", "N/A"), ("0131.1", "N/A", "N/A"), ("0131.1", "91.25 W", "N/A")]
    record, meters = measure(module(tmp_path, rows))
    assert {k: m["watts_mean"] for k, m in meters.items()} == {"0131.1/0": pytest.approx(80.5),
                                                               "0131.1/2": pytest.approx(91.25)}
    assert record["total"]["joules_measured"] == pytest.approx(171.75 * record["wall_s"], rel=0.1)


def test_a_board_is_counted_once(tmp_path):
    """Both IPUs of a board report the same board; where IPUs are known too, they are part of it."""
    rows = [("A", "N/A", "99.5 W"), ("A", "N/A", "99.5 W"), ("B", "40 W", "120 W"), ("B", "45 W", "120 W")]
    record, meters = measure(module(tmp_path, rows))
    assert set(meters) == {"A", "B", "B/2", "B/3"}
    assert meters["B/3"]["covered_by"] == "gcipuinfo:B"
    assert record["total"]["joules_measured"] == pytest.approx(219.5 * record["wall_s"], rel=0.1)


@pytest.mark.parametrize("text", ["N/A", "", "-3 W", "0 W", "12 mW", "1e9 W", "twelve", "nan W"])
def test_what_is_no_power_is_refused(tmp_path, text):
    env = module(tmp_path, [("A", text, "N/A")])
    assert "None of the 1 IPUs" in sentence(jm("measure", "--source", "gcipuinfo", "--", "true", env=env))


def test_no_module_and_no_python(tmp_path):
    done = jm("measure", "--source", "gcipuinfo", "--", "true", env={"PYTHONPATH": str(tmp_path)})
    assert "gc-info" in sentence(done) and "has no module gcipuinfo" in sentence(done) and "Traceback" not in done.stderr
    assert "nowhere" in sentence(jm("measure", "--source", "gcipuinfo:/nowhere/python", "--", "true"))


def test_a_library_that_fails_in_mid_run(tmp_path):
    _, meters = measure(module(tmp_path, [("A", "50 W", "N/A")], life=1), 4)
    assert meters["A/0"]["joules"] is None and meters["A/0"]["watts_max"] == pytest.approx(50)


@pytest.mark.parametrize("later", [[("B", "300 W", "N/A")], [("B", "300 W", "N/A"), ("A", "40 W", "N/A")]])
def test_a_board_in_another_place_is_not_the_one_that_was_there(tmp_path, later):
    env = module(tmp_path, [("A", "40 W", "N/A"), ("B", "300 W", "N/A")], life=3, later=later)
    _, meters = measure(env, 2.5)
    assert meters["A/0"]["watts_max"] == pytest.approx(40) and meters["A/0"]["joules"] is None
    assert meters["B/1"]["watts_max"] == pytest.approx(300) and meters["B/1"]["joules"] is None
