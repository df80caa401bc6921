# SPDX-License-Identifier: Apache-2.0
"""Somebody sets the wall clock back by an hour while settings are held: leases, journals and waits count by other clocks. Truth: the
files of the machine, and the fake driver."""
import contextlib
import os
import re
import signal
import subprocess

import pytest

from daemon import Service, needs_a_namespace
from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN, BUILD
from sysfs_machine import POWERCAP

CLOCK = str(BUILD / "tests/peers/libset-clock.so")
ASAN = {"ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}
LIMIT = POWERCAP + "/intel-rapl:1/constraint_0_power_limit_uw"
FOUND = "150125000"


@pytest.fixture(name="back")
def file_that_sets_it_back(tmp_path):
    return tmp_path / "set back"


@pytest.fixture
def service(tmp_path, back):
    s = Service(tmp_path)
    s.policy("user anna package.power=100:200W for 1h leases 2\n")
    s.start(PRELOAD=" ".join((s.machine.env["LD_PRELOAD"], CLOCK)), JM_FAKE_SET_BACK=str(back), **ASAN)
    try:
        yield s
    finally:
        s.close()


def is_back_in(back, pid):
    """The process has read a clock since; set_clock.c leaves a mark."""
    return wait_for(back.with_name(f"{back.name}.{pid}").exists)


def begin(service):
    child = service.popen("anna", "set", "package.power=120W", "--", "sleep", "60")
    assert wait_for(lambda: service.machine.get(LIMIT) == "120000000"), (child.poll(), service.log())
    return child


def all_is_back(service):
    return wait_for(lambda: service.machine.get(LIMIT) == FOUND and not service.journals() and not service.leases(), 100)


@needs_a_namespace
def test_a_lease_lasts_no_longer(service, back):
    """It has 20 s, of which the wall clock now makes an hour more."""
    service.policy("user anna package.power=100:200W for 20s\n")
    child = begin(service)
    guard = service.guards()[0]
    back.touch()
    assert all_is_back(service), service.log()
    assert is_back_in(back, guard) and is_back_in(back, service.daemon())
    assert child.poll() is None
    os.kill(child.pid, signal.SIGTERM)
    assert "the longest time that root's policy gives" in child.communicate(timeout=240)[1]
    seconds = float(re.search(r"ended after ([0-9.]+) s", service.log())[1])
    assert 20 <= seconds < 3600, service.log()


@needs_a_namespace
def test_a_policy_that_is_older_than_the_one_before_is_read(service, back):
    back.touch()
    service.policy("user anna package.power=140:200W for 1h\n")
    path = service.etc / "joulemark/joulemarkd.conf"
    then = path.stat().st_mtime - 3600
    os.utime(path, (then, then))
    done = service.run("anna", "set", "package.power=120W", "--", "true")
    assert done.returncode and "140:200W, not to 120W" in done.stderr, done.stderr
    assert is_back_in(back, service.daemon())


@needs_a_namespace
def test_killed_guards_are_recovered(service, back):
    child = begin(service)
    back.touch()
    kill(service.guards()[0])
    kill(service.daemon())
    assert all_is_back(service), service.log()
    assert is_back_in(back, service.daemon())  # the one that has recovered
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    child.communicate(timeout=240)


@pytest.mark.parametrize("victims", ["", "client", "guard", "guard, client"])
def test_a_private_guard_restores(tmp_path, back, victims):
    """A journal knows processes by their start after the boot."""
    gpus = FakeGpus(tmp_path, 2)
    env = {**os.environ, **gpus.env, "LD_PRELOAD": CLOCK, "JM_FAKE_SET_BACK": str(back), **ASAN}
    assert subprocess.run([BIN, "get"], env=env, capture_output=True, check=False, timeout=240).returncode == 0  # there is a driver
    child = subprocess.Popen([BIN, "set", "gpu.power=300W", "--", "sleep", "60"], env=env, stderr=subprocess.DEVNULL, start_new_session=True)
    assert wait_for(lambda: gpus.limits() == [300, 300])
    back.touch()
    pids = {"client": child.pid, "guard": guard_of(child.pid)}
    busy = subprocess.run([BIN, "set", "gpu.power=200W", "--", "true"], env=env, capture_output=True, text=True, check=False, timeout=240)
    assert busy.returncode and f"process {pids['guard']}" in busy.stderr and gpus.limits() == [300, 300], busy.stderr
    if victims == "guard, client":
        kill(pids["guard"], signal.SIGSTOP)  # else the client would restore
        kill(pids["client"])
    for name in filter(None, victims.split(", ")):
        kill(pids[name])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    child.wait(timeout=240)
    assert victims == "guard, client" or is_back_in(back, pids["client" if victims == "guard" else "guard"])
    done = subprocess.run([BIN, "get"], env=env, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0 and wait_for(lambda: gpus.limits() == [700, 700] and not gpus.journals()), done.stderr
