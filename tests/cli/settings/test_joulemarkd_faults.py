# SPDX-License-Identifier: Apache-2.0
"""Leases of joulemarkd when one of several devices refuses, and over a reboot. Truth: the files of the machine."""
import contextlib
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from daemon import PROGRAM, Service, needs_a_namespace, reply, request, setting
from fake_gpus import DriverState, kill, wait_for
from jm import FAILURE, SOURCE, sentence
from sysfs_machine import POWERCAP

pytestmark = needs_a_namespace
LIMIT = POWERCAP + "/intel-rapl:{}/constraint_0_power_limit_uw"


@pytest.fixture
def service(tmp_path):
    s = Service(tmp_path, "gpus=2;clocks=1;deny=1;users=1")
    s.policy("everyone package.power=100:200W\neveryone gpu.power=200:600W\neveryone gpu.clock=345:1980MHz found unlocked\n")
    try:
        assert s.run("root", "get", "gpu.power").returncode == 0  # the driver is loaded
        yield s
    finally:
        s.close()


def limits(service):
    return [service.machine.get(LIMIT.format(i)) for i in (0, 1)]


@pytest.mark.parametrize("words", [["gpu.power=300W"], ["gpu.clock=900:1200MHz"], ["package.power=120W", "gpu.power=300W"]])
def test_one_device_refuses_and_all_have_what_they_had(service, words):
    """The second GPU permits nothing; the limits of the first one are set by then."""
    service.start()
    gpus = DriverState(2, service.driver / "nvml-fake.state")
    before = service.machine.files("")
    done = service.run("anna", "set", *words, "--", "true")
    assert done.returncode == FAILURE and "GPU 1" in done.stderr, done.stderr
    assert wait_for(lambda: not service.journals() and not service.leases()) and service.machine.files("") == before
    assert gpus.limits() == [700, 700] and gpus.locked() == [None, None] and limits(service) == ["150125000"] * 2


def test_a_reboot_ends_what_killed_leases_left(service):
    """Firmware begins with its own limits, over which no old value may be written."""
    state = service.driver / "nvml-fake.state"
    fresh, gpus = bytearray(state.read_bytes()), DriverState(2, state)
    struct.pack_into("<I", fresh, 8, 650000)  # mW, of a driver that starts with another limit
    service.start()
    child = service.popen("anna", "set", "package.power=120W", "gpu.power@GPU-0=300W", "gpu.clock@GPU-0=900:1200MHz", "--", "sleep", "60")
    assert wait_for(lambda: limits(service) == ["120000000"] * 2 and gpus.limits() == [300, 700] and gpus.locked() == [(900, 1200), None])
    service.activator.kill()  # it would start the next one
    service.activator.wait(timeout=240)
    guards = service.guards()
    for pid in (*guards, service.daemon()):
        kill(pid, signal.SIGSTOP)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pid in (*guards, service.daemon()):
        kill(pid)
    child.communicate()
    assert limits(service) == ["120000000"] * 2 and service.journals()
    boot = service.folder / "boot"
    boot.write_text("11111111-2222-3333-4444-555555555555\n", encoding="ascii")
    subprocess.run(service.inside("sh", "-c", f"mount --bind {boot} /proc/sys/kernel/random/boot_id && rm -r /run/joulemark/*"), check=True)
    for i in (0, 1):
        service.machine.put(LIMIT.format(i), 180000000)
    state.write_bytes(fresh)
    service.start()
    assert wait_for(lambda: not service.journals()), service.log()
    assert limits(service) == ["180000000"] * 2 and gpus.limits() == [650, 700] and gpus.locked() == [None, None]
    done = service.run("anna", "set", "package.power=130W", "--", "true")
    assert done.returncode == 0 and limits(service) == ["180000000"] * 2, done.stderr


