# SPDX-License-Identifier: Apache-2.0
"""
The inputs, rates and updates of the steps of `run train`, compared with runs that must reach the same bits in another way,
and with the driver that is compared with PyTorch (tests/parity).
"""
import json
import re

import numpy
import pytest

import parity
from jm import jm

SEQ, BATCH, STEPS = 16, 2, 5
DIMS = {"layers": 2, "hidden": 16, "heads": 2, "ffn": 32, "vocab": 256, "context": 64, "positions": "learned"}
WINDOW = bytes(range(65, 65 + SEQ))


def train(tmp_path, text, **options):
    """A run on ref; text: what it learns from."""
    (tmp_path / "text").write_bytes(text)
    file = tmp_path / "record.json"
    options = {"device": "ref", "batch": BATCH, "seq": SEQ, **DIMS, "steps": STEPS, "warmup": 0, "lr": 1e-3,
               "text": tmp_path / "text", **options}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    jm("run", "train", "--model", "gpt", *words, "--json", file)
    r = json.loads(file.read_text())
    assert r["loss_last"] is not None, r["reason"]
    return r


def losses(r):
    return r["loss_first"], r["loss_last"]


@pytest.fixture(scope="module")
def english():
    with open("/usr/share/common-licenses/GPL-3", "rb") as f:
        return f.read(20000)


def test_the_record_has_speed_and_loss_of_each_step(tmp_path, english):
    """The losses are those of shorter runs, one for each step; the times add up to the phase."""
    whole = train(tmp_path, english, steps=4, warmup=3, **{"batch": 4})
    series, (first, last) = whole["step_series"], losses(whole)
    assert (series["every"], series["steps"]) == (1, 7) and whole["warmup_steps"] == 3
    ends = [losses(train(tmp_path, english, steps=n, batch=4))[1] for n in range(1, 8)]
    assert series["loss"] == pytest.approx(ends, rel=1e-6)
    assert (series["loss"][0], series["loss"][-1]) == pytest.approx((first, last), rel=1e-6)
    steady = next(p for p in whole["phases"] if p["name"] == "steady")
    warmup = next(p for p in whole["phases"] if p["name"] == "warmup")
    seconds = [4 * SEQ / rate for rate in series["throughput"]]
    ends = series["end_s"]
    assert sum(seconds[3:]) == pytest.approx(ends[-1] - steady["start_s"], abs=1e-5)
    assert sum(seconds[:3]) == pytest.approx(ends[2] - warmup["start_s"], abs=1e-5)
    assert ends == sorted(ends) and ends[2] <= warmup["end_s"] <= steady["start_s"] and ends[-1] <= steady["end_s"] + 1e-6


def test_no_step_is_faster_than_its_arithmetic(tmp_path, english):
    """The reference backend works in the calling thread, where a step of several ranks is taken after the next one was done.
    Scalar code does at most 16 operations in a cycle of 6 GHz."""
    whole = train(tmp_path, english, steps=5, warmup=3, batch=2, layers=4, hidden=64, ffn=256, ranks=2)
    flops = whole["flops_executed_per_item"] * 2 * SEQ  # of a rank
    assert min(4 * SEQ / rate for rate in whole["step_series"]["throughput"]) > flops / 96e9


@pytest.mark.parametrize("precision", ["f32", "bf16", "f64"])
def test_a_run_is_what_pytorch_is_compared_with(tmp_path, precision):
    """A text of one window: every sample is the same, in whatever order they are drawn."""
    r = train(tmp_path, WINDOW + WINDOW[:1], precision=precision)
    data = tmp_path / "data"
    data.write_bytes(WINDOW * (STEPS * BATCH) + WINDOW[:1])
    expected, start, _ = parity.ours(
        "gpt", DIMS, "ref", precision, BATCH, SEQ, data, r["case"]["seed"], steps=STEPS)
    assert losses(r) == pytest.approx((expected[0], expected[-1]), rel=1e-14)  # the digits of a record
    # each parameter starts with numbers of its own
    firsts = [w.flat[0] / numpy.abs(w).max() for w in start.values() if w.ndim > 1]
    assert len(set(firsts)) == len(firsts)


def test_each_step_has_windows_of_its_own(tmp_path, english):
    r = train(tmp_path, english, lr=1e-12)
    assert abs(r["loss_first"] - r["loss_last"]) > 1e-4
    # one sample after the other is the same whether they come in steps or in micro-steps
    assert train(tmp_path, english, steps=1, batch=1, accumulate=4)["loss_first"] == pytest.approx(
        train(tmp_path, english, steps=1, batch=4)["loss_first"], abs=1e-6)


