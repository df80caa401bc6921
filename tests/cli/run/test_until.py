# SPDX-License-Identifier: Apache-2.0
"""run --until: a training ends with the first evaluation that finds the figure, and what it cost until then is in the record."""
import json

import numpy
import pytest
from PIL import Image

from jm import USAGE, jm, sentence
from training import train

FAILED = 1
NET = ("resnet", "--layers", 10, "--hidden", 8, "--image", 32, "--device", "cpu", "--weight-decay", 0)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Three colours: 30 pictures for training, 21 held out."""
    root = tmp_path_factory.mktemp("pictures")
    for part, n in (("train", 10), ("val", 7)):
        for kind in range(3):
            (root / part / str(kind)).mkdir(parents=True)
            for k in range(n):
                pixels = numpy.random.default_rng([n, kind, k]).integers(0, 120, (40, 36, 3), numpy.uint8)
                pixels[:, :, kind] += 100
                Image.fromarray(pixels).save(root / part / str(kind) / f"{k}.png")
    return root


def run(pictures, *more, status=0, batch=7, data=True, lr=0.01):
    given = ("--data", pictures, "--eval-data", pictures) if data else ()
    done = jm("run", *NET, "--lr", lr, "--batch", batch, *given, *more, "--json", "-", timeout=1000, env={"OMP_WAIT_POLICY": "passive"})
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def phase(record, name):
    return next((p for p in record["phases"] if p["name"] == name), None)


@pytest.fixture(scope="module", name="fixed")
def without_until(pictures):
    """Evaluations of a training that goes on, each behind 5 steps."""
    return run(pictures, "--epochs", 6, "--source", "null")["evaluations"]


@pytest.mark.parametrize("figure", ["top1", "loss"])
def test_ends_with_the_evaluation_that_finds_it(pictures, fixed, figure):
    """The figure is that of the third evaluation of the run that goes on, if it is the first to be so good."""
    key = "accuracy" if figure == "top1" else "loss"
    better = (lambda a, b: a >= b) if figure == "top1" else (lambda a, b: a <= b)
    target = fixed[2][key] * (1 - 1e-9 if figure == "top1" else 1 + 1e-9)  # a record has 15 digits
    first = next(e for e in fixed if better(e[key], target))
    record = run(pictures, "--epochs", 6, "--until", f"{figure}={target!r}", "--source", "estimate")
    until, found = record["until"], record["evaluations"]
    assert [e[key] for e in found] == [e[key] for e in fixed[:len(found)]]
    assert found[-1]["step"] == first["step"] == until["steps"] == record["steps"] and record["warmup_steps"] == 0
    assert until["reached"] and until["best"] == first[key] and until["epochs"] == until["steps"] / 5
    own, whole = phase(record, "until"), phase(record, "steady")
    assert until["seconds"] == pytest.approx(own["end_s"] - own["start_s"], abs=1e-6)
    assert until["joules"] == own["total"]["joules_estimated"] > 0
    assert own["items"] == 7 * until["steps"] and own["start_s"] == pytest.approx(whole["start_s"], abs=0.05)
    assert until["seconds"] >= sum(e["seconds"] for e in found)


def test_what_is_not_reached_is_said_and_is_no_zero(pictures, tmp_path):
    record = run(pictures, "--steps", 4, "--eval-every", 2, "--until", "loss=1e-30", "--source", "estimate", "--store",
                 tmp_path / "store.db")
    until = record["until"]
    assert until["reached"] is False and until["best"] == min(e["loss"] for e in record["evaluations"])
    assert [until[key] for key in ("steps", "epochs", "seconds", "joules")] == [None] * 4
    assert phase(record, "until") is None and record["steps"] == 4 and record["status"] == "ok"
    assert "A loss of 1e-30 was not reached in 4 steps: the best was" in record["note"]
    assert "A loss of 1e-30 was not reached." in " ".join(jm("report", tmp_path / "store.db").stdout.split())


def test_energy_that_no_meter_knows_is_unknown(pictures):
    until = run(pictures, "--epochs", 6, "--until", "top1=0.3", "--source", "null")["until"]
    assert until["reached"] and until["seconds"] > 0 and until["joules"] is None


def test_ranks_end_together(pictures):
    """Two ranks of 4 do the steps of one of 8; rank 0 evaluates for both. At a higher rate the loss of 4 pictures, which norms
    divide by their own deviation, depends on the last bit of a product."""
    fixed = run(pictures, "--epochs", 5, "--ranks", 2, "--source", "null", batch=4, lr=0.003)["evaluations"]
    target = 1.01 * fixed[1]["loss"]
    record = run(pictures, "--epochs", 5, "--ranks", 2, "--until", f"loss={target!r}", "--source", "estimate", batch=4, lr=0.003)
    first = next(e["step"] for e in fixed if e["loss"] <= target)
    assert record["until"]["steps"] == record["steps"] == first and record["status"] == "ok"
    assert phase(record, "until")["items"] == 8 * first and record["until"]["joules"] > 0


def test_a_plan_has_it_as_an_axis(pictures, tmp_path):
    (tmp_path / "plan.yaml").write_text(f"""
