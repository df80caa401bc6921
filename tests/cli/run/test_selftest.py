# SPDX-License-Identifier: Apache-2.0
"""selftest: a correct device agrees with the reference, a faulty one is detected."""
import json
import os
import pathlib
import re

import pytest

from jm import jm

BUILD = pathlib.Path(os.environ["JM_BUILD"])
CPU = BUILD / "backends/cpu.so"
needs_cpu = pytest.mark.skipif(not CPU.exists(), reason="needs the cpu backend")


def rows(*words, status=0, **kwargs):
    done = jm("selftest", "--json", *words, timeout=400, **kwargs)  # under a sanitizer on a busy machine
    assert done.returncode == status, done.stderr
    return {r["op"]: r for r in json.loads(done.stdout)}


@needs_cpu
@pytest.mark.skipif("asan" in os.environ["JM_BUILD"], reason="the unit test `backend` computes the same cases under the sanitizer")
def test_cpu_agrees_with_ref_in_every_op():
    found = rows()
    assert len(found) > 60 and {"linear", "attention", "conv", "adamw", "softmax-xent"} <= set(found)
    for r in found.values():
        assert r["cases"] == 20 and r["wrong"] == 0 and 0 <= r["error"] <= 1, r


@needs_cpu
def test_wrong_products_are_found(tmp_path):
    (tmp_path / "cpu.so").symlink_to(BUILD / "tests/peers/faulty.so")
    env = {"JM_BACKENDS": str(tmp_path), "JM_FAULTY_FROM": str(CPU.parent), "JM_FAULTY": "1"}
    found = {**rows("--op", "linear", status=1, env=env), **rows("--op", "attention", status=1, env=env),
             **rows("--op", "gelu", env=env)}
    assert found["linear"]["wrong"] == found["linear"]["cases"] - found["linear"]["refused"] and found["linear"]["error"] > 100
    assert found["attention"]["wrong"] and not found["gelu"]["wrong"]
    alone = rows("--op", "linear + gelu", status=1, env=env)
    assert set(alone) == {"linear + gelu", "linear + gelu-erf", "linear + gelu-erf, narrow"}
    for op, row in alone.items():  # the same shapes and operands as among others
        assert row == found[op]
    assert rows("--op", "linear + gelu", "--exact", status=1, env=env) == {"linear + gelu": found["linear + gelu"]}
    # faulty.so adds 1000 to the middle element of a product, and nothing else
    where = re.fullmatch(r"f32, b=(\d+) s=(\d+) c=\d+ n=(\d+) heads=\d+ kv_heads=\d+ variant=0: element (\d+) of (\d+) of "
                         r"result 0 is (\S+) and should be (\S+); 1 elements exceed the tolerance", found["linear"]["first_wrong"])
    b, s, n, at, count, value, expected = map(float, where.groups())
    assert count == b * s * n and at == count // 2 and value - expected == pytest.approx(1000)
    assert found["gelu"]["first_wrong"] is None
    done = jm("selftest", "--op", "linear + gelu-erf", "--seed", 1, env=env)
    assert "--device cpu --seed 1 --op 'linear + gelu-erf'" in done.stdout and found["linear + gelu-erf"]["first_wrong"] in done.stdout


@needs_cpu
def test_seed_draws_other_operands():
    one, same, other = (rows("--op", "softmax", "--seed", n) for n in (5, 5, 6))
    assert one == same and one != other
    assert one["softmax-xent"]["cases"] == other["softmax-xent"]["cases"] == 20


def test_unknown_op_is_refused():
    done = jm("selftest", "--device", "ref", "--op", "lineal")
    assert done.returncode == 2 and "'lineal'" in done.stderr


def test_absent_device_is_refused():
    done = jm("selftest", "--device", "cudnn:0")
    assert done.returncode == 125 and "cudnn" in done.stderr


# ---- the short form, before a run

RUN = ["run", "gemm", "--m", 24, "--n", 24, "--k", 24, "--steps", 2, "--warmup", 1, "--source", "sim:h100x1", "--json", "-"]


def records(done):
    found = json.loads(done.stdout)
    return {r["device"]: r for r in (found if isinstance(found, list) else [found])}


@needs_cpu
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_run_begins_with_a_few_ops_of_its_work(precision):
    found = records(jm(*RUN, "--device", "cpu,ref", "--precision", precision))
    short = found["cpu"]["selftest"]
    assert short["passed"] and short["cases"] >= 1 and 0 <= short["worst"] <= 1
    assert "selftest" not in found["ref"]


@needs_cpu
def test_time_for_it_is_bounded():
    model = "gpt --layers 1 --hidden 16 --heads 2 --ffn 16 --context 8 --seq 8 --batch 1 --vocab 256".split()
    words = [*RUN[:1], *model, *RUN[8:], "--device", "cpu"]
    little = records(jm(*words, "--selftest", "1ms"))["cpu"]["selftest"]
    enough = records(jm(*words, "--selftest", "1min"))["cpu"]["selftest"]
    assert little["cases"] + little["refused"] == 1 and little["left_out"] > 10
    assert enough["left_out"] == 0 and enough["cases"] > 15 and enough["passed"]
    assert "selftest" not in records(jm(*words, "--selftest", 0))["cpu"]


@needs_cpu
def test_a_device_that_computes_wrongly_is_not_run(tmp_path):
    (tmp_path / "cpu.so").symlink_to(BUILD / "tests/peers/faulty.so")
    env = {"JM_BACKENDS": str(tmp_path), "JM_FAULTY_FROM": str(CPU.parent), "JM_FAULTY": "1"}
    done = jm(*RUN, "--device", "cpu,ref", env=env)
    found = records(done)
    assert done.returncode == 125 and found["ref"]["status"] == "ok"
    assert found["cpu"]["exit_status"] == 125 and found["cpu"]["selftest"]["passed"] is False
    assert "linear" in found["cpu"]["reason"] and "--selftest 0" in found["cpu"]["reason"]
    assert found["cpu"]["steps"] == 0
