# SPDX-License-Identifier: Apache-2.0
"""Packages from PyPI that tests compare with, in a folder of the build; not a test."""
import fcntl
import json
import subprocess
import sys
import tempfile

import pytest

from jm import BUILD, SOURCE


def packages(purpose, to="--target"):
    """The folder with the packages of tools/requirements-PURPOSE.txt, installed at the first call; without a network the test
    is skipped. to: --prefix for packages that have programs and libraries."""
    folder, wanted = BUILD / f"packages-{purpose}", SOURCE / f"tools/requirements-{purpose}.txt"
    complete = folder / "complete"  # what is installed
    with open(BUILD / f"packages-{purpose}.lock", "w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists() and complete.read_text() == wanted.read_text():
            return folder
        done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--require-hashes", "--only-binary=:all:",
                               "--retries", "0", "--timeout", "20", "--upgrade", "--ignore-installed", to, folder, "-r", wanted],
                              check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            pytest.skip(f"the packages of tools/requirements-{purpose}.txt cannot be installed here")
        complete.write_text(wanted.read_text())
    return folder


def environment(purpose):
    return {"PYTHONPATH": str(packages(purpose)), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive"}


def python(purpose, script, *args, timeout=900):
    """What the script prints, run with these packages and Debian's."""
    done = subprocess.run([sys.executable, "-c", script, *map(str, args)], check=False, text=True, timeout=timeout,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(purpose))
    assert done.returncode == 0, done.stderr
    return done.stdout


class Interpreter:
    """A process with these packages that calls functions of a script: packages that take seconds to import are imported
    once for all calls."""
    CALLS = """
import json, sys
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    name, *args = json.loads(line)
    print(json.dumps(globals()[name](*args)), file=answers, flush=True)
"""

    def __init__(self, purpose, script):
        self.messages = tempfile.TemporaryFile("w+")  # pylint: disable=consider-using-with  # closed with the process
        self.process = subprocess.Popen([sys.executable, "-c", script + self.CALLS], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.messages, env=environment(purpose))

    def call(self, name, *args):
        """What the function returns."""
        try:
            self.process.stdin.write(json.dumps([name, *args], default=str) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.process.stdout.readline()
        if not answer:
            self.messages.seek(0)
            raise AssertionError(self.messages.read())
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
        self.messages.close()
