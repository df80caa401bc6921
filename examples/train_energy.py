#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Energy of a PyTorch training: a small network learns the letters of a text, by a loop that calls the hooks of a
callback as Lightning does. In Lightning itself only the lines with `energy` are needed.

train_energy.py [--source SOURCES] [--epochs N] [--steps N] [--json FILE] [TEXT]
"""
import argparse
import json
import pathlib
import sys

import torch

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "python"))  # not needed where the package is installed
from joulemark.callbacks import LightningCallback  # pylint: disable=wrong-import-position

BATCH, LENGTH = 16, 64


class Letters(torch.nn.Module):
    """The next byte, from the bytes before."""

    def __init__(self, width=64):
        super().__init__()
        self.embedding = torch.nn.Embedding(256, width)
        self.memory = torch.nn.GRU(width, width, batch_first=True)
        self.head = torch.nn.Linear(width, 256)

    def loss(self, batch):
        inputs, targets = batch
        scores = self.head(self.memory(self.embedding(inputs))[0])
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


class Trainer:
    """Calls the hooks in Lightning's order."""
    local_rank, sanity_checking = 0, False

    def __init__(self, callbacks):
        self.callbacks = callbacks

    def call(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, None, *args)

    def fit(self, model, text, epochs, steps):
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        held_out = len(text) * 9 // 10
        self.call("on_fit_start")
        for epoch in range(epochs):
            self.call("on_train_epoch_start")
            for i in range(steps):
                batch = take(text[:held_out])
                optimizer.zero_grad()
                loss = model.loss(batch)
                loss.backward()
                optimizer.step()
                self.call("on_train_batch_end", loss, batch, i)
            self.call("on_validation_start")
            with torch.no_grad():
                loss = sum(model.loss(take(text[held_out:])).item() for _ in range(10)) / 10
            self.call("on_validation_end")
            self.call("on_train_epoch_end")
            print(f"epoch {epoch}: loss {loss:.3f}")
        self.call("on_fit_end")


def take(text):
    at = torch.randint(len(text) - LENGTH - 1, (BATCH, 1)) + torch.arange(LENGTH + 1)
    return text[at][:, :-1], text[at][:, 1:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--source", help="as for joulemark measure; the default is all that measure here")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--json", type=pathlib.Path, help="writes the library's report there")
    p.add_argument("text", nargs="?", type=pathlib.Path, default=TOP / "LICENSE")
    args = p.parse_args()
    torch.manual_seed(1)
    text = torch.tensor(list(args.text.read_bytes()))
    energy = LightningCallback(items=lambda batch: batch[0].numel(), sources=args.source)
    Trainer([energy]).fit(Letters(), text, args.epochs, args.steps)
    m = energy.measurement
    print(m)
    per = m["train"].joules_per_item
    print(f"{'unknown' if per is None else f'{per:.4g}'} J per token, {m['train'].origin}")
    if args.json:
        args.json.write_text(json.dumps(m.report), encoding="utf-8")


if __name__ == "__main__":
    main()
