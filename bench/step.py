# SPDX-License-Identifier: Apache-2.0
"""A training step of each kind of network on two cores: the cpu backend and PyTorch alternately.

    ninja -C build && /usr/bin/python3 bench/step.py [--models resnet50,...] [--precision f32,bf16]
                                                     [--rounds 5] [--no-peer] [--drawn N [--seed S]]

Prints medians with their spread; the share of a step that its kernels take when each runs alone, in the
same run; the rate of a large matrix product of oneDNN between the steps; the ratio to PyTorch
(Debian's python3-torch with libopenblas0-pthread) at the same shapes, threads, update (AdamW) and precision
(bf16 by torch.autocast; images channels_last); and the peak memory of both processes. Needs a machine
without other load. bench/table.py makes the table of the documentation from the same figures.

OpenBLAS 0.3.21 treats newer processors as a Prescott and is then four times slower; PyTorch therefore gets the
processor's family (OPENBLAS_CORETYPE).
"""
import argparse
import collections
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import drawn_rows

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("JM_BUILD", HERE.parent / "build"))
THREADS = 2
PRODUCTS = 3  # of oneDNN in each round
# name: our model, batch, sequence, dimensions; items of a step and their name; the ratio aimed at
SMALL_LLAMA = "layers=6 hidden=768 heads=12 kv-heads=4 ffn=2048 vocab=32000 context=256 theta=10000"
TINY_GPT = "layers=2 hidden=64 heads=4 ffn=256 vocab=256 context=48"
# CLIP L/14, frozen, with a Llama so small that 99.9 % of the FLOPs are CLIP's forward pass
SMALL_TALK = "layers=1 hidden=64 heads=1 kv-heads=1 ffn=128 vocab=256 context=592 theta=10000"
CASES = {
    "resnet18": ("resnet18", 32, 0, "", 32, "image", 1.1),
    "resnet50": ("resnet50", 32, 0, "", 32, "image", 1.25),
    "vit-l16": ("vit-l16", 4, 0, "", 4, "image", 1.4),
    "gpt-117m": ("gpt-117m", 4, 256, "", 1024, "token", 1.4),
    "llama-small": ("llama2-7b", 4, 256, SMALL_LLAMA, 1024, "token", 1.4),
    "alexnet": ("alexnet", 32, 0, "", 32, "image", 1.5),
    "vgg16": ("vgg16", 4, 0, "", 4, "image", 1.5),
    "inception3": ("inception3", 4, 0, "", 4, "image", 1.5),
    "xception": ("xception", 4, 0, "", 4, "image", 1.5),
    "resnet152-cifar": ("resnet152", 8, 0, "stem=cifar image=32 classes=10", 8, "image", 1.5),
    "unet": ("unet-sd2", 4, 0, "hidden=128 latent=32", 4, "image", 1.8),
    "fno-rbc2d": ("fno-rbc2d", 4, 0, "", 4, "sample", 1.8),
    "fno-rbc3d": ("fno-rbc3d", 1, 0, "", 1, "sample", 1.8),
    "clip": ("llava-7b", 2, 592, SMALL_TALK, 2, "image", 1.5),
    "gpt-tiny": ("gpt-117m", 2, 32, TINY_GPT, 64, "token", None),  # tries this program out in seconds
}
F32_ONLY = ("unet", "fno-rbc2d", "fno-rbc3d")  # PyTorch 1.13 has neither group norms under autocast nor transforms in bf16
SHOWN = [name for name in CASES if name not in ("gpt-tiny", "clip", *F32_ONLY)]


def drawn(seed, place):
    """A case that chance drew (drawn_rows.py), and the name that step_torch.py knows it by."""
    row = drawn_rows.draw(seed, place, "cpu")[-1]
    if "model" in row:
        return (row["model"], row["batch"], 0, "", row["batch"], "image", None), row["model"]
    model = {"gpt": "gpt-117m", "llama": "llama2-7b"}[row["family"]]
    dims = " ".join(f"{key}={value}" for key, value in row["dims"].items())
    return (model, row["batch"], row["seq"], dims, row["batch"] * row["seq"], "token", None), row["family"]


