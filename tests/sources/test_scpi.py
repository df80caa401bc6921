# SPDX-License-Identifier: Apache-2.0
"""A power meter of Yokogawa's WT series by its own commands: a fake one on a socket and on a pseudo-terminal."""
import threading
import time

import pytest

from jm import USAGE, jm, sentence
from scpi_meter import Meter, NUMBER


@pytest.fixture(name="make")
def make_meter():
    meters = []

    def make(*args, **more):
        meters.append(Meter(*args, **more))
        return meters[-1]
    yield make
    for meter in meters:
        meter.stop()


@pytest.mark.parametrize("serial", [False, True])
def test_power_of_the_node(make, serial):
    record, meter = make(serial).measure(1)
    assert meter["joules"] == pytest.approx(NUMBER["P"] * record["wall_s"], rel=0.03)
    assert meter["scope"] == "node" and "WT310E" in meter["label"]
    assert {s["quantity"] for s in meter["signals"]} == {"power", "voltage", "current", "power-factor"}


def test_its_own_integration(make):
    one = make()
    record, meter = one.measure(1.5, ",integrate=yes")
    assert "energy" in {s["quantity"] for s in meter["signals"]}
    assert meter["joules"] == pytest.approx(NUMBER["P"] * record["wall_s"], rel=0.05)
    deadline = time.monotonic() + 5
    while one.seen[-1] != ":INTEGrate:STOP":  # the instrument reads it after joulemark has ended
        assert time.monotonic() < deadline, one.seen[-3:]
        time.sleep(0.01)


def test_in_step_with_its_updates_and_its_rate(make):
    one = make()
    record, meter = one.measure(1, ",sync=yes,rate=500ms")
    assert ":SAMPle:RATE 0.5" in one.seen and ":COMMunicate:WAIT 1" in one.seen
    assert meter["joules"] == pytest.approx(NUMBER["P"] * record["wall_s"], rel=0.05)


@pytest.mark.parametrize("reply", ["NAN,230,1,0.9", "INF,230,1,0.9", "-1,230,1,0.9", "0,230,1,0.9", "-------,1,1,1",
                                   "1e9,230,1,0.9", "321", "321,230,1,0.9,5", "error", " ", "3 2,1,1,1"])
def test_what_is_no_power_is_refused(make, reply):
    one = make()
    one.reply = reply
    assert "no power" in sentence(jm("measure", "--source", one.source(), "--", "true"))


def test_another_instrument_and_nobody(make):
    one = make(identity="ACME,SCOPE,1,1")
    assert "ACME,SCOPE" in sentence(jm("measure", "--source", one.source(), "--", "true"))
    one.unplug()
    assert "does not answer" in sentence(jm("measure", "--source", one.source(",timeout=300ms"), "--", "true"))
    assert "address" in sentence(jm("measure", "--source", "scpi", "--", "true"), USAGE)


def test_one_that_is_unplugged_is_a_gap(make):
    one = make()
    threading.Timer(1, one.unplug).start()
    _, meter = one.measure(3.5, ",timeout=200ms")
    assert meter["joules"] is None and meter["watts_mean"] == pytest.approx(NUMBER["P"])


@pytest.mark.parametrize("serial", [False, True])
def test_one_that_is_slow_is_not_believed_later(make, serial):
    """Answers that come after the time limit belong to questions that were given up."""
    one = make(serial)

    def disturb():
        one.slow = 0.5
        time.sleep(0.3)  # an answer that was on its way is still quick
        one.reply = "9999,230,1,0.9"
    threading.Timer(0.8, disturb).start()
    _, meter = one.measure(3, ",timeout=200ms")
    assert meter["joules"] is None and meter["watts_max"] == pytest.approx(NUMBER["P"])
