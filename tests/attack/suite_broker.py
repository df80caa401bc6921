# SPDX-License-Identifier: Apache-2.0
import os
import signal
import time

from daemon import Service, can_unshare
from fake_gpus import DriverState, kill, wait_for
from jm import BIN, is_open_to_all

POLICY = "everyone gpu.power=200:600W\neveryone gpu.clock=345:1980MHz found unlocked\neveryone package.power=50:200W\n" \
    "everyone cpu.clock=900:3500MHz\neveryone cpu.governor=powersave,performance\neveryone cpu.epp=power,performance\n" \
    "everyone module.power=250:1000W\n"
FREE = ([700.0] * 2, [None] * 2)


def values(rng):
    """Settings of each kind of knob that joulemarkd serves; none has the value that is found."""
    low = rng.randrange(900, 1400)
    return [f"gpu.power={rng.randrange(200, 500)}W", f"gpu.clock={low}:{low + 100}MHz",
            f"package.power={rng.randrange(50, 150)}W", f"cpu.clock={low}:{low + 500}MHz",
            rng.choice(("cpu.governor=performance", "cpu.epp=performance cpu.governor=performance", "cpu.epp=power")),
            f"module.power={rng.randrange(250, 800)}W"]


class Suite:
    """SIGKILL of users' programs, their guards, joulemarkd and all three, on mixed knobs; truth: driver and files of sysfs."""

    def __init__(self, folder):
        self.service = None
        if not can_unshare() or not is_open_to_all(BIN):
            return
        self.service = Service(folder, "gpus=2;clocks=1;deny=users")
        self.service.policy(POLICY)
        assert self.service.run("root", "get", "gpu.power").returncode == 0  # the driver is loaded
        self.gpus = DriverState(2, self.service.driver / "nvml-fake.state")
        self.files = self.service.machine.files("")
        self.service.start()

    def state(self):
        return (self.gpus.limits(), self.gpus.locked()), self.service.machine.files("")

    def is_back(self):
        return self.state() == (FREE, self.files)

    def round(self, rng):
        if not self.service:
            return "nothing, without a mount namespace or a program that users can reach"
        who = rng.choice(("client", "guard", "broker", "all"))
        words = rng.sample(values(rng), 4)
        child = self.service.popen("anna", "set", *" ".join(words).split(), "--", "sleep", "30")
        if rng.random() < 0.8:
            wait_for(lambda: not self.is_back(), 2)
        time.sleep(rng.uniform(0, 0.05))
        try:
            leased = self.strike(child, who)
            assert wait_for(self.is_back, 30), (self.state(), self.service.log()[-2000:])
            assert wait_for(lambda: not self.service.journals(), 30), self.service.journals()
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
        return [f"kills of {who}" + ("" if leased else " before a lease")] + [word.split("=")[0] for word in words]

    def strike(self, child, who):
        broker, served = self.service.daemon(), self.service.log().count("serves;")
        guards = self.service.guards()
        if who == "all":
            for pid in guards:
                kill(pid, signal.SIGSTOP)
        if who in ("client", "all"):
            kill(child.pid)
        if who in ("guard", "all"):
            for pid in guards:
                kill(pid)
        if who in ("broker", "all"):
            kill(broker)
            assert wait_for(lambda: self.service.log().count("serves;") > served), self.service.log()
        if who in ("guard", "broker"):
            kill(child.pid, signal.SIGTERM)
        return bool(guards)

    def close(self):
        if self.service:
            self.service.close()
