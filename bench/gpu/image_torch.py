#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a network for images in PyTorch, with the optimisations of its documentation, for comparison with joulemark.

channels_last, torch.compile, autocast to bf16 or fp16 (or tf32, or f32), AdamW fused, images of random normal
values that stay on the device. In fp16 the loss is scaled by GradScaler; the learning rate rises over the first
20 steps and is a tenth of the other precisions', and a loss that is not finite ends the run: NaN draws less
power than numbers do. Prints one JSON object: the rate of each window of about a second, the
median, joules by the driver's counter over those windows.

    image_torch.py [--model resnet50] [--batch 256] [--precision bf16] [--seconds 10] [--no-compile] [--mode MODE] [--data DIR --workers N]

The networks are those of torchvision, xception that of timm, without dropout. MODE is that of torch.compile. The first steps, which choose algorithms by timing, are not counted.
With --data the images are those of a folder with one folder of JPEG files per class: torchvision's ImageFolder behind N workers of PyTorch's
DataLoader, which decode, crop at random, resize and mirror; bytes go to the GPU and are normalised there.
"""
import argparse
import ctypes
import itertools
import json
import math
import statistics
import sys
import time

import torch
import torch.nn as nn


WHERE = "cuda"


class Bottleneck(nn.Module):
    """v1.5: the stride is in the 3 x 3 convolution (arXiv 1512.03385, as torchvision has it)."""

    def __init__(self, inside, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.skip = None
        if stride != 1 or inside != 4 * width:
            self.skip = nn.Sequential(nn.Conv2d(inside, 4 * width, 1, stride, bias=False),
                                      nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (self.skip(x) if self.skip else x))


class ResNet(nn.Module):
    """small: with a first layer for images of 32 pixels."""

    def __init__(self, blocks, classes=1000, small=False):
        super().__init__()
        layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False) if small else nn.Conv2d(3, 64, 7, 2, 3, bias=False),
                  nn.BatchNorm2d(64), nn.ReLU(inplace=True)] + ([] if small else [nn.MaxPool2d(3, 2, 1)])
        inside = 64
        for stage, n in enumerate(blocks):
            for i in range(n):
                layers.append(Bottleneck(inside, 64 << stage, 2 if i == 0 and stage else 1))
                inside = 4 * (64 << stage)
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(inside, classes)

    def forward(self, x):
        return self.head(self.body(x))


BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}


class Inception(nn.Module):
    """Returns the logits of both classifiers."""

    def __init__(self):
        super().__init__()
        self.body = torchvision().inception_v3(aux_logits=True, init_weights=False, dropout=0.0)

    def forward(self, x):
        both = self.body(x)
        return both.logits, both.aux_logits


def torchvision():
    import torchvision.models  # pylint: disable=import-outside-toplevel
    return torchvision.models


def xception():
    import timm  # pylint: disable=import-outside-toplevel
    return timm.create_model("legacy_xception")


# how it is made, pixels of an image, classes
MODELS = {
    "alexnet": (lambda: torchvision().alexnet(dropout=0.0), 224, 1000),
    "vgg16": (lambda: torchvision().vgg16(dropout=0.0), 224, 1000),
    "inception3": (Inception, 299, 1000),
    "xception": (xception, 299, 1000),
    "resnet152-cifar": (lambda: ResNet(BLOCKS["resnet152"], 10, small=True), 32, 10),
    **{name: (lambda blocks=blocks: ResNet(blocks), 224, 1000) for name, blocks in BLOCKS.items()},
}


class Energy:
    """Joules of GPU 0 since the driver was loaded, by NVML's counter; None where there is none."""

    def __init__(self):
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self.device = ctypes.c_void_p()
            assert self.nvml.nvmlInit_v2() == 0
            uuid = "GPU-" + str(torch.cuda.get_device_properties(0).uuid)
            assert self.nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.device)) == 0
        except (OSError, AssertionError):
            self.nvml = None

    def joules(self):
        mj = ctypes.c_ulonglong()
        if not self.nvml or self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(mj)):
            return None
        return mj.value / 1e3


