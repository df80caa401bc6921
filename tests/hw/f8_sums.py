#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
How Hopper's matrix units add products of 8 bits, from which the tolerance of the self-test for them is derived: PyTorch's
product has the same bits as an emulation. Terms of 32 products (16 where there are no more) and the sum so far are cut off
13 bits below the largest exponent, added exactly, and the sum is cut off to 13 bits behind its point.
"""
import sys

import torch

BITS = 13
TOLERANCE = 3e-3  # TOLERANCE_F8_SUMS of engine/check/selftest.c: of a result's size plus the mean size


def quantized(rows, columns, kind):
    x = torch.randn(rows, columns)
    return (x * (torch.finfo(kind).max / x.abs().max())).to(kind)


def exponent(x):
    return torch.where(x == 0, torch.full(x.shape, -1000, dtype=torch.int32), torch.frexp(x)[1] - 1)


def cut(x, place):
    unit = torch.ldexp(torch.ones_like(x), place.to(x.dtype))
    return torch.trunc(x / unit) * unit


def emulated(a, b):
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float64)
    for i in range(0, a.shape[1], 32):
        x, y = a[:, None, i:i + 32], b[None, :, i:i + 32]
        terms, powers = x * y, exponent(x) + exponent(y)
        largest = torch.maximum(powers.max(-1).values, exponent(total)).clamp(min=-900)
        total = cut(total, largest - BITS) + cut(terms, (largest - BITS)[..., None].expand_as(terms)).sum(-1)
        total = cut(total, exponent(total).clamp(min=-900) - BITS)
    return total


def compare(k, kind):
    """Elements with other bits, and the largest error in units of size plus mean size."""
    a, b = quantized(64, k, torch.float8_e4m3fn), quantized(64, k, kind)
    one = torch.ones((), device="cuda")
    y = torch._scaled_mm(a.cuda(), b.cuda().t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=True)
    y, a, b = y.cpu().double(), a.double(), b.double()
    exact = a @ b.T
    return int((emulated(a, b) != y).sum()), float(((y - exact).abs() / (exact.abs() + exact.abs().mean())).max())


def main():
    if torch.cuda.get_device_capability() != (9, 0):
        print("not a Hopper GPU: nothing is compared")
        return
    torch.manual_seed(1)
    found = [compare(k, kind) for k in (16, 32, 64, 96, 128, 192) for kind in (torch.float8_e4m3fn, torch.float8_e5m2)]
    other, worst = sum(f[0] for f in found), max(f[1] for f in found)
    print(f"{other} of {4096 * len(found)} sums have other bits than the emulation; largest error {worst:.3g}")
    if other or worst > TOLERANCE / 2:
        sys.exit("the self-test's tolerance for sums of 8 bits is not derived from how this GPU adds")


if __name__ == "__main__":
    main()
