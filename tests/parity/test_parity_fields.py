# SPDX-License-Identifier: Apache-2.0
"""
Fourier neural operators on small grids of two and three axes, even and odd. NumPy's transforms with a backward pass
written by hand, and PyTorch's with its own, in f64 must agree with ref in f64 to rounding: the loss and all gradients of
NumPy, twenty losses of PyTorch. In f32 ours may be at most twice as far from f64 as PyTorch's.
"""
import math

import numpy
import pytest

import parity
from parity import gradient_errors

torch = pytest.importorskip("torch", reason="python3-torch is not installed: no independent losses")
peer = pytest.importorskip("torch_peer")

BATCH, FIELDS, LAYERS, SEEDS = 3, 2, 2, (1, 2, 3, 4)
GRIDS = {"even": ((8, 6), (3, 4)), "odd": ((6, 9), (3, 5)), "three": ((6, 4, 8), (2, 2, 3)), "many": ((12, 10), (3, 4))}  # points, modes


def dims(points, modes):
    axes = {f"{what}-{axis}": n for what, sizes in (("points", points), ("modes", modes)) for axis, n in zip("xyz", sizes)}
    return {"fields": FIELDS, "hidden": 7, "layers": LAYERS, **axes}


@pytest.fixture(scope="module", params=GRIDS)
def case(request, tmp_path_factory):
    """Grid, and for each step fields and what becomes of them: the mean of a point and its neighbours."""
    file, rng = tmp_path_factory.mktemp("fields") / request.param, numpy.random.default_rng(5)
    points, modes = GRIDS[request.param]
    with file.open("wb") as f:
        for _ in range(parity.STEPS):
            x = rng.standard_normal((BATCH, *points, FIELDS))
            later = sum(numpy.roll(x, by, axis) for axis in range(1, 1 + len(points)) for by in (-1, 0, 1))
            f.write(x.astype("<f4").tobytes() + later.astype("<f4").tobytes())
    return points, modes, file


def steps_of(file, points):
    return numpy.fromfile(file, "<f4").reshape(parity.STEPS, 2, BATCH, *points, FIELDS)


def kept(points, modes):
    """Which frequencies of a half spectrum the layer multiplies, as indices of its axes."""
    sides = [[*range(m), *range(n - m, n)] for n, m in zip(points[:-1], modes)]
    return numpy.ix_(*sides, range(modes[-1]))


def apart(weights):
    return weights[0] + 1j * weights[1]


# ---- NumPy ------------------------------------------------------------------------------------------------------

def transform(x, points, modes):
    spectrum = numpy.fft.rfftn(x, axes=range(1, 1 + len(points)), norm="ortho")
    part = spectrum[(slice(None), *kept(points, modes))]
    return part.reshape(len(x), -1, x.shape[-1])


