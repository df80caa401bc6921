# SPDX-License-Identifier: Apache-2.0
"""Functions that the suites on knobs share: fake GPUs with limits that are not the default, and joulemark on them."""
import fcntl
import os
import subprocess

from jm import BIN

FOUND = [700.0, 555.0, 700.0, 600.0]


def environment(gpus):
    return {**os.environ, **gpus.env}


def joulemark(gpus, *words, timeout=60, **more):
    return subprocess.run([BIN, *words], env=environment(gpus), capture_output=True, text=True, timeout=timeout,
                          check=False, stdin=subprocess.DEVNULL, **more)


def as_found(gpus):
    """Limits that somebody else than joulemark has set: no record of them is left."""
    for i, watts in enumerate(FOUND):
        if watts != 700:
            done = joulemark(gpus, "set", f"gpu.power@GPU-{i}={watts}W")
            assert done.returncode == 0, done.stderr
    forget(gpus)
    assert gpus.limits() == FOUND
    return FOUND


def forget(gpus):
    for folder, _, files in os.walk(gpus.env["JM_STATE"]):
        for name in files:
            if "gpu.power@" in name:
                os.remove(os.path.join(folder, name))


def settle(gpus):
    """The next joulemark, whichever it is."""
    return joulemark(gpus, "get")


def lock_all(gpus):
    """Takes every lock of the state folder that can be had, and returns what holds them."""
    held = []
    for folder, _, files in os.walk(gpus.env["JM_STATE"]):
        for name in files:
            try:
                file = open(os.path.join(folder, name), "rb")  # pylint: disable=consider-using-with
            except FileNotFoundError:  # its owner was faster
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.append(file)
            except BlockingIOError:
                file.close()
    return held