source: "null"
runs:
  - name: short
    work: resnet
    layers: 10
    hidden: 8
    image: 32
    device: cpu
    lr: 0.01
    weight-decay: 0
    batch: 7
    data: {pictures}
    eval-data: {pictures}
    epochs: 4
    until: [top1=0.3, loss=1e-30]
""")
    store = tmp_path / "store.db"
    done = jm("run", tmp_path / "plan.yaml", "--store", store, timeout=1000)
    assert done.returncode == 0, done.stderr
    rows = jm("query", "--format", "csv", store, "SELECT until_reached, until_s FROM results ORDER BY until_reached").stdout.split()[1:]
    assert rows[0] == "0," and rows[1].startswith("1,") and float(rows[1][2:]) > 0


def test_a_text_is_learnt_until_its_loss(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"The quick brown fox jumps over the lazy dog. " * 40)
    done, record = train(tmp_path, text, **{"eval-every": 2, "until": "loss=5.4", "steps": 60})
    assert done.returncode == 0, done.stderr
    until, found = record["until"], record["evaluations"]
    assert until["reached"] and until["epochs"] is None
    assert found[-1]["loss"] <= 5.4 and all(e["loss"] > 5.4 for e in found[:-1]) and len(found) < 30
    assert until["steps"] == record["steps"] + record["warmup_steps"] == found[-1]["step"]


@pytest.mark.parametrize("words, data, reason", [
    (["--until", "top1=0.9"], True, "Nothing ends the run if --until is not reached"),
    (["--until", "top1=0.9", "--steps", 2], False, "give --eval-data DIR or --eval-every N"),
])
def test_what_cannot_be_meant_is_refused(pictures, words, data, reason):
    assert reason in run(pictures, *words, "--source", "null", status=FAILED, data=data)["reason"]


@pytest.mark.parametrize("figure", ["top1=98", "top5=0.9", "top1", "loss=0", "loss=x"])
def test_a_figure_that_is_none_is_refused_before_anything_runs(tmp_path, figure):
    """By run, and by plan, which only looks."""
    says = f"--until {figure} is no figure to reach; give top1=SHARE"
    assert says in sentence(jm("run", "resnet18", "--epochs", 2, "--until", figure), USAGE)
    (tmp_path / "p.yaml").write_text(f"runs:\n  - {{name: a, work: resnet18, epochs: 2, until: [top1=0.3, {figure}]}}\n")
    assert says in sentence(jm("plan", tmp_path / "p.yaml"), USAGE)


def test_a_text_has_no_top1(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"some words " * 100)
    _, record = train(tmp_path, text, **{"eval-every": 2, "until": "top1=0.5"})
    assert "does not classify, so it has no top1" in record["reason"]
