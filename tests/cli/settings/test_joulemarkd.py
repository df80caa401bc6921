# SPDX-License-Identifier: Apache-2.0
"""joulemarkd: users without rights set knobs within root's policy, and everything finds its way back."""
import json
import os
import signal
import subprocess
import threading
import time

import pytest

from daemon import SOCKET, Service, needs_a_namespace
from fake_gpus import kill, wait_for
from jm import FAILURE, sentence

pytestmark = needs_a_namespace

FOUND, LIMIT = "150125000", "constraint_0_power_limit_uw"
POLICY = """\
# who           what
user anna       package.power=100:200W   for 1h leases 2
group ml        cpu.governor=powersave,performance
user berta      package.power@intel-rapl:1=0.1:0.12kW
"""


@pytest.fixture
def service(tmp_path):
    s = Service(tmp_path)
    s.policy(POLICY)
    try:
        yield s
    finally:
        s.close()


def limits(service):
    return [service.machine.get(f"/sys/class/powercap/intel-rapl:{i}/{LIMIT}") for i in range(2)]


def test_a_user_sets_within_the_policy_and_all_is_back(service):
    service.start()
    done = service.run("anna", "set", "package.power=120W", "--", "cat", f"/sys/class/powercap/intel-rapl:1/{LIMIT}")
    assert done.returncode == 0 and done.stdout == "120000000\n", done.stderr
    assert "120 W (was 150.125 W)" in done.stderr
    assert limits(service) == [FOUND] * 2 and not service.journals()
    assert wait_for(lambda: not service.leases())
    assert "set package.power of" in service.log() and "all put back" in service.log()


def test_what_the_kernel_rounds_and_refuses(service):
    """The kernel behind the files takes eighths of a watt, and no preference under the governor performance."""
    service.start()
    done = service.run("anna", "set", "package.power=119.99W", "--", "true")
    assert "119.875 W (was 150.125 W), asked for 119.99 W" in done.stderr and "asked for 119.99W, accepted 119.875W" in service.log()
    before = service.machine.files("")
    done = service.run("anna", "set", "cpu.governor=performance", "--", "cat",
                       "/sys/devices/system/cpu/cpufreq/policy1/energy_performance_preference")
    assert done.stdout == "performance\n" and service.machine.files("") == before, done.stderr


@pytest.mark.parametrize("user, words, why", [
    ("anna", ["package.power=99W"], "lets user 2001 set package.power of package-0 to 100:200W, not to 99W"),
    ("carla", ["package.power=120W"], "lets user 2003 set no knob"),
    ("berta", ["cpu.governor=performance"], "does not let user 2002 set cpu.governor"),
    ("berta", ["package.power=110W"], "does not let user 2002 set package.power of package-0"),
])
def test_refused_by_the_policy(service, user, words, why):
    service.start()
    done = service.run(user, "set", *words, "--", "true")
    assert why in sentence(done, FAILURE), done.stderr
    assert limits(service) == [FOUND] * 2 and not service.journals()
    assert why in service.log()


def holding(service, user="anna", words=("package.power=120W",)):
    """A client that holds a setting while it sleeps."""
    child = service.popen(user, "set", *words, "--", "sleep", "60")
    assert wait_for(lambda: limits(service)[1] == "120000000"), (child.poll(), service.log())
    return child


def end(child):
    child.kill()
    child.wait(timeout=240)


@pytest.mark.parametrize("victim", ["client", "guard", "daemon", "daemon, client", "guard, daemon", "guard, client"])
def test_back_after_sigkill(service, victim):
    """In this order. The daemon is started again; a lease goes on without it."""
    service.start()
    child = holding(service)
    pids = {"client": child.pid, "guard": service.guards()[0], "daemon": service.daemon()}
    for name in victim.split(", "):
        kill(pids[name])
    if victim == "daemon":
        assert wait_for(lambda: "1 leases go on" in service.log())
        assert limits(service) == ["120000000"] * 2
        end(child)
    assert wait_for(lambda: limits(service) == [FOUND] * 2), service.log()
    assert wait_for(lambda: not service.journals() and not service.leases()), service.log()
    end(child)
    done = service.run("anna", "set", "package.power=130W", "--", "true")
    assert done.returncode == 0 and limits(service) == [FOUND] * 2, (done.stderr, service.log())


def test_a_lease_that_has_ended_is_told(service):
    """The guard is killed: joulemarkd restores, and the client says that its command ran without the setting."""
    service.start()
    child = holding(service)
    kill(service.guards()[0])
    assert wait_for(lambda: limits(service) == [FOUND] * 2)
    os.kill(child.pid, signal.SIGTERM)
    _, err = child.communicate(timeout=240)
    assert child.returncode and "joulemarkd has ended the lease" in err, err


def test_the_policy_gives_time_and_number(service):
    service.policy("user anna package.power=100:200W for 2s leases 1\n")
    service.start()
    for _ in range(8):  # on a busy machine the first lease may be over before the second one is asked for
        child = holding(service)
        done = service.run("anna", "set", "package.power=130W", "--", "true")
        assert wait_for(lambda: limits(service) == [FOUND] * 2)
        assert child.poll() is None
        os.kill(child.pid, signal.SIGTERM)
        assert "the longest time that root's policy gives" in child.communicate(timeout=240)[1]
        if done.returncode:
            break
    assert "has 1 of the 1 leases" in sentence(done, FAILURE)


