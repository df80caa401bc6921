# SPDX-License-Identifier: Apache-2.0
"""Node power over IPMI DCMI: a controller behind the ioctls of /dev/ipmi0, with messages by the specification."""
import json
import os
import subprocess
import threading
import time

import pytest

from ipmi_controller import Controller, message
from jm import BIN, jm, sentence


@pytest.fixture(name="controller")
def make_controller(tmp_path):
    return Controller(tmp_path)


def test_power_of_the_node(controller):
    controller.answers(message(437))
    record, meter = controller.measure(0.5)
    assert meter["joules"] == pytest.approx(437 * record["wall_s"], rel=0.02)
    assert (meter["scope"], meter["origin"], meter["id"]) == ("node", "measured", "ipmi:/dev/ipmi0")


def test_captured_bytes(controller):
    """A message as ipmitool -v prints one: 180 W now, at least 20, at most 480, mean 174."""
    controller.answers("00 dc b4 00 14 00 e0 01 ae 00 6a 1b 5c 63 e8 03 00 00 40")
    assert controller.measure(0.4)[1]["watts_mean"] == pytest.approx(180)


@pytest.mark.parametrize("text,word", [(message(400, state=0), "not active"), (message(0), "no power"),
                                       (message(65535), "no power"), (message(400, group=0xdd), "no power"),
                                       (message(400)[:-3], "no power"), ("c1", "DCMI"), ("d4 dc", "d4h"),
                                       ("ff", "refuses"), ("", "in time")])
def test_what_is_no_power_is_refused(controller, text, word):
    controller.answers(text)
    said = controller.refused(",timeout=100ms".replace(",", ":", 1))
    assert word in said and "ipmitool" in said


def test_no_device_and_no_right(tmp_path):
    said = sentence(jm("measure", "--source", "ipmi", "--", "true", env={"JM_ROOT": str(tmp_path)}))
    assert "ipmi_devintf" in said and "dev/ipmi0" in said


def test_a_late_answer_is_not_taken_for_the_next(controller):
    """Each answer comes after the time limit, when the next question is out: none may be used."""
    for _ in range(8):  # on a busy machine those before may be late, too
        controller.answers(message(300))
        timer = threading.Timer(0.4, lambda: controller.answers(message(999), ms=150))
        timer.start()
        _, meter = controller.measure(1.5, ":timeout=100ms")
        timer.join()
        assert meter["joules"] is None and meter["watts_max"] in (300, None)
        if meter["watts_max"]:
            break
    assert meter["watts_max"] == 300


def test_a_controller_that_is_gone_is_a_gap(controller):
    controller.answers(message(200))
    command = [BIN, "measure", "--json", "-", "--interval", "20ms", "--source", "ipmi", "--", "sleep", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env={**os.environ, **controller.env}) as run:
        time.sleep(0.8)
        controller.file.unlink()
        time.sleep(1.3)
        controller.answers(message(200))
        out, _ = run.communicate(timeout=240)
    (meter,) = json.loads(out)["meters"]
    assert meter["joules"] is None and meter["gaps"] >= 1 and meter["watts_mean"] == pytest.approx(200)
