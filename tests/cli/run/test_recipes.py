# SPDX-License-Identifier: Apache-2.0
"""recipes/: plans that can be read, pinned containers, expressions that count what the programs print, a server's phases; PyTorch
Lightning, diffusers, JUBE and ReFrame themselves, on the processor."""
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import jsonschema
import pytest
import yaml

from jm import BIN, SOURCE, jm
from packages import environment, packages

RECIPES = SOURCE / "recipes"
PLANS = sorted(path.relative_to(RECIPES) for path in RECIPES.glob("*/plan*.yaml"))
CONTAINERS = sorted(path.relative_to(RECIPES) for path in RECIPES.glob("*/*.def"))
# What these programs printed, from their own repositories: Lightning-AI/litgpt#1607, epfLLM/Megatron-LLM#11 (a fork of Megatron-LM
# whose line is the same), sgl-project/sglang#2805; and the prefix of horovodrun, horovod/horovod#2527, before a line of train.py.
LITGPT = ["Epoch 34 | iter 3050700 step 610140 | loss train: 2.846, val: 2.861 | iter time: 112.20 ms (step) remaining time: 0:01:54",
          "Epoch 34 | iter 3050750 step 610150 | loss train: 2.750, val: 2.861 | iter time: 111.35 ms (step) remaining time: 0:01:49"]
MEGATRON = [" iteration      122/  250000 | consumed samples:       124928 | elapsed time per iteration (ms): 86545.2 | learning rate: "
            "9.150E-06 | global batch size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.231 |",
            " iteration      123/  250000 | consumed samples:       125952 | elapsed time per iteration (ms): 87871.6 | learning rate: "
            "9.225E-06 | global batch size:  1024 | lm loss: 2.493043E+00 | loss scale: 1.0 | grad norm: 0.236 |"]
SGLANG = ["Total input tokens:                      369103    ", "Total generated tokens:                  326408    ",
          "Total generated tokens (retokenized):    326356    "]
HOROVOD = ["[1,0]<stdout>:images: 64", "[1,0]<stdout>:images: 128"]


LONG = pytest.mark.skipif(not os.environ.get("JM_LONG"), reason="more than 10 s; make check STEPS=long runs it")


def runs_of(plan):
    text = yaml.safe_load((RECIPES / plan).read_text())
    return text["runs"] if "runs" in text else runs_of(RECIPES / plan.parent / text["include"])


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_its_plan_can_be_read(plan):
    jsonschema.validate(yaml.safe_load((RECIPES / plan).read_text()), json.loads(jm("plan", "--schema").stdout))
    done = jm("plan", RECIPES / plan)
    assert done.returncode in (0, 1) and "measurements in all" in done.stdout, done.stderr
    assert f"[{plan.parent}]({plan.parent}/)" in (RECIPES / "README.md").read_text()


@pytest.mark.parametrize("container", CONTAINERS, ids=str)
def test_its_versions_are_pinned(container):
    text = (RECIPES / container).read_text()
    assert re.search(r"^Bootstrap: docker\nFrom: \S+:[\w.-]*\d[\w.-]*$", text, re.M) and ":latest" not in text
    assert all("==" in word for line in re.findall(r"pip install (.*)", text) for word in line.split() if word[0] not in "-/")
    assert len(re.findall(r"git checkout [0-9a-f]{40}$", text, re.M)) == text.count("git clone")
    name = "plan.yaml" if "-nv" in container.name else "plan-rocm.yaml"
    assert (RECIPES / container.parent / name).exists()


@pytest.mark.parametrize("name", ["diffusers", "lightning", "litgpt"])
def test_a_plan_for_amd_gpus_differs_in_its_container(name):
    words = {plan: jm("run", RECIPES / name / plan, "--dry-run", "--width", "1000").stdout for plan in ("plan.yaml", "plan-rocm.yaml")}
    assert words["plan.yaml"] and words["plan.yaml"] != words["plan-rocm.yaml"]


