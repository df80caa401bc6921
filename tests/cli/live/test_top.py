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
TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()][0-9A-Za-z]|\x1b[=>78M]|\x1b\][^\x07]*\x07|(.)", re.S)

pytestmark = pytest.mark.skipif("without the headers of" in jm("top").stderr, reason="built without ncurses")


class Screen:
    """The part of xterm that ncurses uses: writing, moving, erasing, repeating."""

    def __init__(self, rows, columns):
        self.rows, self.columns, self.at = rows, columns, (0, 0)
        self.region = 0, rows
        self.cells = [[" "] * columns for _ in range(rows)]

    def put(self, c):
        y, x = self.at
        if x >= self.columns:
            y, x = y + 1, 0
        assert y < self.rows, "scrolled"
        self.cells[y][x] = c
        self.at = y, x + 1

    def scroll(self, first, n):
        """The lines from there to the end of the region move down by n, or up by -n."""
        last = self.region[1]
        empty = [[" "] * self.columns for _ in range(min(abs(n), last - first))]
        lines = self.cells[first:last]
        self.cells[first:last] = empty + lines[:len(lines) - len(empty)] if n > 0 else lines[len(empty):] + empty

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
        elif final in "TSLM":
            self.scroll(y if final in "LM" else self.region[0], max(n, 1) if final in "TL" else -max(n, 1))
        elif final == "r":
            self.region = (n - 1, numbers[1]) if len(numbers) > 1 else (0, self.rows)
            self.at = 0, 0
        elif final == "b":
            for _ in range(n):
                self.put(self.cells[y][x - 1])
                y, x = self.at
        else:
            assert final in "mhlt", (text, final)

    def take(self, text):
        for found in TOKEN.finditer(text):
            if found[2]:
                self.control(found[1], found[2])
            elif found[3] == "\r":
                self.at = self.at[0], 0
            elif found[3] == "\n" and self.at[0] == self.region[1] - 1:
                self.scroll(self.region[0], -1)
            elif found[3] == "\n":
                self.at = self.at[0] + 1, self.at[1]
            elif found[0] == "\x1bM":
                self.scroll(self.region[0], 1)
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


def processes_of(lines):
    """The rows of the processes by process id."""
    head = next(i for i, line in enumerate(lines) if " PID " in line)
    titles = lines[head].replace("J est.", "joules").replace("mem GB", "memory").split()
    rows = [dict(zip(titles, line.split(maxsplit=len(titles) - 1))) for line in lines[head + 1:-1] if line]
    return {int(row["PID"]): row for row in rows if row["PID"].isdigit()}


def test_shows_the_devices_at_80_columns(gpus):
    top = Top("--source", "nvml", "--interval", "200ms", env=gpus.env)
    lines = top.wait_for(r"^\d\d:\d\d:\d\d  420\.0 W measured$")
    top.type("q")
    assert top.ended() == 0
    titles = lines[1].split()
    assert titles[:4] == ["device", "W", "limit", "W"] and {"MHz", "C", "use", "mem", "throttled"} <= set(titles)
    for gpu in range(2):
        row = row_of(lines, f"GPU {gpu} NVIDIA ")
        assert {"210.0", "700", "8.0/86", "no"} <= set(row)
    assert lines[-1].startswith("q quit  ? help  s sort (J)  f freeze")


def test_a_wide_terminal_has_everything_and_bars(tmp_path):
    gpus = FakeGpus(tmp_path, 1, "wave=const;power=350;mem=0")
    top = Top("--source", "nvml", "--interval", "100ms", size=(30, 200), env=gpus.env | {"LC_ALL": "C.UTF-8"})
    lines = top.wait_for("▄▄▄$")  # half of the limit of 700 W: four of eight steps
    top.type("q")
    assert top.ended() == 0
    row = row_of(lines, "GPU 0 NVIDIA H100 80GB HBM3 ")
    assert {"350.0", "measured", "700", "1980", "2619", "8.0/86", "98%", "no"} <= set(row)
    assert set(row[-1]) == {"▄"}


def test_bars_of_letters_where_the_terminal_has_no_others(tmp_path):
    gpus = FakeGpus(tmp_path, 1, "wave=const;power=350;mem=0")
    top = Top("--source", "nvml", "--interval", "100ms", env=gpus.env | {"LC_ALL": "C"})
    top.wait_for("^GPU 0.*-{3}$")
    top.type("q")
    assert top.ended() == 0


