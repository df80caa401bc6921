# SPDX-License-Identifier: Apache-2.0
"""The suites repeat their papers: the numbers of their cases are those of tests/data/papers.yaml, each case fits into the
memory that its suite names, and what differs is said."""
import functools
import json
import os
import pathlib
import re
import tempfile

import numpy
import pytest
import yaml

from data_sets import coded, noise
from jm import BUILD, SOURCE, jm
from weights_files import tensor, write

PAPERS = yaml.safe_load((SOURCE / "tests/data/papers.yaml").read_text())
FAKES = BUILD / "tests/peers"
UPDATE = ("optimizer", "lr", "schedule", "weight-decay", "clip")  # what a default of joulemark could make another work
EACH = 32  # pictures of a class
planned = pytest.mark.skipif(not (FAKES / "cuda-plans.so").exists(), reason="needs the CUDA toolkit")


def text_of(suite):
    return (SOURCE / f"suites/{suite}.yaml").read_text()


def head_of(suite):
    return " ".join(line.lstrip("# ") for line in text_of(suite).split("\n\n")[0].splitlines())


def part_of(suite, title):
    """A paragraph of the head, from its title to the next one."""
    found = re.search(rf"{title}.*?:(.*?)(?=\b(?:Needs|On one GPU|Differs|Absent)\b[^:.]*:|$)", head_of(suite))
    assert found, f"suites/{suite}.yaml does not say '{title}'"
    return found.group(1)


def numbers(values):
    """[16, 32, 64] of "16:64*2", [200, 300] of "200:300+100W", of a list its own."""
    if not isinstance(values, str):
        return values if isinstance(values, list) else [values]
    first, last, way, step = re.fullmatch(r"([\d.]+):([\d.]+)([+*])([\d.]+)\w*", values).groups()
    found, last, step = [float(first)], float(last), float(step)
    while (more := found[-1] + step if way == "+" else found[-1] * step) <= last:
        found.append(more)
    return found


def seconds(text):
    return float(text.removesuffix("ms")) / 1000 if text.endswith("ms") else float(text.removesuffix("s"))


def put_pictures(root, classes):
    """A folder of two parts, whose pictures are enough for a step and the same file."""
    os.makedirs(root)
    with open(f"{root}.jpg", "wb") as f:
        f.write(coded(noise(8, 8), "JPEG"))
    for part in ("train", "val"):
        for i in range(classes):
            os.makedirs(f"{root}/{part}/{i}")
            for k in range(EACH):
                os.link(f"{root}.jpg", f"{root}/{part}/{i}/{k}.jpg")


def put_cifar(root):
    os.makedirs(root)
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        with open(f"{root}/{name}.bin", "wb") as f:
            f.truncate(3073 * 10000)


def put_text(path):
    """A Megatron data set of one document."""
    done = jm("data", "tokenize", "--tokenizer", SOURCE / "tests/data/tokenizers/gpt2.json", "/usr/share/common-licenses/GPL-3",
              path)
    assert done.returncode == 0, done.stderr


def put_llama(folder):
    """Llama 3 8B as Hugging Face describes it; weights are not read before the memory is known to suffice."""
    write_weights(f"{folder}/model.safetensors")
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 4096,
                   "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
                   "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 8192,
                   "tie_word_embeddings": False}, f)


