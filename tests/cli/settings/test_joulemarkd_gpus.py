# SPDX-License-Identifier: Apache-2.0
"""joulemarkd and the limits and clocks of GPUs: the fake driver lies where the loader finds the real one, refuses users who
are not root, and its own state is what is compared with."""
import json
import os
import signal

import pytest

from daemon import Service, needs_a_namespace
from fake_gpus import DriverState, kill, wait_for
from jm import FAILURE, sentence

pytestmark = needs_a_namespace

FREE = ([700.0] * 2, [None] * 2, [None] * 2)
HELD = ([350.0, 400.0], [(1200, 1500)] * 2, [None, (1593, 1593)])
POLICY = """\
user anna       gpu.power=200:600W              for 1h
user anna       gpu.clock=1200:1800MHz          found unlocked
user anna       gpu.memory_clock@GPU-1=1593MHz  found unlocked
"""
WORDS = ["gpu.power@GPU-0=350W", "gpu.power@GPU-1=400W", "gpu.clock=1200:1500MHz", "gpu.memory_clock@GPU-1=1593MHz"]


@pytest.fixture
def service(tmp_path):
    s = Service(tmp_path, "gpus=2;clocks=1;deny=users")
    s.policy(POLICY)
    try:
        assert s.run("root", "get", "gpu.power").returncode == 0  # the driver is loaded
        s.gpus = DriverState(2, s.driver / "nvml-fake.state")
        s.start()
        yield s
    finally:
        s.close()


def state(service):
    return service.gpus.limits(), service.gpus.locked(), service.gpus.locked(memory=True)


def start(service, *words):
    return service.popen("anna", "set", *words, "--", "sleep", "60")


@pytest.mark.parametrize("victim", ["command", "client", "guard, daemon"])
def test_limits_and_clocks_are_back(service, victim):
    assert state(service) == FREE
    child = start(service, *WORDS)
    assert wait_for(lambda: child.poll() is not None or state(service) == HELD) and child.poll() is None, (child.communicate(), service.log())
    pids = {"client": child.pid, "guard": service.guards()[0], "daemon": service.daemon()}
    if victim == "command":
        os.kill(child.pid, signal.SIGTERM)
    for name in victim.split(", ") if victim != "command" else []:
        kill(pids[name])
    assert wait_for(lambda: state(service) == FREE), (state(service), service.log())
    assert wait_for(lambda: not service.journals() and not service.leases()), service.log()
    kill(child.pid)
    child.wait(timeout=240)


def test_the_record_says_that_root_stated_it(service):
    """The values that the driver was asked for and holds; what is locked, it does not report."""
    done = service.run("anna", "measure", "--source", "nvml", "--json", *(w for s in WORDS for w in ("--set", s)), "--", "true")
    assert done.returncode == 0, done.stderr
    rows = [(s["knob"], s["accepted"], s.get("found")) for s in json.loads(done.stdout)["settings"]]
    assert sorted(rows) == [("gpu.clock", 1.5e9, "stated")] * 2 + \
        [("gpu.memory_clock", 1.593e9, "stated"), ("gpu.power", 350, None), ("gpu.power", 400, None)]
    assert state(service) == FREE and "set gpu.clock of" in service.log()


def test_refused(service):
    """By the policy; who has no rule learns this in place of the driver's refusal."""
    for user, words, why in (
            ("anna", ["gpu.power=650W"], "to 200:600W, not to 650W"),
            ("anna", ["gpu.clock=1200:1900MHz"], "to 1200:1800MHz, not to 1200:1900MHz"),
            ("anna", ["gpu.memory_clock=1593MHz"], "does not let user 2001 set gpu.memory_clock of GPU 0"),
            ("anna", ["--found", "gpu.clock=900:1000MHz", "gpu.clock=1200MHz"], "from root's policy alone"),
            ("carla", ["gpu.power=300W"], "lets user 2003 set no knob")):
        done = service.run(user, "set", *words, "--", "true")
        assert why in sentence(done, FAILURE), done.stderr
        assert state(service) == FREE and not service.journals()
