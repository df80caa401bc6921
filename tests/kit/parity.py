# SPDX-License-Identifier: Apache-2.0
"""
Functions that the comparisons with other implementations share; not a test.

JM_PARITY_DEVICE=cuda:0 moves both sides to that GPU: more precisions, and networks of the widths that GPUs compute.
"""
import hashlib
import json
import os
import subprocess

import numpy

from jm import BUILD, jm

LOSSES = BUILD / "tests" / "parity" / "losses"
STEPS = 20
DEVICE = os.environ.get("JM_PARITY_DEVICE")
ON_GPU = (DEVICE or "").startswith("cuda")
PRECISIONS = ("f32", "tf32", "bf16", "fp16") if ON_GPU else ("f32", "bf16")
WITH_FP8 = (*PRECISIONS, "fp8") if ON_GPU else PRECISIONS


def scale_of(precision):
    """Of the loss and of reported gradients; of both sides."""
    return float(os.environ.get("JM_TEST_SCALE", 1024)) if precision == "fp16" else 1.0


def device_for(model, dims):
    """JM_PARITY_DEVICE; without it cpu where it can run the model, else ref."""
    if DEVICE:
        return DEVICE
    words = [word for name, value in dims.items() for word in (f"--{name}", value)]
    return "ref" if jm("describe", model, *words, "--batch", 2, "--device", "cpu").returncode else "cpu"


def weights_file(model, device, precision, data, seed):
    return data.with_suffix(f".{model}.{device}.{precision}.{seed}")


def evaluated(*case):
    """(loss, share of right answers) of the first batch on the weights that `ours` of this case ended with."""
    file = weights_file(*case)
    return [float(word) for word in file.with_name(file.name + ".eval").read_text().split()]


def ours(model, dims, device, precision, batch, seq, data, seed, steps=STEPS):
    """(losses, start values, gradients of the first step) by the engine."""
    weights = weights_file(model, device, precision, data, seed)
    words = [LOSSES, model, device, precision, steps, batch, seq, data, weights, seed,
             *(f"{name}={value}" for name, value in dims.items())]
    done = subprocess.run(map(str, words), check=True, stdout=subprocess.PIPE, text=True, timeout=1000)
    losses = numpy.array([float(line.split()[0]) for line in done.stdout.splitlines()])
    gradients = take(weights.with_name(weights.name + ".grad"))
    return losses, take(weights), {name: g / scale_of(precision) for name, g in gradients.items()}


def take(path):
    """name -> float64 array. Removes the file: 200 MB of a resnet50."""
    data, at, found = path.read_bytes(), 0, {}
    path.unlink()
    while at < len(data):
        end = data.index(b"\n", at)
        name, *shape = data[at:end].decode().split()
        shape = tuple(map(int, shape))
        count = int(numpy.prod(shape))
        found[name] = numpy.frombuffer(data, "<f8", count, end + 1).reshape(shape)
        at = end + 1 + 8 * count
    return found


def lower_scale(monkeypatch, run):
    """The largest loss scale with which the gradients of run() are finite, as the scaler of a training would find it."""
    for scale in (1024, 128, 16, 2):
        monkeypatch.setenv("JM_TEST_SCALE", str(scale))
        if all(numpy.isfinite(g).all() for g in run().values()):
            return


def distance(losses, truth):
    return float(numpy.sqrt(numpy.mean((losses - truth) ** 2)))


def tensor_errors(found, truth):
    """The relative error of each tensor."""
    assert found.keys() == truth.keys()
    size = {name: numpy.linalg.norm(truth[name]) for name in truth}
    floor = 1e-3 * max(size.values())  # of a bias whose true gradient is 0, say
    return {name: float(numpy.linalg.norm(found[name] - truth[name]) / (size[name] + floor)) for name in truth}


def gradient_errors(found, truth):
    """Relative errors: of all gradients as one vector, and of the worst tensor."""
    errors = tensor_errors(found, truth)
    off = numpy.linalg.norm([numpy.linalg.norm(found[name] - truth[name]) for name in truth])
    return float(off / numpy.linalg.norm([numpy.linalg.norm(g) for g in truth.values()])), max(errors.values())


