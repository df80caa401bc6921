# SPDX-License-Identifier: Apache-2.0
"""Workloads of a few nodes: their counts, their verification, and the detection of a wrong result."""
import os
import pathlib
import subprocess

import pytest

from jm import BIN, jm, sentence
from runs import FAILED, one

BUILD = pathlib.Path(os.environ["JM_BUILD"])
CPU = BUILD / "backends/cpu.so"
# what is wrong is to be found by the work itself
STEPS = ["--source", "null", "--warmup", "1", "--steps", "3", "--selftest", "0"]
DEVICES = ["ref"] + (["cpu"] if CPU.exists() else [])
needs_cpu = pytest.mark.skipif(not CPU.exists(), reason="needs the cpu backend")


def gemm(*more, m=70, n=40, status=0, **kwargs):
    return one("run", "gemm", *STEPS, "--m", m, "--n", n, "--k", 90, *more, status=status, **kwargs)


@pytest.fixture
def faulty(tmp_path):
    """Environment in which device cpu computes wrongly in each so many products."""
    (tmp_path / "cpu.so").symlink_to(BUILD / "tests/peers/faulty.so")
    return lambda every: {"JM_BACKENDS": str(tmp_path), "JM_FAULTY_FROM": str(CPU.parent),
                          "JM_FAULTY": str(every)}


# ---- gemm


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("data", ["random", "zeros", "ones", "sparse"])
def test_gemm_is_verified(device, precision, data):
    r = gemm("--device", device, "--precision", precision, "--data", data, "--products", "2")
    assert r["status"] == "ok" and r["verified"] is True
    assert (r["unit"], r["items"], r["steps"]) == ("product", 6, 3)


