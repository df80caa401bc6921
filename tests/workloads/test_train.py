# SPDX-License-Identifier: Apache-2.0
"""run train: a small GPT learns; impossible trainings are reported."""
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import time

import pytest

from jm import BIN, BUILD, SOURCE, jm
from training import TINY, train, training_text

SCHEMA = json.loads((SOURCE / "docs" / "record.schema.json").read_text(encoding="utf-8"))
@pytest.mark.parametrize("precision", ["f32", "tf32", "bf16", "fp16"])
def test_learns(tmp_path, text, precision):
    done, r = train(tmp_path, text, precision=precision)
    assert done.returncode == 0, done.stderr
    assert (r["workload"], r["unit"], r["precision"]) == ("train", "token", precision)
    assert r["steps"] == 4 and r["items"] == 4 * 2 * 16
    assert abs(r["loss_first"] - math.log(256)) < 1
    assert r["loss_last"] < r["loss_first"]
    assert r["verified"] is True
    assert r["throughput"] > 0 and r["flops_model_per_item"] > 6 * 256 * 16
    assert (r["note"] is None) == (precision in ("f32", "tf32")), r["note"]
    assert ("loss_scale" in r) == (precision == "fp16")
    assert precision != "fp16" or r["loss_scale"]["dynamic"] and r["loss_scale"]["first"] == 65536


def test_same_seed_same_losses(tmp_path, text):
    first, second = (train(tmp_path, text)[1] for _ in range(2))
    assert first["loss_last"] == second["loss_last"]


USAGE, CASE = 2, 1


@pytest.mark.parametrize("status, options, hint", [
    # of the command line: told before anything runs
    (USAGE, {"precision": "int4"}, "bf16-true"),
    (USAGE, {"precision": "bf61"}, "did you mean 'bf16'"),
    (USAGE, {"precision": "f32,bf61"}, "did you mean 'bf16'"),
    (USAGE, {"precision": "f64", "device": "cpu"}, "f64"),
    (USAGE, {"device": "abacus"}, "no device 'abacus'"),
    (USAGE, {"device": "raf"}, "did you mean 'ref'"),
    (USAGE, {"device": "ref:x"}, "cuda:0"),
    (USAGE, {"batch": 0}, "range 1 to"),
    (USAGE, {"batch": "many"}, "many"),
    (USAGE, {"optimizer": "sdg"}, "did you mean 'sgd'"),
    (USAGE, {"schedule": "cosin"}, "did you mean 'cosine'"),
    (USAGE, {"init": "he-norma"}, "did you mean 'he-normal'"),
    (USAGE, {"images": "onse"}, "did you mean 'once'"),
    (USAGE, {"dropout": 1}, "--dropout"),
    # of a case: a failed one with its reason
    (CASE, {"seq": 900}, "900"),
    (CASE, {"heads": 3}, "3 heads do not divide a hidden width of 16"),
    (CASE, {"text": "/nowhere/text"}, "/nowhere/text"),
    (CASE, {"text": "/dev/null"}, "/dev/null"),
    (CASE, {"vocab": 200}, "--vocab"),
    (CASE, {"batch": 1000000}, "smaller batch"),
    (CASE, {"lr": 1000, "steps": 6}, "first became non-finite in node"),
    (CASE, {"threads": 4000}, "--threads"),
    (CASE, {"threads": len(os.sched_getaffinity(0)) + 1}, "--threads"),
    (CASE, {"memory": 0.000001}, "Out of memory before the first step"),
    (CASE, {"memory": 0.000001}, "alone take"),
    (CASE, {"memory": 0.000001}, "bf16-true, which keeps no f32 masters"),
    (CASE, {"memory": 0.000001, "device": "cpu", "precision": "bf16-true"}, "parameters fit; take fewer --layers or another model."),
    (CASE, {"batch": "max", "memory": 0.000001}, "Not even a batch of 1"),
    (CASE, {"device": "cpu", "precision": "tf32"}, "has no tf32"),
    (CASE, {"device": "cpu", "precision": "fp16"}, "it supports f32 and bf16"),
    (CASE, {"schedule": "cosine", "lr-warmup": 10, "lr-steps": 10}, "--lr-steps"),
    (CASE, {"lr-min": 1}, "--lr-min"),
    (CASE, {"loss-scale": "dynamik"}, "dynamic"),
    (CASE, {"eval-text": "/dev/null"}, "give --eval-every N"),
    (CASE, {"eval-text": "/dev/null", "eval-every": 1}, "/dev/null"),
    (CASE, {"eval-every": 1, "seq": 100}, "85 bytes to hold out"),
    (CASE, {"loss-scale": "dynamic:0"}, "2^100"),
    (CASE, {"gradients": "bf16"}, "--precision bf16 or fp8"),
    (CASE, {"gradients": "bf16", "precision": "bf16-true"}, "--precision bf16 or fp8"),
    (CASE, {"gradients": "bf16", "precision": "bf16", "accumulate": 2}, "--accumulate"),
    (CASE, {"residual": "bf16"}, "--precision bf16 or fp8"),
    (CASE, {"residual": "f32", "precision": "bf16-true"}, "with f32 masters"),
])
def test_refusals(tmp_path, text, status, options, hint):
    done, r = train(tmp_path, text, **options)
    assert done.returncode == status, (done.stdout, done.stderr)
    if status == USAGE:
        assert r is None and hint in done.stderr
    else:
        assert r["status"] == "failed" and hint in r["reason"] and r["throughput"] is None


