# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of a tuner, of its guard and of both at random moments, with two knobs and by phases: the driver has the settings found.
Six kills; 300 where JM_LONG is set (make check STEPS=long)."""
import json
import os
import random
import subprocess

import pytest

from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN, jm

KILLS = 150 if os.environ.get("JM_LONG") else 3  # of each kind of tuning
WHO = ("tuner", "guard", "both")
ALIVE = "kill -0 $PPID 2>/dev/null"  # the tuner, which the command does not outlive
STEPS = f"touch $BEGUN; while {ALIVE}; do echo step; sleep 0.02; done"
PHASES = f"touch $BEGUN; while {ALIVE}; do $JM mark product; sleep 0.15; $JM mark stream; sleep 0.15; done"
TWO = ["--items-regex", "step", "--window", "0.1s", "--within", "5s", "--knob", "gpu.power", "--knob", "gpu.clock=900:1980+60MHz",
       "--found", "gpu.clock=unlocked"]
KINDS = {"two": (TWO, STEPS, "tune"), "phases": (["--per-phase"], PHASES, "policy")}


class Rounds:
    def __init__(self, folder, kind, seed):
        self.words, self.script, self.key = KINDS[kind]
        self.gpus, self.rng = FakeGpus(folder, 2, "clocks=1;wave=square;response=1"), random.Random(seed)
        self.record, self.begun, self.moved = folder / "tune.json", folder / "begun", 0
        self.env = {**os.environ, **self.gpus.env, "JM": os.path.abspath(BIN), "BEGUN": str(self.begun)}
        assert jm("get", env=self.gpus.env).returncode == 0
        self.found = self.state()

    def state(self):
        return self.gpus.limits(), self.gpus.locked()

    def restored(self):
        return wait_for(lambda: self.state() == self.found and not self.gpus.journals())

    def check(self, who, child, begun, in_force):
        """What restores the settings after this kill, and that it does."""
        if who == "guard":  # the tuner itself does, and its command goes on
            assert self.restored() and (child.poll() is None or not begun)
            child.terminate()
        child.wait(timeout=60)
        if who == "both":  # the next command of any kind does
            assert jm("status", env=self.gpus.env).returncode == 0
        assert self.restored(), (who, self.state(), self.gpus.journals())
        if who == "guard" and begun and in_force:
            assert json.loads(self.record.read_text())[self.key]["stopped"]

    def one(self, who):
        self.begun.unlink(missing_ok=True)
        child = subprocess.Popen([BIN, "tune", *self.words, f"--json={self.record}", "--", "sh", "-c", self.script], env=self.env,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert wait_for(lambda: guard_of(child.pid))
        # in the first rounds under a value of the search, later at any moment, also before the command begins
        if self.moved < len(WHO) or self.rng.random() < 0.5:
            assert wait_for(lambda: self.begun.exists() and self.state() != self.found)
        wait_for(lambda: False, self.rng.choice((0, self.rng.uniform(0, 0.4))))
        guard, begun, in_force = guard_of(child.pid), self.begun.exists(), self.state() != self.found
        self.moved += in_force
        for pid in {"tuner": [child.pid], "guard": [guard], "both": [guard, child.pid]}[who]:
            kill(pid)
        self.check(who, child, begun, in_force)


@pytest.mark.parametrize("kind", KINDS)
def test_no_setting_is_left(tmp_path, kind):
    rounds = Rounds(tmp_path, kind, seed=5)
    for i in range(KILLS):
        rounds.one(WHO[i % len(WHO)])
    assert rounds.moved > 0
