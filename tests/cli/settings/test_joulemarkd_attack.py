# SPDX-License-Identifier: Apache-2.0
"""joulemarkd under clients that do not keep to its protocol, and under policies that others could have written. What the files
of the machine have at the end is compared with what they had before; another client is served meanwhile."""
import array
import ctypes
import errno
import multiprocessing
import os
import signal
import socket
import struct
import time

import pytest

from daemon import MAGIC, VERSION, POLICY, SOCKET, Service, needs_a_namespace, reply, request, setting
from fake_gpus import kill, wait_for
from jm import BUILD, FAILURE, sentence

pytestmark = needs_a_namespace

RULES = "user root package.power=100:200W for 1h leases 8\nuser anna package.power=100:200W\n"
POWERCAP = "/sys/class/powercap"
children = []


@pytest.fixture
def service(tmp_path):
    s = Service(tmp_path)
    s.policy(RULES)
    try:
        s.start()
        yield s
    finally:
        for pid in list(children):
            reap(pid)
        s.close()


def limits(service):
    return [service.machine.get(f"{POWERCAP}/intel-rapl:{i}/constraint_0_power_limit_uw") for i in range(2)]


def all_is_back(service):
    return limits(service) == ["150125000"] * 2 and not service.journals() and not service.leases()


class Client(socket.socket):
    """A connection, from outside of the namespace."""

    def __init__(self, service):
        super().__init__(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.settimeout(30)
        self.connect(f"/proc/{service.holder.pid}/root{SOCKET}")

    def ask(self, op, payload=b"", n=0):
        self.send(request(op, payload, n))
        return reply(self.recv(1 << 18))

    def opened(self):
        assert self.ask("open") == (0, "") and self.ask("absent") == (0, "")
        return self

    def set(self, watts=120, **more):
        return self.ask("set", setting("package.power", watts, **more), 1)

    def is_over(self):
        """It has been hung up on; refusals may come first."""
        try:
            while self.recv(1 << 18):
                pass
        except ConnectionResetError:
            return self.is_over()
        except TimeoutError:
            return False
        return True


class Heir(Client):
    """A connection that another process has made, which has ended and been reaped."""

    def __init__(self, service):
        ours, theirs = socket.socketpair()
        self.first = os.fork()
        if not self.first:
            try:
                made = Client(service)
                socket.send_fds(theirs, [b"1"], [made.fileno()])
            finally:
                os._exit(0)
        theirs.close()
        _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
        os.waitpid(self.first, 0)
        socket.socket.__init__(self, fileno=fd)
        self.settimeout(30)


def in_child(function):
    """Calls the function in a child, which then goes on until it is killed; the parent goes on when the function is done."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write, function() or b"1")
            time.sleep(300)
        finally:
            os._exit(1)
    children.append(pid)
    os.close(write)
    done = os.read(read, 100)
    os.close(read)
    return pid, done


def reap(pid):
    children.remove(pid)
    kill(pid)
    os.waitpid(pid, 0)


def test_a_session_by_hand(service):
    """What the others break: set holds, restore and the end of the connection put back."""
    c = Client(service).opened()
    assert c.set() == (0, "") and limits(service) == ["120000000"] * 2
    assert c.ask("restore") == (0, "") and limits(service) == ["150125000"] * 2
    assert c.set(130) == (0, "") and limits(service) == ["130000000"] * 2
    c.close()
    assert wait_for(lambda: all_is_back(service))


@pytest.mark.parametrize("message", [
    b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), request("set")[:7], request("set")[:20],
    request("set", setting("package.power", 120), 1)[:-1], request("set", setting("package.power", 120), 1) + b"\0",
    struct.pack("<6I", MAGIC, VERSION + 1, 0, 0, 0, 0), struct.pack("<6I", MAGIC, VERSION, 99, 0, 0, 0),
    struct.pack("<6I", MAGIC, VERSION, 5, 0xffffffff, 200, 0), request("set", b"\xff" * 200, 1),
], ids=range(12))
def test_a_malformed_message_ends_the_lease(service, message):
    c = Client(service).opened()
    assert c.set() == (0, "")
    c.send(message)
    assert c.is_over()
    assert wait_for(lambda: all_is_back(service)), service.log()


@pytest.mark.parametrize("low, high, word", [
    (float("nan"), float("nan"), ""), (float("inf"), float("inf"), ""), (1e308, 1e308, ""), (-120, -120, ""), (0, 0, ""),
    (150, 120, ""), (120, 150, ""), (99.999, 99.999, ""), (200.001, 200.001, ""), (120, 120, "unlocked"), (120, 120, "default"),
    (-0.0, 1e-320, ""),
])
def test_no_other_value_is_set(service, low, high, word):
    c = Client(service)
    assert c.ask("open") == (0, "")
    c.ask("absent")
    assert c.set(low, high=high, word=word)[0] < 0
    assert limits(service) == ["150125000"] * 2
    c.close()
    assert wait_for(lambda: all_is_back(service))


@pytest.mark.parametrize("op, payload, n", [
    ("keep", b"", 0), ("state", setting("package.power", 10), 1), ("hold", setting("cpu.governor", 0, word="powersave"), 1),
    ("set", setting("package.peak_power", 150), 1), ("open", b"", 0)])
def test_no_other_request_is_served(service, op, payload, n):
    c = Client(service).opened()
    assert c.set() == (0, "")
    rc, why = c.ask(op, payload, n)
    assert rc < 0 and len(why) > 20, (rc, why)
    c.close()
    assert wait_for(lambda: all_is_back(service))


def test_the_client_chooses_no_controls(service):
    for specs in (b"sim:h100x1", b"cgroup:/", b"nvml"):
        c = Client(service)
        rc, why = c.ask("open", specs, len(specs))
        assert rc < 0 and "joulemarkd chooses the controls" in why
        c.close()


def test_a_client_that_forks_and_exits(service):
    """Its child has the socket; the lease ends with the process that connected."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        c = Client(service).opened()
        c.set()
        if os.fork():
            os._exit(0)
        os.write(write, str(os.getpid()).encode())
        time.sleep(300)
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    heir = int(os.read(read, 20))
    assert wait_for(lambda: all_is_back(service)), service.log()
    kill(heir)


def test_a_socket_that_is_passed_on(service):
    """Another process that got the descriptor asks: the kernel names it, and the lease ends."""
    c = Client(service).opened()
    assert c.set() == (0, "")

    def ask():
        return c.set(130)[1].encode()[:100]

    heir, said = in_child(ask)
    assert b"but process" in said and wait_for(lambda: all_is_back(service)), (said, service.log())
    reap(heir)


def process_with_the_id(pid):
    """Another process that has the id of one that has ended (clone3(2), set_tid)."""
    wanted = (ctypes.c_int * 1)(pid)
    words = (ctypes.c_uint64 * 10)(0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(wanted), 1)
    made = ctypes.CDLL(None, use_errno=True).syscall(435, words, ctypes.sizeof(words))
    if not made:
        signal.pause()
        os._exit(0)
    if made < 0:
        pytest.skip(f"no process can be given an id here: {os.strerror(ctypes.get_errno())}")
    children.append(made)
    return made


def has_peerpidfd():
    """The kernel says of a socket which process has connected, with SO_PEERPIDFD (Linux 6.5)."""
    one, other = socket.socketpair()
    with one, other:
        try:
            os.close(one.getsockopt(socket.SOL_SOCKET, 77))
        except OSError as e:
            return e.errno != errno.ENOPROTOOPT
    return True


@pytest.mark.parametrize("older", [
    pytest.param(False, marks=pytest.mark.skipif(not has_peerpidfd(), reason="this kernel, of before Linux 6.5, has no SO_PEERPIDFD")), True])
def test_a_process_id_that_is_used_again(tmp_path, older):
    """The one that connected has ended before joulemarkd looks, and another one has its id; its socket is ours. A kernel before 6.5
    says no more than the id, but who sends."""
    s = Service(tmp_path)
    s.policy(RULES)
    try:
        s.start(**({"PRELOAD": f"{s.machine.env['LD_PRELOAD']} {BUILD / 'tests/peers/libolder-kernel.so'}"} if older else {}))
        kill(s.daemon(), signal.SIGSTOP)
        c = Heir(s)
        assert process_with_the_id(c.first) == c.first
        kill(s.daemon(), signal.SIGCONT)
        assert not older or c.ask("open") == (0, "")
        said = c.set() if older else reply(c.recv(1 << 18))
        assert said[0] and ("but process" if older else "has ended") in said[1] and wait_for(lambda: all_is_back(s)), (said, s.log())
    finally:
        for pid in list(children):
            reap(pid)
        s.close()


def test_descriptors_in_a_message_are_not_taken(service):
    c = Client(service).opened()
    guard = service.guards()[0]
    before = len(os.listdir(f"/proc/{guard}/fd"))
    with open("/dev/null", "rb") as null:
        for _ in range(20):
            c.sendmsg([request("get")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null.fileno()] * 8))])
            c.recv(1 << 18)
    assert len(os.listdir(f"/proc/{guard}/fd")) == before
    c.close()


