# SPDX-License-Identifier: Apache-2.0
"""Trains a model by PyTorch on one GPU, for comparison with joulemark: same shapes, precision and update.

train_torch.py MODEL BATCH SEQ SECONDS [DIM=VALUE...]     MODEL: gpt, llama, vit-b16, vit-l16, resnet50

bf16 by autocast (masters, gradients and optimizer in f32), torch.compile, fused AdamW, gradients clipped,
attention by cuDNN or flash attention, whichever is faster in a trial. mode=MODE is that of torch.compile. true=1: weights, gradients and optimizer in bf16,
made on the GPU; each block, and the head with the loss, is compiled separately, because all layers share that code. Prints
one line of JSON: seconds per step (median, minimum and maximum of windows of about 1 s), items/s, joules per item by NVML's
energy counter, peak bytes of tensors, peak bytes that the allocator reserved after the first steps, and the bytes that the
GPU has allocated in total.
"""
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from measured_steps import measure, time_steps


def angles(seq, head, theta, device="cuda"):
    turn = torch.arange(seq)[:, None] * theta ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
    return turn.cos().float().to(device), turn.sin().float().to(device)


def rotate(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, dims, bias):
        super().__init__()
        c = dims["hidden"]
        self.heads, self.groups = dims["heads"], dims.get("kv-heads", dims["heads"])
        self.head = c // self.heads
        self.qkv = nn.Linear(c, (self.heads + 2 * self.groups) * self.head, bias=bias)
        self.out = nn.Linear(c, c, bias=bias)

    def forward(self, x, turn):
        b, s, c = x.shape
        parts = self.qkv(x).view(b, s, -1, self.head).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.groups, self.groups), 1)
        if turn is not None:
            q, k = rotate(q, *turn), rotate(k, *turn)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.groups)
        return self.out(z.transpose(1, 2).reshape(b, s, c))


class Block(nn.Module):
    def __init__(self, dims):
        super().__init__()
        c = dims["hidden"]
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.attention = Attention(dims, True)
        self.up, self.down = nn.Linear(c, dims["ffn"]), nn.Linear(dims["ffn"], c)

    def forward(self, x, turn):
        x = x + self.attention(self.ln_1(x), turn)
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self, dims):
        super().__init__()
        c = dims["hidden"]
        self.ln_1, self.ln_2 = nn.RMSNorm(c, eps=1e-5), nn.RMSNorm(c, eps=1e-5)
        self.attention = Attention(dims, False)
        self.up = nn.Linear(c, 2 * dims["ffn"], bias=False)
        self.down = nn.Linear(dims["ffn"], c, bias=False)

    def forward(self, x, turn):
        x = x + self.attention(self.ln_1(x), turn)
        gate, value = self.up(self.ln_2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Language(nn.Module):
    def __init__(self, dims, seq, llama):
        super().__init__()
        c = dims["hidden"]
        self.tokens = nn.Embedding(dims["vocab"], c)
        learned = not llama and not dims.get("rotary")
        self.positions = nn.Embedding(dims["context"], c) if learned else None
        self.blocks = nn.ModuleList((LlamaBlock if llama else Block)(dims) for _ in range(dims["layers"]))
        self.ln_f = nn.RMSNorm(c, eps=1e-5) if llama else nn.LayerNorm(c)
        self.head = nn.Linear(c, dims["vocab"], bias=False)
        if not llama:
            self.head.weight = self.tokens.weight
        self.turn = None if learned else angles(seq, c // dims["heads"], dims.get("theta", 10000))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, target):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, self.turn)
        return self.end(x, target)

    def end(self, x, target):
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))

    def compile_parts(self):
        for block in self.blocks:
            block.compile()
        self.end = torch.compile(self.end)
        return self


class Classifier(nn.Module):
    def __init__(self, name):
        super().__init__()
        import torchvision
        self.net = getattr(torchvision.models, {"vit-b16": "vit_b_16", "vit-l16": "vit_l_16"}.get(name, name))()
        self.net.to(memory_format=torch.channels_last)

    def forward(self, image, target):
        return F.cross_entropy(self.net(image), target)


GPT_117M = {"layers": 12, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 50257, "context": 1024}


def declare(name, batch, seq, given):
    """The model, what it is called with, items of a step."""
    if name not in ("gpt", "llama"):
        image = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
        return Classifier(name).train(), (image, torch.randint(1000, (batch,), device="cuda")), batch
    dims = {**(GPT_117M if name == "gpt" else {}), **given}
    ids, target = (torch.randint(dims["vocab"], (batch, seq), device="cuda") for _ in range(2))
    if given.get("true"):
        torch.set_default_dtype(torch.bfloat16)
        torch.set_default_device("cuda")
    return Language(dims, seq, name == "llama"), (ids, target), batch * seq


class Training:
    def __init__(self, name, batch, seq, given, attention, mode=None):
        torch.manual_seed(1)
        torch._dynamo.reset()
        model, self.inputs, self.items = declare(name, batch, seq, given)
        model.cuda()
        self.true, self.attention = given.get("true"), attention
        self.model = model.compile_parts() if self.true else torch.compile(model, **({"mode": mode} if mode else {}))
        matrices = [p for p in model.parameters() if p.dim() > 1]
        vectors = [p for p in model.parameters() if p.dim() == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, fused=True)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        mixed = torch.autocast("cuda", dtype=torch.bfloat16, enabled=not self.true)
        with sdpa_kernel(self.attention), mixed:
            loss = self.model(*self.inputs)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        return loss


def best_attention(name, batch, seq, given):
    found = []
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        try:
            training = Training(name, batch, seq, given, backend)
            time_steps(training, 4)
            found.append((time_steps(training, 6)[0], backend))
        except RuntimeError as error:
            print(f"{backend}: {str(error)[:200]}", file=sys.stderr)
        torch.cuda.empty_cache()
    return min(found, key=lambda pair: pair[0])[1]


def main(name, batch, seq, seconds, *given):
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    dims = {k: int(v) for k, v in (g.split("=") for g in given if not g.startswith(("attention=", "mode=")))}
    fixed = [g.split("=")[1] for g in given if g.startswith("attention=")]
    mode = next((g.split("=")[1] for g in given if g.startswith("mode=")), None)
    shape = (name, int(batch), int(seq), dims)
    known = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    attention = known[fixed[0]] if fixed else best_attention(*shape)
    measure(lambda: Training(*shape, attention, mode), float(seconds), model=name, batch=int(batch), seq=int(seq),
            attention=str(attention).split(".")[-1])


if __name__ == "__main__":
    main(*sys.argv[1:])
