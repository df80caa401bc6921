# SPDX-License-Identifier: Apache-2.0
"""One concept has one option in every command: --device, --json[=FILE], durations."""
import json
import os
import re
import shlex

import pytest
from PIL import Image

from fake_gpus import FakeGpus
from jm import BIN, FAILURE, SOURCE, USAGE, jm, sentence, terminal


@pytest.fixture(name="gpus")
def three_gpus(tmp_path):
    return FakeGpus(tmp_path, 3, "wave=square;low=100;high=100;mem=0")


def labels(done):
    assert done.returncode == 0, done.stderr
    return [m["label"].split()[1] for m in json.loads(done.stdout.splitlines()[0])["meters"]]


SIMULATED = [
    ["run", "sim", "--seconds", "1", "--device"],
    ["measure", "--for", "0.2", "--device"],
    ["watch", "--for", "0.3", "--interval", "0.1", "--device"],
    ["list", "--device"],
    ["get", "--device"],
]


@pytest.mark.parametrize("words", SIMULATED, ids=lambda words: words[0])
def test_a_simulated_device_is_named_in_the_same_way(words):
    done = jm(*words, "sim:h100x2")
    assert done.returncode == 0 and "sim" in done.stdout + done.stderr


def test_a_command_is_measured_and_set_on_the_device(tmp_path):
    path = tmp_path / "r.json"
    done = jm("run", "--device", "sim:h100x2", "--set", "gpu.power=300W", f"--json={path}", "--", "true")
    assert done.returncode == 0, done.stderr
    for record in json.loads(path.read_text()):
        assert {m["source"] for m in record["meters"]} == {"sim"} and record["device"] is None
        assert [s["device"] for s in record["settings"]] == ["sim:h100x2/gpu0", "sim:h100x2/gpu1"]


def test_top_takes_it_too():
    text, status = terminal("top", "--device", "sim:h100x2", "--for", "0.5")
    assert status == 0 and {"GPU 0", "GPU 1"} <= set(re.findall(r"GPU \d", text)) and "simulated" in text


def test_set_and_get_of_a_simulated_node(tmp_path):
    env = {"JM_STATE": str(tmp_path / "state")}
    inner = [BIN, "get", "--device", "sim:h100x2", "--json", "gpu.power"]
    done = jm("set", "--device", "sim:h100x2", "gpu.power=400W", "--", *inner, env=env)
    assert [knob["accepted"] for knob in json.loads(done.stdout)] == [400, 400]


@pytest.mark.parametrize("device, numbers", [("cuda:1", ["1"]), ("cuda", ["0"]), ("cuda:2,cuda:0", ["0", "2"]),
                                             ("cpu", ["0", "1", "2"])])
def test_a_gpu_by_its_number(gpus, device, numbers):
    seen = labels(jm("watch", "--device", device, "--format", "json", "--for", "0.3", "--interval", "0.1", env=gpus.env))
    assert [n for n in seen if n in "012"][:3] == numbers
    knobs = json.loads(jm("get", "--device", device, "--json", env=gpus.env).stdout)
    assert [k["label"].split()[1] for k in knobs] == numbers


def test_a_gpu_is_counted_as_cuda_counts(gpus):
    """Of the list 2,0 the first is cuda:0."""
    env = {**gpus.env, "CUDA_VISIBLE_DEVICES": "2,0"}
    found = {d: json.loads(jm("get", "--device", d, "--json", env=env).stdout)[0]["label"].split()[1]
             for d in ("cuda:0", "cuda:1")}
    assert found == {"cuda:0": "2", "cuda:1": "0"}
    for command in (["get"], ["measure", "true"]):
        text = sentence(jm(command[0], "--device", "cuda:2", *command[1:], env=env), FAILURE)
        assert "no GPU 2" in text and "has 2" in text


@pytest.mark.parametrize("words", [["measure", "true"], ["watch"], ["get"], ["list"], ["set", "gpu.power=300W"]],
                         ids=lambda words: words[0])
def test_a_device_that_does_not_exist(words):
    text = sentence(jm(words[0], "--device", "gpu7", *words[1:]), USAGE)
    assert "gpu7" in text and "cuda:0" in text and "sim:h100x4" in text