def test_a_stopped_client_ends_with_its_time(service):
    service.policy("user root package.power=100:200W for 2s\n")

    c = Client.__new__(Client)

    def hold():
        c.__init__(service)
        c.opened().set()

    pid, _ = in_child(hold)
    os.kill(pid, signal.SIGSTOP)
    assert limits(service) == ["120000000"] * 2
    assert wait_for(lambda: all_is_back(service)), service.log()
    reap(pid)


def test_a_client_that_reads_no_reply(service):
    """Its socket fills; the guard waits for 5 s and puts back."""
    c = Client(service).opened()
    assert c.set() == (0, "")
    c.settimeout(0.2)
    with pytest.raises((TimeoutError, BrokenPipeError, ConnectionResetError)):
        while True:
            c.send(request("get"))
    assert wait_for(lambda: all_is_back(service)), service.log()
    c.close()


def test_ten_thousand_connections(service):
    """As fast as one process makes them, most closed at once: anna is served meanwhile, and nothing of it is left."""
    def flood():
        for _ in range(10000):
            Client(service).close()

    pid = os.fork()
    if not pid:
        try:
            flood()
        finally:
            os._exit(0)
    done = [service.run("anna", "set", "package.power=130W", "--", "true") for _ in range(3)]
    assert [d.returncode for d in done] == [0] * 3, done
    os.waitpid(pid, 0)
    assert wait_for(lambda: all_is_back(service)), service.log()
    assert len(service.log().splitlines()) < 4000, "refusals fill the journal"
    assert len(os.listdir(f"/proc/{service.daemon()}/fd")) < 20


