# SPDX-License-Identifier: Apache-2.0
"""Trains a llama that GPUs of one host share, by PyTorch's tensor and sequence parallel, for comparison with joulemark's
--tp N --sequence-parallel.

tp_torch.py BATCH SEQ SECONDS [DIM=VALUE...] [async=1]       arguments as those of train_torch.py llama ... true=1

The plan is that of PyTorch's tutorial of tensor parallel: matrices cut by columns (q, k, v, gate, up, head) and by rows (out,
down, embedding), norms and what is between them cut by the sequence, loss over cut logits. Weights, gradients and fused AdamW
in bf16, gradients clipped, each block and the end compiled, attention by cuDNN. async=1: gathers and scatters in pieces beside
their products (torch._inductor's micro pipeline over symmetric memory). GPUS is the number of GPUs (2), DEVICE=cpu with gloo
tries the program without them. Prints one line of JSON: items/s (median, least, most of windows of about 1 s) and joules per
item by NVML's energy counters.
"""
import json
import os
import statistics
import sys
import time

import torch
import torch._inductor.config
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import measured_steps
from ddp_torch import free_port
from train_torch import angles, rotate

DEVICE = os.environ.get("DEVICE", "cuda")


class Attention(nn.Module):
    def __init__(self, dims, turn):
        super().__init__()
        c, self.turn = dims["hidden"], turn
        self.head = c // dims["heads"]
        self.q = nn.Linear(c, c, bias=False)
        self.k, self.v = (nn.Linear(c, dims["kv-heads"] * self.head, bias=False) for _ in range(2))
        self.out = nn.Linear(c, c, bias=False)

    def forward(self, x):
        q, k, v = (y.view(*y.shape[:2], -1, self.head).transpose(1, 2) for y in (self.q(x), self.k(x), self.v(x)))
        z = F.scaled_dot_product_attention(rotate(q, *self.turn), rotate(k, *self.turn), v, is_causal=True, enable_gqa=True)
        return self.out(z.transpose(1, 2).reshape(*x.shape[:2], -1))


class Mlp(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.gate, self.up = (nn.Linear(dims["hidden"], dims["ffn"], bias=False) for _ in range(2))
        self.down = nn.Linear(dims["ffn"], dims["hidden"], bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, dims, turn):
        super().__init__()
        self.ln_1, self.ln_2 = (nn.RMSNorm(dims["hidden"], eps=1e-5) for _ in range(2))
        self.attention, self.mlp = Attention(dims, turn), Mlp(dims)

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Llama(nn.Module):
    def __init__(self, dims, seq):
        super().__init__()
        turn = angles(seq, dims["hidden"] // dims["heads"], dims.get("theta", 10000), DEVICE)
        self.tokens = nn.Embedding(dims["vocab"], dims["hidden"])
        self.blocks = nn.ModuleList(Block(dims, turn) for _ in range(dims["layers"]))
        self.ln_f, self.head = nn.RMSNorm(dims["hidden"], eps=1e-5), nn.Linear(dims["hidden"], dims["vocab"], bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def share(model, mesh):
    parallelize_module(model, mesh, {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "ln_f": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)})
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "ln_1": SequenceParallel(), "ln_2": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
            "attention.out": RowwiseParallel(output_layouts=Shard(1)),
            "mlp.gate": ColwiseParallel(), "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(output_layouts=Shard(1))})
        block.compile()


class Training:
    def __init__(self, batch, seq, dims, mesh):
        torch.manual_seed(1)
        self.items, self.vocab = batch * seq, dims["vocab"]
        self.ids, self.target = (torch.randint(self.vocab, (batch, seq), device=DEVICE) for _ in range(2))
        torch.set_default_dtype(torch.bfloat16)
        torch.set_default_device(DEVICE)
        self.model = Llama(dims, seq)
        torch.set_default_device(None)
        share(self.model, mesh)
        groups = [{"params": [p for p in self.model.parameters() if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in self.model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, eps=1e-8, fused=True)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]) if DEVICE == "cuda" else sdpa_kernel(SDPBackend.MATH), loss_parallel():
            loss = F.cross_entropy(self.model(self.ids).flatten(0, 1), self.target.flatten())
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        return loss

    def time(self, steps):
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            loss = self.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps, loss


def work(rank, port, world, batch, seq, seconds, dims):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1")
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo", rank=rank, world_size=world)
    mesh = init_device_mesh(DEVICE, (world,))
    if dims.get("async"):
        from torch.distributed._symmetric_memory import enable_symm_mem_for_group
        torch._inductor.config._micro_pipeline_tp = True
        enable_symm_mem_for_group(mesh.get_group().group_name)
    training = Training(batch, seq, dims, mesh)
    began = time.perf_counter()
    training.time(4)
    ready = time.perf_counter() - began
    steps = torch.tensor(max(1, round(1 / training.time(4)[0])), device=DEVICE)
    dist.broadcast(steps, 0)
    before = measured_steps.joules() if DEVICE == "cuda" else None
    each, losses = zip(*(training.time(int(steps)) for _ in range(seconds)))
    used = None if before is None else measured_steps.joules() - before
    everyone = [None] * world
    dist.all_gather_object(everyone, used)
    loss = losses[-1].detach()
    loss = float(loss.full_tensor() if hasattr(loss, "full_tensor") else loss)
    if not rank:
        rates = [training.items / s for s in each]
        print(json.dumps({
            "program": "PyTorch " + torch.__version__, "model": "llama", "batch": batch, "seq": seq, "tp": world, "async": bool(dims.get("async")),
            "items_s": [statistics.median(rates), min(rates), max(rates)], "ready_s": ready, "loss": loss,
            "joules_per_item": sum(everyone) / (seconds * int(steps) * training.items) if None not in everyone else None,
            "watts": [u / sum(s * int(steps) for s in each) for u in everyone] if None not in everyone else None}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    given = {k: int(v) for k, v in (g.split("=") for g in sys.argv[4:])}
    gpus = int(os.environ.get("GPUS", "2"))
    mp.spawn(work, args=(free_port(), gpus, *map(int, sys.argv[1:4]), given), nprocs=gpus)
