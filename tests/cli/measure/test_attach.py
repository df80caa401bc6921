# SPDX-License-Identifier: Apache-2.0
"""measure without a command: for a time, until a process or a control group ends, until Ctrl-C."""
import ctypes
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import pytest

from fake_gpus import FakeGpus, wait_for
from jm import BIN, SOURCE, USAGE, catches, jm, sentence, terminal

DATA = SOURCE / "tests/data"
SIM = ["--source", "sim:h100x2"]
TICK = os.sysconf("SC_CLK_TCK")


class Machine:
    """A made-up /proc and /sys: 200 s of processor time and 1000 J so far; a process and a group with a quarter of
    what is used from then on."""

    def __init__(self, pid):
        self.root = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
        self.pid, self.at, self.stop = pid, 0, threading.Event()
        for folder in (f"proc/{pid}", "sys/class/powercap/intel-rapl:0", "sys/fs/cgroup/jobs/one"):
            (self.root / folder).mkdir(parents=True)
        zone = self.root / "sys/class/powercap/intel-rapl:0"
        (zone / "name").write_text("package-0\n")
        (zone / "max_energy_range_uj").write_text("262143328850\n")
        self.write()
        self.thread = threading.Thread(target=self.go_on)

    def put(self, path, text):
        """In place and of one length, so that no reader sees a file without a line."""
        fd = os.open(self.root / path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(fd, text.encode(), 0)
        os.close(fd)

    def write(self):
        busy = int((200 + 0.02 * self.at) * TICK)
        own = int((50 + 0.005 * self.at) * TICK)
        self.put("proc/stat", f"cpu  {busy - 7:09d} 1 2 999999 5 3 1 0 0 0\ncpu0 {busy - 7:09d} 1 2 999999 5 3 1 0 0 0\n")
        self.put(f"proc/{self.pid}/stat", f"{self.pid} (a (b) c) S " + "1 " * 10 + f"{own - 40:09d} {40:09d} 0 0\n")
        self.put("sys/fs/cgroup/jobs/one/cpu.stat", f"usage_usec {int(own / TICK * 1e6):012d}\nuser_usec 1\n")
        self.put("sys/class/powercap/intel-rapl:0/energy_uj", f"{int((1000 + 0.5 * self.at) * 1e6):012d}\n")

    def go_on(self):
        while not self.stop.wait(0.01):
            self.at += 1
            self.write()

    def __enter__(self):
        self.thread.start()
        return self

    def end(self):
        self.stop.set()
        self.thread.join()

    def __exit__(self, *_):
        self.end()
        shutil.rmtree(self.root)


@pytest.mark.parametrize("what", ["pid", "cgroup"])
def test_the_share_is_that_of_the_processor_time(what):
    """A quarter of the processor time, so a quarter of what the package used; the package's own figure stays whole."""
    with subprocess.Popen(["sleep", "60"]) as child, Machine(child.pid) as machine:
        option = ["--pid", child.pid] if what == "pid" else ["--cgroup", "jobs/one"]
        before = machine.at
        done = jm("measure", "--source", "rapl", *option, "--for", "3s", "--json", "-",
                  env={"JM_ROOT": str(machine.root)})
        used = machine.at - before
        child.kill()
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    attached, package = record["attached"], record["meters"][0]
    assert package["origin"] == "measured" and 0 < package["joules"] <= 0.5 * used + 1
    assert attached["share"] == pytest.approx(0.25, abs=0.02)
    assert attached["joules_estimated"] == pytest.approx(0.25 * package["joules"], rel=0.08)
    assert attached["meters"] == [package["id"]] and attached["what"].startswith(
        f"process {child.pid} (" if what == "pid" else "control group jobs/one")
    assert record["total"]["joules_measured"] == pytest.approx(package["joules"])
    assert record["total"]["joules_estimated"] is None
    assert record["command"] is None and record["exit_status"] is None and record["phase"] == "attached"
    assert re.search(r"Share .*estimated.*25", re.sub(r"2[3-7]\.\d", "25", done.stderr)), done.stderr


def test_a_share_without_a_meter_of_the_processors_says_what_to_add(tmp_path):
    gpus = FakeGpus(tmp_path, 1)
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as child:
        done = jm("measure", "--source", "nvml", "--pid", child.pid, "--for", "1s", env=gpus.env)
        child.kill()
    share = re.search(r"Share +(.*)", done.stderr)[1]
    assert re.fullmatch(r"[0-9.]+ s, [0-9.]+ % of all processor time; its energy is unknown: no meter of the processors is "
                        "read; add --source rapl, or --source estimate", share), done.stderr


class Readings:
    """What inotify reports of a file: that a process has closed it after it read."""
    CLOSE_NOWRITE = 0x10

    def __init__(self, path):
        libc = ctypes.CDLL(None)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.fd >= 0 and libc.inotify_add_watch(self.fd, os.fsencode(path), self.CLOSE_NOWRITE) >= 0

    def wait(self):
        """For a reading that begins from now on: the second that ends."""
        if select.select([self.fd], [], [], 0)[0]:
            os.read(self.fd, 65536)
        for _ in range(2):
            assert select.select([self.fd], [], [], 240)[0]
            os.read(self.fd, 65536)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)


