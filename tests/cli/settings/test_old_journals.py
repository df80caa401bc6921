# SPDX-License-Identifier: Apache-2.0
"""Journals of earlier formats: tests/data/journals has those of format 2, as joulemark b04108bd left them behind, one by
'set' (GPU 1, where it had found 555 W), one by a sweep that was killed with its guard (GPU 0, found 444 W)."""
import json
import os
import shutil
import subprocess

import pytest

from fake_gpus import FakeGpus
from jm import BIN

KEPT = os.path.join(os.environ["JM_SOURCE"], "tests", "data", "journals")


@pytest.fixture
def gpus(tmp_path):
    """Two GPUs as the old joulemark has left them, and its journals."""
    gpus = FakeGpus(tmp_path, 2)
    gpus.env["JM_ROOT"] = str(tmp_path)  # no boot id, as where the journals were written
    assert run(gpus, "set", "gpu.power@GPU-0=250W", "gpu.power@GPU-1=300W").returncode == 0
    folder = gpus.env["JM_STATE"]
    shutil.rmtree(folder)
    os.makedirs(os.path.join(folder, "knobs"), mode=0o700)
    for name in os.listdir(KEPT):
        shutil.copy(os.path.join(KEPT, name), os.path.join(folder, "knobs", name))
        os.chmod(os.path.join(folder, "knobs", name), 0o600)
    return gpus


def run(gpus, *args):
    env = dict(os.environ, **gpus.env)
    return subprocess.run([BIN, *args], env=env, capture_output=True, text=True, timeout=240)


def test_the_killed_one_is_restored_by_any_command_and_the_kept_one_by_restore(gpus):
    assert gpus.limits() == [250, 300]
    assert run(gpus, "list").returncode == 0
    assert gpus.limits() == [444, 300]
    (row,) = json.loads(run(gpus, "status", "--json").stdout)["settings"]
    assert row["state"] == "kept" and row["found"] == 555 and row["device"].startswith("GPU-1")
    assert "Restored 1" in run(gpus, "restore").stdout
    assert gpus.limits() == [444, 555] and not gpus.journals()


def test_the_value_found_first_stays_the_one_to_restore(gpus):
    """The new joulemark goes on from the old record, and writes it in the new format."""
    done = run(gpus, "set", "gpu.power=350W", "--", "sh", "-c", "cat $JM_STATE/knobs/*.journal")
    assert done.returncode == 0
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert {line[0] for line in lines} == {"4"}
    assert sorted((line[1], line[7]) for line in lines) == [("found", "300"), ("found", "444"), ("kept", "555")]
    assert gpus.limits() == [444, 300]
    assert "Restored 1" in run(gpus, "restore").stdout
    assert gpus.limits() == [444, 555]
