# SPDX-License-Identifier: Apache-2.0
"""Xception (arXiv 1610.02357) of any width in PyTorch, with timm's names of parameters; not a test."""
from torch import nn


class Separable(nn.Module):
    def __init__(self, width, to):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.pointwise = nn.Conv2d(width, to, 1, bias=False)

    def forward(self, x):
        return self.pointwise(self.conv1(x))


class Block(nn.Module):
    """widths: of the input and of each separable convolution's result."""
    def __init__(self, widths, stride, relu=True):
        super().__init__()
        parts = []
        for width, to in zip(widths, widths[1:]):
            parts += [nn.ReLU(), Separable(width, to), nn.BatchNorm2d(to)]
        parts = parts if relu else parts[1:]
        if stride > 1:
            parts.append(nn.MaxPool2d(3, stride, 1))
            self.skip = nn.Conv2d(widths[0], widths[-1], 1, stride, bias=False)
            self.skipbn = nn.BatchNorm2d(widths[-1])
        self.rep = nn.Sequential(*parts)

    def forward(self, x):
        return self.rep(x) + (self.skipbn(self.skip(x)) if hasattr(self, "skip") else x)


class Xception(nn.Module):
    def __init__(self, dims):
        super().__init__()
        width, middle = dims["hidden"], dims["hidden"] * 91 // 4
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 2, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, 2 * width, 3, bias=False), nn.BatchNorm2d(2 * width)
        blocks = [Block([2 * width, 4 * width, 4 * width], 2, relu=False), Block([4 * width, 8 * width, 8 * width], 2),
                  Block([8 * width, middle, middle], 2), *(Block([middle] * 4, 1) for _ in range(dims["layers"])),
                  Block([middle, middle, 32 * width], 2)]
        for i, block in enumerate(blocks, 1):
            setattr(self, f"block{i}", block)
        self.blocks = len(blocks)
        self.conv3, self.bn3 = Separable(32 * width, 48 * width), nn.BatchNorm2d(48 * width)
        self.conv4, self.bn4 = Separable(48 * width, 64 * width), nn.BatchNorm2d(64 * width)
        self.fc = nn.Linear(64 * width, dims["classes"])

    def forward(self, x):
        x = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
        for i in range(self.blocks):
            x = getattr(self, f"block{i + 1}")(x)
        x = self.bn4(self.conv4(self.bn3(self.conv3(x)).relu())).relu()
        return self.fc(x.mean((2, 3)))
