# SPDX-License-Identifier: Apache-2.0
"""selftest: a sound device agrees with the reference, a faulty one is found."""
import json
import os
import pathlib

import pytest

from jm import jm

BUILD = pathlib.Path(os.environ["JM_BUILD"])
CPU = BUILD / "backends/cpu.so"
needs_cpu = pytest.mark.skipif(not CPU.exists(), reason="needs the cpu backend")


def rows(*words, status=0, **kwargs):
    done = jm("selftest", "--json", *words, **kwargs)
    assert done.returncode == status, done.stderr
    return {r["op"]: r for r in json.loads(done.stdout)}


@needs_cpu
def test_cpu_agrees_with_ref_in_every_op():
    found = rows()
    assert len(found) > 60 and {"linear", "attention", "conv", "adamw", "softmax-xent"} <= set(found)
    for r in found.values():
        assert r["cases"] == 20 and r["wrong"] == 0 and 0 <= r["error"] <= 1, r


@needs_cpu
def test_wrong_products_are_found(tmp_path):
    (tmp_path / "cpu.so").symlink_to(BUILD / "tests/fake/faulty.so")
    env = {"JM_BACKENDS": str(tmp_path), "JM_FAULTY_FROM": str(CPU.parent), "JM_FAULTY": "1"}
    found = rows(status=1, env=env)
    assert found["linear"]["wrong"] == found["linear"]["cases"] - found["linear"]["refused"] and found["linear"]["error"] > 100
    assert found["attention"]["wrong"] and not found["gelu"]["wrong"]


def test_absent_device_is_refused():
    done = jm("selftest", "--device", "cudnn:0")
    assert done.returncode == 125 and "cudnn" in done.stderr
