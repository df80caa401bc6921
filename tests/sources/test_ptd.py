# SPDX-License-Identifier: Apache-2.0
"""SPEC's PTDaemon, by a fake one that implements its protocol: samples with its own clock, ranges, errors, late answers."""
import datetime
import json
import threading
import time

import pytest

from jm import USAGE, jm, sentence
from text_instrument import Instrument

WATTS = 412.5


class Daemon(Instrument):
    """Takes a sample each period from Go on; its clock is hours away from this machine's."""

    def __init__(self):
        self.begin, self.period, self.given, self.mark = None, 1, 0, ""
        self.ranges = {"A": "5", "V": "300"}
        self.watts, self.line, self.hello = WATTS, None, "Hello, PTDaemon here!"
        self.offset = datetime.timedelta(hours=7, seconds=13)
        super().__init__()

    def sample(self, i):
        at = self.started + datetime.timedelta(seconds=(i + 1) * self.period) + self.offset
        stamp = at.strftime("%m-%d-%Y %H:%M:%S.") + f"{at.microsecond // 1000:03}"
        return self.line or (f"Time,{stamp},Watts,{self.watts},Volts,229.9,Amps,1.83,PF,0.98,Mark,{self.mark},"
                             f"Ch1,Watts,{self.watts / 2}")

    def answer(self, line):
        word, *rest = line.split(",")
        if word == "Hello":
            return [self.hello]
        if word == "RR":
            auto = {k: int(v == "Auto") for k, v in self.ranges.items()}
            return [f"Ranges,{auto['A']},{self.number('A')},{auto['V']},{self.number('V')}"]
        if word == "SR":
            self.ranges[rest[0]] = rest[1]
            return [f"Range {rest[0]} changed"]
        if word == "Go":
            self.period, self.mark = int(rest[0]) / 1000, rest[2]
            self.begin, self.started, self.given = time.monotonic(), datetime.datetime.now(), 0
            return ["Starting untimed measurement, maximum 0 samples at 1000ms with 0 rampup samples"]
        if word == "RL":
            taken = int((time.monotonic() - self.begin) / self.period)
            first, self.given = self.given, taken
            if taken == first:
                return ["No unread samples"]
            return [f"Last {taken - first} samples"] + [self.sample(i) for i in range(first, taken)]
        if word == "Stop":
            return ["Stopping untimed measurement"]
        return ["Error: Unknown command"]

    def number(self, kind):
        return "-1.0" if self.ranges[kind] == "Auto" else self.ranges[kind]

    def source(self, options=""):
        return f"ptd:host=127.0.0.1,port={self.port},period=100ms{options}"

    def measure(self, seconds, options=""):
        done = jm("measure", "--json", "-", "--interval", "50ms", "--source", self.source(options), "--", "sleep",
                  seconds)
        assert done.returncode == 0, done.stderr
        record = json.loads(done.stdout)
        (meter,) = record["meters"]
        return record, meter


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