@pytest.mark.parametrize("option, value, used_with, needs", [
    ("momentum", 0.5, {"optimizer": "sgd"}, "--optimizer sgd"),
    ("beta1", 0.5, {"optimizer": "adam"}, None),
    ("lr-steps", 5, {"schedule": "step"}, "--schedule cosine, linear or step"),
    ("lr-min", 0.001, {"schedule": "cosine"}, "--schedule cosine or linear"),
    ("lr-factor", 0.5, {"schedule": "step"}, "--schedule step"),
    ("eval-batches", 2, {"eval-every": 2}, "--eval-every"),
    ("images", "fresh", None, "random samples, which are those of a model without text and without --data"),
])
def test_an_option_that_changes_nothing_is_named(tmp_path, text, option, value, used_with, needs):
    note = train(tmp_path, text, **{option: value})[1]["note"]
    assert note == (needs and f"--{option} has no effect: it needs {needs}.")
    if used_with:
        assert train(tmp_path, text, **{option: value}, **used_with)[1]["note"] is None


@pytest.mark.parametrize("words, hint", [
    (("resnet18", "--image", 8, "--batch", 2), "--image 32 or more"),
    (("resnet18", "--image", 32, "--batch", 1), "variance"),
    (("resnet18", "--image", 32, "--batch", 1000000, "--memory", 4), "take a smaller batch"),  # whose inputs alone need 12 GB
    (("vit-l16", "--heads", 7), "7 heads do not divide"),
    (("vit-l16", "--image", 30), "do not divide an image of 30"),
    (("vit-l16", "--image", 8), "do not divide an image of 8"),
    (("llama3-8b", "--kv-heads", 7), "7 key and value heads do not divide 32 heads"),
    (("llama3-8b", "--heads", 7), "7 heads do not divide"),
    (("resnet18", "--image", 32, "--batch", 2, "--dropout", 0.1), "has no dropout"),
    (("mlp", "--layers", 1, "--hidden", 8, "--seq", 2), "takes no sequences, but samples"),
    (("mlp", "--hidden", 8), "needs --layers"),
    (("fno-rbc2d", "--modes-x", 129), "256 points along x have at most 128 frequencies of either sign"),
    (("fno-rbc3d", "--points-z", 8), "larger --points-z"),
    (("fno-rbc2d", "--modes-z", 2), "--points-z"),
    (("towers", "--layers", 1, "--hidden", 8, "--batch", 1), "--batch 2 or more"),
    (("unet-sd2", "--latent", 60), "a multiple of 8"),
    (("unet-sd2", "--hidden", 330), "not a multiple of"),
    (("sd2", "--image", 96), "a multiple of 64"),
    (("sd2", "--vae-hidden", 100), "change --vae-hidden"),
    (("sd2", "--text-heads", 15), "15 heads do not divide"),
    (("sd2", "--freeze", "unet.*"), "fits all parameters of diffusion"),
])
def test_shapes_that_do_not_fit(tmp_path, words, hint):
    file = tmp_path / "record.json"
    done = jm("run", *words, "--device", "ref", "--steps", 1, "--json", file)
    assert done.returncode == CASE
    r = json.loads(file.read_text())
    assert r["status"] == "failed" and hint in r["reason"] and (r["unit"] == "image" or "resnet18" not in words)


