# SPDX-License-Identifier: Apache-2.0
"""The examples of every command's help fit into 80 columns and run as they are printed."""
import os
import re
import shutil
import signal
import stat
import subprocess

import pytest

from fake_gpus import FakeGpus
from jm import BIN, SOURCE, jm

SHORT_S = 3  # of an example that runs until it is ended, or computes for longer


def examples():
    commands = re.findall(r"^  ([a-z]+) ", jm("--help").stdout.split("Commands\n")[1], re.M)
    for command in commands:
        text = jm("help", command).stdout
        if "\nExample\n" in text:
            text = text.split("\nExample\n")[1]
            for one in re.sub(r" \\\n +", " ", text).strip().splitlines():
                yield pytest.param(one, id=one[:60])


@pytest.fixture(name="folder", scope="module")
def everything_that_examples_name(tmp_path_factory):
    """Programs, stores, records and texts by the names that the examples have for them."""
    folder = tmp_path_factory.mktemp("examples")
    programs = folder / "bin"
    programs.mkdir()
    (programs / "joulemark").symlink_to(os.path.abspath(BIN))
    (programs / "python").symlink_to("/usr/bin/python3")
    for place in (folder / "train", folder / "short", programs / "load", programs / "train"):
        place.write_text("#!/bin/sh\nsleep 0.1\n")
        place.chmod(place.stat().st_mode | stat.S_IXUSR)
    for name in ("train", "kernels"):
        (folder / f"{name}.py").write_text("print('epoch 1')\n")
    (folder / "suites").symlink_to(SOURCE / "suites")
    shutil.copy(SOURCE / "tests/data/h100/resnet50.db", folder)
    sweep = ["run", "sim", "--device", "sim:h100x1", "--seconds", "1", "--repeat", "2", "--quiet"]
    for name in ("sweep", "before", "after", "node1", "node2"):
        assert jm(*sweep, "--set", "gpu.power=300W", "--store", folder / f"{name}.db").returncode == 0
    for name in ("a", "b", "record"):
        assert jm(*sweep, f"--json={folder / name}.json").returncode == 0
    return folder


def end(child):
    """What runs until Ctrl-C has shown by now that it was not refused."""
    os.killpg(child.pid, signal.SIGTERM)
    try:
        return child.communicate(timeout=240)[1]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.communicate()[1]


# What the machine of the test lacks: a GPU to compute on, counters of processors, a terminal, that process, a recording,
# the records of another example, the texts, a command that marks phases.
LACKS = re.compile(r"cuda:0|--per-phase|power-aware.yaml|rapl|^joulemark (top|jpwr|fold|calibrate --from|data)|--pid 1234|all\.db|book\.bin")


@pytest.mark.parametrize("example", examples())
def test_example(example, folder, tmp_path):
    gpus = FakeGpus(tmp_path, 2, "wave=square;low=100;high=100;mem=0")
    env = {**os.environ, **gpus.env, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "COLUMNS": "80"}
    child = subprocess.Popen(["bash", "-c", example], cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        err = child.communicate(timeout=SHORT_S)[1]
    except subprocess.TimeoutExpired:
        assert "joulemark: There is no" not in end(child)
        return
    assert child.returncode in (0, 1) or LACKS.search(example), err  # 1: of check and of a plan, something is missing
    assert "There is no option" not in err, err


@pytest.mark.parametrize("command", re.findall(r"^  ([a-z]+) ", jm("--help").stdout.split("Commands\n")[1], re.M))
def test_help_has_80_columns(command):
    for words in (["help", command], ["help", command, "--all"]):
        assert all(len(line) <= 80 for line in jm(*words, "--width", "80").stdout.splitlines())
