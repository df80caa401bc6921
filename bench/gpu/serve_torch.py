# SPDX-License-Identifier: Apache-2.0
"""One stream of LLaMA 3 8B by PyTorch on one GPU, for comparison with `joulemark run serve --arrival single`.

serve_torch.py [precision=bf16|fp8] [prompt=256] [answer=256] [seconds=10] [mode=reduce-overhead] [attention=sdpa|sums] [LAYERS...]

Random weights and tokens, a static cache of prompt + answer tokens in bf16, greedy. The step of one token is compiled as one graph
(torch.compile, fullgraph; mode=reduce-overhead or max-autotune; tune=1: inductor writes products of one row as sums and tunes its kernels); prompts run
eagerly and are no part of the figure. fp8: the matrices of the blocks in e4m3 with a factor for each output, widened where they are
multiplied; tables stay bf16, as those of joulemark. attention=sums writes attention as products and a softmax for inductor to fuse.
Prints one line of JSON: tokens/s of the steps of an answer (median, least and most over answers), watts and joules per token by
NVML's energy counter, and the seconds until the first compiled step had run.
"""
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from measured_steps import joules
from train_torch import angles, rotate

DIMS = {"layers": 32, "hidden": 4096, "heads": 32, "kv-heads": 8, "ffn": 14336, "vocab": 128256}


class Linear(nn.Module):
    """Without bias; narrow: weights in e4m3."""

    def __init__(self, n_in, n_out, narrow):
        super().__init__()
        weight = torch.randn(n_out, n_in, dtype=torch.bfloat16) * 0.02
        if narrow:
            self.factor = nn.Buffer(weight.abs().amax(1).float() / 448)
            weight = (weight / self.factor[:, None]).to(torch.float8_e4m3fn)
        self.weight, self.narrow = nn.Buffer(weight), narrow

    def forward(self, x):
        if not self.narrow:
            return F.linear(x, self.weight)
        return (F.linear(x, self.weight.to(x.dtype)) * self.factor).to(x.dtype)


class Block(nn.Module):
    def __init__(self, dims, tokens, narrow, attention):
        super().__init__()
        c, self.heads, self.groups = dims["hidden"], dims["heads"], dims["kv-heads"]
        self.head, self.attention = c // self.heads, attention
        self.ln_1, self.ln_2 = nn.RMSNorm(c, eps=1e-5), nn.RMSNorm(c, eps=1e-5)
        self.qkv = Linear(c, (self.heads + 2 * self.groups) * self.head, narrow)
        self.out = Linear(c, c, narrow)
        self.up, self.down = Linear(c, 2 * dims["ffn"], narrow), Linear(dims["ffn"], c, narrow)
        self.keys, self.values = (nn.Buffer(torch.zeros(1, self.groups, tokens, self.head)) for _ in range(2))

    def attend(self, q, seen):
        if self.attention == "sdpa":
            return F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen, enable_gqa=True)
        s = q.shape[2]
        q = q.view(1, self.groups, -1, self.head)
        scores = (q @ self.keys.mT).float() * self.head**-0.5
        scores = scores.view(1, self.groups, -1, s, seen.shape[-1]).masked_fill(~seen, float("-inf"))
        weights = scores.softmax(-1).to(q.dtype).view(1, self.groups, -1, seen.shape[-1])
        return (weights @ self.values).view(1, self.heads, s, self.head)

    def forward(self, x, turn, position, seen):
        b, s, c = x.shape
        parts = self.qkv(self.ln_1(x)).view(b, s, -1, self.head).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.groups, self.groups), 1)
        self.keys.index_copy_(2, position, rotate(k, *turn))
        self.values.index_copy_(2, position, v)
        z = self.attend(rotate(q, *turn), seen)
        x = x + self.out(z.transpose(1, 2).reshape(b, s, c))
        gate, value = self.up(self.ln_2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Llama(nn.Module):
    def __init__(self, dims, tokens, narrow, attention):
        super().__init__()
        self.tokens = nn.Embedding(dims["vocab"], dims["hidden"])
        self.blocks = nn.ModuleList(Block(dims, tokens, narrow, attention) for _ in range(dims["layers"]))
        self.ln_f = nn.RMSNorm(dims["hidden"], eps=1e-5)
        self.head = Linear(dims["hidden"], dims["vocab"], False)
        cosine, sine = angles(tokens, dims["hidden"] // dims["heads"], 500000)
        self.cosine, self.sine = nn.Buffer(cosine), nn.Buffer(sine)
        self.seen = nn.Buffer(torch.ones(tokens, tokens, dtype=torch.bool).tril())
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids, position):
        """The likeliest token after the last one of ids, which are at these positions."""
        x, turn = self.tokens(ids), (self.cosine[position], self.sine[position])
        for block in self.blocks:
            x = block(x, turn, position, self.seen[position])
        return self.head(self.ln_f(x[:, -1:])).argmax(-1)


def answer(model, step, prompt, n):
    """Seconds of each token after the first, and the joules of all of these."""
    ids, position = prompt, torch.arange(prompt.shape[1])
    token = model(ids, position)
    position = position[-1:] + 1
    torch.cuda.synchronize()
    before, start = joules(), time.perf_counter()
    for _ in range(n - 1):
        token = step(token, position).clone()
        position += 1
    torch.cuda.synchronize()
    seconds, after = time.perf_counter() - start, joules()
    return seconds / (n - 1), None if before is None else after - before


@torch.no_grad()
def main(*given):
    known = {"precision": "bf16", "prompt": "256", "answer": "256", "seconds": "10", "mode": "reduce-overhead", "attention": "sdpa", "tune": "1"}
    known.update(g.split("=") for g in given)
    dims = {k: int(known.get(k, v)) for k, v in DIMS.items()}
    prompt, n = int(known["prompt"]), int(known["answer"])
    torch._inductor.config.coordinate_descent_tuning = known["tune"] == "1"
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("cuda")
    torch.manual_seed(1)
    began = time.perf_counter()
    model = Llama(dims, prompt + n, known["precision"] == "fp8", known["attention"])
    ids = torch.randint(dims["vocab"], (1, prompt))
    step = torch.compile(model, mode=known["mode"], fullgraph=True)
    for _ in range(3):
        answer(model, step, ids, 8)
    ready, each, used = time.perf_counter() - began, [], []
    while not each or sum(each) * (n - 1) < float(known["seconds"]):
        seconds, energy = answer(model, step, ids, n)
        each.append(seconds)
        used.append(energy)
    energy = None if None in used else sum(used) / len(used) / (n - 1)
    print(json.dumps({"program": "PyTorch " + torch.__version__, **known, "tokens_s": 1 / statistics.median(each), "least": 1 / max(each),
                      "most": 1 / min(each), "answers": len(each), "joules_per_token": energy,
                      "watts": energy and energy / statistics.mean(each), "ready_s": ready, "gpu": torch.cuda.get_device_name(0)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
