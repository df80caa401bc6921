# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import time

from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN
from knobs import as_found, environment, joulemark, settle


class Suite:
    """A driver that is stuck in Set or Get of one GPU, or a guard that is stopped; truth: the driver's limits."""

    def __init__(self, folder):
        self.gpus = FakeGpus(folder, 4)
        self.found = as_found(self.gpus)
        self.stuck = self.gpus.state + ".stuck"
        self.program = None

    def quick(self, rng):
        """Commands that set nothing are not kept by what hangs."""
        words = rng.choice((["list"], ["status"], ["mark", "x"]))
        said = joulemark(self.gpus, *words).stderr
        assert "Waiting up to" not in said, f"{words}: {said}"

    def begin(self, rng):
        gpu = rng.randrange(4)
        with open(self.stuck, "w", encoding="ascii"):
            pass
        self.gpus.config(f"{rng.choice(('setlag', 'getlag'))}={gpu}:1e9;lagfile={self.stuck}")
        self.program = subprocess.Popen(
            [BIN, "set", f"gpu.power={rng.randrange(200, 500)}W", "--", "sleep", "0.1"],
            env=environment(self.gpus), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.1, 1.5))
        self.gpus.config("")

    def leave(self, how):
        """By two signals, by a kill, or by a kill of the guard; the seconds that the second signal took to be heard."""
        took = 0
        guard = guard_of(self.program.pid)
        if how in ("guard killed", "both killed") and guard:
            kill(guard)
        if how in ("program killed", "both killed"):
            kill(self.program.pid)
        if how in ("signals", "guard killed"):
            self.program.send_signal(signal.SIGINT)
            time.sleep(0.3)
            began = time.monotonic()
            kill(self.program.pid, signal.SIGINT)
            self.program.wait(timeout=40)
            took = time.monotonic() - began if how == "signals" else 0
        self.program.wait(timeout=60)
        return took

    def as_it_was(self):
        settle(self.gpus)
        return self.gpus.limits() == self.found and not self.gpus.journals()

    def round(self, rng):
        """A signal that is not heard is late in every attempt, on a busy machine only in some."""
        if rng.random() < 0.5:
            return self.stopped_guard(rng)
        how = rng.choice(("signals", "program killed", "guard killed", "both killed"))
        for _ in range(4):
            self.begin(rng)
            took = self.leave(how)
            os.remove(self.stuck)
            assert wait_for(self.as_it_was, 40), f"{how}: {self.gpus.limits()}, {self.gpus.journals()}"
            if took < 8:
                return f"stuck drivers, {how}"
        raise AssertionError("the second signal was not heard")

    def stopped_guard(self, rng):
        self.program = subprocess.Popen(
            [BIN, "set", f"gpu.power={rng.randrange(200, 500)}W", "--", "sleep", "20"],
            env=environment(self.gpus), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        wait_for(lambda: self.gpus.limits() != self.found, 10)
        guard = guard_of(self.program.pid)
        kill(guard, signal.SIGSTOP)
        kill(self.program.pid)
        self.program.wait(timeout=20)
        self.quick(rng)
        kill(guard, rng.choice((signal.SIGCONT, signal.SIGKILL)))

        def as_it_was():
            settle(self.gpus)
            return self.gpus.limits() == self.found

        assert wait_for(as_it_was, 20), self.gpus.limits()
        return "stopped guards"

    def close(self):
        if os.path.exists(self.stuck):
            os.remove(self.stuck)
        if self.program:
            self.program.kill()
            self.program.wait()
        self.gpus.config("")
        settle(self.gpus)
