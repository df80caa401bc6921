# SPDX-License-Identifier: Apache-2.0
"""run --launcher started: ranks on two hosts, which are network namespaces. Skipped where none can be made."""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from fake_gpus import FakeGpus, guard_of, wait_for
from gangs import GPT, children, losses, processes_of
from host_gangs import PORTS, SOON, STARTED, Gang, cmdline, run
from jm import BIN, BUILD
from netns import ip, two_hosts  # noqa: F401  the fixture "hosts"
from runs import FAILED, one


@pytest.mark.parametrize("more, doubt", [(["--precision", "f32"], 2e-6), (["--precision", "f64"], 1e-12)], ids=["f32", "f64"])
def test_losses_are_those_of_one_rank(hosts, more, doubt):
    work = [*GPT, "--device", "ref", "--steps", "5", *more]
    together, alone = run(hosts, *work, "--batch", "2"), one(*work, "--batch", "4")
    assert losses(together) == pytest.approx(losses(alone), rel=doubt)
    assert together["items"] == alone["items"] and together["communication"]["transport"] == "net"
    assert together["gang"]["launcher"] == "started" and together["verified"] is True


def test_a_sweep_goes_over_all_its_cases(hosts):
    """Agents run what the head sends, whatever their own call says."""
    gang = Gang(hosts, ["run", "allreduce", "--device", "ref", "--size", "0.00001,0.001", "--steps", "2", "--warmup", "0", "--source",
                        "null", "--repeat", "2", *STARTED, "--json", "-"], next(PORTS))
    status, texts = gang.ended()
    assert status == [0, 0], texts
    assert [r["verified"] for r in json.loads(texts[0][0])] == [True] * 4


