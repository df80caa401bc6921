# SPDX-License-Identifier: Apache-2.0
"""run --ranks: ranks that are killed, stopped, fail or hang, and their parents: all end, and the reason is named."""
import os
import random
import re
import signal
import socket
import subprocess
import time

import pytest

from gangs import ENDS_S, GPT, Running, interrupted_record, shared_memory, two_fake_devices  # pylint: disable=unused-import
from jm import BIN, HANGS_S
from runs import FAILED, one


KILLS = int(os.environ.get("JM_TEST_KILLS", "4"))


@pytest.mark.parametrize("transport", ["auto", "net"])
@pytest.mark.parametrize("seed", range(KILLS))
def test_one_killed_rank_ends_all(seed, transport):
    """At a random moment of setup, steps or between; the reason names the rank, and nothing stays behind."""
    draw = random.Random(seed)
    before = shared_memory()
    gang = Running(draw.choice([2, 3]), "--transport", transport)
    time.sleep(draw.choice([0, 0.02, 0.1, 0.5]) * draw.random())
    victim = draw.randrange(len(gang.ranks))
    number = draw.choice([signal.SIGKILL, signal.SIGABRT, signal.SIGTERM])
    os.kill(gang.ranks[victim], number)
    status, err, _ = gang.ended()
    assert status == FAILED
    assert re.search(rf"Rank {victim} of \d \(process {gang.ranks[victim]}\) was killed by signal {int(number)} "
                     rf"\({re.escape(signal.strsignal(number))}\)", err), err
    assert gang.nothing_is_left()
    assert shared_memory() <= before


@pytest.mark.parametrize("seed", range(3))
def test_one_killed_rank_ends_all_that_wait_for_copies(two_devices, seed):
    """Queues of the other rank wait in shared memory for pieces that never come."""
    gang = Running(2, "--transport", "host", device="later:0,later:1", env=two_devices)
    assert gang.is_at_work()
    time.sleep(random.Random(seed).random())
    os.kill(gang.ranks[seed % 2], signal.SIGKILL)
    status, err, _ = gang.ended()
    assert status == FAILED and f"Rank {seed % 2} of 2" in err and "was killed by signal 9" in err, err
    assert gang.nothing_is_left()