def test_text_shorter_than_the_sequence(tmp_path):
    short = tmp_path / "short"
    short.write_bytes(b"x" * 16)
    done, r = train(tmp_path, short)
    assert done.returncode == CASE and "16 bytes" in r["reason"] and "needs 17" in r["reason"]
    short.write_bytes(b"x" * 17)
    assert train(tmp_path, short, steps=1, warmup=0)[1]["loss_first"] is not None


def test_options_of_models_are_axes(tmp_path):
    """Of two models, each with its own rows: what both have is swept, and each record has what it ran with."""
    file = tmp_path / "records.json"
    done = jm("run", "train", "--model", "resnet,vit", "--layers", "10", "--hidden", "8,16", "--image", 32,
              "--classes", 4, "--device", "ref", "--batch", 2, "--steps", 1, "--warmup", 0, "--json", file)
    records = json.loads(file.read_text())
    got = {(r["options"]["model"], r["options"]["hidden"], r["status"]) for r in records}
    assert got == {("resnet", "8", "ok"), ("resnet", "16", "ok"), ("vit", "8", "failed"), ("vit", "16", "failed")}
    assert all("needs --heads" in r["reason"] for r in records if r["status"] == "failed") and done.returncode == CASE
    assert not any("heads" in r["options"] for r in records)


NO_CLASSES = [("mlp", "sample"), ("towers", "pair")]


@pytest.mark.parametrize("model, item", NO_CLASSES)
def test_models_without_classes_learn(tmp_path, model, item):
    """What they are fed and how they are judged comes from the model's own file."""
    file = tmp_path / "record.json"
    words = ("--layers", 1, "--hidden", 16, "--features", 6, "--device", "ref", "--batch", 8, "--lr", 0.01, "--steps",
             30, "--warmup", 0, "--eval-every", 15, "--json", file)

    def run(*more):
        done = jm("run", model, *words, *more)
        return done, json.loads(file.read_text())
    done, r = run()
    assert done.returncode == 0, done.stderr
    assert (r["unit"], r["items"], r["verified"]) == (item, 30 * 8, True)
    assert r["loss_last"] < 0.7 * r["loss_first"] and r["options"]["features"] == "6"
    assert f"random normal {item}s, made once" in r["detail"]
    assert len(r["evaluations"]) == 2 and not any("accuracy" in e for e in r["evaluations"])
    assert run("--loss-scale", 1024)[1]["loss_last"] == r["loss_last"]
    fresh = run("--images", "fresh")[1]
    assert fresh["verified"] is not True and fresh["loss_first"] == r["loss_first"]


def test_the_largest_batch_of_pairs_begins_at_two(tmp_path):
    file = tmp_path / "record.json"
    jm("run", "towers", "--layers", 1, "--hidden", 8, "--features", 4, "--device", "ref", "--batch", "max", "--memory",
       0.0001, "--steps", 1, "--warmup", 0, "--json", file)
    r = json.loads(file.read_text())
    assert r["status"] == "ok" and r["items"] > 2, r["reason"]


def test_a_text_that_is_a_pipe(tmp_path):
    """Nobody writes into it: waiting for that would be forever."""
    os.mkfifo(tmp_path / "pipe")
    done, r = train(tmp_path, tmp_path / "pipe")
    assert done.returncode == CASE and "not a regular file" in r["reason"]


def test_a_name_that_is_not_text(tmp_path):
    done = jm("run", "train", "--text", os.fsdecode(b"na\xffme"), "--steps", 1)
    assert done.returncode == USAGE and "--text" in done.stderr and "UTF-8" in done.stderr


def test_a_gradient_is_found_in_whichever_micro_step_it_overflows(tmp_path):
    """Each has another window of the text; at such rates some of them overflow, and not always the last."""
    text = tmp_path / "text"
    text.write_bytes(pathlib.Path("/usr/share/common-licenses/GPL-3").read_bytes()[:3000])
    deaths = []
    for lr in (1.6, 4.6, 5):
        _, r = train(tmp_path, text, batch=1, accumulate=8, steps=30, warmup=0, optimizer="sgd", lr=lr,
                     momentum=0, clip=0, context=64, **{"weight-decay": 0})
        deaths += [r["reason"]] if r["reason"] else []
    assert deaths and all("first became non-finite in node" in reason for reason in deaths), deaths
    # the first gradient of all is finite: what the step that failed had left of it is not what is told
    assert not any("d.tokens.weight" in reason for reason in deaths), deaths


