# SPDX-License-Identifier: Apache-2.0
"""Power limits of AMD sockets by HSMP. Truth: what the firmware behind /dev/hsmp keeps (hsmp_device.c)."""
import json

import pytest

from fake_gpus import wait_for
from jm import BUILD, FAILURE, USAGE, jm, sentence
from sysfs_tree import SysfsTree

pytestmark = pytest.mark.skipif("asm/amd_hsmp.h" in jm("list").stdout, reason="built without the header of HSMP")


class Sockets(SysfsTree):
    def __init__(self, folder):
        super().__init__(folder)
        self.put("/proc/sys/kernel/random/boot_id", "first")
        self.put("/dev/hsmp", "")
        for socket, watts in enumerate((360, 300)):
            self.put(f"/firmware/socket{socket}", f"{watts}000 400000")
        self.env |= {"LD_PRELOAD": str(BUILD / "tests/peers/libhsmp-device.so"), "JM_FAKE_HSMP": str(self.root / "firmware"),
                     "JM_NVML_LIB": "/no/such.so"}

    def limits(self):
        return [int(self.get(f"/firmware/socket{socket}").split()[0]) / 1000 for socket in (0, 1)]


@pytest.fixture
def sockets(tmp_path):
    return Sockets(tmp_path)


def test_set_read_back_clip_and_restore(sockets):
    rows = json.loads(sockets.run("get", "--json", "package.power").stdout)
    assert [(r["accepted"], r["max"], r["ends"], r["device"]) for r in rows] == [
        (360, 400, "reboot", "socket0"), (300, 400, "reboot", "socket1")]
    for word, held in (("package.power=0.2kW", "200000"), ("package.power=20W", "80000")):
        done = sockets.run("set", word, "--", "cat", sockets.root / "firmware/socket0", sockets.root / "firmware/socket1")
        assert done.returncode == 0 and done.stdout == f"{held} 400000\n" * 2, done.stderr
        assert sockets.limits() == [360, 300] and not sockets.journals()
    done = sockets.run("set", "package.power@socket1=250W", "--", "cat", sockets.root / "firmware/socket0")
    assert done.stdout == "360000 400000\n" and sockets.limits() == [360, 300]


def test_what_is_refused(sockets):
    for text, status, word in (("401W", USAGE, "takes 1W to 400W"), ("nanW", USAGE, "nanW"), ("unlocked", USAGE, "number is")):
        done = sockets.run("set", f"package.power={text}", "--", "true")
        assert done.returncode == status and word in done.stderr
    done = sockets.run("set", "package.power=200W", "--", "true", JM_FAKE_HSMP_REFUSES="1")
    assert done.returncode == FAILURE and "socket 1 (HSMP)" in done.stderr
    assert sockets.limits() == [360, 300] and not sockets.journals()
    sockets.put("/firmware/socket1", "no answer")
    assert "Socket 1 does not report its power limit by" in sentence(sockets.run("get", "--control", "hsmp"), FAILURE)
    (sockets.root / "dev/hsmp").unlink()
    assert "hsmp_acpi" in sentence(sockets.run("get", "--control", "hsmp"), FAILURE)


@pytest.mark.parametrize("victims", ["client", "guard"])
def test_restored_after_sigkill(sockets, victims):
    child = sockets.kill_while_set(["package.power=200W"], lambda: sockets.limits() == [200, 200], victims)
    assert wait_for(lambda: sockets.limits() == [360, 300])
    sockets.end(child)


def test_a_reboot_ends_what_a_killed_joulemark_left(sockets):
    """The firmware starts with its own limits, over which no old value may be written."""
    child = sockets.kill_while_set(["package.power=200W"], lambda: sockets.limits() == [200, 200], "both")
    sockets.end(child)
    sockets.put("/proc/sys/kernel/random/boot_id", "second")
    for socket in (0, 1):
        sockets.put(f"/firmware/socket{socket}", "400000 400000")
    assert sockets.run("restore").returncode == 0
    assert sockets.limits() == [400, 400] and not sockets.journals()


def test_dry_run_and_doctor_write_nothing(sockets):
    told = json.loads(sockets.run("set", "--dry-run", "--json", "package.power=200W").stdout)
    assert [t["writes"][0]["to"].split(" to ")[0] for t in told] == [
        f"HSMP_SET_SOCKET_POWER_LIMIT(socket {i}, 200000 mW)" for i in (0, 1)]
    assert "package.power 1 to 400 W, now 360 W" in sockets.run("doctor", "--all").stdout
    assert sockets.limits() == [360, 300] and not sockets.journals()