@pytest.mark.parametrize("words", [["measure", "--source", "estimate", "true"], ["get", "--control", "sim:h100x1"]])
def test_two_ways_of_choosing(words):
    assert "give one of them" in sentence(jm(words[0], "--device", "sim:h100x1", *words[1:]), USAGE)


def test_the_former_name_says_the_new_one():
    text = sentence(jm("measure", "--devices", "true"), USAGE)
    assert "--meters" in text and "--device " in text


JSON = [
    ["measure", "--device", "sim:h100x1", "--quiet"],
    ["run", "sim", "--device", "sim:h100x1", "--seconds", "1", "--quiet"],
    ["get", "--device", "sim:h100x1"], ["status"], ["doctor"], ["list"], ["describe", "resnet18", "--device", "ref"],
    ["restore"], ["plan", SOURCE / "suites/capping-simulated.yaml"],
]


@pytest.mark.parametrize("words", JSON, ids=lambda words: words[0])
def test_json_to_a_file_and_alone(words, tmp_path):
    path = tmp_path / "out.json"
    rest = ["true"] if words[0] == "measure" else []
    done = jm(*words, f"--json={path}", *rest)
    assert done.returncode == 0, done.stderr
    assert json.loads(path.read_text()) and "{" not in done.stdout
    done = jm(*words, "--json", *rest)
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr


def test_a_plan_as_json_has_its_cases_and_needs():
    done = jm("plan", SOURCE / "suites/capping-simulated.yaml", "--cases", "--json")
    (run,) = json.loads(done.stdout)["runs"]
    listed = jm("run", SOURCE / "suites/capping-simulated.yaml", "--dry-run").stdout.split("\n")
    assert f"{run['cases']} cases, {run['repeat']} times" in listed[0]
    assert {one["parameters"]["settings"]["gpu.power"] for one in run["list"]} >= {"100W", "260W"}
    assert len(run["list"]) == run["cases"] and run["least_s"] is None
    assert json.loads(done.stdout)["needs"] == {"device sim:rtx6000x8": None, "knob gpu.power": None}
    lacking = jm("plan", SOURCE / "suites/power-aware.yaml", "--json", env={**os.environ, "JM_NVML_LIB": "/no/such.so"})
    assert lacking.returncode == 1 and any(json.loads(lacking.stdout)["needs"].values())


def test_a_merge_as_json_counts_records(tmp_path):
    store, merged = tmp_path / "a.db", tmp_path / "b.db"
    assert jm("run", "sim", "--device", "sim:h100x1", "--seconds", "1", "--repeat", "2", "--store", store).returncode == 0
    for added, there in ((2, 0), (0, 2)):
        counts = json.loads(jm("merge", "--json", merged, store).stdout)
        assert counts == {"store": str(merged), "added": added, "already_there": there, "damaged": 0}


def test_a_submission_as_json_has_the_words_that_are_printed(tmp_path):
    words = ["submit", SOURCE / "suites/capping-simulated.yaml", "--store", tmp_path / "a.db"]
    calls = json.loads(jm(*words, "--dry-run", "--json").stdout)["calls"]
    assert calls == [shlex.split(line) for line in jm(*words, "--dry-run").stdout.splitlines()]
    done = jm(*words, "--status", "--json")
    (run,) = json.loads(done.stdout)["runs"]
    assert done.returncode == 1 and run["not_submitted"] == run["jobs"] == 10 and run["reasons"] == []