@pytest.mark.parametrize("work", [[*GPT, "--batch", "1"], ["run", "allreduce", "--size", "0.0005", "--warmup", "0"]], ids=["gpt", "allreduce"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_ends_one_that_waits_for_its_copies(two_devices, work, rank):
    """The reason is that of the rank that failed, whose queues end first."""
    env = {**two_devices, "JM_FAKE_LANES_FAIL": f"{rank}/40"}
    r = one(*work, "--steps", "200", "--device", "later:0,later:1", "--ranks", "2", "--transport", "host", env=env, status=FAILED, timeout=ENDS_S)
    assert r["reason"].startswith(f"Rank {rank} of 2") and "told to fail" in r["reason"], r["reason"]


HANGING = [*GPT, "--batch", "1", "--steps", "200", "--device", "later:0,later:1", "--ranks", "2"]


@pytest.mark.parametrize("transport", ["nccl", "host"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_never_opens_its_device_is_named(two_devices, rank, transport):
    env = {**two_devices, "JM_FAKE_LATER_HANGS": f"open/{rank}", "JM_GANG_SECONDS": "2"}
    r = one(*HANGING, "--transport", transport, env=env, status=FAILED)
    assert r["reason"].startswith(f"Rank {1 - rank} of 2"), r["reason"]
    assert f"Rank {rank} has not joined the other ranks within 2 s" in r["reason"], r["reason"]


def test_ranks_whose_nccl_differs_are_told_so(two_devices):
    """Ranks that were started apart, as on two hosts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    calls = [subprocess.Popen([BIN, *HANGING, "--transport", "nccl", "--launcher", "started"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, **two_devices, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                   "MASTER_PORT": str(port), "JM_GANG_SECRET": "0123456789abcdef", "JM_FAKE_NCCL_VERSION": version})
             for rank, version in enumerate(("22803", "22703"))]
    told = [call.communicate(timeout=HANGS_S)[0] for call in calls]
    assert calls[0].returncode == FAILED
    assert "rank 0 has version 22803, rank 1 has 22703; install the same on all hosts" in told[0], told


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("blocking", ["0", "1"])
def test_a_rank_that_hangs_in_nccl_ends_all(two_devices, rank, blocking):
    """NCCL's own wait has no end."""
    env = {**two_devices, "NCCL_COMM_BLOCKING": blocking, "JM_FAKE_NCCL_INIT_HANGS": str(rank), "JM_GANG_SECONDS": "2"}
    r = one(*HANGING, "--transport", "nccl", env=env, status=FAILED)
    assert "Opening a communicator by NCCL has not ended within 2 s" in r["reason"], r["reason"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_failed_rank_whose_device_never_ends_a_copy_tells_its_reason(two_devices, rank):
    env = {**two_devices, "JM_FAKE_LANES_HANG": f"{rank}/40", "JM_FAKE_LANES_FAIL": f"{rank}/44"}
    r = one(*HANGING, "--transport", "host", env=env, status=FAILED, timeout=ENDS_S)
    assert r["reason"].startswith(f"Rank {rank} of 2") and "told to fail" in r["reason"], r["reason"]


def test_a_failed_rank_that_never_closes_its_device_is_ended(two_devices):
    env = {**two_devices, "JM_FAKE_LANES_FAIL": "1/40", "JM_FAKE_LATER_HANGS": "close/1"}
    r = one(*HANGING, "--transport", "host", env=env, status=FAILED, timeout=ENDS_S)
    assert r["reason"].startswith("Rank 1 of 2") and "told to fail" in r["reason"], r["reason"]


@pytest.mark.parametrize("more", [[], ["--transport", "net"]], ids=["local", "net"])
def test_a_stopped_rank_is_ended_and_named(more):
    gang = Running(2, *more)
    time.sleep(0.3)
    os.kill(gang.ranks[1], signal.SIGSTOP)
    status, err, took = gang.ended()
    assert status == FAILED and took > 3
    assert f"Rank 1 of 2 (process {gang.ranks[1]}): It was stopped (SIGSTOP) for 4 s" in err, err
    assert gang.nothing_is_left()


def test_ranks_outlive_a_parent_that_is_stopped_for_a_while():
    """As by Ctrl-Z, after which it goes on."""
    gang = Running(2, "--steps", "20")
    os.kill(gang.process.pid, signal.SIGSTOP)
    time.sleep(6)
    os.kill(gang.process.pid, signal.SIGCONT)
    status, err, _ = gang.ended()
    assert status == 0, err


def test_a_killed_parent_leaves_no_ranks():
    gang = Running(2)
    assert gang.is_at_work()
    gang.process.kill()
    gang.process.wait()
    assert gang.nothing_is_left()


def test_the_reason_is_that_of_the_rank_that_failed():
    """Both run out of memory, whichever comes first."""
    r = one(*GPT, "--device", "ref", "--batch", "2", "--ranks", "2", "--memory", "0.0001", "--steps", "1", status=FAILED)
    assert re.match(r"Rank [01] of 2 \(process \d+\): Out of memory before the first step", r["reason"])


def test_the_reason_of_the_failed_rank_is_reported_not_that_of_a_waiting_one():
    """Rank 0 plans first, and fails: its reason is told, not that rank 1 misses it."""
    r = one(*GPT, "--device", "ref", "--batch", "1", "--ranks", "2", "--remake", "5", "--steps", "1", status=FAILED)
    assert re.match(r"Rank 0 of 2 \(process \d+\): The peaks of device ref are not known", r["reason"]), r["reason"]


def test_ctrl_c_ends_after_the_step(tmp_path):
    r, err = interrupted_record(tmp_path / "r.json")
    assert "the result is kept" in err
    assert r["interrupted"] is True and r["steps"] > 0 and r["throughput"] > 0
    assert r["reason"].startswith(f"Interrupted after {r['steps']} steps")
    assert [o["order"] for o in r["orders"]] == ["note", "stop"]