def write_weights(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write(pathlib.Path(path), {"a": tensor(numpy.zeros(1, "<f4"))})


MADE = {"birds": lambda path: put_pictures(path, 69), "cifar-10-batches-bin": put_cifar, "Meta-Llama-3-8B": put_llama,
        "xception.safetensors": write_weights, "text.bin": put_text}


def with_files(run, folder):
    """The run with small files in place of those that its suite names."""
    made = {}
    for key in ("data", "eval-data", "from", "text"):
        if key in run:
            made[key] = f"{folder}/{run[key]}"
            if not os.path.exists(made[key]):
                MADE[run[key]](made[key])
    return run | made


@functools.cache
def failed_cases(suite):
    """Each training of the suite as its record has it: on a fake node of eight GPUs, where it fails for its memory."""
    plan = yaml.safe_load(text_of(suite))
    plan |= {"platform": str(SOURCE / "suites" / plan["platform"]), "repeat": 1, "memory": 0.001, "source": "null"}
    plan.pop("set", None)
    with tempfile.TemporaryDirectory() as folder:
        plan["runs"] = [with_files({k: v for k, v in run.items() if k != "set"}, folder) for run in plan["runs"] if run.get("work", "burn") not in ("burn", "serve")]
        os.symlink(FAKES / "cuda-plans.so", f"{folder}/cuda.so")
        with open(f"{folder}/plan.yaml", "w", encoding="utf-8") as f:
            yaml.safe_dump(plan, f)
        done = jm("run", f"{folder}/plan.yaml", "--json", "-", timeout=300, env={
            "JM_BACKENDS": folder, "JM_PLANS": folder, "JM_FAKE_CUDA": "gpus=8", "JM_FAKE_DNN_WORKSPACE": "1048576",
            "JM_CUBLASLT_LIB": str(FAKES / "libcublaslt-fake.so"), "JM_CUDNN_LIB": str(FAKES / "libcudnn-fake.so"),
            "JM_NCCL_LIB": str(FAKES / "libnccl-fake.so"), "JM_NVML_LIB": str(FAKES / "libnvidia-ml-fake.so")})
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)


def case_facts(record):
    """Of one case, in the papers' terms."""
    case = record["case"]["parameters"]
    options = case["options"]
    ranks = int(options.get("ranks", 1))
    facts = {name.replace("-", "_"): value for name, value in options.items()}
    facts |= {name: os.path.basename(facts[name]) for name in ("data", "from") if name in facts}
    facts |= {"devices": ranks, "precision": case["precision"], "steps": case.get("steps"),
              "epoch_steps": case.get("epoch_steps"), "measured_epochs": case.get("epochs", 0) - (case.get("warmup") != "0")}
    if options["batch"] != "max":
        facts["global_batch"] = ranks * int(options["batch"]) * int(options["accumulate"])
        if "seq" in options and case.get("steps"):
            facts["tokens"] = (case["steps"] + int(case["warmup"])) * facts["global_batch"] * int(options["seq"])
        facts |= passes(options, case, facts["global_batch"])
    return facts


def passes(options, case, batch):
    """Over the images of an epoch, as numbers of steps say them: each in the range in which its last step is filled up."""
    steps, falls = case.get("steps"), int(options["lr-steps"])
    if options["schedule"] == "cosine" and case.get("epochs"):
        return {"schedule_images": (falls / case["epochs"] - 1) * batch + 1, "schedule_images_most": falls / case["epochs"] * batch}
    if options["schedule"] == "step":
        held_out = int(options["eval-batches"]) * int(options["batch"])
        return {"measured_epochs": steps / int(options["eval-every"]), "warmup_epochs": int(case["warmup"]) / int(options["eval-every"]),
                "epochs_to_a_tenth": falls / int(options["eval-every"]), "epoch_range": (
                    (int(options["eval-every"]) - 1) * batch, int(options["eval-every"]) * batch),
                "held_out_range": (held_out - int(options["batch"]), held_out)}
    return {}


def run_facts(suite, run):
    """Of one run: what its plan says, then what its cases are."""
    plan = yaml.safe_load(text_of(suite))
    own = next(r for r in plan["runs"] if r["name"] == run)
    caps = (plan.get("set", {}) | own.get("set", {})).get("gpu.power")
    facts = {"caps": caps and numbers(caps), "repeat": plan.get("repeat"), "added_watts": plan.get("add-watts"),
             "interval_s": "interval" in plan and seconds(plan["interval"]), "precision": [own.get("precision")],
             "size_gb": own.get("size")} | {name: own.get(name) for name in "mnk"}
    facts |= {name: numbers(values) for name, values in own.get("variables", {}).items()}
    cases = [case_facts(r) for r in failed_cases(suite) if r["case"]["run"] == run] if is_training(own) else []
    for name in {name for case in cases for name in case}:
        facts[name] = sorted({value_of(case[name]) for case in cases if name in case})
    if own.get("work") == "serve":
        facts |= {name.replace("-", "_"): [value] for name, value in own.items()} | {"devices": [plan["ranks"]]}
    if facts.get("devices") and plan.get("add-watts"):
        facts["added_watts_per_device"] = plan["add-watts"] / facts["devices"][0]
    return facts


