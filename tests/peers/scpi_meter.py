# SPDX-License-Identifier: Apache-2.0
"""A power meter of Yokogawa's WT series by its own commands, on a socket or on a pseudo-terminal."""
import json
import re
import threading
import time

from jm import jm
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
