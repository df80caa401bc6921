# SPDX-License-Identifier: Apache-2.0
"""SPEC's PTDaemon, by a fake one that implements its protocol: samples with its own clock, ranges, errors, late answers."""
import threading

import pytest

from jm import USAGE, jm, sentence
from ptd_daemon import Daemon, WATTS


@pytest.fixture(name="daemon")
def make_daemon():
    daemon = Daemon()
    yield daemon
    daemon.stop()


def test_samples_of_another_clock(daemon):
    record, meter = daemon.measure(2.5)
    assert meter["watts_mean"] == pytest.approx(WATTS)
    assert meter["joules"] == pytest.approx(WATTS * record["wall_s"], rel=0.12)
    assert {s["quantity"] for s in meter["signals"]} == {"power", "voltage", "current", "power-factor"}
    assert daemon.seen[-1] == "Stop" and daemon.mark == "joulemark"


@pytest.mark.parametrize("options,asked", [(",amps=auto,volts=auto,mark=x_ranging", ["SR,A,Auto", "SR,V,Auto"]),
                                           (",amps=10,volts=240,mark=x_testing", ["SR,A,10", "SR,V,240"])])
def test_ranges_are_set_and_put_back(daemon, options, asked):
    daemon.measure(0.5, options)
    assert [c for c in daemon.seen if c.startswith("SR")][:2] == asked
    assert daemon.ranges == {"A": "5", "V": "300"} and daemon.mark.startswith("x_")


@pytest.mark.parametrize("line", ["Time,11-22-2026 05:00:00.000,Watts,-1,Volts,-1,Amps,-1,PF,-1,Mark,x", "", "garbage",
                                  "Time,99-99-2026 05:00:00.000,Watts,400", "Time,11-22-2026 05:00:00.000,Watts,text",
                                  "Time,11-22-2026 05:00:00.000,Watts", "Watts,400", "Time,11-22-2026 5:0,Watts,400"])
def test_what_is_no_sample_is_unknown(daemon, line):
    daemon.line = line or " "
    assert daemon.measure(1)[1]["joules"] is None


def test_a_daemon_that_goes_away(daemon):
    threading.Timer(1, daemon.unplug).start()
    _, meter = daemon.measure(3.5, ",timeout=200ms")
    assert meter["joules"] is None and meter["watts_mean"] == pytest.approx(WATTS)


def test_a_daemon_that_falls_silent(daemon):
    threading.Timer(1, lambda: setattr(daemon, "silent", True)).start()
    _, meter = daemon.measure(3, ",timeout=200ms")
    assert meter["joules"] is None and meter["watts_max"] == pytest.approx(WATTS)


def test_who_does_not_speak_the_protocol(daemon):
    daemon.hello = "HTTP/1.1 400 Bad Request"
    assert "No PTDaemon answers" in sentence(jm("measure", "--source", daemon.source(), "--", "true"))
    daemon.unplug()
    assert "No PTDaemon answers" in sentence(jm("measure", "--source", daemon.source(), "--", "true"))
    assert "host" in sentence(jm("measure", "--source", "ptd", "--", "true"), USAGE)
