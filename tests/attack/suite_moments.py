# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import shutil
import signal
import subprocess
import time

from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN, FAILURE
from knobs import as_found, environment, joulemark, lock_all, settle

CLAIM = "every setting is back as it was found"


class Suite:
    """A guard is killed at a chosen moment while its journals are locked, gone or damaged; truth: the driver's limits."""

    def __init__(self, folder):
        self.gpus = FakeGpus(folder, 4, "setlatency=3000")
        self.found = as_found(self.gpus)
        self.program = None

    def journals(self, folder="knobs"):
        path = os.path.join(self.gpus.env["JM_STATE"], folder)
        return [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else []

    def obstruct(self, rng):
        """What the guard's client will meet. Returns what it was."""
        how = rng.choice(("nothing", "locked", "folder gone", "journals gone", "journals emptied", "noise"))
        if how == "folder gone":
            shutil.rmtree(self.gpus.env["JM_STATE"], ignore_errors=True)
        for path in self.journals() + self.journals("held"):
            if path.endswith(".lock") or how in ("nothing", "locked"):
                continue
            try:
                if how == "journals gone":
                    os.remove(path)
                else:
                    with open(path, "r+b") as f:
                        f.truncate(0 if how == "journals emptied" else rng.randrange(400))
            except FileNotFoundError:
                pass
        return how

    def wait_for_moment(self, rng):
        """Some sets of four are done, or all and a while later."""
        n = rng.randrange(6)
        wait_for(lambda: sum(a != b for a, b in zip(self.gpus.limits(), self.found)) >= min(n, 4)
                 or self.program.poll() is not None, 10)
        time.sleep(rng.choice((0, 0, 0.001, 0.02)))

    def round(self, rng):
        self.program = subprocess.Popen(
            [BIN, "set", f"gpu.power={rng.randrange(200, 500)}W", "--", "sleep", "0.4"],
            env=environment(self.gpus), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        self.wait_for_moment(rng)
        guard = guard_of(self.program.pid)
        if guard:
            kill(guard, signal.SIGSTOP)  # so that what is damaged stays damaged
        how, held = self.obstruct(rng), []
        if guard:
            kill(guard)
        until = time.monotonic() + 0.03
        while how == "locked" and time.monotonic() < until:  # its locks are free now, and wanted by its client
            held += lock_all(self.gpus)
        stderr = self.program.communicate(timeout=60)[1]
        for lock in held:
            fcntl.flock(lock, fcntl.LOCK_UN)
            lock.close()
        now = self.gpus.limits()
        if CLAIM in stderr or (guard and self.program.returncode == FAILURE and "not back" not in stderr):
            assert now == self.found, f"{how}: {now}, but it said: {stderr}"
        settle(self.gpus)
        assert self.gpus.limits() == self.found, f"{how}: {self.gpus.limits()}, {stderr}"
        joulemark(self.gpus, "restore", "--default")  # of what was damaged and never known
        assert self.gpus.limits() == self.found or how not in ("nothing", "locked"), how
        if self.gpus.limits() != self.found:
            self.found = as_found(self.gpus)
        return f"guards killed, {how}" if guard else "guards that were faster"

    def close(self):
        if self.program:
            self.program.kill()
            self.program.wait()
        settle(self.gpus)
