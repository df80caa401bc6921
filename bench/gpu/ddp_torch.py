# SPDX-License-Identifier: Apache-2.0
"""GPUs of one host by PyTorch's DistributedDataParallel, for comparison with joulemark's --ranks: each GPU alone, all at
the same time and without communication, then together.

ddp_torch.py MODEL BATCH SEQ SECONDS [alone] [together]       MODEL: gpt (117 M parameters), resnet50

BATCH is that of each GPU; without alone and together both are measured. GPUS is their number (2). GATE=FOLDER: before each measurement the program
makes FOLDER/MODEL.PHASE.ready.RANK and waits, with the GPU idle, for FOLDER/MODEL.PHASE.go, so that several programs can
compile at the same time and measure one after the other.

bf16 by autocast, torch.compile, fused AdamW, gradients clipped, cuDNN's attention, buckets as DistributedDataParallel has
them. Prints one line of JSON: of each GPU, alone and together with the others, items/s (the median, the least and the most
of windows of about 1 s) and joules per item by NVML's energy counter.
"""
import json
import os
import pathlib
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

import image_torch
import measured_steps
import train_torch


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = image_torch.ResNet(image_torch.BLOCKS["resnet50"]).to(memory_format=torch.channels_last)

    def forward(self, image, target):
        return nn.functional.cross_entropy(self.net(image), target)


def declare(name, batch, seq):
    if name == "gpt":
        return train_torch.declare(name, batch, seq, {})
    image = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    return Classifier().train(), (image, torch.randint(1000, (batch,), device="cuda")), batch


class Training:
    def __init__(self, name, batch, seq, together):
        torch.manual_seed(1)
        torch._dynamo.reset()
        model, self.inputs, self.items = declare(name, batch, seq)
        model.cuda()
        if together:
            model = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()],
                                            gradient_as_bucket_view=True)
        self.raw, self.model = model, torch.compile(model)
        matrices = [p for p in model.parameters() if p.dim() > 1]
        vectors = [p for p in model.parameters() if p.dim() == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, fused=True)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.model(*self.inputs)
        loss.backward()
        nn.utils.clip_grad_norm_(self.raw.parameters(), 1.0, foreach=True)
        self.optimizer.step()

    def time(self, steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps


def wait_at_gate(name, phase):
    if "GATE" not in os.environ:
        return
    gate = pathlib.Path(os.environ["GATE"])
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # for the programs that measure first
    (gate / f"{name}.{phase}.ready.{dist.get_rank()}").touch()
    while not (gate / f"{name}.{phase}.go").exists():
        time.sleep(0.05)


def measure(name, batch, seq, seconds, phase):
    """Items/s of this GPU: the median, the least and the most of windows of about 1 s; and joules per item."""
    training = Training(name, batch, seq, phase == "together")
    training.time(6)
    wait_at_gate(name, phase)
    dist.barrier()
    steps = torch.tensor(max(1, round(1 / training.time(8))), device="cuda")
    dist.broadcast(steps, 0)
    before = measured_steps.joules()
    rates = [training.items / training.time(int(steps)) for _ in range(seconds)]
    used = measured_steps.joules() - before
    dist.barrier()
    return statistics.median(rates), min(rates), max(rates), used / (seconds * int(steps) * training.items)


def work(rank, port, world, name, batch, seq, seconds, phases):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    dist.init_process_group("nccl", rank=rank, world_size=world)
    found = {}
    for what in phases:
        mine = measure(name, batch, seq, seconds, what)
        everyone = [None] * world
        dist.all_gather_object(everyone, mine)
        found[what] = everyone
        torch.cuda.empty_cache()
    if not rank:
        alone, together = (sum(r[0] for r in found.get(what, [])) for what in ("alone", "together"))
        print(json.dumps({"program": "PyTorch " + torch.__version__, "model": name, "batch": batch, "seq": seq,
                          "items_s": found, "ratio": together / alone if together and alone else None, "gpu": torch.cuda.get_device_name(0)}), flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


if __name__ == "__main__":
    gpus = int(os.environ.get("GPUS", "2"))
    phases = sys.argv[5:] or ["alone", "together"]
    mp.spawn(work, args=(free_port(), gpus, sys.argv[1], *map(int, sys.argv[2:5]), phases), nprocs=gpus)
