# SPDX-License-Identifier: Apache-2.0
"""Packages from PyPI that tests compare with, in a folder of the build; not a test."""
import fcntl
import subprocess
import sys

import pytest

from jm import BUILD, SOURCE


def packages(purpose):
    """The folder with the packages of tools/requirements-PURPOSE.txt, installed at the first call; without a network the test
    is skipped."""
    folder, wanted = BUILD / f"packages-{purpose}", SOURCE / f"tools/requirements-{purpose}.txt"
    complete = folder / "complete"  # what is installed
    with open(BUILD / f"packages-{purpose}.lock", "w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists() and complete.read_text() == wanted.read_text():
            return folder
        done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:",
                               "--retries", "0", "--timeout", "20", "--upgrade", "--target", folder,
                               "-r", wanted],
                              check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            pytest.skip(f"the packages of tools/requirements-{purpose}.txt cannot be installed here")
        complete.write_text(wanted.read_text())
    return folder


def python(purpose, script, *args, timeout=250):
    """What the script prints, run with these packages and Debian's."""
    done = subprocess.run([sys.executable, "-c", script, *map(str, args)], check=False, text=True, timeout=timeout,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={"PYTHONPATH": str(packages(purpose)), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin",
                               "OMP_WAIT_POLICY": "passive"})
    assert done.returncode == 0, done.stderr
    return done.stdout
