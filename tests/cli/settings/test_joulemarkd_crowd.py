# SPDX-License-Identifier: Apache-2.0
"""200 clients of three users who want four devices of joulemarkd, an hour of theirs in some seconds: each thinks, takes a lease, sets a
value, which a quarter of the time the policy does not allow, holds it and ends. Compared are the files of the devices, read all the
time, with what the policy allows; what the clients were told, with the lines of the service; and every client gets its turn."""
import collections
import ctypes
import json
import os
import random
import re
import socket
import threading
import time

import pytest

from daemon import SOCKET, USERS, Service, needs_a_namespace, reply, request, setting
from fake_gpus import wait_for
from sysfs_machine import CPUFREQ, POWERCAP

pytestmark = needs_a_namespace

CLIENTS = 200
HOUR_S = 12 if os.environ.get("JM_LONG") else 3
LONGEST_S = 60  # for those who had no turn by then
SLICE = 3600 / HOUR_S  # seconds of theirs in one of ours
# knob, id: what the policy allows, what a quarter of the settings asks for, the files of the device with their scale
DEVICES = [("package.power", f"{POWERCAP}/intel-rapl:{i}", (100, 200), (50, 99), [f"{POWERCAP}/intel-rapl:{i}/constraint_0_power_limit_uw"], 1e6)
           for i in (0, 1)] + \
          [("cpu.clock", f"policy{i}", (1e9, 3e9), (3.1e9, 3.6e9), [f"{CPUFREQ}/policy{k}/scaling_max_freq" for k in (i, i + 1)], 1e-3)
           for i in (0, 2)]
POLICY = "everyone package.power=100:200W for 1min leases 80\neveryone cpu.clock=1000:3000MHz for 1min leases 80\n"


class Client(threading.Thread):
    def __init__(self, path, seed, until):
        super().__init__(daemon=True)
        self.path, self.rng, self.until, self.counts = path, random.Random(seed), until, collections.Counter()

    def run(self):
        begin = time.monotonic()
        while time.monotonic() < self.until or not self.counts["turns"] and time.monotonic() - begin < LONGEST_S:
            time.sleep(self.rng.expovariate(1 / 600) / SLICE)  # 10 minutes
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                    s.settimeout(60)
                    s.connect(self.path)
                    self.lease(s)
            except Exception as problem:  # pylint: disable=broad-exception-caught  # of a thread in a child: told by the parent
                self.counts[repr(problem)] += 1

    def ask(self, s, op, payload=b"", n=0):
        s.send(request(op, payload, n))
        answer = s.recv(1 << 18)
        return reply(answer) if answer else (-1, "hung up")

    def lease(self, s):
        rc, why = self.ask(s, "open")
        if rc:
            self.counts["no lease: " + why] += 1
            return
        self.counts["leases"] += 1
        knob, device, allowed, others, _, _ = self.rng.choice(DEVICES)
        wrong = self.rng.random() < 0.25
        value = self.rng.uniform(*(others if wrong else allowed)) if knob == "package.power" else round(self.rng.uniform(*(others if wrong else allowed)), -6)
        rc, why = self.ask(s, "set", setting(knob, round(value) if knob == "package.power" else value, selector=device), 1)
        self.counts["turns" if not rc else "refused by the policy" if "Root's policy" in why else "taken" if "held by" in why or "is set by" in why
                    else why] += 1
        self.counts["wrong turns"] += wrong and not rc
        if not rc:
            time.sleep(self.rng.expovariate(1 / 10) / SLICE)
        self.ask(s, "stop")
        s.recv(1)  # all is put back


def crowd(uid, namespace, n, until, pipe):
    """In a child: n clients of a user, in the namespace of the service."""
    assert not ctypes.CDLL(None).setns(namespace, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    clients = [Client(SOCKET, f"{uid}/{i}", until) for i in range(n)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    os.write(pipe, json.dumps([client.counts for client in clients]).encode())


def start_crowds(service):
    until, running = time.monotonic() + HOUR_S, []
    namespace = os.open(f"/proc/{service.holder.pid}/ns/mnt", os.O_RDONLY)
    for k, uid in enumerate(USERS.values()):
        out, pipe = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                crowd(uid, namespace, CLIENTS // 3 + (k < CLIENTS % 3), until, pipe)
            finally:
                os._exit(0)
        os.close(pipe)
        running.append((pid, out))
    os.close(namespace)
    return running


class Watch(threading.Thread):
    """Reads the devices until it is told to end."""
    def __init__(self, machine):
        super().__init__()
        self.machine, self.end, self.looks, self.seen = machine, threading.Event(), 0, collections.defaultdict(set)

    def run(self):
        while not self.end.is_set():
            for knob, device, _, _, files, scale in DEVICES:
                for file in files:
                    text = self.machine.get(file)
                    if text:  # it is being written
                        self.seen[knob, device].add(float(text) / scale)
            self.looks += 1


@pytest.fixture
def service(tmp_path):
    s = Service(tmp_path)
    s.policy(POLICY)
    for package in range(2):  # what a limit waits for
        s.machine.put(f"{POWERCAP}/intel-rapl:{package}/constraint_0_time_window_us", 0)
    try:
        s.start()
        yield s
    finally:
        s.close()


def test_nobody_is_starved_and_nothing_is_beyond_the_policy(service):
    before = service.machine.files("")
    watch = Watch(service.machine)
    watch.start()
    counts = []
    for pid, out in start_crowds(service):
        with os.fdopen(out) as f:
            counts += [collections.Counter(c) for c in json.loads(f.read())]
        os.waitpid(pid, 0)
    watch.end.set()
    watch.join()
    total = sum(counts, collections.Counter())
    print(total, "looks", watch.looks, {key: len(values) for key, values in watch.seen.items()})
    assert len(counts) == CLIENTS and all(c["turns"] for c in counts) and not total["wrong turns"], total
    assert set(total) <= {"leases", "no lease", "turns", "wrong turns", "taken", "refused by the policy"}, total
    for knob, device, (low, high), _, files, scale in DEVICES:
        found = {float(before[file.lstrip("/")]) / scale for file in files}
        assert all(low <= value <= high for value in watch.seen[knob, device] - found), (knob, device)
    assert wait_for(lambda: not service.journals() and not service.leases()) and service.machine.files("") == before
    # the audit: a line for each lease, its settings and refusals, and its end
    assert wait_for(lambda: service.log().count("all put back") == total["leases"])
    log = service.log()
    assert log.count(": begins (") == total["leases"] and log.count("refused: Root's policy") == total["refused by the policy"]
    assert len(re.findall(r": set .*asked for .*accepted .*found ", log)) == total["turns"]
