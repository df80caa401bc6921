# SPDX-License-Identifier: Apache-2.0
"""The node's power limit over Redfish, in both of its forms. Truth: the resource that the controller keeps, which takes changes
only with its present ETag."""
import copy
import itertools
import json
import shutil
import threading

import pytest

from fake_gpus import wait_for
from jm import FAILURE, USAGE, jm, sentence
from redfish_controller import Controller, certify
from sysfs_tree import SysfsTree

pytestmark = [
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed"),
    pytest.mark.skipif("headers of libcurl" in jm("list").stdout, reason="built without libcurl")]

MODERN = {"PowerLimitWatts": {"SetPoint": 1200, "AllowableMin": 300, "AllowableMax": 2000, "ControlMode": "Automatic"}}
OLD = {"PowerControl": [{"Name": "fans"}, {"PowerCapacityWatts": 2000, "PowerLimit": {
    "LimitInWatts": 1200, "CorrectionInMs": 50, "LimitException": "LogEventOnly"}}, {"Name": "GPUs"}]}
FORMS = {"EnvironmentMetrics": MODERN, "Power": OLD}
PATH = "/redfish/v1/Chassis/node/"


@pytest.fixture(scope="module", name="certificate")
def make_certificate(tmp_path_factory):
    return certify(tmp_path_factory.mktemp("tls"))


class Node(SysfsTree):
    def __init__(self, folder, bmc, form):
        super().__init__(folder)
        self.put("/proc/sys/kernel/random/boot_id", "first")
        self.bmc, self.form = bmc, form
        bmc.chassis("empty", None, None)
        bmc.chassis("node", form, copy.deepcopy(FORMS[form]))
        self.file = folder / "redfish.conf"
        self.file.write_text(f"# the node's controller\nhost=localhost\nport={bmc.port}\nuser=reader\n"
                             f"password-file={bmc.folder}/password\nca-file={bmc.folder}/cert\n", encoding="ascii")
        self.control = ["--control", f"redfish:{self.file}"]

    def option(self, line):
        with self.file.open("a", encoding="ascii") as file:
            file.write(f"{line}\n")

    def kept(self):
        return self.bmc.resources[PATH + self.form]

    def watts(self):
        kept = self.kept()
        return kept["PowerLimitWatts"]["SetPoint"] if self.form == "EnvironmentMetrics" else \
            kept["PowerControl"][1]["PowerLimit"]["LimitInWatts"]

    def limit(self, watts):
        """By another program."""
        if self.form == "EnvironmentMetrics":
            self.kept()["PowerLimitWatts"]["SetPoint"] = watts
        else:
            self.kept()["PowerControl"][1]["PowerLimit"]["LimitInWatts"] = watts

    def switch_off(self):
        if self.form == "EnvironmentMetrics":
            self.kept()["PowerLimitWatts"]["ControlMode"] = "Disabled"
        else:
            self.kept()["PowerControl"][1]["PowerLimit"]["LimitInWatts"] = None


@pytest.fixture(name="node", params=FORMS)
def make_node(tmp_path, certificate, request):
    bmc = Controller(certificate)
    yield Node(tmp_path, bmc, request.param)
    bmc.stop()


def test_set_read_back_and_restore(node):
    (row,) = json.loads(node.run("get", "--json", *node.control).stdout)
    assert (row["knob"], row["accepted"], row["ends"], row["max"]) == ("node.power", 1200, "never", 2000)
    done = node.run("set", *node.control, "node.power=0.75kW", "--", "true")
    assert done.returncode == 0, done.stderr
    assert node.kept() == FORMS[node.form] and not node.journals()
    assert [json.dumps(patch).count("750") for patch in node.bmc.patched] == [1, 0]
    node.switch_off()
    before = copy.deepcopy(node.kept())
    del node.bmc.patched[:]
    assert node.run("set", *node.control, "node.power=750W", "--", "true").returncode == 0
    after = node.kept()
    if node.form == "EnvironmentMetrics":  # a set point without effect stays
        assert node.bmc.patched[0]["PowerLimitWatts"] == {"SetPoint": 750, "ControlMode": "Automatic"}
        after["PowerLimitWatts"]["SetPoint"] = 1200
    assert after == before