def case_of(name):
    """The case, and the name that step_torch.py knows it by. None where there is no such case."""
    found = re.fullmatch(r"drawn-(\d+)-([1-9]\d?)", name)
    return drawn(int(found[1]), int(found[2])) if found else (CASES[name], name) if name in CASES else None


def blas_core():
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return "SkylakeX" if "avx512dq" in flags else "Haswell" if "avx2" in flags else None


class Runner:
    """A program that says a line when it is ready, then answers each line with seconds and more."""

    def __init__(self, *command):
        env = dict(os.environ, OMP_NUM_THREADS=str(THREADS), OPENBLAS_NUM_THREADS=str(THREADS),
                   JM_BACKENDS=str(BUILD / "backends"))
        if blas_core():
            env.setdefault("OPENBLAS_CORETYPE", blas_core())
        start = time.monotonic()
        try:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, env=env, text=True, bufsize=1)
        except FileNotFoundError:
            sys.exit(f"{command[0]} is not there; build it first (ninja -C {BUILD}), with oneDNN.")
        self.hello = self.line().split()
        self.start = time.monotonic() - start
        self.answers = []

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            sys.exit(f"{self.process.args[0]} has died")
        return text

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        return self.line()

    def step(self, count=True):
        answer = [float(word) for word in self.ask("step").split()]
        if count:
            self.answers.append(answer)

    def seconds(self):
        return [answer[0] for answer in self.answers]

    def kernels(self):
        """Median seconds and FLOPs of each group of nodes, run alone, summed by kind of node."""
        kinds = collections.defaultdict(lambda: [0, 0.0, 0.0])
        text = self.ask("kernels")
        while text.strip():
            name, *row = text.split()
            kind = kinds[name.split(":")[0]]
            for i, value in enumerate((1, *row)):
                kind[i] += float(value)
            text = self.line()
        return [{"name": name, "nodes": int(count), "seconds": seconds, "flops": flops}
                for name, (count, seconds, flops) in sorted(kinds.items(), key=lambda k: -k[1][1])]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measured(runner):
    """What steps of a process took and held. Seconds until it was ready for the first step."""
    return {"seconds": runner.seconds(), "start_s": runner.start, "rss_bytes": int(runner.answers[-1][2])}


def measure(case, precision, rounds, with_peer):
    """The raw figures of one case: seconds, bytes, FLOPs."""
    (model, batch, seq, dims, items, unit, aim), peer_name = case_of(case)
    shape = [precision, batch, seq, THREADS, *dims.split()]
    ours = Runner(BUILD / "bench" / "step", model, "cpu", *shape)
    peer = Runner(sys.executable, HERE / "step_torch.py", peer_name, *shape) if with_peer else None
    peak = Runner(BUILD / "bench" / "onednn_peak", precision)
    for i in range(rounds + 1):  # the first one warms up
        for runner in filter(None, (ours, peer, *[peak] * PRODUCTS)):
            runner.step(i > 0)
    found = {
        "name": case, "model": model, "precision": precision, "batch": batch, "seq": seq, "dims": dims,
        "items": items, "unit": unit, "aim": aim, "rounds": rounds,
        "joulemark": {**measured(ours), "planned_bytes": int(ours.hello[1])},
        "pytorch": {**measured(peer), "version": peer.hello[1]} if peer else None,
        "peak": {"library": " ".join(peak.hello[:2]), "size": int(peak.hello[2]),
                 "seconds": peak.seconds(), "flops": peak.answers[0][1]},
        "kernels": ours.kernels(),
    }
    for runner in filter(None, (ours, peer, peak)):
        runner.close()
    return found


