# SPDX-License-Identifier: Apache-2.0
"""Single ops against PyTorch in f64, with all gradients: ref in f64 agrees to rounding, cpu in f32 to that of f32."""
import math
import subprocess

import numpy
import pytest

from jm import BUILD

torch = pytest.importorskip("torch", reason="python3-torch is not installed: nothing to compare with")
F = torch.nn.functional

# what is given, the parameters, and the loss of both
CASES = {
    "ignored": ([(12,)], [(12, 7)],
                lambda target, x: F.cross_entropy(x, torch.where(target < 0, -100, target).long(), ignore_index=-100)),
    "concat": ([(2, 27, 4, 5)], [(2, 16, 4, 5), (2, 3, 4, 5), (2, 8, 4, 5)], lambda t, *parts: F.mse_loss(torch.cat(parts, 1), t)),
    "lopsided": ([(2, 5, 3, 4)], [(2, 3, 6, 8), (5, 3, 3, 3)],
                 lambda t, x, w: F.mse_loss(F.conv2d(F.pad(F.silu(x), (0, 1, 0, 1)), w, stride=2), t)),
    "upsample": ([(2, 5, 6, 8)], [(2, 5, 3, 4)], lambda t, x: F.mse_loss(F.interpolate(x, scale_factor=2, mode="nearest"), t)),
    "groups": ([(3, 12, 5, 4)], [(3, 12, 5, 4), (12,), (12,)],
               lambda t, x, gamma, beta: F.mse_loss(F.group_norm(x, 4, gamma, beta, 1e-5), t)),
    "groups_silu": ([(2, 64, 7, 7)], [(2, 64, 7, 7), (64,), (64,)],
                    lambda t, x, gamma, beta: F.mse_loss(F.silu(F.group_norm(x, 32, gamma, beta, 1e-6)), t)),
}


def ours(case, device, precision, file):
    """What is given, (values, gradient) of each parameter, and the loss."""
    given, params, _ = CASES[case]
    subprocess.run([BUILD / "tests/parity/one_op", case, device, precision, file], check=True, timeout=240)
    values, at = numpy.fromfile(file), 0
    found = []
    for shape in given + [shape for shape in params for _ in range(2)]:
        found.append(torch.tensor(values[at:at + math.prod(shape)].reshape(shape)))
        at += math.prod(shape)
    assert at == len(values) - 1
    return found[:len(given)], list(zip(found[len(given)::2], found[len(given) + 1::2])), values[-1]


@pytest.mark.parametrize("device, precision, most", [("ref", "f64", 1e-12), ("cpu", "f32", 3e-6)], ids=["ref", "cpu"])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_those_of_pytorch(case, device, precision, most, tmp_path):
    given, params, loss = ours(case, device, precision, tmp_path / "values")
    wanted = [x.clone().requires_grad_() for x, _ in params]
    expected = CASES[case][2](*given, *wanted)
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=most)
    for (_, gradient), x in zip(params, wanted):
        assert x.grad.abs().max() > 0
        assert (gradient - x.grad).abs().max() <= most * x.grad.abs().max()
