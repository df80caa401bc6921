# SPDX-License-Identifier: Apache-2.0
"""
Products in 8 bits (--precision fp8): a network learns as in f32; programs that share weights share scales; results do not
depend on which tensors are kept or on how a step is divided; plans for GPUs, and refusals. No GPU is needed.
"""
import json

import numpy
import pytest

import parity
from jm import BUILD, FAILURE, SOURCE, USAGE, jm

GPT = {"layers": 2, "hidden": 64, "heads": 2, "ffn": 128, "vocab": 256, "context": 32, "positions": "learned"}
LLAMA = {"layers": 2, "hidden": 64, "heads": 4, "kv-heads": 2, "ffn": 96, "vocab": 256, "context": 32, "theta": 10000}
FAKES = BUILD / "tests" / "peers"
TEXT = SOURCE / "LICENSE"


def learn(tmp_path, model, dims, precision, device="cpu", steps=20):
    data = tmp_path / "text"
    data.write_bytes(TEXT.read_bytes())
    return parity.ours(model, dims, device, precision, 2, 32, data, 3, steps=steps)


@pytest.fixture
def cpu():
    if jm("describe", "gpt", "--layers", 1, "--hidden", 16, "--heads", 1, "--seq", 16, "--device", "cpu").returncode:
        pytest.skip("needs backend cpu")


@pytest.mark.parametrize("model, dims", [("gpt", GPT), ("llama", LLAMA)])
def test_a_network_learns_as_in_f32(tmp_path, cpu, model, dims):
    found = {p: learn(tmp_path, model, dims, p) for p in ("f32", "bf16", "fp8", "fp8-true")}
    truth, _, gradients = found["f32"]
    for precision in ("fp8", "fp8-true"):
        losses, _, rounded = found[precision]
        off = numpy.abs(losses - truth)
        assert losses[-1] < losses[0] - 1 and off.max() < 0.05, (precision, off)
        assert off.max() > numpy.abs(found["bf16"][0] - truth).max()  # it is not the same thing
        for name, exact in gradients.items():
            a, b = exact.ravel(), rounded[name].ravel()
            norms = numpy.linalg.norm(a) * numpy.linalg.norm(b)
            assert norms == 0 or a @ b / norms > 0.98, (precision, name, a @ b / norms)


def test_the_processor_agrees_with_the_reference(tmp_path, cpu):
    dims = {**GPT, "hidden": 32, "ffn": 64}
    (a, _, _), (b, _, _) = (learn(tmp_path, "gpt", dims, "fp8", device, 4) for device in ("cpu", "ref"))
    assert a == pytest.approx(b, abs=2e-3)


def train(tmp_path, *words, **dims):
    file = tmp_path / "record.json"
    dims = {**GPT, "hidden": 32, "ffn": 64, **dims}
    done = jm("run", "train", "--model", "gpt", "--precision", "fp8", *(f"--{k}={v}" for k, v in dims.items()),
              "--seq", 16, "--text", TEXT, "--steps", 4, "--warmup", 0, "--source", "null", "--json", file,
              *words)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


def test_what_is_kept_changes_no_bit(tmp_path, cpu):
    runs = [train(tmp_path, "--batch", 2, word) for word in ("--keep-all", "--keep-less", "--recompute")]
    assert len({(r["loss_first"], r["loss_last"]) for r in runs}) == 1


def test_micro_steps_share_one_scale(tmp_path, cpu):
    """Each micro-step quantizes by the limits of the step before; only the first goes by its own values."""
    whole, parts = train(tmp_path, "--batch", 4), train(tmp_path, "--batch", 2, "--accumulate", 2)
    assert parts["loss_last"] == pytest.approx(whole["loss_last"], abs=0.02)


def test_an_evaluation_leaves_the_scales_as_they_are(tmp_path, cpu):
    plain, told = train(tmp_path, "--batch", 2), train(tmp_path, "--batch", 2, "--eval-every", 2, "--eval-text", TEXT)
    assert told["loss_first"] == plain["loss_first"] and told["loss_last"] == plain["loss_last"]
    assert len(told["evaluations"]) == 2 and told["evaluations"][0]["loss"] > 0


def test_the_processor_says_that_it_emulates(tmp_path, cpu):
    assert "has no instructions for f8e4m3" in json.dumps(train(tmp_path, "--batch", 2))


def test_gemm(tmp_path, cpu):
    file = tmp_path / "gemm.json"
    done = jm("run", "gemm", "--m", 64, "--n", 48, "--k", 256, "--precision", "fp8", "--steps", 2, "--warmup", 1,
              "--source", "null", "--json", file)
    r = json.loads(file.read_text())
    assert done.returncode == 0 and r["verified"] is True and r["precision"] == "fp8"


@pytest.mark.parametrize("words, status, says", [
    (["describe", "resnet18", "--batch", 16, "--precision", "fp8"], USAGE, "no linear layer inside a block"),
    (["describe", "gpt-117m", "--seq", 33, "--precision", "fp8"], USAGE, "multiple of 16 rows"),
    (["run", "attention", "--precision", "fp8", "--steps", 1], USAGE, "workload gemm"),
])
def test_what_has_no_products_in_8_bits(words, status, says):
    done = jm(*words)
    assert done.returncode == status and says in done.stderr, done.stderr


# ---- plans for GPUs, on a fake CUDA runtime -----------------------------------------------------------------------------

@pytest.fixture
def gpu(tmp_path):
    if not (FAKES / "cuda-plans.so").exists():
        pytest.skip("needs the CUDA toolkit")
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends/cuda.so").symlink_to(FAKES / "cuda-plans.so")
    return {"JM_BACKENDS": str(tmp_path / "backends"), "JM_CUBLASLT_LIB": str(FAKES / "libcublaslt-fake.so"),
            "JM_CUDNN_LIB": str(FAKES / "libcudnn-fake.so"), "JM_PLANS": str(tmp_path)}


def plan(gpu, *words):
    done = jm("describe", *words, "--device", "cuda:0", "--keep-all", "--graph", "--json", "-", env=gpu)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("model", [["gpt-117m", "--batch", 32], ["llama3-8b", "--seq", 2048, "--layers", 4]])
def test_a_gpu_multiplies_in_8_bits_inside_blocks(gpu, model):
    """Three products for each of a block's four layers; transposed copies of both factors of gradients of weights, and
    of the weights for the other. The classifier stays in 16 bits."""
    layers = 12 if model[0] == "gpt-117m" else 4
    listing = jm("describe", *model, "--device", "cuda:0", "--keep-all", "--graph", "--precision", "fp8",
                 env=gpu).stdout
    rows = {line.split(None, 3)[3]: int(line.split()[0]) for line in listing.splitlines()
            if len(line.split(None, 3)) == 4 and line.split()[0].isdigit()}
    assert rows["quantize"] == 12 * layers and rows["rescale"] == 1
    assert f"{12 * layers} reorders between layouts" in listing, listing
    eight, sixteen = plan(gpu, *model, "--precision", "fp8"), plan(gpu, *model, "--precision", "bf16")
    assert eight["peak_bytes"] < sixteen["peak_bytes"]
    assert eight["flops_model_per_item"] == sixteen["flops_model_per_item"]


def test_an_older_gpu_is_refused_with_the_reason(gpu):
    done = jm("describe", "gpt-117m", "--batch", 16, "--device", "cuda:0", "--precision", "fp8",
              env={**gpu, "JM_FAKE_CUDA": "cc=80@0"})
    assert done.returncode == FAILURE and "8.0" in done.stderr and "8.9 (Ada)" in done.stderr, done.stderr
    assert "bf16" in done.stderr
