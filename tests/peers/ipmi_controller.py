# SPDX-License-Identifier: Apache-2.0
"""A management controller behind the ioctls of /dev/ipmi0 (ipmi_device.c), with messages by the specification."""
import json
import os
import struct
from pathlib import Path

from jm import BUILD, jm, sentence

SHIM = BUILD / "tests" / "peers" / "libipmi-device.so"


def message(watts, state=0x40, code=0, group=0xdc):
    return struct.pack("<BBHHHHIIB", code, group, watts, 10, 900, 300, 1667311234, 1000, state).hex(" ")


class Controller:
    def __init__(self, root):
        self.file = root / "answer"
        (root / "dev").mkdir(exist_ok=True)
        (root / "dev/ipmi0").touch()
        self.env = {"JM_ROOT": str(root), "LD_PRELOAD": str(SHIM), "JM_FAKE_IPMI": str(self.file),
                    "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}

    def answers(self, text, ms=0):
        new = self.file.with_suffix(".new")
        new.write_text(f"{ms} {text}\n", encoding="utf-8")
        new.rename(self.file)

    def has_limit(self, watts, active, action=0, correction_ms=50):
        """From now on its power limit can be set, from 300 W to 2000 W."""
        Path(f"{self.file}.limit").write_text(f"{action} {watts} {correction_ms} 7 {active} 300 2000\n", encoding="ascii")
        return self.limit()

    def limit(self):
        return tuple(map(int, Path(f"{self.file}.limit").read_text(encoding="ascii").split()))

    def measure(self, seconds, options="", interval="20ms"):
        done = jm("measure", "--json", "-", "--interval", interval, "--source", "ipmi" + options, "--",
                  "sleep", seconds, env=self.env)
        assert done.returncode == 0, done.stderr
        (meter,) = json.loads(done.stdout)["meters"]
        return json.loads(done.stdout), meter

    def refused(self, options=""):
        return sentence(jm("measure", "--source", "ipmi" + options, "--", "true", env=self.env))
