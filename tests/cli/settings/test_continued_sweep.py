# SPDX-License-Identifier: Apache-2.0
"""A sweep that is continued on other devices, and one whose setting is changed by another program."""
import json
import sqlite3

import pytest

from fake_gpus import FakeGpus
from jm import BIN, USAGE, jm, sentence


def sweep(gpus, folder, repeat, visible, *words):
    return jm("run", "--set", "gpu.power=300W", "--repeat", repeat, "--cooldown", 0, "--order", "given", "--source", "null",
              "--store", folder / "sweep.db", "--", *words, env={**gpus.env, "CUDA_VISIBLE_DEVICES": visible})


def test_a_gpu_that_came_later_does_not_keep_the_cap_in_the_reference(tmp_path):
    """The plan knows what GPU 0 had, so that nothing would put GPU 1 back between two cases."""
    gpus = FakeGpus(tmp_path, 2)
    assert sweep(gpus, tmp_path, 1, "0", "true").returncode == 0
    done = sweep(gpus, tmp_path, 3, "0,1", "true")
    assert "GPU 1" in sentence(done, USAGE) and "--store" in done.stderr
    assert gpus.limits() == [700, 700] and not gpus.journals()
    with sqlite3.connect(tmp_path / "sweep.db") as db:
        records = [json.loads(text) for text, in db.execute("SELECT record FROM records")]
    assert [len(r["settings"]) for r in records if r["case"]["reference"]] == [1]
    assert sweep(gpus, tmp_path, 3, "0", "true").returncode == 0


@pytest.mark.parametrize("watts, status", [(200, "failed"), (700, "failed"), (300, "ok")])
def test_a_cap_that_another_program_changes_has_no_figures(tmp_path, watts, status):
    """The other program is one with a state folder of its own, which does not see the lock."""
    gpus = FakeGpus(tmp_path, 2)
    other = ["env", f"JM_STATE={tmp_path / 'other'}", BIN, "set", "--control", "nvml", f"gpu.power@GPU-1={watts}W"]
    done = sweep(gpus, tmp_path, 1, "0,1", "sh", "-c", '[ -e "$0" ] || { touch "$0"; exec "$@"; }', tmp_path / "once", *other)
    assert done.returncode == (0 if status == "ok" else 1), done.stderr
    assert gpus.limits() == [700, 700] and not gpus.journals()
    with sqlite3.connect(tmp_path / "sweep.db") as db:
        first, second = sorted((json.loads(text) for text, in db.execute("SELECT record FROM records")), key=lambda r: r["started"])
    assert (first["status"], second["status"]) == (status, "ok")
    assert (first["reason"] or "").count(f"had 300W when the work began, and {watts}W at its end") == (status == "failed")
