# SPDX-License-Identifier: Apache-2.0
"""
A program with one more model and one more workload (tests/peers/count.c): a preset is run by the workload that it
names, and that workload takes the options of the model, as training does.
"""
import json
import os
import subprocess

import pytest

from jm import BUILD, USAGE

MEMBERS = BUILD / "tests" / "peers" / "joulemark_members"


def members(*words):
    return subprocess.run([MEMBERS, *map(str, words)], capture_output=True, text=True, timeout=240,
                          stdin=subprocess.DEVNULL, env=dict(os.environ))


def run(tmp_path, *words):
    file = tmp_path / "records.json"
    done = members("run", *words, "--warmup", 0, "--json", file)
    found = json.loads(file.read_text())
    return done, found if isinstance(found, list) else [found]


def test_a_preset_is_run_by_its_workload(tmp_path):
    done, (r,) = run(tmp_path, "sums-small", "--steps", 3)
    assert done.returncode == 0, done.stderr
    assert (r["workload"], r["unit"], r["items"]) == ("count", "parameter", 3 * 7 * 7)
    assert r["options"] == {"model": "sums-small"} and r["loss_last"] is None


def test_a_model_as_it_is_is_trained(tmp_path):
    _, (r,) = run(tmp_path, "sums", "--numbers", 5, "--batch", 4, "--device", "ref", "--steps", 2)
    assert (r["workload"], r["unit"], r["items"], r["status"]) == ("train", "sample", 8, "ok")
    assert r["options"]["numbers"] == "5" and r["loss_last"] < r["loss_first"]


def test_its_options_are_axes_of_that_workload(tmp_path):
    done, records = run(tmp_path, "sums-small", "--numbers", "2,3,1000", "--steps", 1)
    assert done.returncode == 0
    assert sorted(r["items"] for r in records) == [4, 9, 1e6]
    assert {r["options"]["numbers"] for r in records} == {"2", "3", "1000"}


@pytest.mark.parametrize("words, hint", [
    (("sums-small", "--batch", 4), "Neither 'run' nor workload 'count' has an option --batch"),
    (("sums-small", "--layers", 4), "Model sums-small has no option --layers"),
    (("sums-small", "--numbres", 4), "did you mean --numbers"),
    (("sums-small", "--numbers", 1001), "range 1 to 1000"),
    (("sums-small", "--model", "sums"), "exclude each other"),
    (("count", "--model", "sumz"), "did you mean 'sums'"),
])
def test_what_it_refuses(words, hint):
    done = members("run", *words)
    assert done.returncode == USAGE and hint in done.stderr


def test_help_shows_that_workload_and_the_model():
    text = members("help", "sums-small").stdout
    assert "counts the parameters of a model" in text and "--numbers N" in text and "--batch" not in text
    assert "--batch" in members("help", "sums").stdout
