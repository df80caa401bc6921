# SPDX-License-Identifier: Apache-2.0
"""top on a terminal: the screen at several widths and after a resize; its end, and the state of the terminal after it."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from fake_gpus import FakeGpus
from jm import BIN, USAGE, jm, sentence

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()][0-9A-Za-z]|\x1b[=>78]|\x1b\][^\x07]*\x07|(.)", re.S)

pytestmark = pytest.mark.skipif("without the headers of" in jm("top").stderr, reason="built without ncurses")


class Screen:
    """The part of xterm that ncurses uses: writing, moving, erasing, repeating."""

    def __init__(self, rows, columns):
        self.rows, self.columns, self.at = rows, columns, (0, 0)
        self.cells = [[" "] * columns for _ in range(rows)]

    def put(self, c):
        y, x = self.at
        if x >= self.columns:
            y, x = y + 1, 0
        assert y < self.rows, "scrolled"
        self.cells[y][x] = c
        self.at = y, x + 1

    def erase(self, y, first, last):
        self.cells[y][first:last] = [" "] * (min(last, self.columns) - first)

    def control(self, text, final):
        numbers = [int(n) if n.isdigit() else 0 for n in text.split(";")]
        n, (y, x) = numbers[0], self.at
        if final == "H":
            self.at = max(n, 1) - 1, (max(numbers[1], 1) if len(numbers) > 1 else 1) - 1
        elif final == "d":
            self.at = max(n, 1) - 1, x
        elif final == "G":
            self.at = y, max(n, 1) - 1
        elif final in "ABCD":
            dy, dx = {"A": (-1, 0), "B": (1, 0), "C": (0, 1), "D": (0, -1)}[final]
            self.at = y + dy * max(n, 1), x + dx * max(n, 1)
        elif final == "J":
            if n == 2:
                self.cells = [[" "] * self.columns for _ in range(self.rows)]
            else:
                self.erase(y, x, self.columns)
                for row in range(y + 1, self.rows):
                    self.erase(row, 0, self.columns)
        elif final == "K":
            self.erase(y, *((0, x + 1) if n == 1 else (x, self.columns)))
        elif final == "X":
            self.erase(y, x, x + max(n, 1))
        elif final == "P":
            row = self.cells[y]
            self.cells[y] = row[:x] + row[x + max(n, 1):] + [" "] * max(n, 1)
        elif final == "@":
            row = self.cells[y]
            self.cells[y] = (row[:x] + [" "] * max(n, 1) + row[x:])[:self.columns]
        elif final == "b":
            for _ in range(n):
                self.put(self.cells[y][x - 1])
                y, x = self.at
        else:
            assert final in "mhlrt", (text, final)

    def take(self, text):
        for found in TOKEN.finditer(text):
            if found[2]:
                self.control(found[1], found[2])
            elif found[3] == "\r":
                self.at = self.at[0], 0
            elif found[3] == "\n":
                self.at = self.at[0] + 1, self.at[1]
            elif found[3] == "\b":
                self.at = self.at[0], self.at[1] - 1
            elif found[3]:
                self.put(found[3])

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]


class Top:
    """top on a terminal of its own, whose modes are looked at before and after."""

    def __init__(self, *args, size=(24, 80), env=None):
        self.leader, self.follower = pty.openpty()
        self.size = size
        self.resize(*size)
        self.before = termios.tcgetattr(self.follower)
        self.text = ""
        self.child = subprocess.Popen([BIN, "top", *map(str, args)], stdin=self.follower, stdout=self.follower,
                                      stderr=self.follower, env={**os.environ, "TERM": "xterm", **(env or {})},
                                      start_new_session=True, preexec_fn=self.take_terminal)

    def take_terminal(self):
        fcntl.ioctl(self.follower, termios.TIOCSCTTY, 0)

    def resize(self, rows, columns):
        self.size = rows, columns
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.leader], [], [], left)[0]:
                self.text += os.read(self.leader, 65536).decode()

    def screen(self):
        """Of what was written for the present size."""
        begin = max(self.text.rfind("\x1b[2J"), self.text.rfind("\x1b[H\x1b[J"), 0)
        screen = Screen(*self.size)
        screen.take(self.text[begin:])
        return screen.lines()

    def wait_for(self, what, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.2)
            if ENTER in self.text and any(re.search(what, line) for line in self.screen()):
                return self.screen()
        raise AssertionError((what, self.text))

    def type(self, text):
        os.write(self.leader, text.encode())

    def ended(self):
        """The exit status; the terminal must be whole."""
        end = time.monotonic() + 20
        while self.child.poll() is None and time.monotonic() < end:
            self.read(0.05)
        self.read(0.1)
        assert self.child.poll() is not None
        assert self.text.count(ENTER) == self.text.count(LEAVE)
        assert self.text.rindex(LEAVE) > self.text.rindex(ENTER) and "\x1b[?25h" in self.text + "\x1b[?12l\x1b[?25h"
        assert termios.tcgetattr(self.follower) == self.before
        os.close(self.leader)
        os.close(self.follower)
        return self.child.returncode


@pytest.fixture(name="gpus")
def two_gpus(tmp_path):
    return FakeGpus(tmp_path, 2, "wave=const;power=210;mem=0")


def row_of(lines, label):
    table = lines[2:lines.index("")] if "" in lines else lines[2:]
    found = [line for line in table if line.startswith(label)]
    assert len(found) == 1, lines
    return found[0].split()


def test_shows_the_devices_at_80_columns(gpus):
    top = Top("--source", "nvml", "--interval", "200ms", env=gpus.env)
    lines = top.wait_for(r"^\d\d:\d\d:\d\d  420\.0 W measured$")
    top.type("q")
    assert top.ended() == 0
    titles = lines[1].split()
    assert titles[:4] == ["device", "W", "origin", "MHz"] and titles[-1] == "throttled" and "C" in titles
    for gpu in range(2):
        row = row_of(lines, f"GPU {gpu} NVIDIA H100 80GB HBM3 ")
        assert {"210.0", "measured", "700"} <= set(row) and row[-1] == "no"
    assert any("No run or measurement of joulemark is under way." in line for line in lines)


def test_fits_20_columns(gpus):
    top = Top("--source", "nvml", "--interval", "200ms", size=(24, 20), env=gpus.env)
    lines = top.wait_for(r"GPU 1 .*\+ +210\.0$")
    top.type("q")
    assert top.ended() == 0
    assert lines[1].split() == ["device", "W"] and "No run or" in "\n".join(lines)


def test_follows_the_size_of_the_terminal():
    top = Top("--source", "sim:h100x4", "--interval", "60s")
    top.wait_for(r"^GPU 3 ")
    top.resize(5, 40)
    lines = top.wait_for(r"more lines")
    assert len(lines) == 5 and lines[2].startswith("GPU 0")
    top.resize(24, 120)
    lines = top.wait_for(r"mem MHz")
    top.type("q")
    assert top.ended() == 0
    assert row_of(lines, "GPU 3") and "limit W" in lines[1]


@pytest.mark.parametrize("size", [(1, 1), (2, 500)])
def test_any_size_is_taken(size):
    top = Top("--source", "sim:h100x2", "--for", "1s", size=size)
    assert top.ended() == 0


@pytest.mark.parametrize("how", ["q", "\x03", signal.SIGTERM, signal.SIGHUP])
def test_leaves_the_terminal_whole(how):
    top = Top("--source", "sim:h100x2")
    top.wait_for("^GPU 1 ")
    if isinstance(how, str):
        top.type(how)
    else:
        top.child.send_signal(how)
    assert top.ended() == 0


def test_ends_with_its_terminal():
    top = Top("--source", "sim:h100x2")
    top.wait_for("^GPU 1 ")
    os.close(top.leader)
    assert top.child.wait(timeout=20) == 0
    os.close(top.follower)


def test_shows_running_work(tmp_path):
    env = {"JM_STATE": str(tmp_path / "state")}
    with subprocess.Popen([BIN, "measure", "--source", "sim:h100x2", "sleep", "60"], env={**os.environ, **env},
                          stderr=subprocess.DEVNULL) as child:
        top = Top("--source", "sim:h100x2", "--interval", "200ms", env=env)
        lines = top.wait_for("^measure sleep 60: .* W simulated")
        child.terminate()
        child.wait(timeout=20)
        top.wait_for("No run or measurement")
    top.type("q")
    assert top.ended() == 0
    assert f"process {child.pid}" in " ".join(lines)


def test_a_lost_gpu_is_unknown_and_the_screen_stays(tmp_path):
    gpus = FakeGpus(tmp_path, 2, "wave=const;power=210;lost=1@1.5")
    top = Top("--source", "nvml", "--interval", "200ms", env=gpus.env)
    top.wait_for(r"420\.0 W measured$")
    top.wait_for(r"^\d\d:\d\d:\d\d$")  # no sum any more
    top.read(0.5)
    lines = top.screen()
    top.type("q")
    assert top.ended() == 0
    assert "210.0" not in row_of(lines, "GPU 1") and "-" in row_of(lines, "GPU 1")
    assert any("is lost: the driver" in line for line in lines)
    assert row_of(lines, "GPU 0")[-1] != "-" and "210.0" in row_of(lines, "GPU 0") and " W measured" not in lines[0]


def test_the_limit_is_the_one_that_is_set(tmp_path):
    env = {"JM_STATE": str(tmp_path / "state")}
    assert jm("set", "--control", "sim:h100x2", "gpu.power=300W", env=env).returncode == 0
    top = Top("--source", "sim:h100x2", "--interval", "200ms", size=(24, 120), env=env)
    lines = top.wait_for(r"^GPU 1.* 300 ")
    top.type("q")
    assert top.ended() == 0
    assert "300" in row_of(lines, "GPU 0")


def test_tells_that_the_power_limit_holds_clocks_back(tmp_path):
    """The fake NVML reports it where the power is above the limit."""
    gpus = FakeGpus(tmp_path, 1, "wave=const;power=710;mem=0")
    top = Top("--source", "nvml", "--interval", "200ms", env=gpus.env)
    lines = top.wait_for(r"^GPU 0 .* cap$")
    top.type("q")
    assert top.ended() == 0 and "throttled" in lines[1]


def test_no_terminal_is_an_error(tmp_path):
    assert "joulemark watch" in sentence(jm("top", "--source", "sim:h100x2"), USAGE)
    leader, follower = pty.openpty()
    done = jm("top", "--source", "sim:h100x2", stdin=follower, stdout=follower, env={"TERM": "no-such-terminal"})
    os.close(leader)
    os.close(follower)
    assert "no-such-terminal" in sentence(done, USAGE)
