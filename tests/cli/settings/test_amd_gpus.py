# SPDX-License-Identifier: Apache-2.0
"""Power caps, performance levels and clock ranges of AMD GPUs. Truth: what the fake driver keeps (amd_fake_knobs.c)."""
import json
import struct

import pytest

from amd_gpus import surroundings
from fake_gpus import wait_for
from jm import FAILURE, USAGE, sentence
from sysfs_tree import SysfsTree

FOUND = (750, "auto", 132, 2100)
SET = ["gpu.power=500W", "gpu.performance=manual", "gpu.clock=1200:1500MHz"]
HELD = (500, "manual", 1200, 1500)
LEVELS = {0: "auto", 3: "manual"}


class AmdGpus(SysfsTree):
    def __init__(self, folder):
        super().__init__(folder)
        self.put("/proc/sys/kernel/random/boot_id", "first")
        self.driver = folder / "driver"
        self.env = {**self.env, **surroundings(self.root, 26, "xx"), "JM_FAKE_AMD_STATE": str(self.driver), "JM_NVML_LIB": "/no/such.so"}
        del self.env["LD_PRELOAD"]
        assert self.run("get").returncode == 0

    def held(self):
        """Of each GPU (W, level, MHz, MHz)."""
        rows = struct.iter_unpack("<4Q", self.driver.read_bytes()[:64])
        return [(cap / 1e6, LEVELS[level], low, high) for cap, level, low, high in rows]

    def begin(self, *rows):
        """What the GPUs have before joulemark comes."""
        words = {word: level for level, word in LEVELS.items()}
        data = b"".join(struct.pack("<4Q", int(cap * 1e6), words[level], low, high) for cap, level, low, high in rows)
        self.driver.write_bytes(data + self.driver.read_bytes()[len(data):])


@pytest.fixture
def gpus(tmp_path):
    gpus = AmdGpus(tmp_path)
    assert gpus.held() == [FOUND] * 2
    return gpus


def test_knobs_are_read(gpus):
    rows = json.loads(gpus.run("get", "--json").stdout)
    assert len(rows) == 6 and {r["ends"] for r in rows} == {"driver"}
    assert [(r["knob"], r["accepted"]) for r in rows[::2]] == [
        ("gpu.power", 750), ("gpu.performance", "auto"), ("gpu.clock", "132:2100MHz")]


def test_all_three_are_set_in_their_order_and_back(gpus):
    """The order in which they are given does not matter."""
    child = gpus.start("set", *SET[::-1], "--", "sleep", "60")
    assert wait_for(lambda: gpus.held() == [HELD] * 2)
    gpus.end(child)
    assert gpus.held() == [FOUND] * 2 and not gpus.journals()


@pytest.mark.parametrize("found, words, held", [
    ((600, "manual", 500, 900), ["gpu.clock=1200:1500MHz"], (600, "manual", 1200, 1500)),  # up, and back down: never reversed
    ((600, "manual", 1200, 1500), ["gpu.clock=200:900MHz"], (600, "manual", 200, 900)),
    ((600, "manual", 132, 2100), ["gpu.performance=auto"], (600, "auto", 132, 2100)),
])
def test_the_values_found_come_back_and_not_the_default(gpus, found, words, held):
    gpus.begin(found, found)
    child = gpus.start("set", *words, "--", "sleep", "60")
    assert wait_for(lambda: gpus.held() == [held] * 2)
    gpus.end(child)
    assert gpus.held() == [found] * 2 and not gpus.journals()


def test_what_could_not_be_put_back_is_refused(gpus):
    """A clock under auto would move the level silently; auto would forget a range. A dry run says so, too."""
    for words in ["gpu.clock=1200:1500MHz", "--", "true"], ["--dry-run", "gpu.clock=1200:1500MHz"]:
        assert "set both in one call" in sentence(gpus.run("set", *words), FAILURE)
    assert gpus.held() == [FOUND] * 2
    gpus.begin((750, "manual", 500, 900), (750, "manual", 500, 900))
    assert "would forget that range" in sentence(gpus.run("set", "gpu.performance=auto", "--", "true"), FAILURE)
    assert gpus.held() == [(750, "manual", 500, 900)] * 2 and not gpus.journals()


@pytest.mark.parametrize("word, status, text", [
    ("gpu.power=751W", USAGE, "takes 1W to 750W"), ("gpu.power=nanW", USAGE, "nanW"), ("gpu.clock=100MHz", USAGE, "132"),
    ("gpu.performance=fastest", USAGE, "it has auto low high manual"), ("gpu.performance=high", FAILURE, "does not support"),
])
def test_what_is_refused(gpus, word, status, text):
    done = gpus.run("set", word, "--", "true")
    assert done.returncode == status and text in " ".join(done.stderr.split())
    assert gpus.held() == [FOUND] * 2 and not gpus.journals()


def test_a_partial_failure_is_rolled_back(gpus):
    """The second GPU permits nothing."""
    done = gpus.run("set", *SET, "--", "true", JM_FAKE_AMD_DENY="1")
    assert done.returncode == FAILURE and "only root may set it" in " ".join(done.stderr.split())
    assert gpus.held() == [FOUND] * 2 and not gpus.journals()


def test_a_rounded_cap_is_what_is_accepted(gpus):
    done = gpus.run("set", "gpu.power=505W", "--", "true", JM_FAKE_AMD_ROUND="10")
    assert done.returncode == 0 and "500" in done.stderr and gpus.held() == [FOUND] * 2


@pytest.mark.parametrize("victims", ["client", "guard", "both"])
def test_restored_after_sigkill(gpus, victims):
    child = gpus.kill_while_set(SET, lambda: gpus.held() == [HELD] * 2, victims)
    if victims == "both":
        child.wait()
        assert gpus.run("restore").returncode == 0
    assert wait_for(lambda: gpus.held() == [FOUND] * 2)
    gpus.end(child)
    assert wait_for(lambda: not gpus.journals())


def test_a_reboot_ends_what_a_killed_joulemark_left(gpus):
    gpus.end(gpus.kill_while_set(SET, lambda: gpus.held() == [HELD] * 2, "both"))
    gpus.put("/proc/sys/kernel/random/boot_id", "second")
    gpus.begin((700, *FOUND[1:]), FOUND)  # a driver's own
    assert gpus.run("restore").returncode == 0
    assert gpus.held() == [(700, *FOUND[1:]), FOUND] and not gpus.journals()


def test_dry_run_and_doctor_write_nothing(gpus):
    told = json.loads(gpus.run("set", "--dry-run", "--json", *SET).stdout)
    assert [w["to"].split("(")[0] for t in told for w in t["writes"]] == (
        ["amdsmi_set_power_cap"] * 2 + ["amdsmi_set_gpu_perf_level"] * 2 + ["amdsmi_set_gpu_clk_limit"] * 4)
    assert "gpu.performance takes one of auto low" in gpus.run("doctor", "--all").stdout
    assert gpus.held() == [FOUND] * 2 and not gpus.journals()


def test_the_older_library_has_no_knobs(gpus, tmp_path):
    env = surroundings(tmp_path / "other", 26, "xx", smi=None, rocm="rocm-smi-fake")
    assert "they need libamd_smi" in sentence(gpus.run("get", "--control", "amdsmi", **env), FAILURE)