def test_largest_batch_is_proved_by_running(tmp_path, text):
    done, r = train(tmp_path, text, batch="max", memory=0.001)
    assert done.returncode == 0, done.stderr
    plan = r["plan"]
    assert plan["batch"] > 1 and plan["peak_bytes"] <= 1e6 and plan["plan_s"] < 1
    assert r["items"] == 4 * plan["batch"] * 16
    assert f"Batch {plan['batch']} needs" in done.stderr
    (setup,) = [p for p in r["phases"] if p["name"] == "setup"]
    parts = [plan["open_s"], plan["plan_s"], plan["build_s"]]
    assert min(parts) > 0 and sum(parts) < setup["end_s"] - setup["start_s"]
    assert "The device was opened in" in done.stderr and "Chosen and built in" in done.stderr
    done, _ = train(tmp_path, text, batch=plan["batch"] + 1, memory=0.001)
    assert done.returncode != 0 and "Out of memory before the first step" in done.stderr


def test_largest_batch_of_a_resnet(tmp_path):
    """By planning alone, and neither one image more nor less; then it runs."""
    net = ("resnet18", "--hidden", 8, "--image", 32, "--classes", 10)
    device = "ref" if jm("describe", *net, "--device", "cpu", "--batch", 2).returncode else "cpu"
    file, limit = tmp_path / "record.json", 0.012
    done = jm("run", *net, "--device", device, "--batch", "max", "--memory", limit, "--steps", 1,
              "--warmup", 0, "--lr", 1e-3, "--json", file)
    assert done.returncode == 0, done.stderr
    plan = json.loads(file.read_text())["plan"]

    def peak(batch):
        d = jm("describe", *net, "--device", device, "--batch", batch, "--json", "-")
        return json.loads(d.stdout)["peak_bytes"]

    assert peak(plan["batch"]) == plan["peak_bytes"] <= limit * 1e9 < peak(plan["batch"] + 1)


def test_the_largest_batch_with_evaluations_is_proved_by_running(tmp_path):
    """Their inputs count in memory that is the host's, too."""
    def run(batch, memory, *more):
        file = tmp_path / "record.json"
        jm("run", "resnet18", "--hidden", 8, "--image", 64, "--classes", 10, "--device", "ref", "--batch", batch, "--memory", memory,
           "--steps", 1, "--warmup", 0, "--source", "null", "--json", file, *more)
        return json.loads(file.read_text())

    evaluations = ["--eval-every", 1, "--eval-batches", 1]
    limit = (run(2, 1)["plan"]["peak_bytes"] + 1000) / 1e9
    r, without = run("max", limit, *evaluations), run("max", limit)
    assert r["status"] == "ok" and len(r["evaluations"]) == 1, r["reason"]
    assert r["plan"]["batch"] < without["plan"]["batch"] and r["plan"]["peak_bytes"] <= 1e9 * limit
    assert "Out of memory before the first step" in run(r["plan"]["batch"] + 1, limit, *evaluations)["reason"]


def test_accumulation_is_the_same_batch(tmp_path, text):
    whole = train(tmp_path, text, batch=8)[1]
    parts = train(tmp_path, text, batch=2, accumulate=4)[1]
    assert parts["items"] == whole["items"]
    assert parts["loss_last"] == pytest.approx(whole["loss_last"], abs=1e-5)
    assert parts["flops_model_per_item"] == pytest.approx(whole["flops_model_per_item"])


def test_recompute_changes_memory_only(tmp_path, text):
    kept = train(tmp_path, text, layers=4, batch=8)[1]
    again = train(tmp_path, text, layers=4, batch=8, recompute=1)[1]
    assert again["loss_last"] == kept["loss_last"]
    assert again["plan"]["peak_bytes"] < kept["plan"]["peak_bytes"]
    assert again["flops_executed_per_item"] > kept["flops_executed_per_item"]


@pytest.mark.parametrize("how", [
    {"optimizer": "sgd", "lr": 0.5}, {"optimizer": "sgd", "nesterov": 1, "lr": 0.1},
    {"optimizer": "adam"}, {"schedule": "cosine", "lr-warmup": 2, "lr-steps": 5},
])
def test_optimizers_and_schedules_learn(tmp_path, text, how):
    done, r = train(tmp_path, text, **how)
    assert done.returncode == 0, done.stderr
    assert r["verified"] is True and r["loss_last"] < r["loss_first"]