def counted(name, *command, env=None):
    (run,) = runs_of(RECIPES / name / "plan.yaml")
    done = jm("run", "--source", "null", "--items-regex", run["items-regex"], "--items-kind", run["items-kind"], "--json", "-", "--",
              *command, env=env, timeout=1000)
    assert done.returncode == 0, done.stderr
    return max(p["items"] or 0 for p in json.loads(done.stdout)["phases"])


@pytest.mark.parametrize("name, lines, items", [("litgpt", LITGPT, 610150), ("megatron-lm", MEGATRON, 125952), ("sglang", SGLANG, 326408),
                                                ("keras-horovod", HOROVOD, 128)])
def test_its_expression_counts_what_the_program_prints(name, lines, items, tmp_path):
    (tmp_path / "log").write_text("\n".join(["starting", *lines, "done", ""]))
    assert counted(name, "cat", tmp_path / "log") == items


def test_the_server_has_phases_and_ends(tmp_path):
    """Stand-ins: a server that answers as soon as it has started, and a client."""
    shutil.copytree(RECIPES / "sglang", tmp_path / "sglang")
    (tmp_path / "bin").mkdir()
    (tmp_path / "sglang/ShareGPT_V3_unfiltered_cleaned_split.json").touch()
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
    assert items["serve"] == 326408 and items["load"] is items["warmup"] is None
    assert not os.path.exists(f"/proc/{(tmp_path / 'sglang/server').read_text().strip()}")


# Debian's torch is a 1.13 of before its release, whose parts for several processes do not load in Python 3.11
RUN = ("import runpy, sys, torch; torch._UntypedStorage = torch.UntypedStorage; torch.distributed.is_available = lambda: False; "
       "sys.argv[:1] = []; runpy.run_path(sys.argv[0], run_name='__main__')")


def test_lightning_trains_and_its_images_are_counted():
    pytest.importorskip("torchvision")
    env = {**environment("trainers"), "PYTHONPATH": f"{packages('trainers')}:{packages('networks')}"}
    assert counted("lightning", sys.executable, "-c", RUN, RECIPES / "lightning/train.py", "--model", "resnet18", "--batch", 2,
                   "--image", 32, "--steps", 3, "--accelerator", "cpu", env=env) == 6


@LONG
def test_diffusers_trains_and_its_images_are_counted():
    pytest.importorskip("torch")
    assert counted("diffusers", sys.executable, "-c", RUN, RECIPES / "diffusers/train.py", "--batch", 2, "--image", 64, "--steps", 3,
                   "--channels", "32,64", "--context", 16, env=environment("networks")) == 6


# Keras 3 on JAX in place of TensorFlow, with a network that is compiled in seconds, and Horovod with one rank
TENSORFLOW = """
import keras
def small(include_top, weights, input_shape, pooling):
    given = keras.Input(input_shape)
    return keras.Model(given, keras.layers.GlobalAveragePooling2D()(given))
keras.applications.Xception = small
keras.optimizers.legacy = keras.optimizers
class config:
    list_physical_devices = staticmethod(lambda kind: [])
class Batches:
    def __init__(self, batch): self.batch = batch
    def repeat(self): return self
    def prefetch(self, n): return self.forever()
    def forever(self):
        while True: yield self.batch
class data:
    AUTOTUNE = None
    class Dataset:
        from_tensors = staticmethod(Batches)
"""
HVD = """
import keras
init = lambda: None
rank = local_rank = lambda: 0
size = lambda: 1
DistributedOptimizer = lambda optimizer: optimizer
class callbacks:
    BroadcastGlobalVariablesCallback = staticmethod(lambda root: keras.callbacks.Callback())
"""


