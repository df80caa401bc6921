# SPDX-License-Identifier: Apache-2.0
"""Energy of GPUs divided among a process, a control group and MIG instances. The fake NVML defines the users of its GPUs,
and GPU i draws 100 (i + 1) W constantly, so that shares of its energy are known."""
import json
import os
import pathlib
import subprocess

import pytest

from fake_gpus import FakeGpus
from jm import SOURCE, jm

DATA = SOURCE / "tests/data"
FIRST_NAMESPACE = "pid:[4026531836]"
CONTAINER = os.readlink("/proc/self/ns/pid") != FIRST_NAMESPACE


class Users(FakeGpus):
    """Three GPUs, and a made-up /proc with control groups: `own` has two processes, one of them in a group inside."""

    def __init__(self, folder, config=""):
        super().__init__(folder, 3)
        self.file, self.root = folder / "users", folder / "root"
        hour = 3600
        self.config(f"wave=steps;steps=100*{hour}/200*{hour}/300*{hour};shift={hour};phase=-{self.aligned()};response=0;"
                    f"usersfile={self.file};{config}")
        (self.root / "proc/self/ns").mkdir(parents=True)
        (self.root / "proc/self/ns/pid").symlink_to(FIRST_NAMESPACE)
        (self.root / "proc/stat").write_text("cpu  1 1 1 1 1 1 1\n")
        group = self.root / "sys/fs/cgroup/jobs/own"
        group.mkdir(parents=True)
        (group / "cpu.stat").write_text("usage_usec 1000\n")
        (self.root / "sys/fs/cgroup/cpu,cpuacct/slurm/uid_0/job_7").mkdir(parents=True)
        (self.root / "sys/fs/cgroup/cpu,cpuacct/slurm/uid_0/job_7/cpuacct.usage").write_text("1000\n")
        for pid, name in ((11, "jobs/own"), (12, "jobs/own/inside"), (13, "jobs/own2"), (14, "jobs")):
            self.process(pid, f"0::/{name}\n")
        self.process(21, "5:memory:/slurm/uid_0/job_7\n4:cpu,cpuacct:/slurm/uid_0/job_7/step_0/task_0\n")
        self.process(22, "5:memory:/slurm/uid_0/job_7\n4:cpu,cpuacct:/slurm/uid_0/job_70/step_0\n")
        self.env["JM_ROOT"] = str(self.root)

    @staticmethod
    def aligned():
        """CLOCK_MONOTONIC a quarter of an hour ago: the wave's period begins there."""
        return int(float(pathlib.Path("/proc/uptime").read_text().split()[0])) - 900

    def process(self, pid, groups):
        (self.root / f"proc/{pid}").mkdir(exist_ok=True)
        (self.root / f"proc/{pid}/cgroup").write_text(groups)

    def measure(self, *options, seconds="400ms"):
        done = jm("measure", "--source", "nvml", *options, "--for", seconds, "--json", "-", env=self.env)
        assert done.returncode == 0, done.stderr
        record = json.loads(done.stdout)
        meters = {m["id"]: m for m in record["meters"]}
        gpus = record["attached"]["gpus"]
        for i, gpu in enumerate(gpus):
            meter, truth = meters[gpu["meter"]], 100 * (i + 1) * record["wall_s"]
            assert meter["joules"] == pytest.approx(truth, abs=max(0.05 * truth, meter["error_joules"]))
        return gpus, [meters[g["meter"]]["joules"] for g in gpus], done.stderr


def check(gpu, joules, share):
    assert gpu["reason"] is None and gpu["share"] == pytest.approx(share, abs=1e-6)
    assert gpu["joules_estimated"] == pytest.approx(share * joules, rel=1e-6)