def test_two_brokers_have_one_lock(service):
    """Each knows the lease of the other, and neither gives what the other has given; the end of one ends no lease."""
    service.start()
    child = service.popen("anna", "set", "package.power=120W", "--", "sleep", "60")
    assert wait_for(lambda: limits(service) == ["120000000"] * 2)
    path, machine = "/run/second.sock", service.machine.env
    with subprocess.Popen(service.inside(sys.executable, SOURCE / "tests/peers/activator.py", path, PROGRAM), text=True,
                          stderr=subprocess.PIPE, env={**os.environ, "PRELOAD": machine["LD_PRELOAD"],
                                                      "ASAN_OPTIONS": machine["ASAN_OPTIONS"]}) as second:
        try:
            assert any("1 leases go on" in line for line in iter(second.stderr.readline, ""))
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.settimeout(60)
                s.connect(f"/proc/{service.holder.pid}/root{path}")
                for op, payload, n in ("open", b"", 0), ("set", setting("package.power", 130), 1):
                    s.send(request(op, payload, n))
                    code, why = reply(s.recv(1 << 18))
                assert code and f"process {child.pid}" in why, why
        finally:
            second.terminate()
        second.stderr.read()
    assert limits(service) == ["120000000"] * 2 and child.poll() is None
    child.terminate()
    child.communicate()
    assert wait_for(lambda: limits(service) == ["150125000"] * 2 and not service.journals() and not service.leases())


def test_a_full_disk_gives_no_lease_that_could_not_be_put_back(service):
    service.start()
    subprocess.run(service.inside("sh", "-c", "mount -o remount,size=64k /var/lib; head -c 100000 /dev/zero >/var/lib/fill"), check=False, stderr=subprocess.DEVNULL)
    before = service.machine.files("")
    assert "No space left" in sentence(service.run("anna", "set", "package.power=120W", "--", "true"), FAILURE)
    assert service.machine.files("") == before and not service.journals()
    subprocess.run(service.inside("rm", "/var/lib/fill"), check=True)
    done = service.run("anna", "set", "package.power=120W", "--", "true")
    assert done.returncode == 0 and service.machine.files("") == before, done.stderr


def attempts(service):
    """How often joulemarkd itself has tried in vain: one line each, for the one device."""
    return service.log().count("is NOT back: ")


def test_a_device_that_vanishes_while_it_is_set_and_returns(service):
    """The guard of its lease gives up; joulemarkd restores when the device is there again. The other device is not kept."""
    zone = Path(service.machine.root) / (POWERCAP[1:] + "/intel-rapl:1")
    service.start()
    child = service.popen("anna", "set", "package.power=120W", "--", "sleep", "60")
    assert wait_for(lambda: service.log().count("asked for 120W, accepted 120W") == 2)
    began = time.monotonic()
    zone.rename(zone.with_name("away"))
    child.terminate()
    child.communicate()
    assert wait_for(lambda: "NOT all is back" in service.log()), service.log()
    assert service.machine.get(LIMIT.format(0)) == "150125000" and len(service.journals()) == 1
    assert (zone.with_name("away") / "constraint_0_power_limit_uw").read_text(encoding="ascii").strip() == "120000000"
    time.sleep(max(0, began + 25 - time.monotonic()))  # joulemarkd tries again meanwhile, after 10 s, and then after 20 s
    assert wait_for(lambda: attempts(service) > 1), service.log()
    n, elapsed = attempts(service), time.monotonic() - began
    assert n <= 1 + sum(10 * (2 ** i - 1) <= elapsed for i in range(1, 6)), service.log()
    assert len(service.journals()) == 1
    zone.with_name("away").rename(zone)
    assert wait_for(lambda: limits(service) == ["150125000"] * 2 and not service.journals(), 200), service.log()


def without_descriptors(service, action):
    """Runs the action while the daemon can open nothing; returns the share of a processor that it took meanwhile."""
    pid = service.daemon()
    clock = lambda: sum(map(int, Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()[11:13]))
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
    try:
        began, ticks = time.monotonic(), clock()
        action()
        time.sleep(1)
        return (clock() - ticks) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_a_lack_of_descriptors_ends(service):
    """A client that waits for one, and a recovery whose end shows by one, cost no processor and are seen to when there are some."""
    service.start()
    child = service.popen("anna", "set", "package.power=120W", "--", "sleep", "60")
    assert wait_for(lambda: limits(service) == ["120000000"] * 2)
    waiting, log = [], service.log()

    def kill_and_connect():
        kill(service.guards()[0], signal.SIGKILL)
        assert wait_for(lambda: "recovering" in service.log()[len(log):])
        waiting.append(service.popen("berta", "set", "package.power=130W", "--", "true"))

    share = without_descriptors(service, kill_and_connect)
    assert share < 0.2, share
    children = Path(f"/proc/{service.daemon()}/task/{service.daemon()}/children")
    assert wait_for(lambda: not children.read_text(encoding="ascii").split()), "the recovery that failed was not seen to end"
    out, err = waiting[0].communicate()
    assert waiting[0].returncode == 0 and wait_for(lambda: limits(service) == ["150125000"] * 2), out + err
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
