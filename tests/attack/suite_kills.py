# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess

from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN
from knobs import as_found, environment, settle
from kill_sweep import WHO, Sweep


class Suite:
    """SIGKILL of programs, of their guards and of both, alone and in storms; truth: the driver's limits."""

    def __init__(self, folder):
        self.sweep = None
        self.folder = folder
        self.gpus = FakeGpus(folder, 4, "setlatency=4000")
        self.found = as_found(self.gpus)

    def round(self, rng):
        return rng.choice((self.storm, self.storm, self.kill_sweep))(rng)

    def kill_sweep(self, rng):
        """A sweep that is killed at any moment: limits back, store whole, no finished record lost."""
        if self.sweep is None:
            os.mkdir(self.folder + "/sweep")
            self.sweep = Sweep(self.folder + "/sweep", 0)
        self.sweep.rng = rng
        who = rng.choice(WHO)
        return f"sweeps, {who} killed" if self.sweep.one(who) else "sweeps that were faster"

    def start(self, rng):
        setting = f"gpu.power@GPU-{rng.randrange(4)}" if rng.random() < 0.7 else "gpu.power"
        words = rng.choice((
            ["set", f"{setting}={rng.randrange(200, 701)}W", "--", "sleep", f"{rng.uniform(0, 0.3):.3f}"],
            ["run", "null", "--source", "null", "--step-time", "5ms", "--steps", "2", "--warmup", "0",
             "--set", f"{setting}={rng.randrange(200, 701)}W"],
            ["tune", "--knob", setting, "--items-regex", "step", "--window", "0.1s", "--within", "2s", "--", "sh", "-c",
             "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.05; echo step; done"],
            ["restore"], ["status"], ["get"]))
        return subprocess.Popen([BIN, *words], env=environment(self.gpus), stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def storm(self, rng):
        """Several programs want the same GPUs; half of them and of their guards are killed."""
        programs = [self.start(rng) for _ in range(rng.randrange(1, 5))]
        done = ["programs in a storm"] * len(programs)
        try:
            for program in rng.sample(programs, len(programs)):
                try:
                    program.wait(timeout=rng.uniform(0, 0.2))
                except subprocess.TimeoutExpired:
                    pass
                guard = guard_of(program.pid)
                if guard and rng.random() < 0.5:
                    kill(guard, rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
                    done.append("guards killed")
                if rng.random() < 0.5:
                    kill(program.pid, rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT)))
                    done.append("programs killed")
            for program in programs:
                program.wait(timeout=60)
        finally:
            for program in programs:
                kill(program.pid)
        # guards that live on put back; the next joulemark does where there is none
        settle(self.gpus)
        assert wait_for(lambda: self.gpus.limits() == self.found), f"{self.gpus.limits()}, not {self.found}"
        assert wait_for(lambda: not self.gpus.journals()), self.gpus.journals()
        return done

    def close(self):
        settle(self.gpus)
