# SPDX-License-Identifier: Apache-2.0
"""Functions that command-line tests share: running the program, and checks of the form of its messages."""
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import termios

BIN = os.environ.get("JM_BIN", "build/joulemark")
BUILD = pathlib.Path(os.environ.get("JM_BUILD", "build"))
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent

USAGE, FAILURE, NOT_FOUND = 2, 125, 127
HANGS_S = 1000  # a program that takes longer hangs: no claim about its speed, also with sanitizers on a busy machine


def is_open_to_all(path):
    """No folder above it keeps other users out, as /root does."""
    path = pathlib.Path(path).resolve()
    return all(p.stat().st_mode & 1 for p in [path, *path.parents])


def needs_another_user(test):
    import pytest  # this file also serves programs without it
    return pytest.mark.skipif(os.geteuid() != 0 or not is_open_to_all(BIN),
                              reason="needs root, and a program that other users can reach")(test)


def is_sanitized():
    """The build's code is that of a sanitizer, which is slow: sizes that prove no more there may be smaller."""
    library = (BUILD / "libjoulemark.so").read_bytes()
    return b"__asan_init" in library or b"__tsan_init" in library


def skip_with_sanitizers():
    """For a test that loads the library into a program without them."""
    import pytest
    if is_sanitized():
        pytest.skip("a program without sanitizers cannot load a library with them")


def catches(pid, number):
    """The process has a handler for the signal: one that begins has none, and would be ended by it."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        caught = re.search(r"^SigCgt:\s*(\w+)", f.read(), re.M)
    return bool(caught and int(caught[1], 16) >> (number - 1) & 1)


def jm(*args, env=None, timeout=HANGS_S, **more):
    """Runs joulemark; returns the finished process with text output, whose lines are not broken."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([BIN, *map(str, args)], text=True, timeout=timeout, check=False,
                          env={**os.environ, "COLUMNS": "400", **(env or {})}, **more)


def terminal(*args, columns=80, env=None):
    """Runs joulemark on a terminal of that width; returns what it printed there, and its exit status."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    # not as the leader of a session: when such a process ends, Linux may discard what it wrote last
    child = subprocess.Popen([BIN, *map(str, args)], stdin=follower, stdout=follower, stderr=follower,
                             env={**os.environ, "TERM": "xterm", **(env or {})})
    os.close(follower)
    printed = b""
    try:
        while more := os.read(leader, 65536):
            printed += more
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    return printed.decode().replace("\r\n", "\n"), child.wait()


def sentence(done, status=None):
    """The one error sentence on stderr: whole, without NaN or (null), and with the exit status."""
    if status is not None:
        assert done.returncode == status, (done.returncode, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.startswith("joulemark: ")]
    assert lines, f"no sentence on stderr: {done.stderr!r}"
    text = lines[-1].removeprefix("joulemark: ")
    assert re.search(r"[.?]$", text), text
    assert "(null)" not in text and "%" + "s" not in text and not re.search(r"\bnan\b", text), text
    return text