def test_a_loss_that_rises_is_judged_after_enough_steps(tmp_path, text):
    """A few steps prove nothing: deep networks may rise first. Then it is a failure."""
    wild = {"lr": 3, "warmup": 0}
    done, r = train(tmp_path, text, steps=3, **wild)
    assert done.returncode == 0 and r["status"] == "ok", done.stderr
    assert r["verified"] is None and "not fallen in 3 steps" in r["verify_reason"]
    done, r = train(tmp_path, text, steps=20, **wild)
    assert done.returncode == 1 and r["status"] == "failed" and r["verified"] is False
    assert "not fallen in 20 steps" in r["reason"] and "--lr" in r["reason"]


VIT = "vit --layers 1 --hidden 16 --heads 2 --ffn 32 --image 16 --patch 8 --classes 10 --batch 8 --lr 0.01 --steps 30 --warmup 0".split()


@pytest.mark.skipif(not (BUILD / "backends/cpu.so").exists(), reason="needs the backend cpu")
def test_a_first_loss_that_start_values_cannot_give_is_wrong(tmp_path):
    """Each product of the forward pass has one wrong element; the loss of the first batch falls nevertheless."""
    (tmp_path / "cpu.so").symlink_to(BUILD / "tests/peers/faulty.so")
    env = {"JM_BACKENDS": str(tmp_path), "JM_FAULTY_FROM": str(BUILD / "backends")}

    def run(every):
        done = jm("run", *VIT, "--device", "cpu", "--selftest", 0, "--source", "null", "--json", "-", env={**env, "JM_FAULTY": str(every)})
        return done.returncode, json.loads(done.stdout)
    status, r = run(0)
    assert status == 0 and r["verified"] is True and abs(r["loss_first"] - math.log(10)) < 2
    status, r = run(1)
    assert status == 1 and r["verified"] is False and r["loss_first"] > 10
    assert "near that of guessing one of 10 classes, 2.303, between" in r["verify_reason"] and "selftest" in r["reason"]


@pytest.mark.parametrize("init", ["gpt2", "he-normal", "lecun-normal", "normal", "trunc-normal", "xavier-uniform", "model"])
@pytest.mark.parametrize("model", [
    VIT, [*VIT, "--dropout", 0.5], "resnet18 --image 32 --hidden 8 --classes 10 --batch 16 --steps 1 --warmup 0".split(),
    "resnet50 --image 32 --hidden 8 --classes 100 --batch 2 --zero-gamma --steps 1 --warmup 0".split()], ids=lambda m: f"{m[0]}{len(m)}")
def test_first_losses_of_all_start_values_are_right(model, init):
    done = jm("run", *model, "--init", init, "--device", "ref", "--source", "null", "--json", "-")
    r = json.loads(done.stdout)
    assert r["loss_first"] and "guessing" not in (r["verify_reason"] or ""), r["verify_reason"]


def described(node, schema, path="record"):
    """Every key of what train adds must be in the schema, with a description or a unit in its name."""
    if isinstance(node, list):
        for one in node:
            described(one, schema["items"], path)
    elif isinstance(node, dict):
        assert set(node) <= set(schema["properties"]), path
        for key, value in node.items():
            described(value, schema["properties"][key], f"{path}.{key}")


@pytest.mark.parametrize("more", [{}, {"profile": 1, "loss-scale": "dynamic", "accumulate": 2, "device": "cpu"}])
def test_record_follows_the_schema(tmp_path, text, more):
    jsonschema = pytest.importorskip("jsonschema")
    done, r = train(tmp_path, text, **more)
    assert done.returncode == 0, done.stderr
    jsonschema.validate(r, SCHEMA, jsonschema.Draft7Validator)
    assert set(r) <= set(SCHEMA["properties"]), set(r) - set(SCHEMA["properties"])
    assert ("profile" in r, "loss_scale" in r) == (bool(more), bool(more))
    for key in ("plan", "profile", "loss_scale"):
        if key in r:
            described(r[key], SCHEMA["properties"][key], key)


def test_profile(tmp_path, text):
    done, r = train(tmp_path, text, profile=1, device="cpu")  # ref takes seconds to measure its memory
    assert done.returncode == 0, done.stderr
    whole, nodes = r["profile"]["whole_step_s"], r["profile"]["step_s"]
    assert whole > 0 and nodes > 0 and whole + nodes < r["wall_s"]
    head = " ".join(done.stdout.partition("Profile of a step of ")[2].partition("\nnode ")[0].split())
    in_sum, as_whole = (float(re.search(words + r" ([0-9.e-]+) ms", head).group(1)) for words in ("each timed by itself, take",
                                                                                              "as a whole the step takes"))
    assert (in_sum, as_whole) == pytest.approx((1e3 * nodes, 1e3 * whole), rel=1e-3)
    assert r["profile"]["peak_bytes_per_s"] > 1e7
    kinds, nodes = r["profile"]["kinds"], r["profile"]["nodes"]
    assert sum(k["share"] for k in kinds) == pytest.approx(1)
    assert sum(k["calls"] for k in kinds) == len(nodes)
    linear = next(k for k in kinds if k["name"] == "linear")
    assert linear["flops_per_s"] > 0 and linear["bytes_per_s"] > 0


