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
