# SPDX-License-Identifier: Apache-2.0
"""recipes/: plans that can be read, pinned containers, expressions that count what the programs print, a server's phases, and
PyTorch Lightning itself on the processor."""
import json
import os
import re
import shutil
import subprocess
import sys

import jsonschema
import pytest
import yaml

from jm import BIN, SOURCE, jm
from packages import environment, packages

RECIPES = SOURCE / "recipes"
NAMES = sorted(path.parent.name for path in RECIPES.glob("*/plan.yaml"))
# In the form of these programs; the numbers are chosen. The last one of SGLang counts the same tokens again.
MEGATRON = [" iteration %8d/%8d | consumed samples: %12d | elapsed time per iteration (ms): 1.0 | global batch size:    16 |"
            % (i, 15, 16 * i) for i in (5, 10, 15)]
SGLANG = ["Total input tokens:                      9000", "Total generated tokens:                  4321",
          "Total generated tokens (retokenized):    4320"]


def run_of(name):
    (run,) = yaml.safe_load((RECIPES / name / "plan.yaml").read_text())["runs"]
    return run


@pytest.mark.parametrize("name", NAMES)
def test_its_plan_can_be_read_and_its_versions_are_pinned(name):
    jsonschema.validate(yaml.safe_load((RECIPES / name / "plan.yaml").read_text()), json.loads(jm("plan", "--schema").stdout))
    done = jm("plan", RECIPES / name / "plan.yaml")
    assert done.returncode in (0, 1) and "measurements in all" in done.stdout, done.stderr
    container = (RECIPES / name / "container.def").read_text()
    assert re.search(r"^Bootstrap: docker\nFrom: \S+:[\w.-]*\d[\w.-]*$", container, re.M) and ":latest" not in container
    assert all("==" in word for line in re.findall(r"pip install (.*)", container) for word in line.split() if word[0] != "-")
    assert all(re.search(r"git checkout [0-9a-f]{40}$", container, re.M) for _ in re.findall("git clone", container))
    assert f"[{name}]({name}/)" in (RECIPES / "README.md").read_text()


def counted(name, *command, env=None):
    run = run_of(name)
    done = jm("run", "--source", "null", "--items-regex", run["items-regex"], "--items-kind", run["items-kind"], "--json", "-", "--",
              *command, env=env, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name, lines, items", [("megatron-lm", MEGATRON, 240), ("sglang", SGLANG, 4321)])
def test_its_expression_counts_what_the_program_prints(name, lines, items, tmp_path):
    (tmp_path / "log").write_text("\n".join(["starting", *lines, "done", ""]))
    record = counted(name, "cat", tmp_path / "log")
    assert max(p["items"] or 0 for p in record["phases"]) == items


def test_the_server_has_phases_and_ends(tmp_path):
    """Stand-ins: a server that answers as soon as it has started, and a client."""
    shutil.copytree(RECIPES / "sglang", tmp_path / "sglang")
    (tmp_path / "bin").mkdir()
    stand_ins = {"curl": "test -e started", "apptainer": 'case "$*" in *launch_server*) touch started; echo $$ >server; exec sleep 100;; '
                 "*) printf '" + "\\n".join(SGLANG) + "\\n';; esac"}
    for program, does in stand_ins.items():
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    (tmp_path / "bin/joulemark").symlink_to(BIN)
    env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = subprocess.run([BIN, "run", "plan.yaml", "--repeat", "1", "--source", "null", "--json", "-"], cwd=tmp_path / "sglang",
                          env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    items = {p["name"]: p["items"] for p in json.loads(done.stdout)["phases"]}
    assert items["serve"] == 4321 and items["load"] is None
    assert not os.path.exists(f"/proc/{(tmp_path / 'sglang/server').read_text().strip()}")


def test_lightning_trains_and_its_images_are_counted():
    pytest.importorskip("torchvision")
    # Debian's torch is a 1.13 of before its release, whose parts for several processes do not load in Python 3.11
    script = ("import runpy, sys, torch; torch._UntypedStorage = torch.UntypedStorage; torch.distributed.is_available = lambda: False; "
              "sys.argv[:1] = []; runpy.run_path(sys.argv[0], run_name='__main__')")
    words = [sys.executable, "-c", script, RECIPES / "lightning/train.py", "--model", "resnet18", "--batch", 2, "--image", 32, "--steps", 3,
             "--accelerator", "cpu"]
    env = {**environment("trainers"), "PYTHONPATH": f"{packages('trainers')}:{packages('networks')}"}
    record = counted("lightning", *words, env=env)
    assert max(p["items"] or 0 for p in record["phases"]) == 6