def test_megatron_data_set(tmp_path):
    lengths = [30, 50, 40]
    tokens = [i % 250 for i in range(sum(lengths))]
    (tmp_path / "set.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    (tmp_path / "set.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 3, 4) + struct.pack("<3i", *lengths)
        + struct.pack("<3q", 0, 60, 160) + struct.pack("<4q", 0, 1, 2, 3))
    done, r = train(tmp_path, tmp_path / "set")
    assert done.returncode == 0, done.stderr
    assert r["loss_last"] < r["loss_first"]
    done, _ = train(tmp_path, tmp_path / "set.idx", vocab=100)
    assert done.returncode != 0 and "--vocab" in done.stderr
    token, place = map(int, re.search(r"token (\d+) at position (\d+)", done.stderr).groups())
    assert token >= 100 and tokens[place] == token


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
@pytest.mark.parametrize("scale", ["4096", "dynamic:1024"])
def test_loss_scale_changes_no_bit(tmp_path, text, optimizer, scale):
    plain = train(tmp_path, text, optimizer=optimizer)[1]
    scaled = train(tmp_path, text, optimizer=optimizer, **{"loss-scale": scale})[1]
    assert scaled["loss_last"] == plain["loss_last"]
    assert "loss_scale" not in plain
    assert scaled["loss_scale"] == {"dynamic": scale.startswith("d"), "steps_skipped": 0,
                                    "first": float(scale.split(":")[-1]),
                                    "last": float(scale.split(":")[-1])}


def test_evaluation_beside_training(tmp_path, text):
    """The same weights: training goes on as if nothing were evaluated, and a network that learns shows it."""
    other = tmp_path / "other"
    other.write_bytes(b"The lazy dog jumps over the quick brown fox. " * 9)
    options = {"steps": 29, "warmup": 1, "batch": 4}
    plain = train(tmp_path, text, **options)[1]
    done, r = train(tmp_path, text, **options, **{"eval-every": 10, "eval-batches": 3, "eval-text": other})
    assert done.returncode == 0, done.stderr
    assert (r["loss_first"], r["loss_last"]) == (plain["loss_first"], plain["loss_last"])
    assert [e["step"] for e in r["evaluations"]] == [10, 20, 30]
    assert all(e["samples"] == 12 and e["seconds"] > 0 and "accuracy" not in e for e in r["evaluations"])
    losses = [e["loss"] for e in r["evaluations"]]
    assert losses == sorted(losses, reverse=True) and losses[0] < math.log(256)
    assert f"After step 20: held-out loss {losses[1]:.6g}" in done.stderr
    # weights and arena are shared: what evaluation takes for itself are its inputs and results
    assert 0 < r["plan"]["peak_bytes"] - plain["plan"]["peak_bytes"] < 4096
    assert "evaluations" not in plain


def test_evaluation_counts_right_answers(tmp_path):
    file = tmp_path / "record.json"
    jm("run", "train", "--model", "resnet", "--device", "ref", "--layers", 10, "--hidden", 4, "--image", 32,
       "--classes", 2, "--batch", 4, "--steps", 2, "--warmup", 0, "--eval-every", 1, "--json", file)
    found = json.loads(file.read_text())["evaluations"]
    assert [e["step"] for e in found] == [1, 2]
    assert all(e["accuracy"] * 32 == round(e["accuracy"] * 32) and 0 < e["accuracy"] < 1 for e in found)


def diverge(tmp_path, steps, scale):
    """
    Gradients that grow by orders of magnitude a step. One batch of images over and over, so that a skipped
    step leaves no trace. Returns the record and whether no gradient overflowed.
    """
    file = tmp_path / "record.json"
    jm("run", "train", "--model", "resnet", "--device", "ref", "--layers", 10, "--hidden", 4, "--image", 32,
       "--classes", 5, "--batch", 4, "--steps", steps, "--warmup", 0, "--optimizer", "sgd", "--lr", 500,
       "--momentum", 0, "--weight-decay", 0, "--clip", 0, "--schedule", "linear",
       "--lr-steps", 20, "--loss-scale", scale, "--json", file)
    r = json.loads(file.read_text())
    why = r["reason"] or "has not fallen"
    assert "has not fallen" in why or "is not a number or infinite" in why, why
    return r, "has not fallen" in why


