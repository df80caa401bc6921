# SPDX-License-Identifier: Apache-2.0
"""serve-client --start: one server for all cases of a sweep that give its command, and none is left."""
import json
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from fake_gpus import wait_for
from jm import BIN, catches, jm

PEER = pathlib.Path(__file__).parents[2] / "peers/completion_server.py"
SWEEP = ["run", "serve-client", "--source", "null", "--warmup", "0", "--input-tokens", "3", "--output-tokens", "2", "--arrival", "poisson",
         "--order", "given"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def runs(pid):
    """One that has ended and was not reaped does not."""
    stat = pathlib.Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Starts:
    """A command that starts the server, and the process ids of the servers that it has started."""

    def __init__(self, folder):
        self.port, self.file, self.log = free_port(), folder / "starts", folder / "log"
        self.url = f"http://127.0.0.1:{self.port}"

    def command(self, before=":", first=":", answers=0):
        """What the first one does beside; it ends at the request after so many answers, if any."""
        ways = " ".join(["well"] * answers + ["exit"]) if answers else ""
        return (f"{before}; if [ ! -e {self.file} ]; then ways='{ways}'; {first}\nfi; echo $$ >>{self.file}; "
                f"exec {sys.executable} {PEER} {self.port} {self.log} $ways")

    def pids(self):
        return [int(line) for line in self.file.read_text().split()] if self.file.exists() else []

    def left(self):
        return [pid for pid in self.pids() if pathlib.Path(f"/proc/{pid}").exists()]


@pytest.fixture
def starts(tmp_path):
    one = Starts(tmp_path)
    yield one
    assert not one.left() and not answers(one.port)


def records(*options, status=0):
    done = jm(*SWEEP, *options, "--json", "-")
    assert done.returncode == status, done.stderr
    found = json.loads(done.stdout)
    return found if isinstance(found, list) else [found]


def setup_s(record):
    return next(p["end_s"] - p["start_s"] for p in record["phases"] if p["name"] == "setup")


def test_a_sweep_has_one_server(starts):
    rates = records("--url", starts.url, "--start", starts.command(before="sleep 0.3"), "--rate", "40,60", "--seconds", "0.5", "--repeat", "2")
    assert len(starts.pids()) == 1 and len(rates) == 4 and all(r["serving"]["requests_done"] > 0 for r in rates)
    start = [r["serving"]["server"]["start_s"] for r in rates]
    assert sorted(s is None for s in start) == [False, True, True, True]
    one = next(r for r in rates if r["serving"]["server"]["start_s"])
    assert 0.3 < one["serving"]["server"]["start_s"] <= setup_s(one)


def test_another_command_is_another_server(starts):
    commands = ",".join(starts.command(before=f"echo {word} >/dev/null") for word in ("red", "blue"))
    both = records("--url", starts.url, "--start", commands, "--rate", "40,60", "--seconds", "0.3")
    assert len(both) == 4 and len(starts.pids()) == 2
    assert sum(r["serving"]["server"]["start_s"] is not None for r in both) == 2


def test_a_server_that_ends_fails_its_case_and_the_next_starts_it_again(starts):
    rates = records("--url", starts.url, "--start", starts.command(answers=2), "--rate", "40,60", "--seconds", "1", status=1)
    assert len(starts.pids()) == 2
    failed, well = sorted(rates, key=lambda r: r["status"] == "ok")
    assert failed["status"] == "failed" and "The server of --start ended with status 7" in failed["reason"]
    assert well["status"] == "ok" and well["serving"]["server"]["start_s"] > 0


def test_a_server_that_is_found_ended_is_started_again(starts):
    """It ends while another case has it: its status is not known there."""
    rates = records("--url", starts.url, "--start", starts.command(answers=100), "--rate", "20,1000,21", "--seconds", "0.5", status=1)
    assert len(starts.pids()) == 2 and [r["status"] for r in rates].count("ok") == 2
    failed = next(r for r in rates if r["status"] == "failed")
    assert failed["case"]["parameters"]["options"]["rate"] == "1000" and "The server of --start ended while" in failed["reason"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(starts, number):
    """A child in a session of its own, which the server has started, neither."""
    command = starts.command(first=f"setsid sh -c 'echo $$ >>{starts.file}; exec sleep 1000' &")
    run = subprocess.Popen([BIN, *SWEEP, "--url", starts.url, "--start", command, "--rate", "40,60", "--seconds", "1000"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert wait_for(lambda: (starts.log.exists() and starts.log.stat().st_size > 0 and len(starts.pids()) == 2) or run.poll() is not None)
        assert catches(run.pid, signal.SIGINT)
        run.send_signal(number)
        run.communicate(timeout=240)
    finally:
        run.kill()
        run.wait()
    assert wait_for(lambda: not starts.left())


# a server that notes each SIGTERM, takes so many seconds to end, and, if it is mute, gives its models once
SLOW = """
import os, runpy, signal, sys, time
note, seconds, mute, peer, *rest = sys.argv[1:]

def say(word):
    with open(note, "a") as f:
        f.write(word + " ")

def end(*_):
    say("term")
    time.sleep(float(seconds))
    say("ended")
    os._exit(0)

signal.signal(signal.SIGTERM, end)
sys.argv = [peer, *rest]
own = runpy.run_path(peer)
ask, asked = own["Handler"].do_GET, []

def do_get(self):
    asked.append(1)
    if mute == "mute" and len(asked) > 1:
        self.close_connection = True
    else:
        ask(self)

own["Handler"].do_GET = do_get
own["Server"](int(rest[0]), rest[1], []).serve_forever()
"""


def slow(starts, seconds, mute="no"):
    """The command of such a server; what it notes is in the file of that name."""
    folder = starts.file.parent
    (folder / "slow.py").write_text(SLOW, encoding="utf-8")
    return f"{sys.executable} {folder}/slow.py {folder}/note {seconds} {mute} {PEER} {starts.port} {starts.log}"


def note(starts):
    file = starts.file.parent / "note"
    return file.read_text().split() if file.exists() else []


@pytest.mark.parametrize("form", ["cd /tmp; {}; true", "setsid {} & wait"])
def test_a_server_behind_a_shell_has_its_time_to_end(starts, form):
    records("--url", starts.url, "--start", form.format(slow(starts, 3)), "--rate", "40", "--seconds", "0.3")
    assert note(starts) == ["term", "ended"]


def test_a_second_interrupt_ends_the_server_at_once(starts):
    run = subprocess.Popen([BIN, *SWEEP, "--url", starts.url, "--start", "exec " + slow(starts, 8), "--rate", "40", "--seconds", "1000"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_for(lambda: starts.log.exists() and starts.log.stat().st_size > 0)
        run.send_signal(signal.SIGINT)
        assert wait_for(lambda: note(starts))
        run.send_signal(signal.SIGINT)
        run.wait(240)
    finally:
        run.kill()
        run.wait()
    assert note(starts) == ["term"]


def test_a_mute_server_gives_its_port_back(starts):
    """Also where a process in a session of its own holds it."""
    command = starts.command(first=f"echo $$ >>{starts.file}; setsid {slow(starts, 0, 'mute')} & wait; exit")
    both = records("--url", starts.url, "--start", command, "--rate", "40,60", "--seconds", "0.3")
    assert [r["serving"]["server"]["start_s"] is None for r in both] == [False, False]
    assert note(starts) == ["term", "ended"]


def test_a_stopped_case_leaves_the_helpers_of_the_server(starts):
    file = starts.file.parent / "helper"
    helper = f"(setsid sh -c 'echo $$ >>{file}; exec sleep 1000' &)"
    run = subprocess.Popen([BIN, *SWEEP, "--url", starts.url, "--start", starts.command(before=helper), "--rate", "40,60", "--seconds",
                            "1000", "--timeout", "2s"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_for(lambda: starts.pids() and file.exists() and file.read_text().endswith("\n"))
        pid = int(file.read_text().split()[0])
        assert wait_for(lambda: not runs(pid)) and not runs(starts.pids()[0]), "it ended before the server"
        run.wait(240)
    finally:
        run.kill()
        run.wait()