def test_what_a_user_cannot_write_is_not_restored(service):
    """Another process changes the limit between the attempt and the end of the command, as where a lease ends: the user must not restore it."""
    stop = threading.Event()

    def change():
        with open(f"{service.machine.root}/sys/class/powercap/intel-rapl:1/{LIMIT}", "r+b", buffering=0) as f:
            while not stop.wait(0.0005):
                for value in b"120000000", FOUND.encode():
                    os.pwrite(f.fileno(), value, 0)
                    time.sleep(0.0005)
    other = threading.Thread(target=change)
    other.start()
    try:
        for _ in range(12):
            done = service.run("anna", "set", "package.power=130W", "--", "true")
            assert "Permission denied; use sudo" in sentence(done, FAILURE) and "back" not in done.stderr, done.stderr
    finally:
        stop.set()
        other.join()




def test_without_a_command_nothing_stays(service):
    service.start()
    done = service.run("anna", "set", "package.power=120W")
    assert "give a command" in sentence(done, FAILURE) and limits(service) == [FOUND] * 2


def test_run_uses_it(service):
    """A case for each value of a sweep; the record has what the device held."""
    service.start()
    done = service.run("anna", "run", "--set", "package.power=110W,120W", "--json", "--", "cat",
                       f"/sys/class/powercap/intel-rapl:0/{LIMIT}")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout[done.stdout.index("["):])
    assert {s["accepted"] for row in rows for s in row["settings"]} >= {110, 120}, done.stdout
    assert limits(service) == [FOUND] * 2 and "asked for 110W, accepted 110W" in service.log()


def test_measure_uses_it(service):
    """The record has what the kernel accepted, and a lease that is over fails the measurement."""
    service.start()
    done = service.run("anna", "measure", "--set", "package.power=119.99W", "--json", "--", "true")
    assert done.returncode == 0, done.stderr
    settings = json.loads(done.stdout)["settings"]
    assert [(s["requested"], s["accepted"]) for s in settings] == [(119.99, 119.875)] * 2 and limits(service) == [FOUND] * 2
    done = service.run("anna", "measure", "--set", "package.power=99W", "--", "true")
    assert "lets user 2001 set package.power of package-0 to 100:200W, not to 99W" in sentence(done, FAILURE)
    service.policy("user anna package.power=100:200W for 1s leases 1\n")
    done = service.run("anna", "measure", "--set", "package.power=120W", "--json", "--", "sleep", "2")
    assert done.returncode == FAILURE and "the longest time that root's policy gives" in done.stderr, done.stderr
    assert json.loads(done.stdout)["settings"][0]["accepted"] is None and limits(service) == [FOUND] * 2


@pytest.fixture(name="closed")
def make_closed(service):
    """Users may not even look into /sys: they have no control of their own."""
    (service.machine.root / "sys").chmod(0o700)
    return service


def test_knobs_that_joulemarkd_alone_may_open(closed):
    words = ["set", "package.power=120W", "--", "true"]
    assert "No knob of this machine is available" in sentence(closed.run("anna", *words), FAILURE)
    closed.start()
    child = holding(closed)
    os.kill(child.pid, signal.SIGTERM)
    _, err = child.communicate(timeout=240)
    assert "120 W (was 150.125 W)" in err and limits(closed) == [FOUND] * 2 and not closed.journals(), err
    shown = closed.run("anna", "get")
    assert shown.returncode == 0 and "package.power" in shown.stdout and "150.125" in shown.stdout, shown.stderr
    done = closed.run("anna", "set", "gpu.power=300W", "--", "true")
    assert "gpu.power cannot be set here: " in sentence(done, FAILURE) and wait_for(lambda: not closed.leases()), done.stderr
    for user, setting, why in (("anna", "package.power=99W", "not to 99W"), ("carla", "package.power=120W", "set no knob")):
        assert why in sentence(closed.run(user, "set", setting, "--", "true"), FAILURE)
    assert limits(closed) == [FOUND] * 2 and wait_for(lambda: not closed.leases())


def test_a_user_who_gets_no_lease_is_told_why_he_has_no_knob_of_his_own(closed):
    own = sentence(closed.run("carla", "get"), FAILURE)
    reason = own[:120]
    assert reason.startswith("No knob of this machine is available; "), own
    closed.start()
    why = sentence(closed.run("carla", "get"), FAILURE)
    assert "lets user 2003 set no knob. " + reason in why, why
    subprocess.run(closed.inside("chmod", "600", SOCKET), check=True)
    why = sentence(closed.run("anna", "get"), FAILURE)
    assert f"joulemarkd cannot be reached at {SOCKET}: Permission denied. {reason}" in why, why


@pytest.mark.parametrize("words", [["run", "--set"], ["measure", "--source", "null", "--set"]])
def test_commands_with_knobs_that_joulemarkd_alone_may_open(closed, words):
    closed.start()
    done = closed.run("anna", *words, "package.power=119.99W", "--json", "--", "true")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout[done.stdout.index("[" if words[0] == "run" else "{"):])
    accepted = {s["accepted"] for row in (rows if words[0] == "run" else [rows]) for s in row["settings"]}
    assert 119.875 in accepted and limits(closed) == [FOUND] * 2 and not closed.journals()


def test_its_environment_is_ignored(service, tmp_path):
    state = tmp_path / "elsewhere"
    service.start(JM_ROOT="/nonexistent", JM_STATE=str(state), JM_GUARD="/bin/false", JM_NVML_LIB="/bin/false")
    child = holding(service)
    assert service.journals() and not state.exists()
    end(child)
    assert wait_for(lambda: limits(service) == [FOUND] * 2)