@pytest.mark.parametrize("group, file, scale", [
    ("system.slice/slurmstepd.scope/job_4711", "cpu.stat", 1e6),
    ("system.slice/n7_slurmstepd.scope/job_4711", "cpu.stat", 1e6),
    ("cpuacct/slurm/uid_1000/job_4711", "cpuacct.usage", 1e9),
    ("cpu,cpuacct/slurm_n7/uid_1000/job_4711", "cpuacct.usage", 1e9),
])
def test_a_job_of_slurm_is_its_control_group(group, file, scale):
    """It uses 0.125 s of processor time; groups of jobs with similar numbers stand beside it."""
    with Machine(os.getpid()) as machine:
        key = "usage_usec " if file == "cpu.stat" else ""
        for job, seconds in (("4711", 50), ("47110", 7), ("471", 7)):
            folder = machine.root / "sys/fs/cgroup" / group.replace("4711", job)
            folder.mkdir(parents=True)
            (folder / file).write_text(f"{key}{int(seconds * scale)}\n")
        own = machine.root / "sys/fs/cgroup" / group
        with Readings(own / file) as readings, \
                subprocess.Popen([BIN, "measure", "--source", "rapl", "--slurm-job", "4711", "--json", "-"],
                                 env={**os.environ, "JM_ROOT": str(machine.root)}, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL) as child:
            assert wait_for(lambda: catches(child.pid, signal.SIGINT))
            readings.wait()
            machine.put(own / file, f"{key}{int(50.125 * scale)}\n")
            readings.wait()
            shutil.rmtree(own)
            out, _ = child.communicate(timeout=240)
    attached = json.loads(out)["attached"]
    assert child.returncode == 0 and attached["cpu_s"] == pytest.approx(0.125) and attached["what"].endswith(group)


def captured_job(root, version, left_out=""):
    """The files of a job as a real Slurm made them: job 2 with cgroup/v1, job 1 with cgroup/v2."""
    for name, text in json.loads((DATA / f"slurm/cgroup-{version}.json").read_text()).items():
        if not left_out or not name.startswith(left_out):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)


@pytest.mark.parametrize("version, job, group", [
    ("v1", 2, "cpuacct/slurm_vm/uid_0/job_2"),
    ("v2", 1, "system.slice/n7_slurmstepd.scope/job_1"),
])
def test_a_captured_job_of_slurm(tmp_path, version, job, group):
    captured_job(tmp_path, version)
    record = json.loads(jm("measure", *SIM, "--slurm-job", job, "--for", "200ms", "--json", "-",
                           env={"JM_ROOT": str(tmp_path)}).stdout)
    assert record["attached"]["what"] == f"control group {group}" and record["attached"]["cpu_s"] == 0


def test_a_job_of_slurm_without_accounting_is_told_what_it_needs(tmp_path):
    captured_job(tmp_path, "v1", left_out="sys/fs/cgroup/cpuacct/slurm_vm/uid_0/")
    done = jm("measure", *SIM, "--slurm-job", 2, env={"JM_ROOT": str(tmp_path)})
    assert "jobacct_gather/cgroup" in sentence(done)


def test_a_job_of_slurm_that_is_not_here_is_told():
    with Machine(os.getpid()) as machine:
        done = jm("measure", *SIM, "--slurm-job", "4711", env={"JM_ROOT": str(machine.root)})
    assert "Slurm job 4711" in sentence(done)
    assert "--slurm-job" in sentence(jm("measure", *SIM, "--slurm-job", "4711", "--pid", os.getpid()), USAGE)