def inverse(part, points, modes):
    whole = numpy.zeros((len(part), *points[:-1], points[-1] // 2 + 1, part.shape[-1]), complex)
    where = kept(points, modes)
    whole[(slice(None), *where)] = part.reshape(len(part), *(numpy.broadcast(*where).shape), -1)
    return numpy.fft.irfftn(whole, s=points, axes=range(1, 1 + len(points)), norm="ortho")


def doubled(points, modes):
    """How often a frequency stands for itself and its conjugate in a real field."""
    last = numpy.arange(modes[-1])
    each = numpy.where((last == 0) | (2 * last == points[-1]), 1.0, 2.0)
    return numpy.tile(each, 2 ** (len(points) - 1) * math.prod(modes[:-1]))[:, None]


ERF = numpy.vectorize(math.erf)


def gelu(x):
    """Its value and slope."""
    gate = (1 + ERF(x / math.sqrt(2))) / 2
    return x * gate, gate + x * numpy.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def linear(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def back_linear(p, grad, name, x, dy):
    rows = dy.reshape(-1, dy.shape[-1])
    grad[f"{name}.weight"] = rows.T @ x.reshape(len(rows), -1)
    grad[f"{name}.bias"] = rows.sum(0)
    return dy @ p[f"{name}.weight"]


def loss_and_gradients(p, x, target, points, modes):
    """x: [batch, points.., fields]"""
    two, grad, saved = doubled(points, modes), {}, []
    fields, x = x, linear(p, "lift", x)
    for i in range(LAYERS):
        w, spectrum = apart(p[f"h{i}.modes.weight"]), transform(x, points, modes)
        mixed = numpy.einsum("bki,kio->bko", spectrum, w)
        y, slope = gelu(inverse(mixed, points, modes) + linear(p, f"h{i}.linear", x))
        saved.append((x, spectrum, w, slope))
        x = y
    wide, slope = gelu(linear(p, "project.in", x))
    off = linear(p, "project.out", wide) - target
    axes = tuple(range(len(points) - 1, len(points) + 1))  # the last two of the grid
    size, far = (numpy.sqrt((a * a).sum(axes, keepdims=True)) for a in (target, off))
    d = back_linear(p, grad, "project.out", wide, off / far / size / far.size) * slope
    d = back_linear(p, grad, "project.in", x, d)
    for i, (x, spectrum, w, slope) in reversed([*enumerate(saved)]):
        d = d * slope
        mixed = transform(d, points, modes) * two
        of_w = numpy.einsum("bki,bko->kio", spectrum.conj(), mixed)
        grad[f"h{i}.modes.weight"] = numpy.stack([of_w.real, of_w.imag])
        back = numpy.einsum("bko,kio->bki", mixed, w.conj())
        d = back_linear(p, grad, f"h{i}.linear", x, d) + inverse(back / two, points, modes)
    back_linear(p, grad, "lift", fields, d)
    return (far / size).mean(), grad


# ---- PyTorch ------------------------------------------------------------------------------------------------------

def network(p, x, points, modes):
    where, axes = kept(points, modes), tuple(range(1, 1 + len(points)))
    index = (slice(None), *(torch.as_tensor(i) for i in where))
    x = torch.nn.functional.linear(x, p["lift.weight"], p["lift.bias"])
    for i in range(LAYERS):
        part = torch.fft.rfftn(x, dim=axes, norm="ortho")[index]
        w = torch.complex(*p[f"h{i}.modes.weight"])
        mixed = torch.einsum("bki,kio->bko", part.flatten(1, -2), w).reshape(part.shape)
        whole = torch.zeros((len(x), *points[:-1], points[-1] // 2 + 1, x.shape[-1]), dtype=mixed.dtype)
        whole[index] = mixed
        y = torch.fft.irfftn(whole, s=points, dim=axes, norm="ortho")
        x = torch.nn.functional.gelu(
            y + torch.nn.functional.linear(x, p[f"h{i}.linear.weight"], p[f"h{i}.linear.bias"]))
    x = torch.nn.functional.gelu(torch.nn.functional.linear(x, p["project.in.weight"], p["project.in.bias"]))
    return torch.nn.functional.linear(x, p["project.out.weight"], p["project.out.bias"])


def theirs(case, weights, precision):
    points, modes, file = case
    peer.use(precision)
    p, axes = peer.parameters(weights), (len(points) - 1, len(points))

    def loss_of(fields, target):
        y, target = network(p, peer.numbers(fields), points, modes), peer.numbers(target)
        return ((y - target).norm(dim=axes) / target.norm(dim=axes)).mean()
    return peer.train(p, weights, ((lambda s=step: loss_of(*s)) for step in steps_of(file, points)))


def ours(case, device, precision, seed):
    points, modes, file = case
    return parity.ours("fno", dims(points, modes), device, precision, BATCH, 1, file, seed)


def test_numpy_has_the_same_loss_and_gradients(case):
    points, modes, file = case
    losses, weights, gradients = ours(case, "ref", "f64", 1)
    loss, expected = loss_and_gradients(weights, *steps_of(file, points)[0].astype(float), points, modes)
    # the modes start in 0 to 1, all other parameters around 0
    assert min(weights["h0.modes.weight"].min(), 1 - weights["h0.modes.weight"].max()) >= 0
    assert losses[0] == pytest.approx(loss, rel=1e-12)
    assert gradient_errors(gradients, expected)[1] < 1e-11


def test_pytorch_has_the_same_losses(case):
    losses, weights, gradients = ours(case, "ref", "f64", 1)
    expected, first = theirs(case, weights, "f64")
    assert gradient_errors(gradients, first)[1] < 1e-11
    assert numpy.abs(losses - expected).max() < 1e-11
    assert losses[-1] < losses[0]


def test_error_to_f64(case, record_property):
    device = parity.device_for("fno", dims(*case[:2]))
    parity.compare(record_property, ("fno", "f32"), SEEDS, lambda precision, seed: ours(case, device, precision, seed),
                   lambda weights, precision: theirs(case, weights, precision), smooth=True)
