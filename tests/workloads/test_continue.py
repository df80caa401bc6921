# SPDX-License-Identifier: Apache-2.0
"""run --checkpoint and --continue: behind a SIGKILL the losses are those of a run that was not interrupted, bit for bit."""
import json
import os
import re
import signal
import struct
import subprocess
import time

import numpy
import pytest

from data_sets import noise
from jm import BIN, BUILD, jm
from weights_files import read, write

FAILED = 1
RESNET = ("resnet", "--layers", 10, "--hidden", 8, "--image", 32, "--classes", 5, "--batch", 8, "--images", "fresh")
GPT = ("gpt", "--layers", 2, "--hidden", 32, "--heads", 2, "--context", 32, "--batch", 4, "--dropout", "0.1")
KINDS = {
    "resnet": (*RESNET, "--device", "cpu", "--optimizer", "sgd", "--lr", "0.05"),
    "resnet-bf16": (*RESNET, "--device", "cpu", "--precision", "bf16", "--accumulate", 2),
    "resnet-frozen": (*RESNET, "--device", "cpu", "--freeze", "layer1*,bn1*"),
    "gpt": (*GPT, "--device", "cpu", "--schedule", "cosine", "--lr-warmup", 5, "--lr-steps", 100),
    "gpt-ranks": (*GPT, "--device", "cpu", "--ranks", 2),
    "gpt-ranks-mean": (*GPT, "--device", "cpu", "--ranks", 3, "--precision", "bf16", "--optimizer", "sgd", "--ema", "0.9"),
    "gpt-ranks-fp8": (*GPT, "--device", "cpu", "--ranks", 2, "--precision", "fp8"),
    "gpt-adam": (*GPT, "--device", "cpu", "--optimizer", "adam"),
    # a scale that halves in the first steps, which are skipped
    "gpt-fp16": (*GPT, "--device", "ref", "--precision", "fp16", "--loss-scale", "dynamic:1e9"),
    "gpt-true": (*GPT, "--device", "ref", "--precision", "bf16-true"),
}
ALL = {**KINDS, "gpt-later": ("gpt", "--layers", 1, "--hidden", 16, "--heads", 2, "--context", 8, "--batch", 2, "--device", "later")}
ENOUGH = 6  # steps behind the checkpoint


def words(kind, *more):
    return ["run", *ALL[kind], "--source", "null", "--warmup", 0, "--json", "-", *more]


def run(kind, *more, status=0, **how):
    done = jm(*words(kind, *more), timeout=1000, **how)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def notes(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]


