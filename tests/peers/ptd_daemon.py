# SPDX-License-Identifier: Apache-2.0
"""SPEC's PTDaemon by its protocol: samples with a clock of its own, and ranges."""
import datetime
import json
import time

from jm import jm
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
