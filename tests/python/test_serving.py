# SPDX-License-Identifier: Apache-2.0
"""The examples that measure joules per token inside a serving loop: each GPU of the fake NVML draws 250 W."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from fake_gpus import FakeGpus
from jm import BIN, SOURCE, skip_with_sanitizers

BUILD = pathlib.Path(os.environ["JM_BUILD"]).resolve()
TOKENS = {40: 980, 10: 245}  # of that many requests


@pytest.fixture
def gpus(tmp_path):
    fake = FakeGpus(tmp_path, 2, "wave=const;power=250")
    fake.env["PATH"] = f"{pathlib.Path(BIN).resolve().parent}:{os.environ['PATH']}"
    return fake


def run(gpus, *command, **more):
    done = subprocess.run([*map(str, command)], env={**os.environ, **gpus.env, **more}, capture_output=True, text=True,
                          check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done


def check(record, requests):
    """Joules per token of the phase are those of its seconds at 500 W."""
    phase = next(p for p in record["phases"] if p["name"] == "serve")
    seconds = phase["end_s"] - phase["start_s"]
    assert phase["items"] == TOKENS[requests] and seconds >= 0.005 * requests
    assert abs(phase["total"]["joules_measured"] - 500 * seconds) <= phase["total"]["error_measured_joules"]
    assert record["unit"] == "token" and "idle" in [p["name"] for p in record["phases"]]


def test_in_c(gpus, tmp_path):
    skip_with_sanitizers()
    program, out = tmp_path / "serve", tmp_path / "record.json"
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-I", SOURCE / "include", SOURCE / "examples/serve_tokens.c", "-L", BUILD,
                    "-ljoulemark", f"-Wl,-rpath,{BUILD}", "-o", program], check=True)
    run(gpus, BIN, "measure", "--source", "nvml", "--unit", "token", "--json", out, "--", program, 40)
    check(json.loads(out.read_text()), 40)
    assert run(gpus, program, 2).stdout == "2 requests\n"  # alone it does the same work


def test_in_a_shell(gpus, tmp_path):
    out = tmp_path / "record.json"
    run(gpus, "sh", SOURCE / "examples/serve-tokens.sh", SOURCE="nvml", JSON=str(out))
    check(json.loads(out.read_text()), 10)


def test_in_python(gpus):
    skip_with_sanitizers()
    out = run(gpus, sys.executable, SOURCE / "examples/serve_tokens.py", "--source", "nvml", "--requests", 40,
              JM_LIBRARY=str(BUILD / "libjoulemark.so.0")).stdout
    per_token, tokens, origin = re.match(r"(\S+) J per token, (\S+) tokens, (\w+)", out).groups()
    assert float(tokens) == TOKENS[40] and origin == "measured"
    assert float(per_token) * TOKENS[40] > 500 * 0.005 * 40 * 0.9