def test_another_program_changes_the_resource_at_the_same_time(node):
    """Once: read again and sent again. Twice: an error, and the value found is put back."""
    changes = iter([1100])

    def interfere():
        for watts in itertools.islice(changes, 1):
            node.limit(watts)
    node.bmc.before_patch = interfere
    done = node.run("set", *node.control, "node.power=750W", "--", "true")
    assert done.returncode == 0 and node.bmc.patched[0] == 412 and node.watts() == 1200, done.stderr
    del node.bmc.patched[:]
    changes = iter([1100, 1000])
    done = node.run("set", *node.control, "node.power=750W", "--", "true")
    assert done.returncode == FAILURE and "412" in done.stderr and node.watts() == 1200
    assert [patch == 412 for patch in node.bmc.patched] == [True, True, False] and not node.journals()


def test_an_etag_that_changes_with_each_reading(node):
    """As that of OpenBMC, which is computed over the readings, too."""
    node.bmc.live = True
    done = node.run("set", *node.control, "node.power=750W", "--", "true")
    assert done.returncode == 0 and node.kept() == FORMS[node.form] and not node.journals(), done.stderr
    assert [json.dumps(patch).count("750") for patch in node.bmc.patched] == [0, 1, 0, 0]


@pytest.mark.parametrize("node, how", [("EnvironmentMetrics", "no answer"), ("EnvironmentMetrics", 202), ("Power", 202)],
                         indirect=["node"])
def test_a_change_that_may_still_be_made_is_put_back(node, how):
    """The controller makes it when the next one comes, or when joulemark has ended."""
    changes, release = itertools.count(), threading.Event()

    def hold():
        if next(changes):
            release.set()
            wait_for(lambda: node.bmc.patched)
        else:
            release.wait(60)
    node.bmc.before_patch, node.bmc.later = hold, how == 202
    node.option("timeout=2s")
    done = node.run("set", *node.control, "node.power=750W", "--", "true")
    release.set()
    assert done.returncode == FAILURE and ("makes the change later" in done.stderr) == (how == 202), done.stderr
    assert wait_for(lambda: node.bmc.patched) and "750" in json.dumps(node.bmc.patched[0])
    assert node.kept() == FORMS[node.form] and not node.journals()


@pytest.mark.parametrize("node", ["EnvironmentMetrics"], indirect=True)
def test_the_journal_stays_until_a_restore_has_succeeded(node):
    release = threading.Event()
    node.bmc.before_patch, node.bmc.later = lambda: release.wait(60), 100
    done = node.run("set", *node.control, "node.power=750W", "--", "true")
    assert done.returncode == FAILURE and node.journals(), done.stderr
    sent, node.bmc.later = 100 - node.bmc.later, 0
    release.set()
    assert sent > 1 and wait_for(lambda: len(node.bmc.patched) == sent) and node.watts() == 750
    assert node.run("restore").returncode == 0 and node.kept() == FORMS[node.form] and not node.journals()


@pytest.mark.parametrize("node", ["Power"], indirect=True)
def test_a_slow_answer_does_not_end_the_questions(node):
    """That of the reading behind the change comes only when the next question is asked."""
    def hold():
        asked = len(node.bmc.asked)
        if node.bmc.patched:
            node.bmc.before_get = lambda: None
            wait_for(lambda: len(node.bmc.asked) > asked)
    node.bmc.before_get = hold
    node.option("timeout=2s")
    done = node.run("set", *node.control, "node.power=750W", "--", "true")
    assert done.returncode == FAILURE and "does not answer" in done.stderr
    assert node.kept() == FORMS[node.form] and not node.journals()


def test_what_is_refused(node):
    for text, status, word in (("2001W", USAGE, "to 2000W"), ("nanW", USAGE, "nanW"), ("1e308W", USAGE, "to 2000W")):
        done = node.run("set", *node.control, f"node.power={text}", "--", "true")
        assert done.returncode == status and word in done.stderr
    node.bmc.judge = lambda new: (400, "The value 750 is not in the list.") if "750" in json.dumps(new) else None
    assert "says: The value 750 is not in the list." in node.run("set", *node.control, "node.power=750W", "--", "true").stderr
    assert node.kept() == FORMS[node.form] and not node.bmc.patched and not node.journals()


@pytest.mark.parametrize("victims", ["client", "both"])
def test_restored_after_sigkill_and_reboot(node, victims):
    child = node.kill_while_set([*node.control, "node.power=750W"], lambda: node.watts() == 750, victims)
    if victims == "both":
        node.end(child)
        node.put("/proc/sys/kernel/random/boot_id", "second")
        assert node.watts() == 750 and node.run("restore").returncode == 0
    assert wait_for(lambda: node.kept() == FORMS[node.form])
    node.end(child)