def kill_behind_a_checkpoint(kind, file, every, seconds=120):
    """Starts a long run and kills it and its workers when it has written a checkpoint."""
    child = subprocess.Popen([BIN, *map(str, words(kind, "--steps", 1000000, "--checkpoint", file, "--checkpoint-every", every))],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + seconds
    while not file.exists() and child.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert file.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_those_of_the_uninterrupted_run(kind, tmp_path):
    file = tmp_path / "checkpoint"
    kill_behind_a_checkpoint(kind, file, 3)
    step = int(notes(file)["step"])
    assert step % 3 == 0 and step > 0
    more = run(kind, "--steps", ENOUGH, "--continue", file)
    whole = run(kind, "--steps", step + ENOUGH, "--checkpoint", tmp_path / "another", "--checkpoint-every", 1000)
    assert more["weights"] == {"from": None, "bytes": 0, "load_s": 0, "new_top": False, "continued": str(file), "first_step": step}
    assert len(more["step_series"]["loss"]) == ENOUGH
    assert more["loss_last"] == whole["loss_last"]
    if whole["step_series"]["every"] == 1:
        assert more["step_series"]["loss"] == whole["step_series"]["loss"][step:]
    assert more["loss_first"] != whole["loss_first"]
    if kind == "gpt-fp16":
        assert whole["loss_scale"]["steps_skipped"] > 0
        assert more["loss_scale"]["last"] == whole["loss_scale"]["last"] < 1e9
        assert more["loss_scale"]["steps_skipped"] == whole["loss_scale"]["steps_skipped"]


@pytest.mark.parametrize("kind", ["resnet", "gpt-true"])
def test_two_parts_end_with_the_tensors_of_one_run(kind, tmp_path):
    """Masters, moments, running statistics and counters: the checkpoints have the same bytes."""
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    run(kind, "--steps", 4, "--checkpoint", first)
    run(kind, "--steps", 3, "--continue", first, "--checkpoint", second)
    run(kind, "--steps", 7, "--checkpoint", whole)
    assert second.read_bytes() == whole.read_bytes()
    assert notes(whole)["step"] == "7"
    assert any(name.startswith(("sgd.m/", "adamw.v/")) for name in read(whole))


def test_a_checkpoint_waits_for_the_steps_that_are_under_way(tmp_path):
    """On a device that works while the host goes on (tests/peers/backend_later.c); every step is counted once."""
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    later = {"env": {"JM_BACKENDS": str(BUILD / "tests/peers")}}
    a = run("gpt-later", "--steps", 4, "--checkpoint", first, "--checkpoint-every", 2, **later)
    b = run("gpt-later", "--steps", 3, "--continue", first, "--checkpoint", second, "--checkpoint-every", 1, **later)
    c = run("gpt-later", "--steps", 7, "--checkpoint", whole, **later)
    assert a["step_series"]["loss"] + b["step_series"]["loss"] == c["step_series"]["loss"]
    assert second.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("device", [("later",), ("ref", "--ranks", 2), ("ref",)])
def test_a_scale_changes_at_the_same_steps_behind_a_checkpoint(device, tmp_path):
    """Also one behind a step that was skipped, whose outcome is not known yet when the next one begins on a device that
    works while the host goes on: steps there, and those of ranks, know the outcomes of the steps before the last one."""
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    words = ("run", "gpt", "--layers", 1, "--hidden", 16, "--heads", 2, "--context", 8, "--batch", 2, "--device", *device,
             "--precision", "fp16", "--loss-scale", "dynamic:4e6", "--warmup", 0, "--source", "null", "--json", "-")

    def steps(n, *more):
        done = jm(*words, "--steps", n, *more, env={"JM_BACKENDS": str(BUILD / "tests/peers")})
        assert done.returncode == 0, done.stderr
        record = json.loads(done.stdout)
        return record["step_series"]["loss"], record["loss_scale"]

    losses, scale = steps(12, "--checkpoint", whole)
    assert 2 <= scale["steps_skipped"] < 12 and scale["last"] < 4e6
    for n in (1, 2, 3, scale["steps_skipped"], 11):
        before, _ = steps(n, "--checkpoint", first)
        after, last = steps(12 - n, "--continue", first, "--checkpoint", second, "--checkpoint-every", n)
        assert before + after == losses and last == {**scale, "first": last["first"]}
        assert second.read_bytes() == whole.read_bytes(), n


@pytest.mark.parametrize("before, after, begins", [
    (("f32",), ("fp16",), 65536),  # as a run in fp16 begins: at 1 small gradients would vanish
    (("f32",), ("fp16", "--loss-scale", "dynamic:2048"), 2048),
    (("fp16", "--loss-scale", 512), ("fp16", "--loss-scale", "dynamic:2048"), 2048),
    (("fp16", "--loss-scale", "dynamic:1024"), ("fp16", "--loss-scale", 512), 512),
    (("fp16", "--loss-scale", "dynamic:1024"), ("fp16", "--loss-scale", "dynamic:2048"), 1024)])
def test_another_loss_scale_is_that_of_the_run_that_goes_on(before, after, begins, tmp_path):
    words = ("run", "gpt", "--layers", 1, "--hidden", 16, "--heads", 2, "--context", 8, "--batch", 2, "--device", "ref",
             "--warmup", 0, "--source", "null", "--steps", 3, "--json", "-", "--precision")
    jm(*words, *before, "--checkpoint", tmp_path / "c")
    done = jm(*words, *after, "--continue", tmp_path / "c", "--checkpoint", tmp_path / "d")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loss_scale"]["last"] == begins
    assert float.fromhex(notes(tmp_path / "d")["scale"]) == begins and notes(tmp_path / "d")["step"] == "6"


def test_each_checkpoint_is_written_once(tmp_path):
    """Into a pipe, where one follows the other; the last step is one after which it is due, too."""
    pipe, all_of_them = tmp_path / "pipe", tmp_path / "all"
    os.mkfifo(pipe)
    keep = os.open(pipe, os.O_RDWR)
    with all_of_them.open("wb") as out, subprocess.Popen(["cat", pipe], stdout=out) as reader:
        try:
            run("resnet", "--steps", 6, "--checkpoint", pipe, "--checkpoint-every", 2)
        finally:
            os.close(keep)
        reader.wait()
    assert re.findall(rb'"step":"([0-9]+)"', all_of_them.read_bytes()) == [b"2", b"4", b"6"]


def test_a_kill_while_a_checkpoint_is_written_leaves_a_whole_one(tmp_path):
    file = tmp_path / "checkpoint"
    kill_behind_a_checkpoint("resnet", file, 1)
    for _ in range(5):
        inode = file.stat().st_ino
        child = subprocess.Popen([BIN, *map(str, words("resnet", "--steps", 1000000, "--continue", file, "--checkpoint", file,
                                                       "--checkpoint-every", 1))],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + 60
        while file.stat().st_ino == inode and child.poll() is None and time.monotonic() < end:
            pass
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        assert int(notes(file)["step"]) > 0 and len(read(file)) > 50
    run("resnet", "--steps", 1, "--continue", file)
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith("checkpoint.")] == ["checkpoint"]


@pytest.fixture(scope="module", name="checkpoint")
def written_checkpoint(tmp_path_factory):
    file = tmp_path_factory.mktemp("checkpoint") / "c"
    run("resnet", "--steps", 2, "--checkpoint", file)
    return file


OTHERS = [
    (("--batch", 4), "samples in a step: 8, and this run has 4; give --batch, --accumulate and --ranks with the same product"),
    (("--seed", 5), "give the same --seed"),
    (("--optimizer", "adam"), "optimizer sgd, and this run has adam"),
    (("--precision", "bf16", "--freeze", "conv1*"), "give the options of the run that wrote it"),
    (("--hidden", 16), "another type or shape"),
]


@pytest.mark.parametrize("more, reason", OTHERS)
def test_another_run_cannot_go_on_from_it(checkpoint, more, reason):
    given = {**dict(zip(KINDS["resnet"][1::2], KINDS["resnet"][2::2])), **dict(zip(more[::2], more[1::2]))}
    done = jm("run", "resnet", *(word for pair in given.items() for word in pair), "--source", "null", "--warmup", 0, "--json", "-",
              "--steps", 1, "--continue", checkpoint)
    assert done.returncode == FAILED, done.stderr
    assert reason in json.loads(done.stdout)["reason"], json.loads(done.stdout)["reason"]


def test_weights_are_no_checkpoint_and_a_damaged_one_is_refused(checkpoint, tmp_path):
    run("resnet", "--steps", 1, "--save", tmp_path / "net")
    assert "is no checkpoint" in run("resnet", "--steps", 1, "--continue", tmp_path / "net", status=FAILED)["reason"]
    tensors = read(checkpoint)
    assert "is no checkpoint" in run("resnet", "--steps", 1, "--continue", write(tmp_path / "plain", tensors), status=FAILED)["reason"]
    data = checkpoint.read_bytes()
    (tmp_path / "cut").write_bytes(data[:-1])
    assert "is damaged" in run("resnet", "--steps", 1, "--continue", tmp_path / "cut", status=FAILED)["reason"]
    step = b'"step":"2"'
    assert data.count(step) == 1
    for wrong in [b'"step":"x"', b'"step":"4611686018427387904"']:  # samples of the latter could not be counted
        length = struct.unpack("<Q", data[:8])[0] + len(wrong) - len(step)
        (tmp_path / "counter").write_bytes(struct.pack("<Q", length) + data[8:].replace(step, wrong))
        assert "is damaged" in run("resnet", "--steps", 1, "--continue", tmp_path / "counter", status=FAILED)["reason"]


def test_other_data_than_those_of_the_checkpoint_are_noted(tmp_path):
    """The same files elsewhere are the same data."""
    for name in ["first", "second"]:
        for i, folder in enumerate(["ant", "bee"]):
            (tmp_path / name / folder).mkdir(parents=True)
            for k in range(4):
                noise(32, 32, 4 * i + k).save(tmp_path / name / folder / f"{k}.png")

    def on(data, *more):
        done = jm("run", "resnet", "--layers", 10, "--hidden", 8, "--image", 32, "--batch", 4, "--device", "cpu", "--source", "null",
                  "--warmup", 0, "--steps", 1, "--data", tmp_path / data, *more, "--json", "-")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["note"]

    file = tmp_path / "checkpoint"
    on("first", "--checkpoint", file)
    assert on("second", "--continue", file) is None
    (tmp_path / "second/ant/3.png").rename(tmp_path / "second/ant/4.png")
    assert "The data are not those" in on("second", "--continue", file)


def test_a_checkpoint_that_is_not_there_is_said_before_the_program_is_built(tmp_path):
    for file, says in ((tmp_path / "gone", "cannot be opened: No such file"), (tmp_path, "is no regular file")):
        done = jm(*words("resnet", "--steps", 1, "--continue", file))
        reason = json.loads(done.stdout)["reason"]
        assert done.returncode == FAILED and f"Checkpoint {file} of --continue {says}" in reason and "--checkpoint wrote" in reason
        assert "Weights" not in reason and "now its kernels are chosen" not in done.stderr


def test_a_checkpoint_is_no_start_weights(checkpoint):
    reason = run("resnet", "--steps", 1, "--from", checkpoint, status=FAILED)["reason"]
    assert "is a checkpoint, not weights; give it with --continue" in reason


def test_weights_and_checkpoint_are_not_one_file(tmp_path):
    """The checkpoint would take the place of the weights."""
    (tmp_path / "link").symlink_to(tmp_path)
    reason = run("resnet", "--steps", 1, "--save", tmp_path / "net", "--checkpoint", tmp_path / "link" / "net", status=FAILED)["reason"]
    assert "--save and --checkpoint name one file" in reason and not (tmp_path / "net").exists()


def test_a_loss_that_has_not_fallen_is_no_error_of_a_continued_run(tmp_path):
    """With this rate no parameter in f32 changes, so the loss of the batch stays what it was."""
    same = ("run", "resnet", "--layers", 10, "--hidden", 8, "--image", 32, "--classes", 5, "--batch", 8, "--images", "once", "--device",
            "cpu", "--optimizer", "sgd", "--lr", "1e-12", "--weight-decay", 0, "--source", "null", "--warmup", 0, "--json", "-")
    first = jm(*same, "--steps", 25)
    assert first.returncode == FAILED and json.loads(first.stdout)["verified"] is False
    jm(*same, "--steps", 1, "--checkpoint", tmp_path / "c")
    more = jm(*same, "--steps", 25, "--continue", tmp_path / "c")
    record = json.loads(more.stdout)
    assert more.returncode == 0 and record["verified"] is None, more.stderr
    assert "continued" in record["verify_reason"]


def test_frozen_start_weights_and_a_checkpoint_go_together(tmp_path):
    """--from gives the bytes that --save copies for frozen tensors; the checkpoint gives the rest."""
    net, file, again = (tmp_path / name for name in ("net", "c", "again"))
    run("resnet", "--steps", 2, "--save", net)
    run("resnet-frozen", "--steps", 2, "--from", net, "--checkpoint", file)
    run("resnet-frozen", "--steps", 2, "--from", net, "--continue", file, "--save", again)
    before, after = read(net), read(again)
    assert after["layer1.0.conv1.weight"] == before["layer1.0.conv1.weight"]
    assert after["layer2.0.conv1.weight"] != before["layer2.0.conv1.weight"]
    assert numpy.frombuffer(after["layer2.0.bn1.num_batches_tracked"][2], "<i8") == 6
    assert numpy.frombuffer(after["layer1.0.bn1.num_batches_tracked"][2], "<i8") == 2