def test_a_process_gets_what_it_used_of_each_gpu(tmp_path):
    """60 of 80 % of GPU 0, nothing of GPU 1 that another uses, nothing of GPU 2 that nobody uses."""
    users = Users(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as child:
        users.file.write_text(f"0 {child.pid} 60\n0 999 20\n1 999 100\n2 {child.pid} 0\n")
        stat = pathlib.Path(f"/proc/{child.pid}/stat").read_text()
        (users.root / f"proc/{child.pid}").mkdir()
        (users.root / f"proc/{child.pid}/stat").write_text(stat)
        gpus, joules, said = users.measure("--pid", child.pid, seconds="1.2s")
        child.kill()
    for gpu, used, share in zip(gpus, joules, (0.75, 0, 0)):
        check(gpu, used, share)
        assert gpu["method"] == "process-utilisation" and gpu["instances"] == []
    assert "of GPU 0 NVIDIA H100 80GB HBM3, estimated: 75 % of its energy" in said


@pytest.mark.parametrize("option, own, other", [
    (("--cgroup", "jobs/own"), (11, 12), (13, 14)),
    (("--cgroup", "/sys/fs/cgroup/jobs/own/"), (11, 12), (13, 14)),
    (("--slurm-job", 7), (21, 21), (22, 13)),
])
def test_a_group_gets_what_its_processes_used(tmp_path, option, own, other):
    users = Users(tmp_path)
    users.file.write_text(f"0 {own[0]} 10\n0 {other[0]} 30\n0 {own[1]} 20\n1 {other[1]} 50\n2 {own[1]} 5\n")
    gpus, joules, _ = users.measure(*option)
    for gpu, used, share in zip(gpus, joules, (0.5, 0, 1)):
        check(gpu, used, share)


@pytest.mark.parametrize("path", ["/", "/sys/fs/cgroup"])
def test_the_first_group_has_all_processes(tmp_path, path):
    users = Users(tmp_path)
    (users.root / "sys/fs/cgroup/cpu.stat").write_text("usage_usec 1000\n")
    users.process(1, "0::/\n")
    users.file.write_text("0 11 10\n0 14 30\n1 1 50\n")
    gpus, joules, _ = users.measure("--cgroup", path)
    for gpu, used, share in zip(gpus, joules, (1, 1, 0)):
        check(gpu, used, share)


@pytest.mark.parametrize("version, job, task, batch, other", [
    ("v1", 2, 15568, 15544, "7:freezer:/slurm_vm/uid_0/job_2\n3:cpuacct:/slurm_vm/uid_0/job_22\n0::/\n"),
    ("v2", 1, 84, 69, "4:memory:/\n0::/system.slice/n7_slurmstepd.scope/job_11/step_0/user/task_special\n"),
])
def test_a_captured_job_of_slurm_gets_what_its_tasks_used(tmp_path, version, job, task, batch, other):
    """The groups of a real Slurm: the task of srun and a process of the batch step belong to the job, process 31 does not."""
    users = Users(tmp_path)
    for name, text in json.loads((DATA / f"slurm/cgroup-{version}.json").read_text()).items():
        (users.root / name).parent.mkdir(parents=True, exist_ok=True)
        (users.root / name).write_text(text)
    users.process(31, other)
    users.file.write_text(f"0 {task} 25\n0 {batch} 25\n0 31 50\n2 31 9\n")
    gpus, joules, _ = users.measure("--slurm-job", job)
    for gpu, used, share in zip(gpus, joules, (0.5, 0, 0)):
        check(gpu, used, share)


def test_what_is_not_known_is_null(tmp_path):
    """A process that is gone might have been of the group; a use above 100 % is none; the other GPU is known."""
    users = Users(tmp_path)
    users.file.write_text("0 11 10\n0 99 30\n1 11 101\n2 11 50\n")
    gpus, joules, said = users.measure("--cgroup", "jobs/own")
    for gpu, word in zip(gpus[:2], ("had ended", "impossible")):
        assert gpu["share"] is None and gpu["joules_estimated"] is None and word in gpu["reason"]
    check(gpus[2], joules[2], 1)
    assert "unknown of GPU 0" in said


def test_a_driver_without_samples_of_processes(tmp_path):
    users = Users(tmp_path)
    users.env["JM_FAKE_NVML"] = users.env["JM_FAKE_NVML"].replace("usersfile", "nousersfile")
    gpus, _, _ = users.measure("--cgroup", "jobs/own")
    assert all(g["share"] is None and "Not Supported" in g["reason"] for g in gpus)


def test_in_a_container_ids_of_processes_mean_nothing(tmp_path):
    users = Users(tmp_path)
    (users.root / "proc/self/ns/pid").unlink()
    (users.root / "proc/self/ns/pid").symlink_to("pid:[4026532999]")
    users.file.write_text("0 11 10\n")
    gpus, _, _ = users.measure("--cgroup", "jobs/own")
    assert all(g["share"] is None and "container" in g["reason"] for g in gpus)


def instances(gpu):
    return [i["share"] for i in gpu["instances"]]


def test_instances_get_what_their_multiprocessors_were_busy(tmp_path):
    """16, 32 and 48 multiprocessors, busy to 100, 50 and 25 %: 16, 16 and 12. Process 11 has the second alone."""
    users = Users(tmp_path, "mig=0:3;activity=1")
    users.file.write_text("0 13 100 1\n0 11 50 2\n0 14 15 3\n0 13 10 3\n1 11 5\n")
    gpus, joules, said = users.measure("--cgroup", "jobs/own")
    check(gpus[0], joules[0], 16 / 44)
    check(gpus[1], joules[1], 1)
    assert gpus[0]["method"] == "instance-utilisation"
    assert instances(gpus[0]) == pytest.approx([16 / 44, 16 / 44, 12 / 44])
    for one, share in zip(gpus[0]["instances"], instances(gpus[0])):
        assert one["name"].startswith("MIG-00000000-") and one["joules_estimated"] == pytest.approx(share * joules[0])
    assert "of MIG-00000000-fa4e-4000-8000-000000000002, estimated: 36.4 %" in said


def test_an_instance_with_two_owners_is_not_divided(tmp_path):
    users = Users(tmp_path, "mig=0:3;activity=1")
    users.file.write_text("0 13 20 1\n0 11 50 1\n")
    gpus, _, _ = users.measure("--cgroup", "jobs/own")
    assert gpus[0]["share"] is None and "Several processes" in gpus[0]["reason"]
    assert instances(gpus[0]) == [1, 0, 0]


def test_instances_without_a_process_and_without_monitoring(tmp_path):
    users = Users(tmp_path, "mig=0:2;activity=1")
    users.file.write_text("0 13 100 1\n0 14 50 2\n")
    gpus, _, _ = users.measure()
    assert instances(gpus[0]) == pytest.approx([0.5, 0.5]) and gpus[0]["share"] is None and gpus[0]["reason"] is None
    users = Users(tmp_path / "old" if (tmp_path / "old").mkdir() is None else None, "mig=0:2;activity=0")
    gpus, _, _ = users.measure("--cgroup", "jobs/own")
    assert gpus[0]["share"] is None and "Hopper" in gpus[0]["reason"]


@pytest.mark.skipif(CONTAINER, reason="the ids of processes here are not the machine's")
def test_a_process_by_the_real_proc(tmp_path):
    users = Users(tmp_path)
    del users.env["JM_ROOT"]
    users.file.write_text(f"0 {os.getpid()} 40\n0 1 60\n")
    gpus, joules, _ = users.measure("--pid", os.getpid())
    check(gpus[0], joules[0], 0.4)
