# SPDX-License-Identifier: Apache-2.0
"""What command-line tests share: running the program, and what its sentences must look like."""
import os
import pathlib
import re
import subprocess

BIN = os.environ.get("JM_BIN", "build/joulemark")
BUILD = pathlib.Path(os.environ.get("JM_BUILD", "build"))
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent

USAGE, FAILURE, NOT_FOUND = 2, 125, 127


def jm(*args, env=None, timeout=60, **more):
    """Runs joulemark; returns the finished process with text output."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([BIN, *map(str, args)], text=True, timeout=timeout, check=False,
                          env={**os.environ, **(env or {})}, **more)


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
