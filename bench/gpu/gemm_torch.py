#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Multiplies matrices of random normal values in bf16 in PyTorch, for comparison with `joulemark run gemm`.

x [N,N] times w [N,N] as it is and transposed (`linear`, which is what joulemark computes). Prints one JSON object: for each
the TFLOP/s of windows of half a second (median, least, most), and watts by the driver's counter over all of them.

    gemm_torch.py [N [SECONDS]]
"""
import json
import statistics
import sys
import time

import torch

from image_torch import Energy


def windows(product, flops, seconds):
    """TFLOP/s of each window, after a warm-up of a second, and the watts."""
    rates, energy, warm_until = [], Energy(), time.time() + 1
    began = before = None
    while began is None or time.time() - began < seconds:
        if began is None and time.time() >= warm_until:
            rates, before, began = [], energy.joules(), time.time()
        n, t = 0, time.time()
        while time.time() - t < 0.5:
            for _ in range(20):
                product()
            torch.cuda.synchronize()
            n += 20
        rates.append(n * flops / (time.time() - t) / 1e12)
    elapsed, after = time.time() - began, energy.joules()
    return {"tflops": statistics.median(rates), "least": min(rates), "most": max(rates),
            "watts": None if before is None else (after - before) / elapsed}


def main(n=8192, seconds=3.0):
    x, w = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    y = torch.empty(n, n, device="cuda", dtype=torch.bfloat16)
    flops = 2 * n ** 3
    print(json.dumps({"peer": f"PyTorch {torch.__version__}", "n": n,
                      "linear": windows(lambda: torch.matmul(x, w.t(), out=y), flops, seconds),
                      "matmul": windows(lambda: torch.matmul(x, w, out=y), flops, seconds)}))


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, float), sys.argv[1:])))
