# SPDX-License-Identifier: Apache-2.0
"""Hosts: network namespaces on this machine, joined by a pair of virtual cables, each with a name of its own."""
import os
import shutil
import subprocess

import pytest

from jm import BIN


def why_not():
    """Why no hosts can be made here; None: they can."""
    if os.geteuid():
        return "network namespaces need root"
    if not shutil.which("ip") or not shutil.which("unshare"):
        return "ip and unshare (iproute2, util-linux) are not installed"
    done = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"no network namespace can be made: {done.stderr.strip()}"


# Removes the hosts and ends what runs in them once its standard input ends: at the end of close(), or of a program that is killed.
KEEPER = """
read nothing
for name; do ip netns pids "$name" | xargs -r kill -KILL; ip netns del "$name"; done
"""


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


class Hosts:
    """Two hosts, a and b, with the addresses 10.77.N.1 and 10.77.N.2."""

    def __init__(self):
        self.mark = os.getpid() % 200 + 1
        self.names = [f"jm{os.getpid()}{letter}" for letter in "ab"]
        self.address = [f"10.77.{self.mark}.{i + 1}" for i in range(2)]
        self.keeper = subprocess.Popen(["sh", "-c", KEEPER, "sh", *self.names], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
        for name in self.names:
            ip("netns", "add", name)
        ends = [f"jm{os.getpid() % 100000}{letter}" for letter in "ab"]
        ip("link", "add", ends[0], "netns", self.names[0], "type", "veth", "peer", "name", ends[1], "netns", self.names[1])
        for name, end, address in zip(self.names, ends, self.address):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        self.ends = ends

    def close(self):
        self.keeper.stdin.close()
        self.keeper.wait()

    def command(self, i, words, more=()):
        """The words that run a command on host i, whose name is host-a or host-b; more: options of unshare."""
        naming = f'hostname host-{"ab"[i]}; exec "$@"'
        return ["ip", "netns", "exec", self.names[i], "unshare", "--uts", *more, "sh", "-c", naming, "sh", *map(str, words)]

    def agent(self, path):
        """What mpirun calls in place of ssh, with an address and words of a shell: runs them on that host."""
        cases = "\n".join(f"{address}) space={name} host=host-{letter} ;;"
                          for address, name, letter in zip(self.address, self.names, "ab"))
        path.write_text(f'#!/bin/sh\naddress=$1; shift\ncase $address in\n{cases}\nesac\n'
                        'exec ip netns exec "$space" unshare --uts sh -c "hostname $host; $*"\n')
        path.chmod(0o755)
        return path

    def environment(self, rank, world=2, port=29500, **more):
        return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": self.address[0],
                "MASTER_PORT": str(port), "JM_GANG_SECRET": "0123456789abcdef", **{k: str(v) for k, v in more.items()}}

    def start(self, i, words, env, more=()):
        return subprocess.Popen(self.command(i, [BIN, *words], more), env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture(name="hosts", scope="module")
def two_hosts():
    reason = why_not()
    if reason:
        pytest.skip(reason)
    hosts = Hosts()
    yield hosts
    hosts.close()
