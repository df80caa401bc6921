# SPDX-License-Identifier: Apache-2.0
"""Ranks of a small training, watched from outside."""
import ctypes
import json
import os
import random
import signal
import subprocess
import time
import weakref

import pytest

from fake_gpus import wait_for
from jm import BIN, BUILD, HANGS_S

GPT = ["run", "gpt", "--layers", "2", "--hidden", "32", "--heads", "2", "--vocab", "256", "--context", "32",
       "--seq", "32", "--warmup", "0", "--source", "null"]


CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
is_own = False
ENDS_S = 240  # no claim about how soon: ranks that are not ended wait for each other for 600 s or without end


def losses(record):
    return record["loss_first"], record["loss_last"]


def devices(n):
    """Fake devices that work by themselves, and a fake NCCL between them."""
    fake = BUILD / "tests/peers"
    return {"JM_BACKENDS": str(fake), "JM_FAKE_LATER_IDS": ",".join(f"GPU-{i}" for i in range(n)),
            "JM_NCCL_LIB": str(fake / "libnccl-fake.so")}


@pytest.fixture(name="two_devices")
def two_fake_devices():
    return devices(2)


def shared_memory():
    """Names of shared memory. From the first call on, a process that may mounts an empty folder for itself and what it
    starts, so that no other program's names are among them."""
    global is_own  # pylint: disable=global-statement
    libc = ctypes.CDLL(None, use_errno=True)
    if not is_own and os.geteuid() == 0 and libc.unshare(CLONE_NEWNS) == 0:
        libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, None)
    is_own = True
    return set(os.listdir("/dev/shm"))


def processes_of(mark):
    """Processes whose environment holds the mark."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(child) for child in f.read().split()]


class Running:
    """A gang at work: without --steps it ends by what the test does, not before."""

    def __init__(self, ranks, *more, device="ref", env=None, work=(*GPT, "--batch", "1")):
        self.mark = f"JM_TEST_MARK={random.getrandbits(64):x}"
        name, value = self.mark.split("=")
        self.ends = "--steps" in more
        length = [] if self.ends else ["--seconds", "3600"]
        args = [*work, "--device", device, *length, "--ranks", ranks, *more]
        self.process = subprocess.Popen([BIN, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True, env={**os.environ, **(env or {}), name: value})
        weakref.finalize(self, self.process.kill)  # a test that failed; the ranks follow
        self.ranks = self.wait_for_ranks(ranks)

    def wait_for_ranks(self, n):
        end = time.monotonic() + HANGS_S
        while time.monotonic() < end:
            found = children(self.process.pid)
            if len(found) == n:
                return found
            time.sleep(0.005)
        raise AssertionError("the gang did not start")

    def is_at_work(self):
        end = time.monotonic() + HANGS_S
        while time.monotonic() < end:
            with open(f"/proc/{self.ranks[0]}/maps", encoding="utf-8", errors="replace") as f:
                if "memfd:gang" in f.read():
                    return True
            time.sleep(0.005)
        return False

    def ended(self):
        """Its status, its messages, and seconds that it took to end."""
        began = time.monotonic()
        err = self.process.communicate(timeout=HANGS_S if self.ends else ENDS_S)[1]
        return self.process.returncode, err, time.monotonic() - began

    def nothing_is_left(self):
        return wait_for(lambda: not processes_of(self.mark))


def interrupted_record(out, *words, **how):
    """The record of a gang of two that got Ctrl-C in its measured steps, and what it said. No process is left."""
    for pause in (0.5, 5, 40):
        gang = Running(2, *words, "--json", out, **how)
        assert gang.is_at_work()
        time.sleep(pause)
        os.kill(gang.process.pid, signal.SIGINT)
        status, err, _ = gang.ended()
        assert status == 130, err
        if out.exists():  # else a slow machine had not come to the first measured step
            break
    assert gang.nothing_is_left()
    return json.loads(out.read_text()), err