def loaded(args, size):
    """Endless batches of the files of --data."""
    from torchvision import datasets, transforms  # pylint: disable=import-outside-toplevel
    change = transforms.Compose([transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.PILToTensor()])
    loader = torch.utils.data.DataLoader(datasets.ImageFolder(args.data, change), args.batch, shuffle=True, num_workers=args.workers,
                                         pin_memory=True, drop_last=True, persistent_workers=True)
    mean, deviation = (torch.tensor(v, device=WHERE).view(3, 1, 1) * 255 for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    while True:
        for x, target in loader:
            x = x.to(WHERE, memory_format=torch.channels_last, non_blocking=True)
            yield (x - mean) / deviation, target.to(WHERE, non_blocking=True)


def random_ones(args, size, classes):
    """One batch again and again."""
    x = torch.randn(args.batch, 3, size, size, device=WHERE).to(memory_format=torch.channels_last)
    return itertools.repeat((x, torch.randint(classes, (args.batch,), device=WHERE)))


def steps_of(args):
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.manual_seed(1)
    make, size, classes = MODELS[args.model]
    model = make().cuda().to(memory_format=torch.channels_last)
    run = model if args.no_compile else torch.compile(model, **({"mode": args.mode} if args.mode else {}))
    batches = loaded(args, size) if args.data else random_ones(args, size, classes)
    half = args.precision == "fp16"
    update = torch.optim.AdamW(model.parameters(), lr=3e-5 if half else 3e-4, weight_decay=0.1, fused=True)
    rate = torch.optim.lr_scheduler.LambdaLR(update, lambda i: min(1, (i + 1) / 20)) if half else None
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    entropy = nn.CrossEntropyLoss()

    def loss_of(logits, target):
        if isinstance(logits, tuple):
            return entropy(logits[0], target) + 0.4 * entropy(logits[1], target)
        return entropy(logits, target)

    def step():
        x, target = next(batches)
        update.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16 if half else torch.bfloat16,
                            enabled=args.precision in ("bf16", "fp16")):
            loss = loss_of(run(x), target)
        scaler.scale(loss).backward()
        scaler.step(update)
        scaler.update()
        if rate and rate.last_epoch < 20:
            rate.step()
        return loss

    return step


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="resnet50", choices=MODELS)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--precision", default="bf16", choices=["bf16", "fp16", "tf32", "f32"])
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--mode")
    p.add_argument("--data", help="a folder of pictures in place of random images")
    p.add_argument("--workers", type=int, default=8, help="processes that read it (default: 8)")
    args = p.parse_args()
    start, step, energy = time.time(), steps_of(args), Energy()
    for _ in range(6):
        loss = step()
    first = float(loss)
    torch.cuda.empty_cache()  # what the first steps took for trials of algorithms
    warm = time.time() - start
    torch.cuda.reset_peak_memory_stats()
    for _ in range(5 + (2 * args.workers if args.data else 0)):  # what the workers prepared meanwhile, two batches each
        loss = step()
    torch.cuda.synchronize()
    rates, before, began = [], energy.joules(), time.time()
    while time.time() - began < args.seconds:
        n, t = 0, time.time()
        while time.time() - t < 1:
            for _ in range(5):
                loss = step()
            torch.cuda.synchronize()
            n += 5
        rates.append(n * args.batch / (time.time() - t))
    seconds, after = time.time() - began, energy.joules()
    if not math.isfinite(float(loss)):
        sys.exit(f"the loss is {float(loss)}: neither rate nor power of such a run counts")
    free, total = torch.cuda.mem_get_info()
    items = sum(rates) * seconds / len(rates)
    print(json.dumps({
        "peer": f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}", "model": args.model,
        "batch": args.batch, "precision": args.precision, "compiled": not args.no_compile,
        "until_step_6_s": round(warm, 1), "image_per_s": statistics.median(rates),
        "least": min(rates), "most": max(rates),
        "watts": None if before is None else (after - before) / seconds,
        "image_per_J": None if before is None else items / (after - before),
        "loss_6": first, "loss_last": float(loss), "peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(), "taken_bytes": total - free}))


if __name__ == "__main__":
    main()