def test_verification_runs_eight_micro_steps_again(tmp_path, english):
    """With a rate that changes nothing their loss must be what a step of these eight begins with."""
    eight, more = (train(tmp_path, english, steps=1, batch=1, accumulate=n, lr=1e-12) for n in (8, 24))
    assert more["loss_first"] != eight["loss_first"]
    for r in eight, more:
        assert r["verified"] is None
        before, after = re.search(r"it was (\S+) and is (\S+);", r["verify_reason"]).groups()
        assert before == after == f"{eight['loss_first']:g}"


def test_the_rate_of_each_step(tmp_path, english):
    """The loss of step 2 tells the rate of step 1, that of step 3 also that of step 2."""
    def last(steps, **how):
        return train(tmp_path, english, steps=steps, **how)["loss_last"]
    assert last(2, lr=0.02, **{"lr-warmup": 2}) == last(2, lr=0.01)
    assert last(2, lr=0.02, **{"lr-warmup": 2}) != last(2, lr=0.02)
    falls = {"schedule": "step", "lr-steps": 1, "lr-factor": 0.5}
    assert last(2, lr=0.02, **falls) == last(2, lr=0.02)
    assert last(3, lr=0.02, **falls) != last(3, lr=0.02)
    # up by warm-up, or down by steps: 1/2 then 1 is no 1 then 1/2
    assert last(3, lr=0.02, **{"lr-warmup": 2}) != last(3, lr=0.02, **falls)
    line = {"schedule": "linear", "lr-steps": 2, "lr-min": 0.01}
    assert last(3, lr=0.03, **line) == last(3, lr=0.03, **{**falls, "lr-factor": 0.02 / 0.03})


@pytest.mark.parametrize("optimizer, options", [
    ("adamw", {"beta1": 0.5, "beta2": 0.5, "eps": 1e-2, "weight-decay": 0, "clip": 1e-3}),
    ("adam", {"beta1": 0.5, "beta2": 0.5, "eps": 1e-2, "weight-decay": 0}),
    ("sgd", {"momentum": 0.5, "nesterov": 1, "weight-decay": 0, "clip": 1e-3}),
])
def test_options_of_the_update_are_heard(tmp_path, english, optimizer, options):
    how = {"optimizer": optimizer, "lr": 0.01}
    found = [losses(train(tmp_path, english, **how, **dict([one]))) for one in [("seed", 1), *options.items()]]
    assert len({first for first, _ in found}) == 1
    assert len({last for _, last in found}) == len(found), found
    # what the optimizer has not
    foreign = {"momentum": 0.5} if optimizer != "sgd" else {"beta1": 0.5, "beta2": 0.5, "eps": 1e-2}
    assert losses(train(tmp_path, english, **how, **foreign)) == found[0]


VISION = ("--batch", 4, "--hidden", 16, "--image", 32, "--classes", 10)
SMALL = {
    "resnet": (*VISION, "--layers", 14),
    "vit": (*VISION, "--layers", 2, "--heads", 2, "--patch", 8, "--dropout", 0.1),
    "gpt": ("--batch", 3, "--seq", 33, "--layers", 2, "--hidden", 96, "--heads", 3, "--accumulate", 2),
    "llama": ("--batch", 3, "--seq", 33, "--layers", 2, "--hidden", 96, "--heads", 6, "--kv-heads", 2),
}


@pytest.mark.parametrize("precision", ["f32", "bf16", "bf16-true"])
@pytest.mark.parametrize("model", SMALL)
def test_a_run_repeats(tmp_path, model, precision):
    """By the losses of a tenth step, in all their digits, on the backend with threads."""
    if jm("describe", model, *SMALL[model], "--device", "cpu").returncode:
        pytest.skip("no backend cpu here that knows this model")
    file, found = tmp_path / "record.json", []
    for _ in range(2):
        done = jm("run", "train", "--model", model, *SMALL[model], "--device", "cpu", "--precision", precision,
                  "--steps", 10, "--warmup", 0, "--json", file)
        assert done.returncode == 0, done.stderr
        found.append(losses(json.loads(file.read_text())))
    assert found[0] == found[1] and found[0][0] != found[0][1]


def test_dropout_draws_anew(tmp_path):
    """In each step, though samples and (next to no) parameters stay the same."""
    r = train(tmp_path, WINDOW + WINDOW[:1], dropout=0.5, lr=1e-12)
    assert abs(r["loss_first"] - r["loss_last"]) > 1e-3
