# SPDX-License-Identifier: Apache-2.0
"""The knob cpu.quota: on trees of both versions of control groups behind which a kernel rounds and refuses, and with real
effect where this machine's control groups can be written."""
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from fake_gpus import wait_for
from jm import BIN, FAILURE, USAGE, sentence
from sysfs_tree import SysfsTree

GROUPS = "/sys/fs/cgroup"


class Groups(SysfsTree):
    """joulemark runs in the group jobs/7, below jobs."""

    def __init__(self, folder, version):
        super().__init__(folder)
        self.version = version
        self.own = "jobs/7" if version == 2 else "cpu,cpuacct/jobs/7"
        lines = ["0::/jobs/7"] if version == 2 else ["9:cpuset:/elsewhere", "4:cpu,cpuacct:/jobs/7", "0::/"]
        self.put("/proc/self/cgroup", "\n".join(lines))
        self.add(self.own)
        self.add(os.path.dirname(self.own))
        if version == 1:
            self.add("cpu,cpuacct")
            self.put(f"{GROUPS}/cpu,cpuacct/release_agent", "")
            (self.root / f"{GROUPS[1:]}/cpu").symlink_to("cpu,cpuacct")

    def add(self, group):
        if self.version == 2:
            self.put(f"{GROUPS}/{group}/cpu.max", "max 100000")
        else:
            self.put(f"{GROUPS}/{group}/cpu.cfs_quota_us", "-1")
            self.put(f"{GROUPS}/{group}/cpu.cfs_period_us", "100000")

    def quota(self, group=None):
        """In microseconds, as the kernel has it; None = no limit."""
        name = "cpu.max" if self.version == 2 else "cpu.cfs_quota_us"
        text = self.get(f"{GROUPS}/{group or self.own}/{name}").split()[0]
        return None if text in ("max", "-1") else int(text)

    def set_quota(self, us, group=None, period=100000):
        name = f"{GROUPS}/{group or self.own}/"
        if self.version == 2:
            self.put(name + "cpu.max", f"{us} {period}")
        else:
            self.put(name + "cpu.cfs_quota_us", us)
            self.put(name + "cpu.cfs_period_us", period)


@pytest.fixture(params=[1, 2], ids=["version1", "version2"])
def groups(tmp_path, request):
    groups = Groups(tmp_path, request.param)
    groups.set_quota(160000)  # by somebody else
    return groups


def knob(groups, *args):
    (row,) = json.loads(groups.run("get", "--json", *args).stdout)
    return row