def test_many_open_sockets(service):
    """A user has its number of leases; the other sockets are refused and closed, and cost the daemon nothing."""
    clients = [Client(service) for _ in range(1000)]
    codes = [c.ask("open")[0] if c else 0 for c in clients[:8]]
    assert codes == [0] * 8 and len(service.leases()) == 8
    assert all(c.is_over() for c in clients[8:]) and len(os.listdir(f"/proc/{service.daemon()}/fd")) < 30
    done = service.run("anna", "set", "package.power=130W", "--", "true")
    assert done.returncode == 0, done.stderr
    for c in clients:
        c.close()
    assert wait_for(lambda: all_is_back(service))


def test_two_leases_for_one_knob(service):
    c, other = Client(service).opened(), Client(service).opened()
    assert c.set() == (0, "")
    rc, why = other.set(130)
    assert rc < 0 and f"process {os.getpid()}" in why and limits(service) == ["120000000"] * 2
    c.close()
    assert wait_for(lambda: limits(service) == ["150125000"] * 2)
    assert wait_for(lambda: other.set(130) == (0, ""))  # the guard of the first ends after that
    other.close()
    assert wait_for(lambda: all_is_back(service))


# ---- the policy

def refused(service):
    done = service.run("anna", "set", "package.power=120W", "--", "true")
    assert "cannot use root's policy" in sentence(done, FAILURE) and all_is_back(service)
    return service.log()


