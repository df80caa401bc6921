# SPDX-License-Identifier: Apache-2.0
"""A power meter of Yokogawa's WT series by its own commands: a fake one on a socket and on a pseudo-terminal."""
import json
import re
import threading
import time

import pytest

from jm import USAGE, jm, sentence
from text_instrument import Instrument

NUMBER = {"P": 321.5, "U": 230.1, "I": 1.42, "LAMB": 0.985}


class Meter(Instrument):
    """Knows the commands by their short or long form; counts Wh while it integrates."""

    def __init__(self, serial=False, identity="YOKOGAWA,WT310E,C3VG01001V,F1.03"):
        self.identity, self.items, self.n, self.header = identity, {}, 0, True
        self.reply, self.started, self.joined = None, None, threading.Event()
        self.rate = 0.25
        super().__init__(serial)

    def value(self, item):
        if item.startswith("WH"):
            return (time.monotonic() - self.started) * NUMBER["P"] / 3600 if self.started else 0
        return NUMBER[item]

    def answer(self, line):
        command, _, rest = line.upper().partition(" ")
        short = ":".join(re.sub(r"^(COMM|NUM|NORM|FORM|HEAD|STAT|FILT|INTEG|SAMP|VAL|WAIT|STAR)[A-Z]*", r"\1", word)
                         for word in command.split(":"))
        if short == "*IDN?":
            return [self.identity]
        if short == ":COMM:HEAD":
            self.header = rest != "OFF"
        elif match := re.fullmatch(r":NUM:NORM:ITEM(\d+)", short):
            self.items[int(match[1])] = rest.split(",")[0].replace("LAMBDA", "LAMB")
        elif short == ":NUM:NORM:NUM" or short == ":NUM:NORM:NUMBER":
            self.n = int(rest)
        elif short == ":INTEG:STAR":
            self.started = time.monotonic()
        elif short == ":COMM:WAIT":
            time.sleep(self.rate / 2)
        elif short == ":STAT:EESR?":
            return ["1"]
        elif short == ":SAMP:RATE?":
            return [f"{self.rate:.6E}"]
        elif short == ":NUM:NORM:VAL?":
            head = ":NUM:NORM:VAL " if self.header else ""
            return [head + (self.reply or ",".join(f"{self.value(self.items[i + 1]):.5E}" for i in range(self.n)))]
        return []

    def source(self, options=""):
        return f"scpi:address={self.where}" + (f",port={self.port}" if self.port else "") + options

    def measure(self, seconds, options=""):
        done = jm("measure", "--json", "-", "--interval", "50ms", "--source", self.source(options), "--", "sleep",
                  seconds)
        assert done.returncode == 0, done.stderr
        record = json.loads(done.stdout)
        (meter,) = record["meters"]
        return record, meter


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
