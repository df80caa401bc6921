# SPDX-License-Identifier: Apache-2.0
"""The time, energy and memory of training steps of PyTorch on one GPU, for the scripts of this folder."""
import json
import math
import statistics
import sys
import time

import torch


def joules():
    """Of the GPU since its driver was loaded; None where it has no counter of energy."""
    import pynvml
    pynvml.nvmlInit()
    uuid = "GPU-" + str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
    except pynvml.NVMLError_NotSupported:
        return None


def taken():
    """Memory of the GPU in use, by all processes, with contexts and libraries."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def time_steps(training, steps):
    """Seconds of a step, and the loss of the last one."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        loss = training.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps, loss.item()


def measure(make, seconds, warm_up=5, **said):
    """Prints one line of JSON. make: makes the training, whose `step` gives a loss and has `items`; warm_up: steps before each of two
    clocks, that of the start and that of the measurement; said: what the line has beside."""
    began, training = time.perf_counter(), make()
    time_steps(training, warm_up)
    ready = time.perf_counter() - began
    torch.cuda.empty_cache()  # what the first steps took for trials of algorithms
    torch.cuda.reset_peak_memory_stats()
    windows, steps = max(3, round(seconds)), max(1, round(1 / time_steps(training, warm_up)[0]))
    before = joules()
    each, losses = zip(*(time_steps(training, steps) for _ in range(windows)))
    after = joules()
    if not math.isfinite(losses[-1]):
        sys.exit(f"the loss is {losses[-1]}: neither rate nor power of such a run counts")
    used = None if before is None or after is None else after - before
    median, items = statistics.median(each), training.items * steps * windows
    print(json.dumps({
        "program": "PyTorch " + torch.__version__, **said, "step_s": median, "least_s": min(each), "most_s": max(each),
        "items_s": training.items / median, "watts": used and used / sum(s * steps for s in each),
        "items_per_joule": items / used if used else None, "bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(), "taken_bytes": taken(), "loss": losses[-1], "ready_s": ready,
        "gpu": torch.cuda.get_device_name(0)}), flush=True)
