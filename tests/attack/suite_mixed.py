# SPDX-License-Identifier: Apache-2.0
import os
import select
import signal
import subprocess
import time
from pathlib import Path

from amd_gpus import surroundings
from fake_gpus import FakeGpus, guard_of, kill, wait_for
from ipmi_controller import Controller
from jm import BIN, BUILD
from sysfs_machine import Machine

STATED = ["--found", "gpu.clock@GPU-0=unlocked", "--found", "gpu.clock@GPU-1=345:1500MHz"]
LOCKED = [None, (345, 1500)]


def values(rng):
    """Settings of each kind of knob; none has the value that is found. Under the governor performance there is one
    preference, which the governor sets, so that one program has both."""
    low = rng.randrange(900, 1400)
    return [f"gpu.power={rng.randrange(200, 500)}W", f"gpu.clock@GPU={low}:{low + 100}MHz", f"gpu.clock@GPU={low}MHz",
            rng.choice(("gpu.performance=manual", f"gpu.performance=manual gpu.clock@00={low}:{low + 300}MHz")),
            f"package.power={rng.randrange(50, 150)}W", f"cpu.clock={low}:{low + 500}MHz", 
            rng.choice(("cpu.governor=performance", "cpu.epp=performance cpu.governor=performance", "cpu.epp=power")),
            f"module.power={rng.randrange(250, 800)}W", f"node.power={rng.randrange(300, 1100)}W"]


def has_ended(pid):
    """With all its threads, and so without its locks."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ended, _, _ = select.select([process], [], [], 0)
    os.close(process)
    return bool(ended)


class Suite:
    """SIGKILL of programs, their guards, both and all at once, on knobs of every kind; truth: driver, files of sysfs, and
    what the management controller keeps."""

    def __init__(self, folder):
        self.machine = Machine(folder)
        self.gpus = FakeGpus(folder, 2, "clocks=1")
        bmc = Controller(self.machine.root)
        bmc.has_limit(1200, 1)
        self.machine.put("/dev/hsmp", "")
        for socket in range(2):  # package.power is that of these, too
            self.machine.put(f"/firmware/socket{socket}", f"{300 + socket}000 400000")
        self.amd = Path(folder) / "amd"
        self.env = {**os.environ, **self.gpus.env, **bmc.env, **surroundings(self.machine.root, 26, "xx"),
                    "JM_FAKE_AMD_STATE": str(self.amd), **self.machine.env,
                    "JM_FAKE_HSMP": str(self.machine.root / "firmware"),
                    "LD_PRELOAD": " ".join((self.machine.env["LD_PRELOAD"], bmc.env["LD_PRELOAD"],
                                            str(BUILD / "tests/peers/libhsmp-device.so")))}
        self.run("set", "--found", "gpu.clock@GPU-1=unlocked", "gpu.clock@GPU-1=345:1500MHz")
        for journal in self.machine.journals():  # somebody else has locked it
            (self.machine.state / "knobs" / journal).unlink()
        self.files, self.amd_found = self.machine.files(""), self.amd.read_bytes()
        assert self.gpus.locked() == LOCKED and self.gpus.limits() == [700, 700]

    def run(self, *words):
        done = subprocess.run([BIN, *words], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done

    def start(self, words, seconds):
        return subprocess.Popen([BIN, "set", *STATED, *words, "--", "sleep", f"{seconds:.3f}"], env=self.env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True)

    def changed(self):
        return self.gpus.locked() != LOCKED or self.gpus.limits() != [700, 700] or self.machine.files("") != self.files or self.amd.read_bytes() != self.amd_found

    def round(self, rng):
        who = rng.choice(("client", "guard", "both", "all"))
        settings = {word.split("=")[0]: word for word in rng.sample(values(rng), 6)}.values()
        split = rng.randrange(1, len(settings)) if who == "all" else len(settings)
        words = list(settings)
        programs = [self.start(" ".join(part).split(), rng.uniform(0.05, 0.5)) for part in (words[:split], words[split:]) if part]
        if rng.random() < 0.8:
            wait_for(self.changed, 2)
        time.sleep(rng.uniform(0, 0.05))
        self.strike(programs, who)
        for program in programs:
            program.wait(timeout=60)
        self.run("get")  # the next joulemark, whichever it is
        assert wait_for(lambda: not self.machine.journals()), self.machine.journals()
        assert self.gpus.locked() == LOCKED, self.gpus.locked()
        assert self.gpus.limits() == [700, 700], self.gpus.limits()
        assert self.amd.read_bytes() == self.amd_found
        now = self.machine.files("")
        assert now == self.files, {file: (now.get(file), found) for file, found in self.files.items()
                                   if now.get(file) != found}
        return [f"kills of {who}"] + [word.split("=")[0] for word in words]

    @staticmethod
    def strike(programs, who):
        guards = [guard_of(program.pid) for program in programs]
        victims = {"client": [], "guard": guards}.get(who, guards)
        if who in ("both", "all"):
            for guard in filter(None, guards):
                kill(guard, signal.SIGSTOP)
        if who != "guard":
            for program in programs:
                kill(program.pid)
        for guard in filter(None, victims):
            kill(guard)
        # one that is killed while it writes ends when the disk has answered, and may have written its journal by then
        assert wait_for(lambda: all(map(has_ended, filter(None, victims))), 60)

    def close(self):
        subprocess.run([BIN, "restore"], env=self.env, capture_output=True, check=False)
