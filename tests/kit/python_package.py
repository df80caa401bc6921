# SPDX-License-Identifier: Apache-2.0
"""Functions that the tests of the Python package share: scripts with the package, and the energy of the fake NVML's wave."""
import math
import os
import subprocess
import sys
import textwrap

import pytest

from jm import BUILD, SOURCE
from measured import FAKE

LIBRARY = BUILD / "libjoulemark.so.0"
WAVE = "gpus=2;wave=square;low=100;high=600;period=0.5;shift=0.1"


@pytest.fixture(autouse=True, scope="module")
def no_sanitizers():
    library = LIBRARY.read_bytes()
    if b"__asan_init" in library or b"__tsan_init" in library:
        pytest.skip("a program without sanitizers cannot load a library with them")


def python(script, *args, status=0, env=None):
    """Runs a script with the package; returns the finished process."""
    everything = {**os.environ, "PYTHONPATH": str(SOURCE / "python"), "JM_LIBRARY": str(LIBRARY), "PYTHONWARNINGS": "always",
                  "JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": WAVE, **(env or {})}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), *map(str, args)], text=True, timeout=900, check=False,
                          capture_output=True, env={k: v for k, v in everything.items() if v is not None})
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done


def joules_until(t, gpu):
    """Integral of the square wave from 0 to t; high comes first."""
    t += gpu * 0.1
    whole = math.floor(t / 0.5)
    rest = t - whole * 0.5
    return whole * 175 + min(rest, 0.25) * 600 + max(0.0, rest - 0.25) * 100


def truth(start_ns, stretches):
    return sum(joules_until(start_ns * 1e-9 + end, gpu) - joules_until(start_ns * 1e-9 + start, gpu)
               for start, end in stretches for gpu in range(2))