def figures(found):
    """What is made of the raw figures; None where there was no peer."""
    own, pytorch = found["joulemark"], found["pytorch"]
    step = statistics.median(own["seconds"])
    alone = sum(kind["seconds"] for kind in found["kernels"])
    flops = sum(kind["flops"] for kind in found["kernels"])
    peak = found["peak"]["flops"] / min(found["peak"]["seconds"])
    out = {"step_s": step, "items_per_s": found["items"] / step, "kernel_s": alone,
           "kernel_share": alone / step, "kernel_flops_per_s": flops / alone,
           "peak_flops_per_s": peak, "peak_share": flops / alone / peak,
           "ratio": None, "ratio_low": None, "ratio_high": None, "rss_ratio": None}
    if pytorch:
        by_round = [b / a for a, b in zip(own["seconds"], pytorch["seconds"])]
        out |= {"ratio": statistics.median(pytorch["seconds"]) / step, "ratio_low": min(by_round),
                "ratio_high": max(by_round), "rss_ratio": own["rss_bytes"] / pytorch["rss_bytes"]}
    return out


def say(name, found, one):
    seconds = one["seconds"]
    middle = statistics.median(seconds)
    print(f"  {name:12} {middle * 1e3:8.0f} ms   {found['items'] / middle:7.1f} {found['unit']}s/s"
          f"   (fastest {min(seconds) * 1e3:.0f}, slowest {max(seconds) * 1e3:.0f} ms,"
          f" {len(seconds)} steps)")
    print(f"               {one['start_s']:8.2f} s until the first step, at most"
          f" {one['rss_bytes'] / 1e6:.0f} MB resident")


def show(found):
    f, pytorch = figures(found), found["pytorch"]
    print(f"{found['name']}, {found['precision']}: batch {found['batch']}, {THREADS} threads")
    say("joulemark", found, found["joulemark"])
    print(f"               {found['joulemark']['planned_bytes'] / 1e6:8.0f} MB planned")
    print(f"  its kernels alone  {f['kernel_s'] * 1e3:8.0f} ms   = {f['kernel_share']:.1%} of the step"
          f" (aim 90 %), {f['kernel_flops_per_s'] / 1e9:.0f} GFLOP/s = {f['peak_share']:.0%} of the"
          f" {f['peak_flops_per_s'] / 1e9:.0f} of a matrix product by {found['peak']['library']}")
    for kind in found["kernels"]:
        rate = f"{kind['flops'] / kind['seconds'] / 1e9:7.0f} GFLOP/s" if kind["flops"] else ""
        print(f"    {kind['name']:18} x{kind['nodes']:<3} {kind['seconds'] * 1e3:8.1f} ms {rate}")
    if pytorch:
        say("PyTorch " + pytorch["version"][:4], found, pytorch)
        print(f"  ratio to PyTorch   {f['ratio']:.2f} ({f['ratio_low']:.2f} to {f['ratio_high']:.2f} by"
              f" round; aim {found['aim']}), of its resident memory {f['rss_ratio']:.2f} (aim 0.7)")
    sys.stdout.flush()


def words_of(known, is_known=None):
    """A list of some of these words, for argparse."""
    def split(text):
        words = text.split(",")
        for word in words:
            if word not in known and not (is_known and is_known(word)):
                raise argparse.ArgumentTypeError(f"there is no '{word}'; there are {', '.join(known)}")
        return words
    return split


def count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--models", type=words_of(list(CASES), case_of), default=SHOWN,
                        help="of " + ", ".join(CASES) + "; drawn-SEED-I is one that chance drew")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="also N cases drawn by chance")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100000, help="of the drawn cases; else the time of day draws one")
    parser.add_argument("--precision", type=words_of(["f32", "bf16"]), default=["f32", "bf16"])
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--no-peer", action="store_true")
    return parser


def measure_all(given):
    """All cases that the command line names, shown as they come."""
    for case in [*given.models, *(f"drawn-{given.seed}-{i + 1}" for i in range(given.drawn))]:
        for precision in given.precision:
            found = measure(case, precision, given.rounds, not given.no_peer)
            show(found)
            yield found


def main():
    for _ in measure_all(arguments(__doc__.split("\n", maxsplit=1)[0]).parse_args()):
        pass


if __name__ == "__main__":
    main()
