# SPDX-License-Identifier: Apache-2.0
"""The counters of an HPE Cray node, in a tree like that of such a node, updated as by its controller."""
import json
import os
import threading
import time

from jm import jm

WATTS = {"": 900, "cpu_": 200, "memory_": 60, "accel0_": 150, "accel1_": 170}


class Node(threading.Thread):
    """Writes the files ten times a second; what it counted is in joules."""

    def __init__(self, root, watts=None, stamps=True):
        super().__init__(daemon=True)
        self.folder = root / "sys/cray/pm_counters"
        self.folder.mkdir(parents=True)
        self.root, self.stamps, self.watts = root, stamps, dict(watts or WATTS)
        self.fresh, self.joules = 100, {prefix: 1e7 for prefix in self.watts}
        self.over = threading.Event()
        self.stuck = False
        self.last = time.time()
        for name, value in {"raw_scan_hz": 10, "version": 2, "generation": 5, "startup": 1667311234567890}.items():
            self.put(name, value)
        self.update()

    def put(self, name, text):
        """In place, since the program keeps the files open; blanks cover what is left of a longer text."""
        fd = os.open(self.folder / name, os.O_CREAT | os.O_WRONLY)
        os.pwrite(fd, f"{text}\n".encode().ljust(64), 0)
        os.close(fd)

    def update(self):
        now = time.time()
        stamp = f" {int(now * 1e6)} us" if self.stamps else ""
        for prefix, watts in self.watts.items():
            self.joules[prefix] += watts * (now - self.last)
            self.put(prefix + "energy", f"{int(self.joules[prefix])} J{stamp}")
            self.put(prefix + "power", f"{watts} W{stamp}")
            self.put(prefix + "power_cap", f"0 W{stamp}")
        self.last = now
        self.fresh += 1
        self.put("freshness", self.fresh)

    def run(self):
        while not self.over.wait(0.1):
            if not self.stuck:
                self.update()

    def measure(self, seconds, *more, log=None):
        done = jm("measure", "--json", "-", "--interval", "20ms", "--source", "cray", *more, "--", "sleep", seconds,
                  env={"JM_ROOT": str(self.root)})
        assert done.returncode == 0, done.stderr
        if log is not None:
            log.append(done.stderr)
        record = json.loads(done.stdout)
        return record, {m["id"].removeprefix("cray:/sys/cray/pm_counters/").removesuffix("energy"): m
                        for m in record["meters"]}
