# SPDX-License-Identifier: Apache-2.0
"""Transfers between the GPUs of one host by NCCL alone, called by PyTorch, for comparison with joulemark's workloads of the
same names, which transfer the same sizes of f32 in the same way.

nccl_torch.py RANKS SIZE,... SECONDS [NAME...]       SIZE: GB of the larger array of a rank; NAME: allreduce, allgather, ...

Prints one line of JSON: of each name and size the seconds of a transfer (the median of measurements of 16 in a row, of the
slowest rank). Without GPUs it uses PyTorch's gloo, to be tried.
"""
import json
import math
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TRANSFERS = 16  # in a row, as joulemark's steps have them


def exchange(to, from_):
    """To the next rank, from the one before it."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for one in dist.batch_isend_irecv([dist.P2POp(dist.isend, from_, (rank + 1) % world),
                                       dist.P2POp(dist.irecv, to, (rank - 1) % world)]):
        one.wait()


# parts that a rank sends and receives (0: as many as there are ranks), and the call
CALLS = {
    "allreduce": (1, 1, lambda to, from_: dist.all_reduce(to)),
    "allgather": (1, 0, lambda to, from_: dist.all_gather_into_tensor(to, from_)),
    "reducescatter": (0, 1, lambda to, from_: dist.reduce_scatter_tensor(to, from_)),
    "alltoall": (0, 0, lambda to, from_: dist.all_to_all_single(to, from_)),
    "broadcast": (1, 1, lambda to, from_: dist.broadcast(to, 0)),
    "p2p": (1, 1, exchange),
}


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of_row(call, to, from_):
    """Of the slowest rank."""
    synchronize()
    dist.barrier()
    synchronize()
    began = time.perf_counter()
    for _ in range(TRANSFERS):
        call(to, from_)
    synchronize()
    took = torch.tensor([time.perf_counter() - began], device=to.device)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took)


def measure(name, size, seconds, device):
    sends, receives, call = CALLS[name]
    world = dist.get_world_size()
    part = math.ceil(size * 1e9 / 4 / (world if 0 in (sends, receives) else 1))
    from_, to = (torch.ones(part * (parts or world), device=device) for parts in (sends, receives))
    once = [seconds_of_row(call, to, from_) for _ in range(3)][-1]
    found = [seconds_of_row(call, to, from_) for _ in range(max(3, min(1000, round(seconds / once))))]
    return {"name": name, "size": size, "ranks": world, "seconds": statistics.median(found) / TRANSFERS}


def work(rank, port, world, sizes, seconds, names):
    gpu = torch.cuda.is_available()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, NCCL_NVLS_ENABLE="0")
    device = f"cuda:{rank}" if gpu else "cpu"
    if gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if gpu else "gloo", rank=rank, world_size=world)
    rows = [measure(name, size, seconds, device) for name in names for size in sizes]
    if not rank:
        print(json.dumps({"transfers": rows, "backend": dist.get_backend(), "program": "PyTorch " + torch.__version__}), flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


if __name__ == "__main__":
    ranks, given, length, *chosen = sys.argv[1:]
    mp.spawn(work, args=(free_port(), int(ranks), [float(x) for x in given.split(",")], float(length), chosen or list(CALLS)),
             nprocs=int(ranks))
