# SPDX-License-Identifier: Apache-2.0
"""
Networks without classes, compared with PyTorch from the same start values: a perceptron with the mean of
squared differences, and two towers with a symmetric contrastive loss. Losses of twenty steps and all gradients;
PyTorch in f64 must agree with ref in f64 to rounding, and f32 and bf16 may be at most twice as far from f64
as PyTorch's.
"""
import numpy
import pytest

import parity
from parity import gradient_errors

torch = pytest.importorskip("torch", reason="python3-torch is not installed: no independent losses")
peer = pytest.importorskip("torch_peer")

BATCH, SEEDS = 12, (1, 2, 3, 4)
MODELS = {
    "mlp": {"layers": 2, "hidden": 24, "features": 10, "outputs": 3},
    "towers": {"layers": 2, "hidden": 24, "features": 10, "embedding": 16},
}


def widths(model, dims):
    """Of the inputs that hold numbers."""
    return (dims["features"], dims["outputs"] if model == "mlp" else dims["features"])


def make_data(file, model, dims):
    """For each step both inputs; the second depends on the first, so there is something to learn."""
    rng = numpy.random.default_rng(3)
    first, second = widths(model, dims)
    rule = rng.standard_normal((first, second)) / first ** 0.5
    with file.open("wb") as f:
        for _ in range(parity.STEPS):
            x = rng.standard_normal((BATCH, first))
            f.write(x.astype("<f4").tobytes() + numpy.tanh(x @ rule).astype("<f4").tobytes())
    return file


def perceptron(p, x, layers, name=""):
    for i in range(layers):
        layer = f"{name}h{i}.linear"
        x = torch.nn.functional.linear(x, p[f"{layer}.weight"], p[f"{layer}.bias"])
        x = torch.nn.functional.gelu(x, approximate="tanh")
    return torch.nn.functional.linear(x, p[f"{name}out.weight"], p[f"{name}out.bias"])


def tower(p, x, layers, name):
    x = perceptron(p, x, layers, name)
    scale = torch.rsqrt(x.double().square().mean(-1, keepdim=True) + 1e-6).to(x.dtype)
    return x * scale * p[f"{name}gain"].to(x.dtype)


def loss_of(model, dims, p, first, second):
    if model == "mlp":
        return torch.nn.functional.mse_loss(perceptron(p, first, dims["layers"]), second)
    left, right = (tower(p, x, dims["layers"], name) for x, name in ((first, "left."), (second, "right.")))
    similar, same = left @ right.T, torch.arange(len(left), device=left.device)
    return torch.nn.functional.cross_entropy(similar, same) + torch.nn.functional.cross_entropy(similar.T, same)


def theirs(model, dims, file, weights, precision):
    """Losses and first gradients by PyTorch."""
    peer.use(precision)
    data = numpy.frombuffer(file.read_bytes(), "<f4").reshape(parity.STEPS, -1)
    first, second = widths(model, dims)
    p = peer.parameters(weights)

    def loss_of_step(step):
        x = peer.numbers(step[:BATCH * first].reshape(BATCH, first))
        return loss_of(model, dims, p, x, peer.numbers(step[BATCH * first:].reshape(BATCH, second)))
    return peer.train(p, weights, (lambda s=step: loss_of_step(s) for step in data))


@pytest.fixture(scope="module", params=MODELS)
def case(request, tmp_path_factory):
    model, dims = request.param, MODELS[request.param]
    return model, dims, make_data(tmp_path_factory.mktemp(model) / "data", model, dims)


def test_f64_is_the_same_mathematics(case):
    model, dims, file = case
    losses, weights, gradients = parity.ours(model, dims, "ref", "f64", BATCH, 1, file, 1)
    expected, first = theirs(model, dims, file, weights, "f64")
    assert gradient_errors(gradients, first)[1] < 1e-11
    assert numpy.abs(losses - expected).max() < 1e-11
    loss, _ = parity.evaluated(model, "ref", "f64", file, 1)
    assert loss < losses[0]


@pytest.mark.parametrize("precision", parity.PRECISIONS)
def test_error_to_f64(case, precision, record_property):
    model, dims, file = case
    device = parity.device_for(model, dims)
    parity.compare(
        record_property, (model, precision), SEEDS,
        lambda precision, seed: parity.ours(model, dims, device, precision, BATCH, 1, file, seed),
        lambda weights, precision: theirs(model, dims, file, weights, precision))
