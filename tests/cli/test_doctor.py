# SPDX-License-Identifier: Apache-2.0
"""doctor and list: every member has its line, and what is missing has its reason and remedy."""
import json
import os

import pytest

from fake_gpus import FakeGpus
from jm import jm


def findings(env=None, member=None):
    done = jm("doctor", "--json", env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for f in found:
        assert f["what"] and f["why"] and set(f) == {"section", "member", "ok", "what", "why", "mend"}
    return [f for f in found if member in (None, f["member"])]


def test_gpus_are_named(tmp_path):
    gpus = FakeGpus(tmp_path, 2)
    found = findings(gpus.env, "nvml")
    assert all(f["ok"] or (f["section"] == "Set" and os.geteuid() and "root" in f["why"]) for f in found)
    text = json.dumps(found)
    for words in ("GPU 1 NVIDIA H100", "GPU-10000001", "energy", "100 ms", "driver 580.00.fake", "200 to 700 W"):
        assert words in text, words
    assert gpus.limits() == [700, 700]


def test_gpus_of_others(tmp_path):
    gpus = FakeGpus(tmp_path, 2)
    gpus.env["CUDA_VISIBLE_DEVICES"] = "1"
    other = [f for f in findings(gpus.env, "nvml") if not f["ok"] and f["section"] == "Measure"]
    assert len(other) == 1 and "CUDA_VISIBLE_DEVICES=1" in other[0]["why"] and "nvml:all" in other[0]["mend"]


@pytest.mark.parametrize("config, words", [
    ("init=9", "modprobe nvidia"),
    ("init=18", "different driver versions"),
    ("init=4", "/dev/nvidia"),
    ("gpus=0", "no GPU"),
])
def test_driver_troubles(tmp_path, config, words):
    gpus = FakeGpus(tmp_path, 2)
    gpus.env["JM_FAKE_NVML"] = config
    found = findings(gpus.env, "nvml")
    assert any(not f["ok"] and words in f["why"] for f in found), found


def test_forgetful_driver(tmp_path):
    gpus = FakeGpus(tmp_path, 1, "persistence=0")
    assert any("nvidia-smi -pm 1" in f["why"] for f in findings(gpus.env, "nvml"))


def test_no_library():
    found = findings({"JM_NVML_LIB": "/nowhere/libnvidia-ml.so.1"}, "nvml")
    assert found and all(not f["ok"] and "/nowhere/libnvidia-ml.so.1" in f["why"] for f in found)


def test_not_a_library(tmp_path):
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_text("no library")
    assert all(str(path) in f["why"] for f in findings({"JM_NVML_LIB": str(path)}, "nvml"))


def test_another_library():
    libc = "libc.so.6"
    assert all("nvmlInit" in f["why"] for f in findings({"JM_NVML_LIB": libc}, "nvml"))


def test_text_says_the_same(tmp_path):
    gpus = FakeGpus(tmp_path, 2)
    text = jm("doctor", env=gpus.env).stdout
    for f in findings(gpus.env):
        assert f["what"] in text and f["why"] in text


def test_nothing_is_made_or_changed(tmp_path):
    state = tmp_path / "state"
    jm("doctor", env={"JM_STATE": str(state)})
    assert not os.path.exists(state)


def test_list():
    listed = json.loads(jm("list", "--json").stdout)
    names = {(m["kind"], m["name"]) for m in listed}
    assert {("source", "nvml"), ("source", "rapl"), ("control", "nvml"), ("control", "sim"), ("workload", "null"),
            ("preset", "gpt-117m"), ("backend", "ref")} <= names
    text = jm("list").stdout
    assert all(m["name"] in text and m["summary"] in text for m in listed)
