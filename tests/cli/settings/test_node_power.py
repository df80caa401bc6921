# SPDX-License-Identifier: Apache-2.0
"""The node's power limit in its management controller, by DCMI. Truth: what the controller keeps, which no end of a process
and no start of the node changes."""
import json

import pytest

from fake_gpus import wait_for
from ipmi_controller import Controller
from jm import FAILURE, USAGE, sentence
from sysfs_tree import SysfsTree

KEEPS = 0, 50, 7, 300, 2000  # exception action, correction time, sampling period, range


class Node(SysfsTree):
    def __init__(self, folder):
        super().__init__(folder)
        self.put("/proc/sys/kernel/random/boot_id", "first")
        self.bmc = Controller(self.root)
        self.env["LD_PRELOAD"] = self.bmc.env["LD_PRELOAD"]
        self.env["JM_FAKE_IPMI"] = self.bmc.env["JM_FAKE_IPMI"]
        self.env["JM_NVML_LIB"] = "/no/such.so"

    def limit(self):
        """Watts, and whether the limit is active; the rest never changes."""
        action, watts, correction, sampling, active, least, most = self.bmc.limit()
        assert (action, correction, sampling, least, most) == KEEPS
        return watts, active


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def row(node):
    (one,) = json.loads(node.run("get", "--json", "node.power").stdout)
    return one


def test_an_active_limit_is_set_and_restored(node):
    before = node.bmc.has_limit(1200, 1)
    one = row(node)
    assert (one["accepted"], one["enforced"], one["ends"], one["device"]) == (1200, 1200, "never", "ipmi0")
    done = node.run("set", "node.power=0.75kW", "--", "cat", f"{node.bmc.file}.limit")
    assert done.returncode == 0 and done.stdout.split()[:5] == ["0", "750", "50", "7", "1"], done.stderr
    assert node.bmc.limit() == before and not node.journals()


def test_a_limit_that_is_not_active_is_activated_and_inactive_again(node):
    node.bmc.has_limit(1200, 0)
    assert row(node)["accepted"] == "unlocked"
    done = node.run("set", "node.power=750W", "--", "cat", f"{node.bmc.file}.limit")
    assert done.returncode == 0 and done.stdout.split()[:5] == ["0", "750", "50", "7", "1"], done.stderr
    assert node.limit()[1] == 0 and not node.journals()
    node.bmc.has_limit(1200, 1)
    done = node.run("set", "node.power=unlocked", "--", "cat", f"{node.bmc.file}.limit")
    assert done.stdout.split()[:5] == ["0", "1200", "50", "7", "0"] and node.limit() == (1200, 1)


def test_limits_out_of_range_are_refused(node):
    before = node.bmc.has_limit(1200, 1)
    for text, status, word in (("299W", FAILURE, "84h"), ("2001W", FAILURE, "84h"), ("1e308W", USAGE, "takes 1W to 65534W")):
        done = node.run("set", f"node.power={text}", "--", "true")
        assert done.returncode == status and word in done.stderr
        assert node.bmc.limit() == before and not node.journals()


@pytest.mark.parametrize("active, refused", [(0, "5"), (1, "4")])
def test_a_refused_command_leaves_all_as_it_was(node, active, refused):
    """Refused activation: the limit was written before, but it never became active."""
    node.bmc.has_limit(1200, active)
    done = node.run("set", "node.power=750W", "--", "true", JM_FAKE_IPMI_REFUSES=refused)
    assert done.returncode == FAILURE and "d4h" in done.stderr
    assert node.limit()[1] == active and (not active or node.limit()[0] == 1200)
    assert node.run("restore").returncode == 0 and not node.journals()


@pytest.mark.parametrize("active, victims", [(0, "client"), (1, "guard")])
def test_restored_after_sigkill(node, active, victims):
    node.bmc.has_limit(1200, active)
    child = node.kill_while_set(["node.power=750W"], lambda: node.limit() == (750, 1), victims)
    assert wait_for(lambda: node.limit()[1] == active and node.limit()[0] == (1200 if active else 750))
    node.end(child)


def test_a_limit_that_a_killed_joulemark_left_is_restored_after_a_reboot(node):
    before = node.bmc.has_limit(1200, 1)
    child = node.kill_while_set(["node.power=750W"], lambda: node.limit() == (750, 1), "both")
    node.end(child)
    node.put("/proc/sys/kernel/random/boot_id", "second")
    assert node.limit() == (750, 1) and node.journals()
    assert node.run("restore").returncode == 0
    assert node.bmc.limit() == before and not node.journals()


def test_a_node_that_would_be_powered_off_is_not_limited(node):
    for action, words in ((1, "01h (it powers the node off)"), (2, "02h (the vendor's"), (16, "10h (the vendor's")):
        before = node.bmc.has_limit(1200, 1, action=action)
        said = sentence(node.run("set", "node.power=1199W", "--", "true"))
        assert words in said and "--control dcmi:power-off" in said and node.bmc.limit() == before
        assert words in node.run("doctor", "--all").stdout
        done = node.run("set", "--control", "dcmi:power-off", "node.power=750W", "--", "cat", f"{node.bmc.file}.limit")
        assert done.returncode == 0 and done.stdout.split()[:2] == [str(action), "750"], done.stderr
        assert node.bmc.limit() == before
    before = node.bmc.has_limit(1200, 1, action=17)  # it logs
    assert node.run("set", "node.power=750W", "--", "true").returncode == 0 and node.bmc.limit() == before


def test_a_higher_limit_and_the_restore_are_not_refused(node):
    """A power-off is not likelier by them."""
    before = node.bmc.has_limit(1200, 1, action=1)
    done = node.run("set", "node.power=1300W", "--", "cat", f"{node.bmc.file}.limit")
    assert done.returncode == 0 and done.stdout.split()[:2] == ["1", "1300"] and node.bmc.limit() == before, done.stderr
    node.bmc.has_limit(1200, 1)
    done = node.run("set", "node.power=750W", "--", "sed", "-i", "s/^0 /1 /", f"{node.bmc.file}.limit")
    assert done.returncode == 0 and node.bmc.limit() == before and not node.journals(), done.stderr


def test_nothing_is_set_while_the_exception_action_is_unknown(node):
    """It could not be written as it is."""
    before = node.bmc.has_limit(1200, 0, action=1)
    said = sentence(node.run("set", "node.power=750W", "--", "true", JM_FAKE_IPMI_SHORT="1"))
    assert "'ipmitool dcmi power activate'" in said and node.bmc.limit() == before and not node.journals()
    assert "does not report the exception action" in node.run("doctor", "--all", JM_FAKE_IPMI_SHORT="1").stdout


def test_dry_run_and_doctor_write_nothing(node):
    before = node.bmc.has_limit(1200, 0)
    (told,) = json.loads(node.run("set", "--dry-run", "--json", "node.power=750W").stdout)
    assert [write["to"].split("(")[0] for write in told["writes"]] == ["DCMI Set Power Limit", "DCMI Activate Power Limit"]
    assert told["ends"] == "never" and told["found"] == "unlocked"
    assert "node.power 1200 W, not active" in node.run("doctor", "--all").stdout
    assert node.bmc.limit() == before and not node.journals()


def test_a_controller_without_limits_and_no_controller(node):
    assert "c1h" in sentence(node.run("get", "--control", "dcmi"))
    (node.root / "dev/ipmi0").unlink()
    assert "ipmi_devintf" in sentence(node.run("set", "--control", "dcmi", "node.power=750W"))
    assert "'dcmi:power-off'" in sentence(node.run("get", "--control", "dcmi:soft"), USAGE)