def test_set_and_read_back(groups):
    done = groups.run("set", "cpu.quota=0.12345", "--", BIN, "get", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["accepted"] == row["enforced"] == 0.12345 and row["kind"] == "number" and row["ends"] == "process"
    assert row["words"] == ["unlocked"] and row["default"] == "unlocked" and row["min"] == 0.01
    assert groups.quota() == 160000 and not groups.journals()


def test_no_limit_is_a_value(groups):
    assert groups.run("set", "cpu.quota=unlocked").returncode == 0
    assert groups.quota() is None and knob(groups)["accepted"] == "unlocked"
    assert groups.run("set", "cpu.quota=default").returncode == 0
    assert "restores 1.6." in groups.run("status").stdout
    assert groups.run("restore").returncode == 0 and groups.quota() == 160000


def test_the_period_stays(groups):
    groups.set_quota(20000, period=50000)
    assert groups.run("set", "cpu.quota=0.1", "--", "true").returncode == 0
    assert groups.run("set", "cpu.quota=0.1").returncode == 0
    assert groups.quota() == 5000
    assert groups.run("restore").returncode == 0 and groups.quota() == 20000


def test_a_lower_quota_above_is_enforced(groups):
    groups.set_quota(30000, os.path.dirname(groups.own))
    row = knob(groups)
    assert row["accepted"] == 1.6 and row["enforced"] == 0.3
    done = groups.run("set", "cpu.quota=0.5", "--", "true")
    assert "0.5 (was 1.6), enforced 0.3" in done.stderr


@pytest.mark.parametrize("value, words", [
    ("0.009", "takes 0.01 to"), ("-1", "takes 0.01 to"), ("1e6", "takes 0.01 to"), ("1e308", "takes 0.01 to"),
    ("nan", "'nan' is not a number"), ("inf", "'inf' is not a number"), ("0.5W", "no unit"), ("0.2:0.5", "no step"),
    ("max", "number is expected"), ("0.5,0.6", "'set' takes one"),
])
def test_refused(groups, value, words):
    done = groups.run("set", f"cpu.quota={value}")
    assert words in done.stderr and done.returncode == USAGE
    assert groups.quota() == 160000 and not groups.journals()


def test_a_kernel_that_refuses_leaves_all_as_it_was(groups):
    name = "cpu.max" if groups.version == 2 else "cpu.cfs_quota_us"
    done = groups.run("set", "cpu.quota=0.5", JM_FAKE_KERNEL_REFUSES=name)
    assert name in sentence(done, FAILURE) and "not permitted" in done.stderr
    assert groups.quota() == 160000
    assert groups.run("restore").returncode == 0 and not groups.journals()


def test_a_group_has_one_name(groups):
    """However it is spelled, it is one device with one journal. A comma separates controls, so the link is named."""
    folder, name = f"{GROUPS}/{groups.own}", groups.own.replace("cpu,cpuacct", "cpu")
    names = [name, name + "/", f"{GROUPS}/{name}", name + "/../7", name.replace("jobs", "./jobs"), ""]
    ids = {knob(groups, "--control", f"cgroup:{name}")["device"] for name in names}
    inode = os.stat(str(groups.root) + folder).st_ino
    assert ids == {f"{groups.own}#{inode}"}


@pytest.mark.parametrize("name", ["nowhere", "jobs/../../../etc", "cpu"])
def test_no_such_group(groups, name):
    done = groups.run("get", "--control", f"cgroup:{name}")
    assert "is not a control group" in sentence(done, FAILURE)


def test_a_group_by_an_inode_that_it_has_not(groups):
    done = groups.run("get", "--control", f"cgroup:{groups.own.replace('cpu,cpuacct', 'cpu')}#1")
    assert "has been removed" in sentence(done, FAILURE)


def test_outside_of_the_groups(groups):
    groups.put("/elsewhere/cpu.max", "max 100000")
    done = groups.run("get", "--control", "cgroup:../../../elsewhere")
    assert "is not below" in sentence(done, USAGE)


def test_the_group_at_the_top_has_none(groups):
    groups.put("/proc/self/cgroup", "4:cpu,cpuacct:/\n0::/")
    assert "is in no control group with a processor quota" in sentence(groups.run("get", "--control", "cgroup"), FAILURE)
    assert "no cgroup: cpu.quota: joulemark is in no control group" in " ".join(groups.run("doctor", "--all").stdout.split())


def test_doctor_says_what_is_there_and_writes_nothing(groups):
    before = {f: f.stat().st_mtime_ns for f in groups.root.rglob("*") if f.is_file()}
    text = " ".join(groups.run("doctor").stdout.split())
    assert f"yes cgroup: control group {groups.own}: cpu.quota 0.01 to" in text and "now 1.6, enforced 1.6" in text
    assert before == {f: f.stat().st_mtime_ns for f in groups.root.rglob("*") if f.is_file()}


@pytest.mark.parametrize("victims", ["client", "guard", "both"])
def test_back_after_sigkill(groups, victims):
    child = groups.kill_while_set(["cpu.quota=0.2"], lambda: groups.quota() == 20000, victims)
    if victims == "both":
        child.wait()
        assert groups.quota() == 20000
        assert groups.run("list").returncode == 0  # any command
    assert wait_for(lambda: groups.quota() == 160000)
    groups.end(child)
    assert wait_for(lambda: not groups.journals())


def test_a_reboot_ends_it(groups):
    """The group of that name is another one, which must not get the old group's quota."""
    groups.put("/proc/sys/kernel/random/boot_id", "before")
    assert groups.run("set", "cpu.quota=0.2").returncode == 0
    groups.put("/proc/sys/kernel/random/boot_id", "after")
    done = groups.run("restore")
    assert done.returncode == 0 and "The machine has been restarted" in done.stderr
    assert groups.quota() == 20000 and not groups.journals()


def test_a_group_that_was_removed_needs_nothing(groups):
    assert groups.run("set", "cpu.quota=0.2").returncode == 0
    shutil.move(str(groups.root) + f"{GROUPS}/{groups.own}", str(groups.root / "removed"))
    groups.add(groups.own)  # of the same name
    done = groups.run("restore")
    assert done.returncode == 0 and "has been removed" in done.stderr
    assert groups.quota() is None and not groups.journals()


def test_a_group_that_cannot_be_looked_at_was_not_removed(groups):
    above = str(groups.root) + f"{GROUPS}/{os.path.dirname(groups.own)}"
    groups.kill_while_set(["cpu.quota=0.2"], lambda: groups.quota() == 20000, "both").wait()
    os.rename(above, above + "-moved")
    os.symlink(os.path.basename(above), above)  # a loop
    done = groups.run("restore")
    assert "Cannot look at the control group" in done.stderr and done.returncode == FAILURE and len(groups.journals()) == 1
    os.unlink(above)
    os.rename(above + "-moved", above)
    assert groups.run("restore").returncode == 0 and groups.quota() == 160000 and not groups.journals()


def test_a_group_removed_while_its_quota_is_held(groups):
    folder = str(groups.root) + f"{GROUPS}/{groups.own}"
    done = groups.run("set", "cpu.quota=0.2", "--", "mv", folder, str(groups.root / "removed"))
    assert done.returncode == 0, done.stderr
    assert not groups.journals()


def test_a_sweep_records_numbers_and_words(groups, tmp_path):
    out = tmp_path / "records.json"
    done = groups.run("run", "--source", "null", "--set", "cpu.quota=0.2,unlocked", "--json", out, "--", "true")
    assert done.returncode == 0, done.stderr
    rows = [r["settings"][0] for r in json.loads(out.read_text(encoding="utf-8"))]
    found = {(row["requested"], row["accepted"], row.get("value")) for row in rows}
    assert found == {(0.2, 0.2, None), (None, None, "unlocked"), (1.6, 1.6, None)}
    assert all(row["knob"] == "cpu.quota" and row["unit"] == "" for row in rows)
    assert groups.quota() == 160000
    text = groups.run("report", out).stdout
    assert "unlocked" in text and "0.2" in text and "unchanged" in text


# ---- with the kernel of this machine ----


def real_group():
    """A new group with a quota, or None: the folder that joulemark names, and the file that holds the quota."""
    for top in (f"{GROUPS}/cpu", f"{GROUPS}/cpu,cpuacct", GROUPS):
        folder = Path(top) / f"joulemark-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        for name in ("cpu.cfs_quota_us", "cpu.max"):
            if os.access(folder / name, os.W_OK):
                return folder, folder / name
        folder.rmdir()
    return None


@pytest.fixture
def real():
    group = real_group()
    if not group:
        pytest.skip("no control group with a processor quota can be made here")
    yield group
    for pid in (group[0] / "cgroup.procs").read_text(encoding="ascii").split():
        os.kill(int(pid), 9)
    assert wait_for(lambda: not (group[0] / "cgroup.procs").read_text(encoding="ascii"))
    group[0].rmdir()


def in_group(folder):
    return lambda: (folder / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


LOAD = """
import sys, time
began, used = time.monotonic(), time.process_time()
while time.monotonic() < began + float(sys.argv[1]):
    pass
print((time.process_time() - used) / (time.monotonic() - began))
"""


def throttled_periods(folder):
    """The share of the group's periods in which it used its whole quota: less than all on a machine that is busy."""
    stat = dict(line.split() for line in (folder / "cpu.stat").read_text(encoding="ascii").splitlines())
    return int(stat["nr_throttled"]) / int(stat["nr_periods"])


def test_a_load_gets_its_share(real):
    """So small a share that it is had on a machine with 50 other loads, too."""
    folder, file = real
    before = file.read_text(encoding="ascii")
    done = subprocess.run([BIN, "set", "cpu.quota=0.02", "--", "python3", "-c", LOAD, "10"], capture_output=True, text=True,
                          timeout=240, check=False, preexec_fn=in_group(folder))
    assert done.returncode == 0, done.stderr
    # within 3 %: two of 100 periods may be cut, and a tick of the scheduler may be used too much
    assert 0.0194 * throttled_periods(folder) <= float(done.stdout) <= 0.0206, throttled_periods(folder)
    assert throttled_periods(folder) > 0.3
    assert file.read_text(encoding="ascii") == before


@pytest.mark.parametrize("victims", ["client", "everything"])
def test_the_old_quota_is_back_after_sigkill(real, victims):
    folder, file = real
    file.write_text("150000", encoding="ascii")
    before = file.read_text(encoding="ascii")
    child = subprocess.Popen([BIN, "set", "cpu.quota=0.5", "--", "sleep", "60"], stderr=subprocess.DEVNULL,
                             preexec_fn=in_group(folder))
    assert wait_for(lambda: file.read_text(encoding="ascii").split()[0] == "50000")
    if victims == "client":
        child.kill()
    else:
        for _ in range(2):  # all at once, as a scheduler does it
            for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                os.kill(int(pid), 19)
        for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
            os.kill(int(pid), 9)
        child.wait()
        time.sleep(0.2)
        assert file.read_text(encoding="ascii").split()[0] == "50000"
        assert subprocess.run([BIN, "restore"], check=False).returncode == 0
    child.wait()
    assert wait_for(lambda: file.read_text(encoding="ascii") == before)
