# SPDX-License-Identifier: Apache-2.0
"""Runs a training with packages from PyPI while the power of two false GPUs is constant, so that the energy of any time is known."""
import json
import os
import subprocess
import sys
import textwrap

import pytest

from jm import SOURCE
from measured import FAKE
from packages import packages
from python_package import LIBRARY

WATTS = 2 * 300

RESULT = """
    print("RESULT " + json.dumps({n: [m[n].seconds, m[n].items, len(m[n].stretches), m[n].joules, m[n].error] for n in m}))
"""


def trained(purposes, script, *args):
    """What each region had, from a run with the packages from PyPI and joulemark's."""
    paths = [*map(packages, purposes), SOURCE / "python"]
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(script + RESULT), *map(str, args)], check=False,
                          text=True, timeout=900, capture_output=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "JM_LIBRARY": str(LIBRARY),
                               "JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": "gpus=2;wave=square;low=300;high=300;period=1",
                               "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": "0,1"})
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    found = json.loads(line.removeprefix("RESULT "))
    for name, (seconds, _, _, joules, error) in found.items():
        assert joules == pytest.approx(WATTS * seconds, abs=max(error, 1)), name
    return found