@pytest.mark.parametrize("tasks, policy, warned", [(4, None, True), (1, None, False), (4, "passive", False)])
def test_a_run_on_a_busy_machine_warns_of_spinning_threads(tmp_path, tasks, policy, warned):
    """The tasks are those of a /proc/stat of the test's own; this process is one of them."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(f"cpu 1 1 1 1 1 1 1 1\nprocs_running {tasks}\n")
    env = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    env |= {"JM_ROOT": str(tmp_path), "JM_STATE": str(tmp_path / "state")} | ({"OMP_WAIT_POLICY": policy} if policy else {})
    done = subprocess.run([BIN, "run", "gemm", "--m", "8", "--n", "8", "--k", "8", "--device", "cpu", "--steps", "1", "--warmup", "0",
                           "--source", "null"], env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0 and ("(3 tasks run)" in done.stderr and "OMP_WAIT_POLICY=passive" in done.stderr) == warned, done.stderr


def test_gemm_counts_multiplications():
    r = gemm("--device", "ref", "--precision", "f32", "--products", "3")
    assert r["flops_model_per_item"] == r["flops_executed_per_item"] == 2 * 70 * 40 * 90


def test_gemm_takes_f64_on_ref_alone():
    assert gemm("--device", "ref", "--precision", "f64")["verified"] is True
    done = jm("run", "gemm", *STEPS, "--device", "cpu", "--precision", "f64")
    assert done.returncode == 2 and sentence(done) and "--device ref" in done.stderr


def test_gemm_has_no_masters():
    done = jm("run", "gemm", *STEPS, "--device", "ref", "--precision", "bf16-true")
    assert done.returncode == 2 and "use bf16" in done.stderr


@needs_cpu
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_gemm_finds_a_wrong_element(faulty, precision):
    small = {"m": 8, "n": 8}  # all entries are looked at
    assert gemm("--precision", precision, "--device", "cpu", env=faulty(0), **small)["verified"] is True
    r = gemm("--precision", precision, "--device", "cpu", "--products", "1", status=FAILED, env=faulty(1), **small)
    assert r["status"] == "failed" and "by f64 it is" in r["reason"]


def test_gemm_that_does_not_fit_says_so():
    r = one("run", "gemm", *STEPS, "--device", "ref", "--m", "9999999", "--n", "9999999", status=FAILED)
    assert "Out of memory before the first step" in r["reason"] and "smaller dimensions" in r["reason"]


# ---- burn


def burn(*more, status=0, **kwargs):
    return one("run", "burn", *STEPS, "--side", "64", *more, status=status, **kwargs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_burn_checks_every_product(device, precision):
    r = burn("--device", device, "--precision", precision, "--products", "4")
    assert r["status"] == "ok" and r["verified"] is True
    assert (r["unit"], r["items"]) == ("product", 12) and "4 products per step, each checked" in r["detail"]


@needs_cpu
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_burn_finds_one_wrong_product_of_many(faulty, precision):
    r = burn("--device", "cpu", "--precision", precision, "--products", "4", status=FAILED, env=faulty(7))
    assert r["status"] == "failed" and "Product 3 of step 2 differs from the first one" in r["reason"]


@needs_cpu
def test_burn_finds_products_that_are_all_wrong_alike(faulty):
    r = burn("--device", "cpu", "--precision", "f32", "--products", "2", status=FAILED, env=faulty(1))
    assert "The first product is wrong" in r["reason"]


def test_burn_loads_processors_beside_the_device():
    r = burn("--device", "ref", "--products", "2", "--processors", "3")
    assert r["verified"] is True and "3 threads of the host multiply beside it" in r["detail"]
    assert "beside" not in burn("--device", "ref", "--products", "2")["detail"]


def test_ranks_burn_at_once_and_count_all_products():
    r = burn("--device", "ref", "--products", "4", "--ranks", "2", "--processors", "3", "--host-memory", "0.01")
    assert r["verified"] is True and (r["steps"], r["items"]) == (3, 3 * 4 * 2)
    assert r["flops_model_per_item"] == burn("--device", "ref", "--products", "4")["flops_model_per_item"]
    assert "4 products per step on each of 2 ranks" in r["detail"] and "3 threads of the host multiply and walk through its memory" in r["detail"]


@needs_cpu
def test_a_wrong_product_of_one_rank_ends_all(faulty, tmp_path):
    """The second device is a processor that computes wrongly; the first one is right."""
    r = burn("--device", "ref,cpu", "--precision", "f32", "--products", "4", "--ranks", "2", status=FAILED, env=faulty(7))
    assert r["status"] == "failed" and "Rank 1 of 2" in r["reason"] and "differs from the first one" in r["reason"]


def test_burn_refuses_memory_that_the_host_does_not_have():
    r = burn("--device", "ref", "--processors", "1", "--host-memory", "90000", status=FAILED)
    assert "--host-memory takes 90000 GB of this host" in r["reason"]
    done = jm("run", "burn", *STEPS, "--device", "ref", "--host-memory", "1")
    assert done.returncode == 2 and "--processors" in done.stderr


def test_burn_fills_memory():
    few = burn("--device", "ref", "--products", "2")
    many = burn("--device", "ref", "--products", "2", "--fill", "0.0001")
    assert "1 set of operands" in few["detail"] and " sets of operands" in many["detail"]


# ---- stream


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("intensity, operations", [("0", 1 / 12), ("4", 4), ("16", 16)])
def test_stream_moves_what_it_says(device, intensity, operations):
    r = one("run", "stream", *STEPS, "--device", device, "--size", "0.0005", "--intensity", intensity,
            "--passes", "2", "--precision", "f32")
    assert r["verified"] is True and r["unit"] == "GB"
    said = float(r["detail"].split(", ")[1].split()[0])
    assert said == pytest.approx(operations, rel=0.06)
    if intensity != "0":
        assert r["flops_model_per_item"] == pytest.approx(said * 1e9, rel=0.01)


@needs_cpu
def test_a_step_of_stream_is_short_on_processors():
    """Its memory may move 10 GB/s, so that 0.3 GB take 30 ms."""
    r = one("run", "stream", *STEPS, "--device", "cpu", "--size", "0.01", "--precision", "f32")
    assert 0.03 <= r["items"] / 3 <= 0.3


@needs_cpu
def test_stream_finds_a_wrong_result(faulty):
    r = one("run", "stream", *STEPS, "--device", "cpu", "--size", "1e-6", "--intensity", "1", "--passes", "1",
            "--precision", "f32", status=FAILED, env=faulty(1))
    assert "of the result is" in r["reason"]


# ---- copy


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", ["on-device", "to-device", "to-host"])
def test_copy_arrives(device, way):
    r = one("run", "copy", *STEPS, "--device", device, "--way", way, "--size", "0.0001234")
    assert r["verified"] is True and r["unit"] == "GB" and r["items"] == pytest.approx(3 * 64 * 123400e-9)
    assert r["precision"] is None


# ---- attention


def attention(*more, status=0, **kwargs):
    return one("run", "attention", *STEPS, "--passes", "2", *more, status=status, **kwargs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("more", [[], ["--full"], ["--backward", "--kv-heads", "2"], ["--full", "--backward"]])
def test_attention_is_verified(device, precision, more):
    r = attention("--batch", "2", "--seq", "40", "--heads", "4", "--depth", "16", "--device", device,
                  "--precision", precision, *more)
    assert r["status"] == "ok" and r["verified"] is True
    assert (r["unit"], r["items"]) == ("token", 3 * 2 * 2 * 40)


def test_attention_counts_its_products():
    shape = ["--batch", "1", "--seq", "40", "--heads", "2", "--depth", "8", "--device", "ref"]
    product = 2 * 40 * 40 * 16  # of all heads
    full, causal = attention(*shape, "--full"), attention(*shape)
    assert full["flops_model_per_item"] * 40 == pytest.approx(2 * product)
    assert causal["flops_model_per_item"] * 40 == pytest.approx(product, rel=0.05)
    both = attention(*shape, "--full", "--backward")
    assert both["flops_executed_per_item"] * 40 == pytest.approx(7 * product)


@needs_cpu
def test_attention_finds_a_wrong_element(faulty):
    small = ["--batch", "1", "--seq", "4", "--heads", "1", "--depth", "4", "--device", "cpu", "--precision", "f32"]
    assert attention(*small, env=faulty(0))["verified"] is True
    assert "by f64 it is" in attention(*small, status=FAILED, env=faulty(1))["reason"]


def test_attention_wants_heads_that_share_evenly():
    r = attention("--heads", "6", "--kv-heads", "4", "--device", "ref", status=FAILED)
    assert "divisor of --heads" in r["reason"]


def test_gigabytes_have_no_plural():
    done = jm("run", "copy", "--device", "ref", "--size", "0.0001", *STEPS)
    assert " GB/s" in done.stdout + done.stderr and "GBs" not in done.stdout + done.stderr
