# SPDX-License-Identifier: Apache-2.0
"""The node's limit for users without rights, over Redfish by joulemarkd: they have no control of it and see no password. Truth: the
resource that the controller keeps."""
import contextlib
import copy
import json
import os
import shutil
import signal
import subprocess

import pytest

from daemon import Service, needs_a_namespace
from fake_gpus import kill, wait_for
from jm import FAILURE, jm, sentence
from redfish_controller import Controller, certify

pytestmark = [
    needs_a_namespace,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed"),
    pytest.mark.skipif("headers of libcurl" in jm("list").stdout, reason="built without libcurl")]

LIMITED = {"PowerLimitWatts": {"SetPoint": 1200, "AllowableMin": 300, "AllowableMax": 2000, "ControlMode": "Automatic"}}
RESOURCE = "/redfish/v1/Chassis/node/EnvironmentMetrics"
POLICY = """\
user anna     node.power=500:1500W   for 1h leases 2
user anna     package.power=100:200W
user berta    package.power=100:200W leases 2
"""


class Node(Service):
    def __init__(self, folder, bmc):
        super().__init__(folder)
        self.bmc = bmc
        bmc.chassis("node", "EnvironmentMetrics", copy.deepcopy(LIMITED))
        place = self.etc / "joulemark"
        for name, path in ("bmc.pem", "cert"), ("bmc.password", "password"):
            shutil.copy(bmc.folder / path, place / name)
            (place / name).chmod(0o600)
        self.file = place / "redfish.conf"
        self.file.write_text(f"host=localhost\nport={bmc.port}\nuser=reader\npassword-file=/etc/joulemark/bmc.password\n"
                             "ca-file=/etc/joulemark/bmc.pem\n", encoding="ascii")
        self.file.chmod(0o600)
        self.policy(POLICY)

    def watts(self):
        return self.bmc.resources[RESOURCE]["PowerLimitWatts"]["SetPoint"]


@pytest.fixture(scope="module", name="certificate")
def make_certificate(tmp_path_factory):
    return certify(tmp_path_factory.mktemp("tls"))


@pytest.fixture(name="node")
def make_node(tmp_path, certificate):
    bmc = Controller(certificate)
    node = Node(tmp_path, bmc)
    try:
        node.start()
        yield node
    finally:
        node.close()
        bmc.stop()


def holding(node, *words):
    child = node.popen("anna", "set", "node.power=750W", *words, "--", "sleep", "60")
    assert wait_for(lambda: node.watts() == 750), (child.poll(), node.log())
    return child


def end(child):
    """With its command, which outlives a joulemark that was killed."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    child.communicate()


def all_is_back(node):
    return wait_for(lambda: node.bmc.resources[RESOURCE] == LIMITED and not node.journals() and not node.leases())


@pytest.mark.parametrize("words", [["set"], ["measure", "--source", "null", "--set"]])
def test_a_user_sets_within_the_policy_and_all_is_back(node, words):
    done = node.run("anna", *words, "node.power=0.75kW", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3, done.stderr
    assert [json.dumps(patch).count("750") for patch in node.bmc.patched] == [1, 0] and all_is_back(node)
    assert "asked for 750W, accepted 750W, found 1200W" in node.log()
    assert "open sesame" not in node.log() + done.stdout + done.stderr


def test_with_another_knob_in_one_call(node):
    child = holding(node, "package.power=120W")
    limit = "/sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw"
    assert wait_for(lambda: node.machine.get(limit) == "120000000")
    child.terminate()
    child.communicate()
    assert all_is_back(node) and node.machine.get(limit) == "150125000"


def test_a_node_whose_only_knob_is_that_of_its_controller(node):
    for folder in "powercap", "hwmon":
        shutil.rmtree(node.machine.root / "sys/class" / folder)
    shutil.rmtree(node.machine.root / "sys/devices/system/cpu/cpufreq")
    done = node.run("anna", "set", "node.power=750W", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3 and "750 W (was 1200 W)" in done.stderr, done.stderr
    assert [json.dumps(patch).count("750") for patch in node.bmc.patched] == [1, 0] and all_is_back(node)


def test_refused_by_the_policy(node):
    done = node.run("anna", "set", "node.power=400W", "--", "true")
    assert "to 500:1500W, not to 400W" in sentence(done, FAILURE) and node.watts() == 1200, done.stderr
    assert not node.bmc.patched and all_is_back(node)


def test_the_controller_is_asked_for_users_of_its_knob_alone(node):
    node.bmc.delay = 5
    before = len(node.bmc.asked)
    assert node.run("berta", "set", "package.power=120W", "--", "true").returncode == 0
    assert len(node.bmc.asked) == before
    done = node.run("berta", "set", "node.power=750W", "--", "true")
    assert "node.power" in sentence(done, FAILURE), done.stderr
    assert len(node.bmc.asked) == before and node.watts() == 1200


@pytest.mark.parametrize("spoil", ["mode", "link", "owner", "gone"])
def test_a_file_that_is_not_root_alone_is_not_used(node, spoil):
    if spoil == "mode":
        node.file.chmod(0o622)
    elif spoil == "owner":
        shutil.chown(node.file, 2001)
    else:
        node.file.rename(node.file.with_name("other.conf"))
    if spoil == "link":
        node.file.symlink_to("other.conf")
    before = len(node.bmc.asked)
    done = node.run("anna", "set", "node.power=750W", "--", "true")
    assert "node.power" in sentence(done, FAILURE) and len(node.bmc.asked) == before, done.stderr
    assert ("redfish.conf" in node.log()) == (spoil != "gone"), node.log()


@pytest.mark.parametrize("victim", ["client", "guard", "guard, daemon, client"])
def test_back_after_sigkill(node, victim):
    child = holding(node)
    pids = {"client": child.pid, "guard": node.guards()[0], "daemon": node.daemon()}
    for name in victim.split(", "):
        kill(pids[name])
    assert all_is_back(node), node.log()
    end(child)


def test_back_after_a_reboot(node):
    """The controller keeps the limit of leases that were killed with the node."""
    child = holding(node)
    node.activator.kill()  # it would start the next one
    node.activator.wait(timeout=240)
    for pid in (*node.guards(), node.daemon(), child.pid):
        kill(pid)
    end(child)
    boot = node.folder / "boot"
    boot.write_text("11111111-2222-3333-4444-555555555555\n", encoding="ascii")
    subprocess.run(node.inside("sh", "-c", f"mount --bind {boot} /proc/sys/kernel/random/boot_id && rm -r /run/joulemark/*"), check=True)
    assert node.watts() == 750 and node.journals()
    node.start()
    assert all_is_back(node), node.log()