def test_each_host_has_its_part_of_the_memory(hosts, tmp_path):
    """200 MB are free on each: 300 MB fit on both."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 200000 kB\n")
    env = {"JM_ROOT": tmp_path, "JM_STATE": tmp_path / "state"}
    record = run(hosts, "run", "burn", "--device", "ref", "--side", "64", "--products", "2", "--steps", "2", "--warmup", "0", "--selftest",
                 "0", "--source", "null", "--processors", "2", "--host-memory", "0.3", env=(env, env))
    assert record["verified"] is True and "walk through its memory" in record["detail"]


@pytest.mark.parametrize("brackets", [False, True], ids=["", "brackets"])
def test_ranks_meet_by_ipv6(hosts, brackets):
    for i in range(2):
        subprocess.run(["ip", "-n", hosts.names[i], "addr", "replace", f"fd77::{i + 1}/64", "dev", hosts.ends[i], "nodad"], check=True)
    env = {"MASTER_ADDR": "[fd77::1]" if brackets else "fd77::1"}
    record = run(hosts, "run", "allreduce", "--device", "ref", "--size", "0.0001", "--steps", "2", "--warmup", "0", "--source", "null",
                 env=[env, env])
    assert record["verified"] is True


def test_what_is_stated_holds_on_every_host(hosts, tmp_path):
    """A clock whose value cannot be read is set on both, and both drivers have it as stated at the end."""
    gpus = [FakeGpus(tmp_path / name, 1, "clocks=1") for name in "ab"]
    for g in gpus:
        os.makedirs(os.path.dirname(g.state))
    records = run(hosts, "run", "allreduce", "--device", "ref", "--size", "0.00001", "--steps", "2", "--warmup", "0", "--source",
                  "null", "--control", "nvml", "--found", "gpu.clock=unlocked", "--set", "gpu.clock=1200MHz",
                  env=[g.env for g in gpus])
    assert [r["status"] for r in records] == ["ok", "ok"] and [g.locked() for g in gpus] == [[None], [None]]
    assert all(g.locks()[0] > 1 for g in gpus)


# ---- ends ----

LONG = [*GPT, "--device", "ref", "--batch", "1", "--seconds", "600"]
BETWEEN = ["run", "allreduce", "--device", "ref", "--warmup", "0", "--source", "null"]
SMALL = ["--size", "0.0001"]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_all_and_is_named_with_its_host(hosts, victim):
    gang = Gang(hosts, [*LONG, *STARTED], next(PORTS))
    workers = [gang.worker(i) for i in range(2)]
    for worker in workers:  # children do not have the secret
        with open(f"/proc/{worker}/environ", "rb") as f:
            assert b"JM_GANG_SECRET" not in f.read()
    pid = workers[victim]
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    status, texts = gang.ended()
    assert time.monotonic() - began < SOON and status == [FAILED, 0]
    assert f"Rank {victim} of 2 (process {pid} on host-{'ab'[victim]}) was killed by signal 9 (Killed)" in texts[0][1], texts
    assert gang.nothing_is_left()


KILLS = int(os.environ.get("JM_TEST_KILLS", "4"))


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_kill_at_any_moment_ends_all(hosts, seed):
    """Of any process of the gang: a call or anything that it has started, at the meeting, in setup or at work."""
    draw = random.Random(seed)
    gang = Gang(hosts, [*LONG, *STARTED], next(PORTS))
    time.sleep(draw.choice([0.05, 0.3, 1.5]) * draw.random())
    found = []
    assert wait_for(lambda: found.extend(processes_of(gang.mark)) or found)  # one that just executes a program has none
    victim = draw.choice(found)
    what = cmdline(victim)
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    time.sleep(3)
    for call in gang.call:  # one whose partner never came waits for it as long as it is told
        call.terminate()
    status, texts = gang.ended()
    assert time.monotonic() - began < SOON and gang.nothing_is_left(), (what, status, texts)
    assert 0 not in status or b"worker" in what, (what, status, texts)


def test_a_sweep_goes_on_after_a_killed_rank(hosts):
    work = ["run", "allreduce", "--device", "ref", "--size", "0.0001", "--seconds", "3", "--warmup", "0", "--source", "null"]
    gang = Gang(hosts, [*work, "--repeat", "2", *STARTED, "--json", "-"], next(PORTS))
    pid = gang.worker(1)
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    status, texts = gang.ended()
    assert status == [FAILED, 0]
    assert [r["status"] for r in json.loads(texts[0][0])] == ["failed", "ok"], texts


def capped(hosts, tmp_path):
    """A gang at work whose hosts have a fake GPU each with a limit, which persists in the driver; and the limits before."""
    gpus = [FakeGpus(tmp_path / name, 1, "wave=square;response=1") for name in "ab"]
    for g in gpus:
        os.makedirs(os.path.dirname(g.state))
        subprocess.run([BIN, "get"], env={**os.environ, **g.env}, check=True, capture_output=True)
    found = [g.limits() for g in gpus]
    gang = Gang(hosts, [*LONG, "--source", "nvml", "--control", "nvml", "--set", "gpu.power=300W", "--order", "given", *STARTED],
                next(PORTS), env=[g.env for g in gpus])
    assert wait_for(lambda: [g.limits() for g in gpus] == [[300.0], [300.0]] and gang.worker(0) and gang.worker(1)), \
        [g.limits() for g in gpus]
    time.sleep(0.3)
    assert all(guard_of(call.pid) for call in gang.call)
    return gpus, found, gang


@pytest.mark.parametrize("victim", ["head", "agent"])
def test_a_killed_call_ends_both_and_caps_are_back(hosts, victim, tmp_path):
    gpus, found, gang = capped(hosts, tmp_path)
    killed = 0 if victim == "head" else 1
    gang.call[killed].kill()
    began = time.monotonic()
    status, texts = gang.ended()
    assert time.monotonic() - began < SOON and status[killed] == -signal.SIGKILL and status[1 - killed] != 0
    assert gang.nothing_is_left()
    assert wait_for(lambda: [g.limits() for g in gpus] == found), ([g.limits() for g in gpus], found)
    says = "The run of rank 0 has ended" if victim == "head" else "on host-b): The agent on this host has ended"
    assert says in texts[1 - killed][1], texts


def test_a_cut_link_ends_both_and_names_the_host(hosts):
    """Nobody is told: what was sent is not acknowledged, on either side."""
    gang = Gang(hosts, [*LONG, *STARTED], next(PORTS))
    assert gang.worker(0) and gang.worker(1)
    time.sleep(1)
    ip("-n", hosts.names[1], "link", "set", hosts.ends[1], "down")
    try:
        began = time.monotonic()
        status, texts = gang.ended()
    finally:
        ip("-n", hosts.names[1], "link", "set", hosts.ends[1], "up")
    assert time.monotonic() - began < SOON and 0 not in status, texts
    assert re.search(r"host-b\): .*does not answer any more|10\.77\.\d+\.2\) does not answer any more", texts[0][1]), texts
    assert gang.nothing_is_left()


def shape(hosts, *rule):
    """The speed at which both hosts send; without a rule it is unlimited again."""
    for name, end in zip(hosts.names, hosts.ends):
        change = ["replace", "dev", end, "root", *rule] if rule else ["del", "dev", end, "root"]
        ip("netns", "exec", name, "tc", "qdisc", *change)


@pytest.mark.skipif(not shutil.which("tc"), reason="tc (iproute2) is not installed")
def test_a_slow_link_is_not_a_lost_one(hosts):
    """1 Mbit/s: an all-reduce of 200 kB between two hosts takes at least 1.6 s."""
    shape(hosts, "tbf", "rate", "1mbit", "burst", "16kb", "latency", "400ms")
    try:
        record = run(hosts, *BETWEEN, "--size", "0.0002", "--steps", "2")
    finally:
        shape(hosts)
    assert record["status"] == "ok" and record["verified"] is True and record["transfer"]["seconds"] > 1.5, record["transfer"]


@contextlib.contextmanager
def full_disk(folder):
    """A file system at this place, without a free byte."""
    os.makedirs(folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "none", folder], check=True)
    try:
        with contextlib.suppress(OSError), open(f"{folder}/filler", "wb", buffering=0) as f:
            while f.write(bytes(4096)):
                pass
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_full_disk_on_one_host_ends_both_before_a_cap_is_set(hosts, victim, tmp_path):
    """The guard there cannot write down what it has to put back."""
    gpus = [FakeGpus(tmp_path / name, 1, "wave=square;response=1") for name in "ab"]
    for g in gpus:
        os.makedirs(os.path.dirname(g.state))
        subprocess.run([BIN, "get"], env={**os.environ, **g.env, "JM_STATE": str(tmp_path / "other")}, check=True, capture_output=True)
    found = [g.limits() for g in gpus]
    with full_disk(gpus[victim].env["JM_STATE"]):
        gang = Gang(hosts, [*LONG, "--source", "nvml", "--control", "nvml", "--set", "gpu.power=300W", "--order", "given", *STARTED],
                    next(PORTS), env=[{**g.env, "JM_GANG_SECONDS": "10"} for g in gpus])
        began = time.monotonic()
        status, texts = gang.ended()
        assert time.monotonic() - began < SOON and status[0] != 0, (status, texts)
        assert "No space left on device" in texts[victim][1] + texts[0][1], texts
        assert victim == 0 or "host-b" in texts[0][1], texts
    assert gang.nothing_is_left()
    assert wait_for(lambda: [g.limits() for g in gpus] == found), ([g.limits() for g in gpus], found)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_clock_that_is_set_back_by_an_hour_changes_nothing(hosts, victim, tmp_path):
    """The axis of a record comes from monotonic clocks."""
    file, clock = tmp_path / "set back", [{}, {}]
    clock[victim] = {"LD_PRELOAD": str(BUILD / "tests/peers/libset-clock.so"), "JM_FAKE_SET_BACK": str(file),
                     "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}
    gang = Gang(hosts, [*BETWEEN, *SMALL, "--seconds", "2", *STARTED, "--json", "-"], next(PORTS), env=clock)
    assert gang.worker(0) and gang.worker(1)
    time.sleep(0.5)
    file.touch()
    status, texts = gang.ended()
    assert status == [0, 0] and gang.nothing_is_left(), texts
    record = json.loads(texts[0][0])
    steady = [next(p for p in host["phases"] if p["name"] == "steady") for host in record["hosts"]]
    assert record["status"] == "ok" and abs(steady[0]["start_s"] - steady[1]["start_s"]) < 1
    assert all(1.5 < p["end_s"] - p["start_s"] < 30 for p in steady), steady


# ---- stops: a process that is stopped keeps its connections, and its kernel acknowledges what is sent ----

@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_ends_its_case_and_the_sweep_goes_on(hosts, victim):
    gang = Gang(hosts, [*BETWEEN, *SMALL, "--seconds", "3", "--repeat", "2", *STARTED, "--json", "-"], next(PORTS))
    pid = [gang.worker(i) for i in range(2)][victim]
    time.sleep(0.3)
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    assert wait_for(lambda: not os.path.exists(f"/proc/{pid}"))
    status, texts = gang.ended()
    assert status == [FAILED, 0] and time.monotonic() - began < SOON and gang.nothing_is_left()
    first, second = json.loads(texts[0][0])
    assert [first["status"], second["status"]] == ["failed", "ok"], texts
    assert first["reason"] == (f"Rank {victim} of 2 (process {pid} on host-{'ab'[victim]}): It was stopped (SIGSTOP) for 4 s, "
                               "during which the other ranks waited for it, and was killed."), first["reason"]


def stop(pids):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize("victim", ["head", "agent"])
def test_a_stopped_call_ends_both_and_caps_are_back(hosts, victim, tmp_path):
    gpus, found, gang = capped(hosts, tmp_path)
    stopped = 0 if victim == "head" else 1
    stop([gang.call[stopped].pid])
    began = time.monotonic()
    status, texts = gang.ended()
    assert time.monotonic() - began < SOON and status[stopped] == -signal.SIGKILL and status[1 - stopped] != 0
    assert gang.nothing_is_left()
    assert wait_for(lambda: [g.limits() for g in gpus] == found), ([g.limits() for g in gpus], found)
    says = "The run of rank 0 has ended" if victim == "head" else "on host-b): The agent on this host has ended"
    assert says in texts[1 - stopped][1], texts


def below(pid):
    """The process and all that it has started."""
    return [pid, *(p for child in children(pid) for p in below(child))]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_host_whose_processes_are_all_stopped_ends_the_others(hosts, victim, tmp_path):
    """As by a scheduler that suspends a job: nothing there can end anything, until it goes on."""
    gpus, found, gang = capped(hosts, tmp_path)
    stopped = below(gang.call[victim].pid)
    stop(stopped)
    began = time.monotonic()
    other = gang.call[1 - victim].communicate(timeout=240)
    assert time.monotonic() - began < SOON and gang.call[1 - victim].returncode != 0
    assert "does not answer any more" in other[1], other
    assert wait_for(lambda: gpus[1 - victim].limits() == found[1 - victim])
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):  # one before it has ended it
            os.kill(pid, signal.SIGCONT)
    gang.call[victim].communicate(timeout=240)
    assert gang.call[victim].returncode != 0 and gang.nothing_is_left()
    assert wait_for(lambda: [g.limits() for g in gpus] == found)


def test_a_short_stop_ends_nothing(hosts):
    gang = Gang(hosts, [*BETWEEN, *SMALL, "--seconds", "3", *STARTED, "--json", "-"], next(PORTS))
    for pid in gang.worker(0), gang.call[1].pid, gang.worker(1), gang.call[0].pid:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.7)
        os.kill(pid, signal.SIGCONT)
    status, texts = gang.ended()
    assert status == [0, 0] and json.loads(texts[0][0])["status"] == "ok", texts


@pytest.mark.parametrize("who", [[0], [1, 0]], ids=["head", "both"])
def test_ctrl_c_at_the_head_ends_both(hosts, who):
    """mpirun and srun pass it on to all ranks."""
    for pause in (0.5, 5, 40):
        gang = Gang(hosts, [*LONG, *STARTED], next(PORTS))
        assert gang.worker(0) and gang.worker(1)
        time.sleep(pause)
        for i in who:
            gang.call[i].send_signal(signal.SIGINT)
        status, texts = gang.ended()
        assert status == [130, 0] and gang.nothing_is_left(), texts
        if "before its measured phase" not in texts[0][1]:  # a busy machine had not come to it
            break
    assert "the result is kept" in texts[0][1], texts


def test_ctrl_c_twice_at_an_agent_ends_both(hosts):
    gang = Gang(hosts, [*LONG, *STARTED], next(PORTS))
    assert gang.worker(0) and gang.worker(1)
    gang.call[1].send_signal(signal.SIGINT)
    time.sleep(1)
    assert gang.call[1].poll() is None
    gang.call[1].send_signal(signal.SIGINT)
    status, texts = gang.ended()
    assert status == [FAILED, 125] and "goes on until rank 0 ends" in texts[1][1], (status, texts)
    assert gang.nothing_is_left()


MAKES_HOSTS = """
import netns, subprocess, sys
hosts = netns.Hosts()
subprocess.Popen(hosts.command(0, ["sleep", "600"]))
print(*hosts.names, flush=True)
sys.stdin.read()
"""


def spaces():
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()


def test_hosts_of_a_killed_program_end_with_what_runs_in_them(hosts):
    del hosts  # or the reason why there are none
    mark = f"JM_TEST_MARK={random.getrandbits(64):x}"
    program = subprocess.Popen([sys.executable, "-c", MAKES_HOSTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **dict([mark.split("=")])})
    names = set(program.stdout.readline().split())
    assert names <= set(spaces())
    wait_for(lambda: len(processes_of(mark)) >= 3)  # the program, what keeps its hosts, and what runs there
    program.kill()
    program.communicate()
    wait_for(lambda: not processes_of(mark) and not names & set(spaces()))