def value_of(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return text


def is_training(run):
    return "work" in run and run["work"] not in ("gemm", "allgather", "overlap", "burn", "serve")


def runs_of(suite):
    return [r["name"] for r in yaml.safe_load(text_of(suite))["runs"]]


ROWS = [(suite, run, row) for suite, paper in PAPERS.items() for row in paper["facts"]
        for run in (runs_of(suite) if row["run"] == "*" else [row["run"]])]


@planned
@pytest.mark.parametrize("suite, run, row", ROWS, ids=lambda x: x["fact"] if isinstance(x, dict) else x)
def test_number_is_that_of_the_paper(suite, run, row):
    facts = run_facts(suite, run)
    if row["fact"] in ("epoch_images", "held_out_images"):  # the last step is filled up
        ranges = facts["epoch_range" if row["fact"] == "epoch_images" else "held_out_range"]
        assert all(least < row["value"] <= most for least, most in ranges), row
    elif row["fact"] == "scheduled_images":
        for least, most in zip(facts["schedule_images"], facts["schedule_images_most"]):
            assert least <= row["value"] <= most, row
    elif row["fact"] == "pictures":  # of data that the user has
        assert all(f"{n:,}" in head_of(suite) for n in row["value"]), row
    else:
        assert facts[row["fact"]] == row["value"], row


@planned
@pytest.mark.parametrize("suite, run", [(s, run) for s, paper in PAPERS.items() for run in paper.get("memory_gb", {})])
def test_cases_fit_into_the_memory_that_the_suite_names(suite, run):
    """Or the suite says how much such a case takes, as the papers have cells that did not fit."""
    memory, head = PAPERS[suite]["memory_gb"][run], head_of(suite)
    cases = [r for r in failed_cases(suite) if r["case"]["run"] == run]
    assert cases and f"{memory} GB" in head
    for r in cases:
        need = float(re.search(r"needs ([\d.]+) GB", r["reason"]).group(1))
        batch = r["case"]["parameters"]["options"]["batch"]
        assert need <= 0.95 * memory - 0.064 or f"{need:.0f} GB at {batch}" in head, r["reason"]


@pytest.mark.parametrize("suite", PAPERS)
def test_suite_says_what_it_needs_what_differs_and_what_is_absent(suite):
    for title in ("Needs", "Differs", "Absent"):
        assert part_of(suite, title).strip(), title


@pytest.mark.parametrize("suite, run", [(s, r) for s in PAPERS for r in runs_of(s)])
def test_no_default_of_joulemark_stands_for_the_papers(suite, run):
    own = next(r for r in yaml.safe_load(text_of(suite))["runs"] if r["name"] == run)
    if is_training(own):
        assert not [name for name in UPDATE + ("precision", "batch") if name not in own]


@planned
def test_the_gpu_of_the_capping_paper_is_refused(tmp_path):
    """Quadro RTX 6000 is of compute capability 7.5: the suite must not promise to train on it."""
    (tmp_path / "cuda.so").symlink_to(FAKES / "cuda-plans.so")
    done = jm("describe", "resnet50", "--device", "cuda:0", env={"JM_BACKENDS": str(tmp_path), "JM_FAKE_CUDA": "cc=75@0"})
    assert done.returncode and "7.5" in done.stderr and "needs 8.0" in done.stderr
    needs = head_of("capping").split("'transfer' and 'until' need")[1]
    assert "compute capability 8.0" in needs and "is of 7.5" in head_of("capping")
