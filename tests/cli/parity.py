# SPDX-License-Identifier: Apache-2.0
"""Functions that the comparisons with other implementations share; not a test."""
import json
import subprocess

import numpy

from jm import BUILD, jm

LOSSES = BUILD / "tests" / "engine" / "losses"
STEPS = 20


def device_for(model, dims):
    """cpu where it can run the model, else ref."""
    words = [word for name, value in dims.items() for word in (f"--{name}", value)]
    return "ref" if jm("describe", model, *words, "--batch", 2, "--device", "cpu").returncode else "cpu"


def weights_file(model, device, precision, data, seed):
    return data.with_suffix(f".{model}.{device}.{precision}.{seed}")


def evaluated(*case):
    """(loss, share of right answers) of the first batch on the weights that `ours` of this case ended with."""
    file = weights_file(*case)
    return map(float, file.with_name(file.name + ".eval").read_text().split())


def ours(model, dims, device, precision, batch, seq, data, seed, steps=STEPS):
    """(losses, start values, gradients of the first step) by the engine."""
    weights = weights_file(model, device, precision, data, seed)
    words = [LOSSES, model, device, precision, steps, batch, seq, data, weights, seed,
             *(f"{name}={value}" for name, value in dims.items())]
    done = subprocess.run(map(str, words), check=True, stdout=subprocess.PIPE, text=True, timeout=200)
    losses = numpy.array([float(line.split()[0]) for line in done.stdout.splitlines()])
    return losses, load(weights), load(weights.with_name(weights.name + ".grad"))


def load(path):
    """name -> float64 array"""
    data, at, found = path.read_bytes(), 0, {}
    while at < len(data):
        end = data.index(b"\n", at)
        name, *shape = data[at:end].decode().split()
        shape = tuple(map(int, shape))
        count = int(numpy.prod(shape))
        found[name] = numpy.frombuffer(data, "<f8", count, end + 1).reshape(shape)
        at = end + 1 + 8 * count
    return found


def keep(record_property, name, precision, mine, his):
    """For bench/table.py, which reads pytest's report: errors of losses, all gradients, worst gradient."""
    record_property("parity", json.dumps(
        {"name": name, "precision": precision, "joulemark": list(mine), "pytorch": list(his)}))


def distance(losses, truth):
    return float(numpy.sqrt(numpy.mean((losses - truth) ** 2)))


def gradient_errors(found, truth):
    """Relative errors: of all gradients as one vector, and of the worst tensor."""
    assert found.keys() == truth.keys()
    off = {name: numpy.linalg.norm(found[name] - truth[name]) for name in truth}
    size = {name: numpy.linalg.norm(truth[name]) for name in truth}
    total = numpy.linalg.norm(list(off.values())) / numpy.linalg.norm(list(size.values()))
    floor = 1e-3 * max(size.values())  # of a bias whose true gradient is 0, say
    return float(total), float(max(off[name] / (size[name] + floor) for name in truth))


class Errors:
    """Errors of several seeds. Of the losses in bf16 the root mean square counts; in f32 the lower quartile over
    seeds and steps: once rounding has made a ReLU or a maximum choose otherwise, in about half of the runs
    within 20 steps, losses are apart by a thousand times the rounding, and two builds of one PyTorch as
    much as we are from either. In bf16 rounding is as large as that."""

    def __init__(self, precision):
        self.precision, self.losses, self.gradients = precision, [], []

    def add(self, losses, gradients):
        self.losses.extend(losses)
        self.gradients.append(gradients)

    def typical(self):
        """(loss, all gradients, worst tensor)"""
        loss = (numpy.quantile(numpy.abs(self.losses), 0.25) if self.precision == "f32"
                else distance(numpy.array(self.losses), 0))
        return numpy.array([loss, *numpy.mean(self.gradients, 0)])