def test_a_data_set_as_json_has_the_figures_of_the_text(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 12345)
    done = jm("data", "show", tmp_path / "a.txt", "--json")
    facts = json.loads(done.stdout)
    assert facts["tokens"] == 12345 and facts["documents"] == 1
    told = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in jm("data", "show", tmp_path / "a.txt").stdout.splitlines())
    assert {name.replace(" ", "_"): re.sub(r"(?<=\d),(?=\d)", "", text) for name, text in told.items()} == {k: str(v) for k, v in facts.items()}
    pictures = tmp_path / "pictures"
    for name in ("cat", "dog"):
        (pictures / name).mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(pictures / name / "one.png")
    (pictures / "dog" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    facts = json.loads(jm("data", "show", "--json", pictures).stdout)
    assert (facts["pictures"], facts["classes"], facts["corrupt_files"]) == (2, 2, 1)
    assert facts["class"] == ["0: 1 pictures of cat", "1: 1 pictures of dog"] and len(facts["damaged"]) == 1
    assert not jm("data", "show", tmp_path / "nothing", "--json").stdout


def test_json_is_a_format_where_there_are_several(tmp_path):
    store, path = tmp_path / "a.db", tmp_path / "out.json"
    assert jm("run", "sim", "--device", "sim:h100x1", "--seconds", "1", "--store", store).returncode == 0
    for words in (["report", store], ["query", store, "SELECT case_id, wall_s FROM results"]):
        want = jm(*words[:1], "--format", "json", *words[1:]).stdout
        assert json.loads(want) and jm(*words[:1], "--json", *words[1:]).stdout == want
        done = jm(*words[:1], f"--json={path}", *words[1:])
        assert done.returncode == 0 and not done.stdout and path.read_text() == want
    done = jm("watch", "--device", "sim:h100x1", "--for", "0.3", "--interval", "0.1", f"--json={path}")
    assert done.returncode == 0 and not done.stdout and [json.loads(line)["total"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("words", [["--json", "--format", "csv"], ["--json=a.json", "--output", "b.json"]])
@pytest.mark.parametrize("command", [["report", "a.db"], ["query", "a.db", "SELECT 1"], ["watch"]], ids=lambda words: words[0])
def test_json_beside_what_it_stands_for_is_refused(command, words):
    assert "give one of the two" in sentence(jm(command[0], *words, *command[1:]), USAGE)


def test_check_as_json(tmp_path):
    store = tmp_path / "a.db"
    assert jm("run", "sim", "--device", "sim:h100x1", "--seconds", "1", "--repeat", "2", "--store", store).returncode == 0
    done = jm("check", "--json", store)
    assert done.returncode == 1
    assert [(one["repeat"], one["passed"], one["grade"]) for one in json.loads(done.stdout)] == [(1, False, "none"), (2, False, "none")]
    text = " ".join(jm("check", store).stdout.split())
    reasons = [set(one["reasons"]) for one in json.loads(done.stdout)]
    assert reasons[0] & reasons[1] and all(text.count(reason) == 1 for reason in reasons[0] | reasons[1])


def test_json_does_not_take_a_command_or_a_workload(tmp_path):
    for words in (["measure", "--device", "sim:h100x1", "--json", "echo"],
                  ["measure", "--device", "sim:h100x1", "--json", "--", "true"],
                  ["run", "--json", "sim", "--device", "sim:h100x1", "--seconds", "1"]):
        done = jm(*words, cwd=tmp_path)
        assert done.returncode == 0 and '"schema"' in done.stdout, done.stderr
    assert not os.listdir(tmp_path)


def test_json_still_takes_a_file(tmp_path):
    for words in (["measure", "--device", "sim:h100x1", "--json", "a", "true"],
                  ["run", "--json", "b", "sim", "--device", "sim:h100x1", "--seconds", "1"]):
        assert jm(*words, cwd=tmp_path).returncode == 0
    assert {json.loads((tmp_path / name).read_text())["schema"] for name in "ab"} == {"joulemark.run/1"}


@pytest.mark.parametrize("words", [["watch", "--device", "sim:h100x1", "--format", "csv-wide", "--interval", "0.2", "--for", "1"],
                                   ["watch", "--device", "sim:h100x1", "--format", "csv-wide", "--interval", "200ms",
                                    "--for", "1s"]])
def test_a_bare_number_is_seconds(words):
    done = jm(*words)
    assert done.returncode == 0 and 4 <= len(done.stdout.splitlines()) <= 6


def test_zero_needs_no_unit(tmp_path):
    for text in ("0", "0s"):
        assert jm("run", "null", "--steps", "1", "--warmup", "0", "--cooldown", text, "--selftest", text,
                  "--device", "ref").returncode == 0
    assert "outside its range 0.0001s to 60s" in sentence(jm("run", "--interval", "100", "--", "true"), USAGE)


def test_steps_stay_steps():
    done = jm("run", "null", "--device", "ref", "--warmup", "3", "--steps", "2", "--json")
    record = json.loads(done.stdout[done.stdout.index("{"):])
    assert record["steps"] == 2
    assert re.search(r"--warmup N\|TIME\n\s+steps, or a time", jm("help", "run", "--all").stdout)
