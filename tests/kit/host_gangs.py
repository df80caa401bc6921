# SPDX-License-Identifier: Apache-2.0
"""Calls of joulemark on two hosts, each of which runs one rank of a gang."""
import json
import os
import random

from fake_gpus import wait_for
from gangs import children, processes_of
from jm import BIN

# s, on a busy machine too: far less than the work takes, or ranks wait for each other (600 s); an idle one holds 10
SOON = float(os.environ.get("JM_TEST_SOON", "60"))
STARTED = ["--ranks", "2", "--launcher", "started"]


class Gang:
    """One call of joulemark on each host."""

    def __init__(self, hosts, words, port, env=({}, {}), more=((), ())):
        self.mark = f"JM_TEST_MARK={random.getrandbits(64):x}"
        name, value = self.mark.split("=")
        self.call = [hosts.start(i, words, hosts.environment(i, port=port, **{name: value, **env[i]}), more[i]) for i in range(2)]

    def ended(self):
        """Status and messages of both."""
        texts = [call.communicate(timeout=240) for call in self.call]
        return [call.returncode for call in self.call], texts

    def worker(self, i):
        """The rank that runs on host i, below joulemark."""
        found = []

        def look():
            with open(f"/proc/{self.call[i].pid}/cmdline", "rb") as f:
                if not f.read().startswith(os.fsencode(BIN)):
                    return False  # the shell that gives the host its name
            found[:] = [c for c in children(self.call[i].pid) if b"worker" in cmdline(c)]
            return bool(found)

        assert wait_for(look), "the rank did not start"
        return found[0]

    def nothing_is_left(self):
        return wait_for(lambda: not processes_of(self.mark))


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read()
    except OSError:
        return b""


PORTS = iter(range(29500, 29900))


def run(hosts, *words, **more):
    """The record of both hosts, and what the agent said."""
    status, texts = (gang := Gang(hosts, [*words, *STARTED, "--json", "-"], next(PORTS), **more)).ended()
    assert gang.nothing_is_left()
    assert status == [0, 0], texts
    return json.loads(texts[0][0])
