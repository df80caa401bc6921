# SPDX-License-Identifier: Apache-2.0
"""One training step of GPT-117M by PyTorch, on request: the peer of bench/step.c, same shapes and update.

step_torch.py PRECISION BATCH SEQ THREADS [DIM=VALUE...]
"""
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, dims):
        super().__init__()
        c = dims["hidden"]
        self.heads = dims["heads"]
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.up, self.down = nn.Linear(c, dims["ffn"]), nn.Linear(dims["ffn"], c)

    def attention(self, x, mask):
        b, s, c = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(c, 2))
        z = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(c // self.heads))
        z = z.masked_fill(mask, float("-inf")).softmax(-1)
        return self.out((z @ v).transpose(1, 2).reshape(b, s, c))

    def forward(self, x, mask):
        x = x + self.attention(self.ln_1(x), mask)
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.tokens = nn.Embedding(dims["vocab"], dims["hidden"])
        self.positions = nn.Embedding(dims["context"], dims["hidden"])
        self.blocks = nn.ModuleList(Block(dims) for _ in range(dims["layers"]))
        self.ln_f = nn.LayerNorm(dims["hidden"])
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, target, mask):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        logits = F.linear(self.ln_f(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))


def adamw(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, foreach=True)


def main(precision, batch, seq, threads, *given):
    dims = {"layers": 12, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 50257, "context": 1024}
    dims.update((k, int(v)) for k, v in (g.split("=") for g in given))
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    shape = (int(batch), int(seq))
    model = Gpt(dims)
    optimizer = adamw(model)
    ids, target = (torch.randint(dims["vocab"], shape) for _ in range(2))
    mask = torch.ones(shape[1], shape[1], dtype=torch.bool).triu(1)
    print("ready", torch.__version__, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model(ids, target, mask)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"{time.perf_counter() - start:.6f} {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