def test_dry_run_writes_nothing_and_power_off_is_refused(node):
    (told,) = json.loads(node.run("set", "--dry-run", "--json", *node.control, "node.power=750W").stdout)
    assert told["writes"][0]["to"].startswith(f"PATCH https://localhost:{node.bmc.port}{PATH}{node.form} ")
    if node.form == "Power":
        node.kept()["PowerControl"][1]["PowerLimit"]["LimitException"] = "HardPowerOff"
        assert "accept-power-off=yes" in sentence(node.run("set", *node.control, "node.power=750W", "--", "true"))
    assert not node.bmc.patched and not node.journals()


@pytest.mark.parametrize("node", ["Power"], indirect=True)
def test_a_higher_limit_and_the_restore_are_not_refused(node):
    """A power-off is not likelier by them."""
    limit = node.kept()["PowerControl"][1]["PowerLimit"]

    def turn():  # another program's change
        node.kept()["PowerControl"][1]["PowerLimit"]["LimitException"] = "HardPowerOff"
    limit["LimitException"] = "HardPowerOff"
    for watts in (1300, 1200):
        done = node.run("set", *node.control, f"node.power={watts}W", "--", "true")
        assert done.returncode == 0 and node.watts() == 1200 and not node.journals(), done.stderr
    node.kept()["PowerControl"][1]["PowerLimit"]["LimitException"] = "LogEventOnly"
    node.bmc.before_get = lambda: turn() if node.watts() == 750 else None
    done = node.run("set", *node.control, "node.power=750W", "--", "true")
    assert done.returncode == 0 and node.watts() == 1200 and not node.journals(), done.stderr


def test_of_several_chassis_with_a_limit_one_has_to_be_named(node):
    node.bmc.chassis("gpu", node.form, copy.deepcopy(FORMS[node.form]))
    assert "in the chassis node and in gpu; " in sentence(node.run("get", *node.control), USAGE)
    node.option("chassis=node")
    done = node.run("set", *node.control, "node.power=750W", "--", "true")
    assert done.returncode == 0 and len(node.bmc.patched) == 2 and node.kept() == FORMS[node.form], done.stderr


@pytest.mark.parametrize("node", ["Power"], indirect=True)
def test_a_chassis_that_does_not_answer_may_have_the_limit(node):
    over = threading.Event()
    node.bmc.chassis("slow", None, None)
    node.bmc.before_get = lambda: node.bmc.asked[-1].endswith("/slow") and over.wait(60)
    node.option("timeout=2s")
    assert "does not answer for the chassis slow within 2 s" in sentence(node.run("get", *node.control))
    node.option("chassis=node")
    assert node.run("get", *node.control).returncode == 0
    over.set()


@pytest.mark.parametrize("node", ["EnvironmentMetrics"], indirect=True)
def test_another_mode_is_not_switched_off(node):
    """As a restore could not write it."""
    node.kept()["PowerLimitWatts"]["ControlMode"] = "Override"
    assert "a number is expected" in sentence(node.run("set", *node.control, "node.power=unlocked", "--", "true"), USAGE)
    done = node.run("set", *node.control, "node.power=750W", "--", "true")
    assert done.returncode == 0 and node.kept()["PowerLimitWatts"]["ControlMode"] == "Override", done.stderr
    assert [patch["PowerLimitWatts"] for patch in node.bmc.patched] == [{"SetPoint": 750}, {"SetPoint": 1200}]


def test_the_file(tmp_path, certificate):
    bmc = Controller(certificate)
    node = Node(tmp_path, bmc, "Power")
    assert "absolute path" in sentence(node.run("get", "--control", "redfish:redfish.conf"), USAGE)
    good = node.file.read_text(encoding="ascii")
    assert "Is a directory" in sentence(node.run("get", "--control", f"redfish:{tmp_path}"))
    for text, word in ((good + "hots=bmc\n", "'hots' is no option"), ("# nothing\n", "host=NAME"),
                       (good + "open sesame\n", "line 7 is not of the form NAME=VALUE."),
                       (good + f"user={'u' * 506}\n", "line 7 has more than 510 bytes"),
                       (good.replace(f"{bmc.folder}/password", "password"), "password-file takes an absolute path"),
                       (good.replace(f"{bmc.folder}/cert", "cert"), "ca-file takes an absolute path"),
                       (good + "chassis=empty\n", "no power limit in empty"), (good.replace("reader", "other"), "refuses this user")):
        node.file.write_text(text, encoding="ascii")
        said = sentence(node.run("get", *node.control))
        assert word in said and "sesame" not in said
    bmc.stop()