def test_processes_share_the_energy_of_a_gpu_by_its_use(tmp_path):
    gpus = FakeGpus(tmp_path, 1, f"wave=const;power=500;mem=0;usersfile={tmp_path}/users")
    with subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen(["sleep", "61"]) as two:
        (tmp_path / "users").write_text(f"0 {one.pid} 60\n0 {two.pid} 20\n")
        top = Top("--source", "nvml", "--interval", "200ms", size=(40, 160), env=gpus.env)
        lines = top.wait_for(r" [1-9]\d{3} +sleep 60$", seconds=60)  # 1000 J
        top.type("s")
        top.wait_for(r"s sort \(GPU\)")
        top.type("q")
        assert top.ended() == 0
        one.kill(), two.kill()
    found = processes_of(lines)
    a, b = found[one.pid], found[two.pid]
    if a["process"] == "(outside of this container)":
        pytest.skip("process ids are not those of the machine")
    assert float(a["joules"]) == pytest.approx(3 * float(b["joules"]), rel=0.01)
    assert (a["GPU"], a["use"], a["memory"]) == ("0", "60%", "0.06") and (b["use"], b["memory"]) == ("20%", "0.02")
    of_gpu = float(row_of(lines, "GPU 0")[-3])  # and why it is throttled, and bars
    assert 1000 < float(a["joules"]) + float(b["joules"]) <= of_gpu + 1


def test_help_and_freeze():
    top = Top("--source", "sim:h100x2", "--interval", "200ms")
    top.wait_for("^GPU 1 ")
    top.type("?")
    top.wait_for("^throttled: why the clocks are reduced")
    top.type("?")
    top.wait_for("^GPU 1 ")
    top.type("f")
    first = top.wait_for(r"f go on \(frozen\)")[0]
    top.read(2.5)
    assert top.screen()[0] == first and re.match(r"\d\d:\d\d:\d\d", first)
    top.type("f")
    top.wait_for("f freeze")
    top.type("q")
    assert top.ended() == 0


def test_fits_20_columns(gpus):
    top = Top("--source", "nvml", "--interval", "200ms", size=(24, 20), env=gpus.env)
    lines = top.wait_for(r"^GPU 1 +210\.0 +41$")
    top.type("q")
    assert top.ended() == 0
    assert lines[1].split() == ["device", "W", "C"]


def test_follows_the_size_of_the_terminal():
    top = Top("--source", "sim:h100x4", "--interval", "60s")
    top.wait_for(r"^GPU 3 ")
    top.resize(5, 40)
    lines = top.wait_for(r"^q quit")
    assert len(lines) == 5 and lines[2].startswith("GPU 0")
    top.type("\x1bOB\x1bOB")  # down
    top.wait_for("^GPU 2 ")
    top.resize(24, 160)
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
    assert top.child.wait(timeout=240) == 0
    os.close(top.follower)


def test_shows_running_work(tmp_path):
    env = {"JM_STATE": str(tmp_path / "state")}
    with subprocess.Popen([BIN, "measure", "--source", "sim:h100x2", "sleep", "60"], env={**os.environ, **env},
                          stderr=subprocess.DEVNULL) as child:
        top = Top("--source", "sim:h100x2", "--interval", "200ms", env=env)
        lines = top.wait_for("^measure sleep 60: .* W simulated")
        child.terminate()
        child.wait(timeout=240)
        top.wait_for("^ +PID")
        while any("sleep 60:" in line for line in top.screen()):
            top.read(0.2)
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
    assert "is lost: the driver" in " ".join(lines)
    assert "210.0" in row_of(lines, "GPU 0") and " W measured" not in lines[0]


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
    lines = top.wait_for(r"^GPU 0 .* cap ")
    top.type("q")
    assert top.ended() == 0 and "throttled" in lines[1]


def test_no_terminal_is_an_error(tmp_path):
    assert "joulemark watch" in sentence(jm("top", "--source", "sim:h100x2"), USAGE)
    leader, follower = pty.openpty()
    done = jm("top", "--source", "sim:h100x2", stdin=follower, stdout=follower, env={"TERM": "no-such-terminal"})
    os.close(leader)
    os.close(follower)
    assert "no-such-terminal" in sentence(done, USAGE)