class Errors:
    """Errors of several seeds. Of the losses the root mean square of a seed counts, as the median of the seeds: a step
    of AdamW may multiply the rounding of one seed by ten, in some of many runs that differ in rounding alone. Of networks
    with a ReLU or a maximum that of all seeds counts, in f32 the lower quartile over seeds and steps: once rounding has
    made one choose otherwise, in about half of the runs within 20 steps, losses are apart by a thousand times the
    rounding, and two builds of one PyTorch as much as we are from either. What is judged there is until_they_part. In 16 bits
    rounding is as large as that."""

    def __init__(self):
        self.losses, self.gradients, self.tensors = [], [], []

    def add(self, losses, gradients, truth):
        self.losses.append(losses - truth[0])
        self.gradients.append(gradient_errors(gradients, truth[1]))
        self.tensors.append(tensor_errors(gradients, truth[1]))

    def of_seeds(self):
        """Root mean squares."""
        return [distance(losses, 0) for losses in self.losses]

    def typical(self, precision, smooth):
        """(loss, all gradients, worst tensor)"""
        if smooth:
            loss = numpy.median(self.of_seeds())
        elif precision == "f32":
            loss = numpy.quantile(numpy.abs(self.losses), 0.25)
        else:
            loss = distance(numpy.array(self.losses), 0)
        return numpy.array([loss, *numpy.mean(self.gradients, 0)])

    def of_tensor(self, name):
        return numpy.mean([errors[name] for errors in self.tensors])


def largest_ratios(own, pytorch, count=5):
    """Where to look for the cause: tensors whose gradients are the furthest off beside the other side's."""
    names = sorted(own.tensors[0], key=lambda name: own.of_tensor(name) / (pytorch.of_tensor(name) + 1e-30))
    return "".join(f"\n{name}: {own.of_tensor(name):.3g} : {pytorch.of_tensor(name):.3g}"
                   for name in names[:-count - 1:-1])


def until_they_part(own, pytorch, unit):
    """Root mean square errors of the losses of each seed's steps before the first one in which either side is 16 units off: a ReLU
    or a maximum chose otherwise there, and which side does so first is chance. The first step always counts."""
    pairs = [pair for one, other in zip(own.losses, pytorch.losses)
             for k, pair in enumerate(zip(one, other))
             if not k or numpy.abs([one[1:k + 1], other[1:k + 1]]).max() < 16 * unit]
    return numpy.sqrt(numpy.mean(numpy.square(pairs), 0))


TRUTHS = {}  # of the network that was compared last: (its name, hash of the start values): losses and gradients in f64


def truth_of(name, weights, theirs):
    """The same for all precisions of a network, as far as they begin with the same values."""
    start = hashlib.sha256(b"".join(weights[tensor].tobytes() for tensor in sorted(weights))).digest()
    if (name, start) not in TRUTHS:
        for key in [key for key in TRUTHS if key[0] != name]:
            del TRUTHS[key]
        TRUTHS[name, start] = theirs(weights, "f64")
    return TRUTHS[name, start]


def compare(record_property, case, seeds, run, theirs, smooth=False):
    """case: (name, precision); smooth: the network has no ReLU and no maximum. run(precision, seed): our losses, start
    values, gradients; theirs(weights, precision): losses and gradients. The distances from f64 of the former may be at
    most twice those of the latter, or a unit in the last place of a loss in f32, which says nothing of how it was computed."""
    name, precision = case
    own, pytorch = Errors(), Errors()
    for seed in seeds:
        losses, weights, gradients = run(precision, seed)
        truth = truth_of(name, weights, theirs)
        own.add(losses, gradients, truth)
        pytorch.add(*theirs(weights, precision), truth)
        unit = 2.0**-23 * distance(truth[0], 0)
    a, b = (side.typical(precision, smooth) for side in (own, pytorch))
    record_property("parity", json.dumps(
        {"name": name, "precision": precision, "joulemark": list(a), "pytorch": list(b),
         "joulemark_seeds": own.of_seeds(), "pytorch_seeds": pytorch.of_seeds()}))
    if precision == "f32" and not smooth:
        a[0], b[0] = until_they_part(own, pytorch, unit)
    print(f"{name} {precision}: ours {a}, PyTorch {b}, ratio {a / b} (losses, gradients, worst)")
    assert (a <= numpy.maximum(2 * b, [unit, 0, 0])).all(), f"{name} {precision}: {a} : {b} = {a / b}{largest_ratios(own, pytorch)}"
