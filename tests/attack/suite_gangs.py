# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import re
import signal
import time

from gangs import GPT, Running, devices, losses, shared_memory
from jm import jm
from runs import FAILED

STEPS = 24
KINDS = ("local", "host", "nccl")
PATIENCE_S = 45  # for a gang to end on a machine that is busy with other tests
KILLED_BY = (signal.SIGKILL, signal.SIGKILL, signal.SIGABRT, signal.SIGTERM, signal.SIGSEGV)


def work(kind, ranks):
    """Words and environment of a training that takes a second."""
    words = ["--steps", str(STEPS)]
    if kind == "local":
        return words, "ref", {}
    names = ",".join(f"later:{r}" for r in range(ranks))
    more = ["--gradients", "f32"] if kind == "host" else []
    return [*words, "--transport", kind, *more], names, {**devices(ranks), "JM_FAKE_LATER_US": "50"}


class Gang(Running):
    def __init__(self, folder, kind, ranks, env=None):
        words, device, needed = work(kind, ranks)
        self.kind, self.world = kind, ranks
        self.out = os.path.join(folder, f"{random.getrandbits(64):x}.json")
        super().__init__(ranks, *words, "--json", self.out, device=device, env={**needed, **(env or {})})

    def ended(self):
        began = time.monotonic()
        err = self.process.communicate(timeout=PATIENCE_S)[1]
        return self.process.returncode, err, time.monotonic() - began

    def record(self):
        with open(self.out, encoding="utf-8") as f:
            return json.load(f)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Suite:
    """Two gangs at once, one of them harmed; truth: losses of an unharmed gang, the harm, and the processes left."""

    def __init__(self, folder):
        self.folder = folder
        self.shared = shared_memory()
        self.right = {(kind, ranks): self.unharmed(kind, ranks) for kind in KINDS for ranks in (2, 3)}

    def unharmed(self, kind, ranks):
        words, device, env = work(kind, ranks)
        done = jm(*GPT, "--device", device, "--batch", "1", "--ranks", ranks, *words, "--json", "-", env=env)
        assert done.returncode == 0, done.stderr
        return losses(json.loads(done.stdout))

    def is_right(self, gang, ended):
        status, err, _ = ended
        assert status == 0, f"{gang.kind}: status {status}, {err}"
        assert losses(gang.record()) == self.right[gang.kind, gang.world], gang.record()

    # ---- harms: each returns what was done, and what the reason must match; None = the result must be right

    def killed(self, rng, gang):
        time.sleep(rng.choice((0, 0.05, 0.3)) * rng.random())
        victim, number = rng.randrange(gang.world), rng.choice(KILLED_BY)
        if gang.process.poll() is None:
            os.kill(gang.ranks[victim], number)
        return "ranks killed", (rf"Rank {victim} of {gang.world} \(process {gang.ranks[victim]}\) was killed by signal "
                                rf"{int(number)} \({re.escape(signal.strsignal(number))}\)")

    def stopped(self, rng, gang):
        """A rank that stands still for a while delays the others, and changes nothing."""
        victim = rng.choice(gang.ranks)
        time.sleep(0.2 * rng.random())
        os.kill(victim, signal.SIGSTOP)
        time.sleep(rng.random())
        os.kill(victim, signal.SIGCONT)
        return "ranks stopped", None

    def orphaned(self, rng, gang):
        time.sleep(rng.choice((0, 0.3)) * rng.random())
        gang.process.kill()
        return "parents killed", ""

    def cancelled(self, rng, gang):
        time.sleep(0.3 * rng.random())
        gang.process.send_signal(signal.SIGTERM)
        return "parents ended", ""

    @staticmethod
    def faults(rng, kind, ranks):
        """Environments in which a rank fails or hangs, and what is to be said of it."""
        rank, n = rng.randrange(ranks), rng.randrange(1, 90)
        never = {"JM_FAKE_LATER_HANGS": f"open/{rank}", "JM_GANG_SECONDS": "8"}, f"Rank {rank} has not joined the other ranks"
        if kind == "host":
            fails = {"JM_FAKE_LANES_FAIL": f"{rank}/{n}"}
            # shortly before: the host waits for a step that hangs, and then never comes to the call that fails
            stuck = {**fails, "JM_FAKE_LANES_HANG": f"{rank}/{rng.randrange(max(1, n - 3), n + 1)}"}
            wedged = {**fails, "JM_FAKE_LATER_HANGS": f"close/{rank}"}
            return [never] + [(env, rf"Rank {rank} of \d.*told to fail") for env in (fails, stuck, wedged)]
        fails = {"JM_FAKE_NCCL_FAILS": str(n)}, "A transfer by NCCL failed: internal error"
        loses = {"JM_FAKE_NCCL_HANGS": str(n)}, "A transfer by NCCL failed: remote process exited"
        lost = {"JM_FAKE_NCCL_INIT_HANGS": str(rank), "JM_GANG_SECONDS": "8"}, "Opening a communicator by NCCL has not ended"
        return [never, fails, loses, lost]

    def is_harmed(self, gang, ended, reason):
        """It tells the reason, unless the harm came after its end."""
        status, err, seconds = ended
        assert seconds < PATIENCE_S
        if status == 0:
            self.is_right(gang, ended)
            return "harmed too late"
        if reason:
            assert status == FAILED and re.search(reason, " ".join(err.split())), f"{gang.kind}: {status}, not '{reason}': {err}"
        return "harmed"

    def round(self, rng):
        ranks, kind = rng.choice((2, 3)), rng.choice(KINDS)
        env, reason, harm = None, None, rng.choice((self.killed, self.killed, self.stopped, self.orphaned, self.cancelled, None))
        if harm is None:
            kind = rng.choice(("host", "nccl"))
            env, reason = rng.choice(self.faults(rng, kind, ranks))
        other = Gang(self.folder, rng.choice(KINDS), rng.choice((2, 3)))
        gang = None
        try:
            gang = Gang(self.folder, kind, ranks, env)
            what = "ranks at fault"
            if harm:
                what, reason = harm(rng, gang)
            ended = gang.ended()
            if reason is None:
                self.is_right(gang, ended)
                done = "went on"
            else:
                done = self.is_harmed(gang, ended, reason)
            self.is_right(other, other.ended())
            for one in (gang, other):
                assert one.nothing_is_left(), f"{one.kind}: processes are left"
        finally:
            for one in filter(None, (gang, other)):
                one.end()
        left = shared_memory() - self.shared
        assert not left, f"shared memory is left: {left}"
        return [f"{kind}: {what}, {done}"]

    def close(self):
        pass
