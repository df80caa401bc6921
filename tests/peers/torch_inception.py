# SPDX-License-Identifier: Apache-2.0
"""Inception v3 (arXiv 1512.00567) of any width in PyTorch, with torchvision's names of parameters; not a test."""
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, to, window, pad=0, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(width, to, window, stride, pad, bias=False)
        self.bn = nn.BatchNorm2d(to, eps=1e-3)

    def forward(self, x):
        return self.bn(self.conv(x)).relu()


WIDE, TALL = {"window": (1, 7), "pad": (0, 3)}, {"window": (7, 1), "pad": (3, 0)}
# Branches of each kind of block: names, widths of which 2 are `hidden` (None: the own one of the block), windows.
ONE, THREE, HALF = {"window": 1}, {"window": 3, "pad": 1}, {"window": 3, "stride": 2}
KINDS = {
    "A": [[("branch1x1", 4, ONE)],
          [("branch5x5_1", 3, ONE), ("branch5x5_2", 4, {"window": 5, "pad": 2})],
          [("branch3x3dbl_1", 4, ONE), ("branch3x3dbl_2", 6, THREE), ("branch3x3dbl_3", 6, THREE)],
          ["mean", ("branch_pool", None, ONE)]],
    "B": [[("branch3x3", 24, HALF)],
          [("branch3x3dbl_1", 4, ONE), ("branch3x3dbl_2", 6, THREE), ("branch3x3dbl_3", 6, HALF)], ["most"]],
    "C": [[("branch1x1", 12, ONE)],
          [("branch7x7_1", None, ONE), ("branch7x7_2", None, WIDE), ("branch7x7_3", 12, TALL)],
          [("branch7x7dbl_1", None, ONE), ("branch7x7dbl_2", None, TALL), ("branch7x7dbl_3", None, WIDE),
           ("branch7x7dbl_4", None, TALL), ("branch7x7dbl_5", 12, WIDE)],
          ["mean", ("branch_pool", 12, ONE)]],
    "D": [[("branch3x3_1", 12, ONE), ("branch3x3_2", 20, HALF)],
          [("branch7x7x3_1", 12, ONE), ("branch7x7x3_2", 12, WIDE), ("branch7x7x3_3", 12, TALL), ("branch7x7x3_4", 12, HALF)],
          ["most"]],
}
BLOCKS = [("Mixed_5b", "A", 2), ("Mixed_5c", "A", 4), ("Mixed_5d", "A", 4), ("Mixed_6a", "B", None), ("Mixed_6b", "C", 8),
          ("Mixed_6c", "C", 10), ("Mixed_6d", "C", 10), ("Mixed_6e", "C", 12), ("Mixed_7a", "D", None)]


class Block(nn.Module):
    def __init__(self, kind, width, own, unit):
        super().__init__()
        self.branches, self.to = [], 0
        for branch in KINDS[kind]:
            names, now = [], width
            for part in branch:
                if not isinstance(part, str):
                    name, to, how = part
                    to = unit * (to or own)
                    setattr(self, name, Layer(now, to, **how))
                    part, now = name, to
                names.append(part)
            self.branches.append(names)
            self.to += now

    def run(self, x, names):
        for name in names:
            if name == "mean":
                x = nn.functional.avg_pool2d(x, 3, 1, 1)
            elif name == "most":
                x = nn.functional.max_pool2d(x, 3, 2)
            else:
                x = getattr(self, name)(x)
        return x

    def forward(self, x):
        return torch.cat([self.run(x, names) for names in self.branches], 1)


class Last(nn.Module):
    """Branches that end in windows of 1 x 3 and 3 x 1 side by side."""
    def __init__(self, width, unit):
        super().__init__()
        flat, tall, to = {"window": (1, 3), "pad": (0, 1)}, {"window": (3, 1), "pad": (1, 0)}, 24 * unit
        self.branch1x1, self.branch_pool = Layer(width, 20 * unit, 1), Layer(width, 12 * unit, 1)
        self.branch3x3_1, self.branch3x3_2a, self.branch3x3_2b = Layer(width, to, 1), Layer(to, to, **flat), Layer(to, to, **tall)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Layer(width, 28 * unit, 1), Layer(28 * unit, to, 3, 1)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = Layer(to, to, **flat), Layer(to, to, **tall)
        self.to = 128 * unit

    def forward(self, x):
        one, two = self.branch3x3_1(x), self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        return torch.cat([self.branch1x1(x), self.branch3x3_2a(one), self.branch3x3_2b(one), self.branch3x3dbl_3a(two),
                          self.branch3x3dbl_3b(two), self.branch_pool(nn.functional.avg_pool2d(x, 3, 1, 1))], 1)


class Second(nn.Module):
    def __init__(self, width, unit, classes):
        super().__init__()
        self.conv0, self.conv1 = Layer(width, 8 * unit, 1), Layer(8 * unit, 48 * unit, 5)
        self.fc = nn.Linear(48 * unit, classes)

    def forward(self, x):
        return self.fc(self.conv1(self.conv0(nn.functional.avg_pool2d(x, 5, 3))).mean((2, 3)))


class Inception(nn.Module):
    """In training with auxiliary > 0: the logits of both classifiers."""
    def __init__(self, dims):
        super().__init__()
        unit = dims["hidden"] // 2
        self.Conv2d_1a_3x3, self.Conv2d_2a_3x3 = Layer(3, 2 * unit, 3, stride=2), Layer(2 * unit, 2 * unit, 3)
        self.Conv2d_2b_3x3, self.Conv2d_3b_1x1 = Layer(2 * unit, 4 * unit, 3, 1), Layer(4 * unit, 5 * unit, 1)
        self.Conv2d_4a_3x3, now = Layer(5 * unit, 12 * unit, 3), 12 * unit
        for name, kind, own in BLOCKS:
            setattr(self, name, Block(kind, now, own, unit))
            now = getattr(self, name).to
        self.Mixed_7b, self.Mixed_7c = Last(now, unit), Last(128 * unit, unit)
        if dims["auxiliary"]:
            self.AuxLogits = Second(48 * unit, unit, dims["classes"])
        self.fc = nn.Linear(128 * unit, dims["classes"])

    def forward(self, x):
        x = nn.functional.max_pool2d(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))), 3, 2)
        x, second = nn.functional.max_pool2d(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)), 3, 2), None
        for name, _, _ in BLOCKS:
            x = getattr(self, name)(x)
            if name == "Mixed_6e" and self.training and hasattr(self, "AuxLogits"):
                second = self.AuxLogits(x)
        x = self.fc(self.Mixed_7c(self.Mixed_7b(x)).mean((2, 3)))
        return x if second is None else (x, second)
