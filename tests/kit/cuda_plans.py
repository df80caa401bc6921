# SPDX-License-Identifier: Apache-2.0
"""Plans of backend cuda for an H100 on a fake CUDA runtime. Peaks of the chip as in backends/cuda/device/gpu.c: 989.4
TFLOP/s in 16 bits, 3.35 TB/s."""
import collections
import json

import pytest

from jm import BUILD, jm

FAKES = BUILD / "tests" / "peers"
FLOPS, BYTES = 989.4e12, 3.35e12
GPT = ["gpt-117m", "--batch", 32, "--seq", 1024, "--precision", "bf16"]
RESNET = ["resnet50", "--batch", 256, "--precision", "bf16"]
LLAMA = ["llama", "--layers", 4, "--hidden", 2048, "--heads", 32, "--kv-heads", 8, "--ffn", 8192, "--vocab", 128256,
         "--context", 2048, "--theta", 500000, "--batch", 8, "--precision", "bf16"]
needs_fakes = pytest.mark.skipif(not (FAKES / "cuda-plans.so").exists(), reason="needs the CUDA toolkit")


@pytest.fixture(name="env")
def fake_gpu(tmp_path):
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends/cuda.so").symlink_to(FAKES / "cuda-plans.so")
    return {"JM_BACKENDS": str(tmp_path / "backends"), "JM_CUBLASLT_LIB": str(FAKES / "libcublaslt-fake.so"),
            "JM_CUDNN_LIB": str(FAKES / "libcudnn-fake.so"), "JM_PLANS": str(tmp_path)}


def plan(env, *words, **more):
    done = jm("describe", *words, "--device", "cuda:0", "--json", "-", env={**env, **more})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def kinds(p):
    """How often each sequence of ops is a group of the plan."""
    return collections.Counter(" + ".join(n["op"] for n in group["nodes"]) for group in p["graph"])