@pytest.mark.parametrize("text, why", [
    ("user anna\n", "KNOB=VALUES is expected"), ("users anna package.power=1:2W\n", "a rule begins with"),
    ("user anna package.power=200:100W\n", "lower end comes first"), ("user anna package.power=100:200\n", "one range such as"),
    ("user anna package.power=nanW\n", "one range"), ("user anna package.power=-100:infW\n", "one range"),
    ("user anna package.power=1e400W\n", "one range"), ("user anna package.power=100:200W for ever\n", "'for' takes a time"),
    ("user anna package.power=100:200W for -1s\n", "'for' takes a time"), ("user anna package.power=100:200W leases 0\n", "from 1"),
    ("user anna package.power=100:200W leases 1e9\n", "from 1"), ("user anna gpu.fan=1W\n", "there is no knob 'gpu.fan'"),
    ("user anna cpu.quota=1\n", "joulemarkd does not set 'cpu.quota'"), ("user anna package.power=\n", "no value"),
    ("everyone package.power=100:200W for\n", "no value follows 'for'"), ("user anna \0package.power=100W\n", "no text"),
    ("user anna package.power=100W" + "0" * 2000 + "\n", "longer than"), ("#" * 900 + "\n" + "#\n" * 40000, "larger than"),
    ("everyone package.power=100:200W\n" * 1001, "more rules than 1000"),
])
def test_a_policy_that_is_wrong_gives_nothing(service, text, why):
    service.policy(text)
    assert why in refused(service)


def test_a_policy_that_others_could_have_written(service):
    path = service.etc / "joulemark/joulemarkd.conf"
    service.policy(RULES, mode=0o666)
    assert "users other than root may write" in refused(service)
    service.policy(RULES)
    os.chown(path, 2001, 0)
    assert "does not belong to root" in refused(service)
    path.rename(path.with_name("other"))
    os.symlink("other", path)
    assert "it is a link" in refused(service)
    path.unlink()
    os.mkfifo(path, 0o644)
    assert "not a plain file" in refused(service)
    path.unlink()
    assert "cannot be opened: No such file" in refused(service)
    service.policy(RULES)
    path.parent.chmod(0o777)
    assert "or in its folder" in refused(service)
    path.parent.chmod(0o755)
    assert service.run("anna", "set", "package.power=120W", "--", "true").returncode == 0, POLICY


def sixteen_pages(low, high):
    """A policy whose rules lie across the ends of its pages, `...=LOW:` before the end and `HIGHW` after it."""
    text = b""
    for end in range(4096, 16 * 4096, 4096):
        rule = b"user anna package.power=%d:" % low
        text += b"\n" * (end - len(text) - len(rule)) + rule + b"%dW\n" % high
    return text


def test_a_policy_that_changes_while_it_is_read(service):
    """Of two policies that are written over each other in place each lease has one. With a page of each it would permit 150 W."""
    path = service.etc / "joulemark/joulemarkd.conf"
    rules = [sixteen_pages(100, 120), sixteen_pages(160, 200)]
    path.write_bytes(rules[0])

    def write():
        for i in range(1 << 30):
            with open(path, "r+b", buffering=0) as file:
                for k in range(1000 + i % 2):
                    os.pwrite(file.fileno(), rules[k % 2], 0)
            time.sleep(0.005)

    writer = multiprocessing.Process(target=write)
    writer.start()
    try:
        for i in range(60):
            done = service.run("anna", "set", f"package.power={(110, 150, 170, 150)[i % 4]}W", "--", "true")
            assert done.returncode == 0 or any(why in done.stderr for why in ("cannot use root's policy", "set package.power of", "set no knob",
                                               "leases a second", "leases of joulemarkd")), done.stderr
            assert i % 2 == 0 or done.returncode == FAILURE, done.stderr
    finally:
        writer.kill()
        writer.join()
    assert wait_for(lambda: all_is_back(service))
    service.policy(RULES)
    assert wait_for(lambda: service.run("anna", "set", "package.power=120W", "--", "true").returncode == 0), service.log()