def test_a_process_without_a_processors_meter():
    with subprocess.Popen(["sleep", "60"]) as child:
        record = json.loads(jm("measure", *SIM, "--pid", child.pid, "--for", "500ms", "--json", "-").stdout)
        child.kill()
    assert record["attached"]["joules_estimated"] is None and record["attached"]["meters"] == []
    assert record["total"]["joules_simulated"] == pytest.approx(150 * record["wall_s"], rel=0.2)


def test_for_some_time(tmp_path):
    gpus = FakeGpus(tmp_path, 2, "wave=const;power=250;mem=0")
    done = jm("measure", "--source", "nvml", "--for", "2s", "--json", "-", env=gpus.env)
    record = json.loads(done.stdout)
    assert done.returncode == 0 and record["wall_s"] >= 2
    assert record["total"]["joules_measured"] == pytest.approx(500 * record["wall_s"], rel=0.02)
    assert record["attached"]["what"] == "the machine" and record["attached"]["share"] is None
    assert "joulemark: the machine" in done.stderr and "exit status" not in done.stderr and "Share" not in done.stderr


def joules_so_far(pid):
    """Of a measurement, as `status` shows them; 0 = none yet."""
    rows = json.loads(jm("status", "--json").stdout)["running"]
    return sum(row["joules"] or 0 for row in rows if row["pid"] == pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_until_ctrl_c(tmp_path, number):
    trace = tmp_path / "trace"
    with subprocess.Popen([BIN, "measure", "--all", *SIM, "--json", "-", "--csv", trace], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as child:
        assert wait_for(lambda: joules_so_far(child.pid) > 100)
        child.send_signal(number)
        out, _ = child.communicate(timeout=240)
        assert child.returncode == 0
    assert json.loads(out)["total"]["joules_simulated"] > 50 and (trace / "readings.csv").exists()


def test_ends_with_the_process():
    """Never before it, and not half a second later unless it says that it stood still itself. It says so now and then on
    a busy machine, where it may also begin after the end; not each time."""
    for _ in range(40):
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child, \
                subprocess.Popen([BIN, "measure", *SIM, "--pid", str(child.pid), "--json", "-"], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL) as measure:
            assert wait_for(lambda: catches(measure.pid, signal.SIGINT))
            time.sleep(0.3)
            before = time.monotonic()
            child.stdin.close()
            assert child.wait() == 0
            after = time.monotonic()
            record = json.loads(measure.communicate(timeout=240)[0])
        assert measure.returncode == 0 and record["attached"]["what"] == f"process {child.pid} (cat)"
        begin = record["start_ns"] / 1e9 + record["phases"][0]["start_s"]
        assert begin + record["wall_s"] > before
        if begin < before:
            assert begin + record.get("wall_least_s", record["wall_s"] - 0.5) < after
            if "wall_least_s" not in record:
                return
    pytest.fail("It stood still each time.")


def test_a_process_that_is_gone_or_ends_at_once():
    with subprocess.Popen(["true"]) as child:
        child.wait()
        assert f"no process {child.pid}" in sentence(jm("measure", "--pid", child.pid))
    with subprocess.Popen(["true"]) as child:
        assert wait_for(lambda: pathlib.Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z")
        assert "already ended" in sentence(jm("measure", "--pid", child.pid))


def test_a_thread_is_no_process():
    started, stop, thread_id = threading.Event(), threading.Event(), []

    def work():
        thread_id.append(threading.get_native_id())
        started.set()
        stop.wait()
    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    done = jm("measure", "--pid", thread_id[0], "--for", "1s")
    stop.set()
    thread.join()
    assert "is a thread" in sentence(done, USAGE) or "no process" in sentence(done)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs another user")
def test_somebody_elses_process_is_named():
    with subprocess.Popen(["setpriv", "--reuid", "65534", "--clear-groups", "sleep", "60"]) as child:
        assert wait_for(lambda: os.stat(f"/proc/{child.pid}").st_uid == 65534)
        done = jm("measure", *SIM, "--pid", child.pid, "--for", "300ms")
        child.kill()
    assert done.returncode == 0 and "belongs to another user (uid 65534)" in done.stderr


def test_a_group_that_is_removed(tmp_path):
    group = tmp_path / "sys/fs/cgroup/g"
    group.mkdir(parents=True)
    (group / "cpu.stat").write_text("usage_usec 1000\n")
    with Readings(group / "cpu.stat") as readings, \
            subprocess.Popen([BIN, "measure", *SIM, "--cgroup", "/sys/fs/cgroup/g", "--json", "-"], text=True,
                             env={**os.environ, "JM_ROOT": str(tmp_path)}, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE) as child:
        readings.wait()
        assert child.poll() is None
        shutil.rmtree(group)
        out, _ = child.communicate(timeout=240)
        assert child.returncode == 0 and json.loads(out)["attached"]["cpu_s"] == 0


def attach_stopped(machine, option, meanwhile):
    """Measures it for a second, stands still while `meanwhile` is called, and returns what the record says of it."""
    with subprocess.Popen([BIN, "measure", "--source", "rapl", *option, "--for", "4s", "--json", "-"], text=True,
                          env={**os.environ, "JM_ROOT": str(machine.root)}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as measure:
        assert wait_for(lambda: catches(measure.pid, signal.SIGINT))
        time.sleep(1)
        measure.send_signal(signal.SIGSTOP)
        meanwhile()
        measure.send_signal(signal.SIGCONT)
        out, err = measure.communicate(timeout=240)
    assert measure.returncode == 0, err
    return json.loads(out)["attached"]


def test_a_group_that_is_made_anew_in_its_place_is_another_one():
    """A service that restarts: the processor time of its new group begins at 0."""
    with subprocess.Popen(["sleep", "60"]) as child, Machine(child.pid) as machine:
        group = machine.root / "sys/fs/cgroup/jobs/one"

        def renew():
            machine.end()
            shutil.rmtree(group)
            group.mkdir()
            machine.put("sys/fs/cgroup/jobs/one/cpu.stat", "usage_usec 1000\n")

        attached = attach_stopped(machine, ["--cgroup", "jobs/one"], renew)
        child.kill()
    assert attached["cpu_s"] > 0 and attached["share"] == pytest.approx(0.25, abs=0.1)


def test_another_process_with_its_id_adds_nothing():
    with subprocess.Popen(["sleep", "60"]) as child, Machine(child.pid) as machine:

        def renew():
            machine.end()
            machine.put(f"proc/{child.pid}/stat", f"{child.pid} (x) S " + "1 " * 10 + "900000 0 0 0 0 0 0 0 4711 0\n")
            child.kill()
            child.wait()

        attached = attach_stopped(machine, ["--pid", str(child.pid)], renew)
    assert 0 < attached["cpu_s"] < 60 and attached["share"] == pytest.approx(0.25, abs=0.1)


@pytest.mark.parametrize("args, words", [
    (["--for", "1s", "--", "true"], "omit them"),
    (["--pid", "1", "--all"], "one of"),
    (["--all", "--store", "x.db"], "--store"),
    (["--for", "1s", "--items-regex", "x"], "--items-regex"),
    (["--pid", "0"], "--pid"),
    ([], "no command"),
])
def test_wrong_use_is_a_sentence(args, words):
    assert words in sentence(jm("measure", *args), USAGE)


def test_no_control_group():
    assert "/sys/fs/cgroup/nowhere" in sentence(jm("measure", "--cgroup", "nowhere"))
    assert "not a control group" in sentence(jm("measure", "--cgroup", "."))


@pytest.mark.parametrize("columns", [80, 20])
def test_live_line_stays_on_its_line(columns):
    """A busy machine draws late, and now and then less than two times."""
    for _ in range(20):
        printed, status = terminal("measure", *SIM, "--for", "3.5s", columns=columns)
        redraws = re.findall(r"\r\x1b\[K(\d+ s [^\r\n]*)", printed)
        assert status == 0 and all(len(line) < columns for line in redraws)
        if len(redraws) >= 2:
            break
    assert len(redraws) >= 2
    if columns == 80:
        last = re.fullmatch(r"(\d+) s  1[45]\d\.?\d* W [\d.]+ J simulated  (\d) s left", redraws[-1])
        assert last, redraws
        seconds, left = map(int, last.groups())
        assert seconds + left in (3, 4) or seconds > 4 and not left, redraws
    assert "\x1b[K" not in jm("measure", *SIM, "--for", "1.2s").stderr
    assert not re.search(r"\r\x1b\[K\d", terminal("measure", "--quiet", *SIM, "--for", "1.2s")[0])
