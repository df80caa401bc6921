# SPDX-License-Identifier: Apache-2.0
"""Backend cuda without a GPU: the plug-in is built and loads, and its message names what is missing."""
import json
import os
import pathlib

import pytest

from jm import jm

PLUGIN = pathlib.Path(os.environ["JM_BUILD"]) / "backends/cuda.so"
HAS_GPU = os.path.exists("/dev/nvidiactl")


def row():
    done = jm("doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = [f for f in json.loads(done.stdout) if f["member"] == "cuda" and f["section"] == "Compute"]
    assert len(found) == 1
    return found[0]


def refusal(*words):
    done = jm("run", "train", "--model", "gpt-117m", "--device", *words, "--steps", "1")
    return done.returncode, done.stderr


@pytest.mark.skipif(PLUGIN.exists(), reason="the plug-in was built")
def test_doctor_says_why_it_was_not_built():
    assert not row()["ok"] and any(word in row()["why"] for word in ("nvcc", "CUDA toolkit", "cuDNN", "left out"))


@pytest.mark.skipif(not PLUGIN.exists() or HAS_GPU, reason="needs the plug-in and no GPU")
def test_doctor_says_that_there_is_no_driver():
    found = row()
    assert not found["ok"] and "driver" in found["why"] and "--device cpu" in found["why"]


@pytest.mark.skipif(not PLUGIN.exists() or HAS_GPU, reason="needs the plug-in and no GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_run_is_refused_without_a_driver(device):
    code, text = refusal(device)
    assert code == 125 and "driver" in text and "Traceback" not in text


@pytest.mark.skipif(not PLUGIN.exists(), reason="needs the plug-in")
def test_the_program_itself_links_nothing_of_cuda():
    for name in (os.environ["JM_BIN"], str(PLUGIN)):
        needed = os.popen("readelf -d '%s'" % name).read()
        assert "NEEDED" in needed
        assert not any(word in needed for word in ("libcuda", "libcublas", "libcudnn")), needed
