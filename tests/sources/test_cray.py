# SPDX-License-Identifier: Apache-2.0
"""The counters of HPE Cray nodes, on a tree like that of such a node, updated as by its controller."""
import os
import subprocess
import threading
import time

import pytest

from cray_node import Node, WATTS
from jm import BIN, jm, sentence


@pytest.fixture(name="make")
def make_node(tmp_path):
    nodes = []

    def make(**more):
        nodes.append(Node(tmp_path, **more))
        nodes[-1].start()
        return nodes[-1]
    yield make
    for node in nodes:
        node.over.set()
        node.join()


@pytest.mark.parametrize("stamps", [True, False])
def test_each_part_and_no_joule_twice(make, stamps):
    record, meters = make(stamps=stamps).measure(1.5)
    for prefix, watts in WATTS.items():
        assert meters[prefix]["joules"] == pytest.approx(watts * record["wall_s"], rel=0.08), prefix
    assert {p: m["scope"] for p, m in meters.items()} == {
        "": "node", "cpu_": "package", "memory_": "dram", "accel0_": "gpu", "accel1_": "gpu"}
    assert all(m["covered_by"] == (None if p == "" else meters[""]["id"]) for p, m in meters.items())
    assert record["total"]["joules_measured"] == pytest.approx(meters[""]["joules"])


@pytest.mark.parametrize("text", ["-1 W", "", "text", "900", "900 J", "0 W", "1e3 W", "99999999999999999999 W"])
def test_what_is_no_power_is_unknown(make, text):
    node = make(watts={"": 900})
    node.stuck = True
    time.sleep(0.15)
    node.put("power", text)
    (node.folder / "energy").unlink()
    assert node.measure(0.3)[1][""]["joules"] is None


def test_counters_that_stand_still_are_unknown(make):
    """The controller stopped: the last values are there for ever, but they say nothing of now."""
    node = make(watts={"": 900})
    timer = threading.Timer(1.0, lambda: setattr(node, "stuck", True))
    timer.start()
    _, meters = node.measure(6)
    assert meters[""]["joules"] is None


def test_counters_that_start_again(make):
    node = make(watts={"": 900})

    def restart():
        node.joules[""] += 5e6  # further than it was, so that it does not look like a step back
        node.put("startup", 1667399999999999)
    threading.Timer(0.9, restart).start()
    log = []
    record, meters = node.measure(2, log=log)
    assert "restarted" in log[0]
    assert meters[""]["joules"] is None or meters[""]["joules"] == pytest.approx(900 * record["wall_s"], rel=0.1)


def test_a_start_that_cannot_be_read_for_a_while_is_no_restart(make):
    node = make(watts={"": 900})
    threading.Timer(0.7, lambda: node.put("startup", "")).start()
    threading.Timer(1.1, lambda: node.put("startup", 1667311234567890)).start()
    log = []
    record, meters = node.measure(2, log=log)
    assert "restarted" not in log[0]
    assert meters[""]["joules_counter"] == pytest.approx(900 * record["wall_s"], rel=0.1)


def test_no_such_node(tmp_path):
    said = sentence(jm("measure", "--source", "cray", "--", "true", env={"JM_ROOT": str(tmp_path)}))
    assert "pm_counters" in said and "HPE Cray" in said
    (tmp_path / "sys/cray/pm_counters").mkdir(parents=True)
    for name in ("cpu_energy", "accel0_energy"):
        (tmp_path / "sys/cray/pm_counters" / name).write_text("5 J 1 us\n", encoding="utf-8")
    said = sentence(jm("measure", "--source", "cray", "--", "true", env={"JM_ROOT": str(tmp_path)}))
    assert "node's energy" in said


def test_read_without_being_named(make, tmp_path):
    make()
    done = subprocess.run([BIN, "doctor"], env={**os.environ, "JM_ROOT": str(tmp_path)}, capture_output=True, text=True,
                          check=False)
    assert "node (Cray pm_counters)" in done.stdout