@LONG
def test_the_script_of_keras_trains_and_its_images_are_counted(tmp_path):
    (tmp_path / "horovod/tensorflow").mkdir(parents=True)
    for path, text in {"tensorflow.py": TENSORFLOW, "horovod/__init__.py": "", "horovod/tensorflow/__init__.py": "",
                       "horovod/tensorflow/keras.py": HVD}.items():
        (tmp_path / path).write_text(text)
    env = {**environment("keras"), "PYTHONPATH": f"{tmp_path}:{packages('keras')}", "KERAS_BACKEND": "jax", "HOME": str(tmp_path)}
    assert counted("keras-horovod", sys.executable, RECIPES / "keras-horovod/train.py", "--batch", 2, "--image", 71, "--images", 4,
                   "--epochs", 2, env=env) == 8


def test_jube_runs_the_example_and_reads_its_energy(tmp_path):
    if not shutil.which("jube"):
        pytest.skip("Debian's jube is not installed")
    shutil.copytree(RECIPES / "jube", tmp_path / "jube")
    include = tmp_path / "jube/joulemark.xml"
    include.write_text(include.read_text().replace('name="joulemark_options">', 'name="joulemark_options">--device sim:h100x1'))
    (tmp_path / "joulemark").symlink_to(BIN)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for words in (["run", "example.xml"], ["result", "energy"]):
        done = subprocess.run(["jube", *words], cwd=tmp_path / "jube", env=env, capture_output=True, text=True, timeout=1000, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader(line for line in done.stdout.splitlines() if "," in line))
    records = sorted((json.loads(path.read_text()) for path in tmp_path.glob("jube/energy/**/joulemark.json")), key=lambda r: r["wall_s"])
    assert [row["seconds"] for row in rows] == ["0.2", "0.4"] and len(records) == 2
    for row, record in zip(rows, records):
        assert float(row["joules_simulated[J]"]) == pytest.approx(record["total"]["joules_simulated"]) and row["grade"] == "none"
        assert float(row["wall_s[s]"]) == pytest.approx(record["wall_s"]) and row["joules_measured[J]"] == ""


def test_patterns_of_jube_read_the_total_alone():
    """What a process or a phase has does not stand in for a total that is unknown."""
    part = {"joules_measured": 1.5, "joules_estimated": 2.5, "joules_simulated": None}
    record = {"own_share": {"total": part, **part}, "total": dict.fromkeys(part), "wall_s": 3.5, "phases": [{"total": part, "throughput": 9.5}],
              "throughput": None, "quality": {"grade": "B"}}
    patterns = xml.etree.ElementTree.parse(RECIPES / "jube/joulemark.xml").iter("pattern")
    number = r"([+-]?\d*\.?\d+(?:[eE][-+]?\d+)?)"
    found = {p.get("name"): re.findall(p.text.replace("$jube_pat_fp", number).replace("$jube_pat_wrd", r"(\S+?)"), json.dumps(record, indent=2), re.M)
             for p in patterns}
    assert found == {"wall_s": ["3.5"], "joules_measured": [], "joules_estimated": [], "joules_simulated": [], "grade": ["B"], "throughput": []}


def test_reframe_runs_the_test_and_reports_its_energy(tmp_path):
    folder = packages("reframe")
    (tmp_path / "joulemark").symlink_to(BIN)
    env = {**os.environ, "PYTHONPATH": str(folder), "PATH": f"{tmp_path}:/usr/sbin:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, folder / "bin/reframe", f"--prefix={tmp_path}", "--nocolor", "-c", RECIPES / "reframe/joulemark_test.py",
                           "-S", "options=--device sim:h100x1", "-S", "command=sleep 0.4", "--keep-stage-files", "-r"],
                          cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = [json.loads(path.read_text()) for path in tmp_path.glob("stage/**/joulemark.json")]
    figures = {m[1]: float(m[2]) for m in re.finditer(r"^P: (\w+): (\S+)", done.stdout, re.M)}
    assert figures == {"wall": pytest.approx(record["wall_s"]), "simulated": pytest.approx(record["total"]["joules_simulated"])}
    assert figures["wall"] > 0.4
