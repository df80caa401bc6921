# SPDX-License-Identifier: Apache-2.0
"""Cost of joulemarkd, as ratios: leases.py BUILD. Needs root; the machine's files are fakes in a mount namespace (tests/kit/daemon.py).

lease, set, release / empty   connect, open, set, restore, close; the empty round trip sets nothing: connect, open, close
set / private                 one request to set: by joulemarkd's guard, and by a private guard of the same files
p99 / median                  connect and open of 200 clients at the same time
share of a core               processor time of joulemarkd and of the guards of 200 idle leases
"""
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.update(JM_BIN=str(BUILD / "joulemark"), JM_BUILD=str(BUILD))
sys.path[:0] = [str(ROOT / "tests/kit"), str(ROOT / "tests/peers")]
from daemon import SOCKET, Service, reply, request, setting  # noqa: E402

CLIENTS, REPEATS, IDLE_S = 200, 150, 20


def ask(s, op, payload=b"", n=0):
    s.send(request(op, payload, n))
    rc, why = reply(s.recv(1 << 18))
    if rc:
        sys.exit(f"leases: {op}: {why}")


def lease(service):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(f"/proc/{service.holder.pid}/root{SOCKET}")
    ask(s, "open")
    return s


def end(s):
    """Until the guard has hung up, so that all is put back."""
    ask(s, "stop")
    s.recv(1)
    s.close()


def timed(function, *arguments):
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin


def empty(service):
    end(lease(service))


def whole(service, watts):
    s = lease(service)
    ask(s, "set", setting("package.power", watts), 1)
    end(s)


def private_guard(service):
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = its.fileno()
    program = service.inside("sh", "-c", f"exec {BUILD}/joulemark guard 3<&{fd}" if fd < 10 else "exit 1")
    # in a session of its own, as joulemark starts it: the kernel shares processors among sessions
    process = subprocess.Popen(program, pass_fds=[fd], start_new_session=True, env={**service.env("root"), "LD_PRELOAD": service.machine.env["LD_PRELOAD"]})
    its.close()
    ask(ours, "open")
    return process, ours


def at_once(service):
    """Seconds until each of the clients, processes of their own, has its lease; the leases stay until the pipe is closed."""
    go, stay = os.pipe(), os.pipe()
    took = os.pipe()
    children = []
    for _ in range(CLIENTS):
        child = os.fork()
        if not child:
            os.close(stay[1])
            os.close(go[1])
            os.read(go[0], 1)
            begin = time.perf_counter()
            held = lease(service)
            os.write(took[1], f"{time.perf_counter() - begin}\n".encode())
            os.read(stay[0], 1)
            held.close()
            os._exit(0)
        children.append(child)
    time.sleep(2)
    os.close(go[1])
    text = b""
    while text.count(b"\n") < CLIENTS:
        text += os.read(took[0], 65536)
    return sorted(map(float, text.split())), children, stay[1]


def processor_s(pids):
    return sum(int(pathlib.Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) for pid in pids) / 1e9


def spread(values):
    q = statistics.quantiles(values, n=4)
    return f"{1e3 * q[1]:.3f} ms ({1e3 * q[0]:.3f} to {1e3 * q[2]:.3f})"


def set_once(s, watts, row):
    row.append(timed(ask, s, "set", setting("package.power", watts), 1))
    ask(s, "stop")
    s.close()


def measure(service):
    """In turn, slower than the leases a second that a user may have."""
    rows = {"empty": [], "whole": [], "set": [], "private": []}
    for i in range(REPEATS):
        watts = 110 + i % 4 // 2 * 20
        rows["empty"].append(timed(empty, service))
        rows["whole"].append(timed(whole, service, watts))
        process, private = private_guard(service)
        turns = [(lease(service), rows["set"]), (private, rows["private"])]
        for s, row in turns if i % 2 else turns[::-1]:
            time.sleep(0.02)
            set_once(s, watts, row)
        process.wait()
    return rows


def main():
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder) / "a/b"
        place.mkdir(parents=True)
        service = Service(place)
        service.policy("user root package.power=100:200W leases 300\n")
        for package in range(2):  # what a limit waits for is no part of the cost
            service.machine.put(f"/sys/class/powercap/intel-rapl:{package}/constraint_0_time_window_us", 0)
        try:
            service.start()
            rows = measure(service)
            time.sleep(5)  # the rate of leases fills again
            took, children, stay = at_once(service)
            pids = [service.daemon(), *service.guards()]
            before = processor_s(pids)
            time.sleep(IDLE_S)
            share = (processor_s(pids) - before) / IDLE_S
            os.close(stay)
            for child in children:
                os.waitpid(child, 0)
        finally:
            service.close()
    median = {name: statistics.median(values) for name, values in rows.items()}
    for name, values in rows.items():
        print(f"{name:8} {spread(values)}")
    p99 = took[int(0.99 * len(took))]
    print(f"lease, set, release / empty      {median['whole'] / median['empty']:.2f}   (aim 3)")
    print(f"set by joulemarkd / private      {median['set'] / median['private']:.2f}   (aim 1.2)")
    print(f"p99 / median of {CLIENTS} clients        {p99 / statistics.median(took):.2f}   (aim 10; median {1e3 * statistics.median(took):.1f} ms)")
    print(f"share of a core, {len(pids) - 1} idle leases {share:.6f}   (aim 0.001)")


if __name__ == "__main__":
    main()
