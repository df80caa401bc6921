# SPDX-License-Identifier: Apache-2.0
"""Trains a Fourier neural operator by PyTorch on one GPU in f32, for comparison with joulemark: same shapes, loss and update.

fno_torch.py MODEL BATCH SECONDS [mode=MODE]     MODEL: fno-rbc2d, fno-rbc3d

Channels lie before the grid, so that transforms (torch.fft, orthonormal) run along the axes that are contiguous; linear layers
are products of a matrix and all points. Adam fused; tf32 is not allowed. MODE is that of torch.compile; eager: without it.
Prints one line of JSON as train_torch.py does.
"""
import itertools
import sys

import torch
from torch import nn
from torch.nn import functional as F

from measured_steps import measure

MODELS = {"fno-rbc2d": {"fields": 4, "hidden": 16, "points": (256, 64), "modes": (12, 12)},
          "fno-rbc3d": {"fields": 5, "hidden": 25, "points": (64, 64, 32), "modes": (12, 12, 6)}}
LAYERS, EXPAND = 2, 4


class Linear(nn.Module):
    """Of the channels of x [batch,channels,points..]."""

    def __init__(self, start, end):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(end, start)), nn.Parameter(torch.zeros(end, 1))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x):
        return (self.weight @ x.flatten(2) + self.bias).unflatten(2, x.shape[2:])


class Spectral(nn.Module):
    """A complex matrix for each kept frequency: of either sign along all axes but the last."""

    def __init__(self, width, points, modes):
        super().__init__()
        self.points, self.axes = points, tuple(range(2, 2 + len(points)))
        sides = [(slice(0, m), slice(n - m, n)) for n, m in zip(points[:-1], modes)]
        self.corners = [(slice(None), slice(None), *corner, slice(0, modes[-1])) for corner in itertools.product(*sides)]
        self.weight = nn.Parameter(torch.rand(len(self.corners), width, width, *modes, 2))

    def forward(self, x):
        spectrum = torch.fft.rfftn(x, dim=self.axes, norm="ortho")
        mixed = torch.zeros_like(spectrum)
        for corner, weight in zip(self.corners, torch.view_as_complex(self.weight)):
            mixed[corner] = torch.einsum("bi...,io...->bo...", spectrum[corner], weight)
        return torch.fft.irfftn(mixed, s=self.points, dim=self.axes, norm="ortho")


class Operator(nn.Module):
    def __init__(self, fields, hidden, points, modes):
        super().__init__()
        self.lift = Linear(fields, hidden)
        self.spectral = nn.ModuleList(Spectral(hidden, points, modes) for _ in range(LAYERS))
        self.linear = nn.ModuleList(Linear(hidden, hidden) for _ in range(LAYERS))
        self.project_in, self.project_out = Linear(hidden, EXPAND * hidden), Linear(EXPAND * hidden, fields)

    def forward(self, x, target):
        x = self.lift(x)
        for spectral, linear in zip(self.spectral, self.linear):
            x = F.gelu(spectral(x) + linear(x))
        y = self.project_out(F.gelu(self.project_in(x)))
        return ((y - target).norm(dim=(-2, -1)) / target.norm(dim=(-2, -1))).mean()


class Training:
    def __init__(self, name, batch, mode):
        torch.manual_seed(1)
        dims = MODELS[name]
        model = Operator(**dims).cuda()
        shape = (batch, dims["fields"], *dims["points"])
        self.inputs = [torch.randn(shape, device="cuda") for _ in range(2)]
        self.model = model if mode == "eager" else torch.compile(model, **({"mode": mode} if mode else {}))
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-5, fused=True)
        self.items = batch

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(*self.inputs)
        loss.backward()
        self.optimizer.step()
        return loss


def main(name, batch, seconds, mode=""):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    measure(lambda: Training(name, int(batch), mode.removeprefix("mode=")), float(seconds), model=name, batch=int(batch))


if __name__ == "__main__":
    main(*sys.argv[1:])
