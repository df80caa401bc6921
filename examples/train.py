#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A training without any call of joulemark: a straight line is fitted to points, epoch by epoch. train.py [--rate R]"""
import argparse
import random

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=3)
given = parser.parse_args()

random.seed(1)
points = [(x, 2 * x + 1 + random.gauss(0, 0.1)) for x in (random.random() for _ in range(20000))]
slope = offset = 0.0
for epoch in range(given.epochs):
    loss = 0.0
    for x, y in points:
        error = slope * x + offset - y
        slope -= given.rate * error * x
        offset -= given.rate * error
        loss += error * error / len(points)
    print(f"epoch {epoch + 1}: loss {loss:.4f}, {len(points)} points", flush=True)