def test_a_scale_that_overflows_is_halved_and_the_step_skipped(tmp_path):
    # which scales overflow, told by runs that die of a fixed one
    most = 2.0 ** 100
    fits = [2.0 ** e for e in range(84, 101) if diverge(tmp_path, 6, 2.0 ** e)[1]]
    assert fits and most not in fits
    skipped = 100 - round(math.log2(max(fits)))
    r, finite = diverge(tmp_path, skipped + 6, f"dynamic:{most:.0f}")
    assert finite and r["loss_scale"] == {"dynamic": True, "first": pytest.approx(most),
                                          "last": pytest.approx(max(fits)), "steps_skipped": skipped}
    assert f"{skipped} steps skipped" in r["detail"] and r["steps"] == skipped + 6
    plain, finite = diverge(tmp_path, 6, 1)
    assert finite and (r["loss_first"], r["loss_last"]) == (plain["loss_first"], plain["loss_last"])


def test_a_dynamic_scale_does_not_depend_on_when_the_host_looks(tmp_path):
    """An evaluation waits for the device, so the result of the step before is there early; the next step must not use it."""
    (tmp_path / "cuda.so").symlink_to(pathlib.Path(os.environ["JM_BUILD"]) / "tests/peers/later.so")
    small = ("--layers", 1, "--hidden", 16, "--heads", 2, "--vocab", 256, "--context", 8, "--seq", 8, "--batch", 1)
    found = []
    for every in (1, 20):
        done = jm("run", "gpt", *small, "--device", "cuda:0", "--precision", "fp16", "--loss-scale", "dynamic:1e8", "--lr", 0.01,
                  "--warmup", 0, "--steps", 20, "--eval-every", every, "--eval-batches", 1, "--source", "null", "--json", "-",
                  env={"JM_BACKENDS": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    often, once = found
    assert often["loss_scale"] == once["loss_scale"] and often["loss_scale"]["steps_skipped"] > 10
    assert often["loss_last"] == once["loss_last"]


def test_a_held_out_loss_that_is_not_finite_fails_the_run(tmp_path, text):
    """The loss and the gradient of the only step are finite; the weights after it have products beyond fp16."""
    options = {"precision": "fp16", "lr": 1000, "steps": 1, "warmup": 0, "seq": 8}
    _, without = train(tmp_path, text, **options)
    assert math.isfinite(without["loss_first"])
    done, r = train(tmp_path, text, **options, **{"eval-every": 1, "eval-batches": 1})
    assert done.returncode == 1 and r["status"] == "failed"
    assert "The held-out loss after step 1 is not a number or infinite" in r["reason"]


def test_what_never_becomes_finite_is_not_the_scale(tmp_path, text):
    done, _ = train(tmp_path, text, optimizer="sgd", lr=100, clip=0, steps=40,
                    **{"weight-decay": 0, "loss-scale": "dynamic"})
    assert done.returncode == 1
    assert "the 19 steps before it, down to a loss scale of 0.125" in done.stderr
    assert "it first became non-finite in node" in done.stderr and "attention-grad" in done.stderr


@pytest.mark.parametrize("init", ["gpt2", "he-normal", "lecun-normal", "normal", "trunc-normal",
                                  "xavier-uniform"])
def test_start_values(tmp_path, text, init):
    own, other = train(tmp_path, text)[1], train(tmp_path, text, init=init, hidden=32, ffn=64)[1]
    assert other["verified"] is True
    assert abs(other["loss_first"] - math.log(256)) < 1 and other["loss_first"] != own["loss_first"]


def test_zero_gamma(tmp_path, text):
    file = tmp_path / "record.json"
    small = ("--layers", 10, "--hidden", 4, "--image", 32, "--classes", 4, "--batch", 4, "--lr", 0.01)
    done = jm("run", "train", "--model", "resnet", *small, "--device", "ref", "--steps", 2, "--warmup", 0,
              "--zero-gamma", "--json", file)
    assert done.returncode == 0, done.stderr
    done, _ = train(tmp_path, text, **{"zero-gamma": 1})
    assert done.returncode != 0 and "batch norm" in done.stderr


def test_dropout(tmp_path, text):
    none, some = train(tmp_path, text)[1], train(tmp_path, text, dropout=0.3)[1]
    assert some["loss_first"] != none["loss_first"]
    assert train(tmp_path, text, dropout=0.3, recompute=1)[1]["loss_last"] == some["loss_last"]


@pytest.mark.parametrize("images", ["once", "fresh"])
def test_images(tmp_path, images):
    file = tmp_path / "record.json"
    done = jm("run", "train", "--model", "vit", "--device", "ref", "--layers", 1, "--hidden", 16,
              "--heads", 2, "--ffn", 16, "--image", 16, "--patch", 8, "--classes", 5, "--batch", 4,
              "--steps", 4, "--warmup", 0, "--lr", 0.01, "--images", images, "--json", file)
    assert done.returncode == 0, done.stderr
    r = json.loads(file.read_text())
    assert r["unit"] == "image" and r["items"] == 16 and images in r["detail"].replace("made ", "")
    assert r["verified"] is (True if images == "once" else None)


def test_epochs_drop_the_first(tmp_path, text):
    options = {k: v for k, v in TINY.items() if k not in ("steps", "warmup")} | {"device": "cpu"}
    file = tmp_path / "record.json"
    words = [w for name, value in options.items() for w in (f"--{name}", value)]
    done = jm("run", "train", "--model", "gpt", *words, "--text", text, "--epochs", 4,
              "--epoch-steps", 3, "--profile", "--json", file)
    assert done.returncode == 0, done.stderr
    r = json.loads(file.read_text())
    assert (r["warmup_steps"], r["steps"], r["items"]) == (3, 9, 9 * 2 * 16)
    epochs = [p for p in r["phases"] if p["name"].startswith("epoch")]
    assert [p["name"] for p in epochs] == ["epoch 2", "epoch 3", "epoch 4"]
    assert all(p["items"] == 3 * 2 * 16 for p in epochs)
    steady = next(p for p in r["phases"] if p["name"] == "steady")
    assert steady["start_s"] <= epochs[0]["start_s"] and epochs[-1]["end_s"] <= steady["end_s"]
    assert "Profile of a step of" in done.stdout and "linear-wgrad" in done.stdout
    kinds = r["profile"]["kinds"]
    if r["profile"].get("energy"):
        assert "no meter resolves a kernel" in done.stdout
        assert sum(k["joules_model"] for k in kinds) == pytest.approx(r["profile"]["energy"]["joules"])


@pytest.mark.parametrize("words, hint", [
    (("--epochs", 3, "--steps", 4), "--epochs"),
    (("--epochs", 0), "--epochs"),
    (("--epoch-steps", 9), "--epochs"),
])
def test_lengths_that_contradict(words, hint):
    done = jm("run", "null", *words)
    assert done.returncode == 2 and hint in done.stderr


def test_a_single_epoch_is_measured(tmp_path):
    file = tmp_path / "record.json"
    done = jm("run", "null", "--step-time", "1ms", "--epochs", 1, "--epoch-steps", 4, "--json", file)
    assert done.returncode == 0, done.stderr
    r = json.loads(file.read_text())
    assert (r["warmup_steps"], r["steps"]) == (0, 4)
    epoch, = [p for p in r["phases"] if p["name"].startswith("epoch")]
    steady = next(p for p in r["phases"] if p["name"] == "steady")
    assert epoch["name"] == "epoch 1"
    assert steady["start_s"] <= epoch["start_s"] and epoch["end_s"] <= steady["end_s"]


def test_text_that_becomes_shorter_ends_the_run_with_the_reason(tmp_path):
    """A mapped file would kill the worker by SIGBUS. The losses of the finished steps stay."""
    text, record = tmp_path / "text", tmp_path / "r.json"
    text.write_bytes(b"All happy families are alike. " * 4000)
    words = [BIN, "run", "train", "--text", text, "--layers", "1", "--hidden", "16", "--heads", "2", "--ffn", "32", "--vocab", "256",
             "--context", "64", "--positions", "learned", "--seq", "32", "--batch", "2", "--device", "ref", "--seconds", "60",
             "--warmup", "2", "--json", record]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        time.sleep(3)
        os.truncate(text, 100)
        child.communicate(timeout=240)
    found = json.loads(record.read_text())
    found = found[0] if isinstance(found, list) else found
    assert found["status"] == "failed" and f"{text} became shorter while it was read" in found["reason"], found["reason"]
    assert found["loss_first"] > 0 and found["steps"] > 0
