# SPDX-License-Identifier: Apache-2.0
"""A training step of each kind of network on two cores: our cpu backend and PyTorch in turns.

    ninja -C build && /usr/bin/python3 bench/step.py [--models resnet50,...] [--precision f32,bf16]
                                                     [--rounds 5] [--no-peer]

Prints medians with their spread; the share of a step that its kernels take when each runs alone, in the
same run; and the ratio to PyTorch (Debian's python3-torch with libopenblas0-pthread) at the same shapes,
threads, update (AdamW) and precision (bf16 by torch.autocast; images channels_last); and memory: our
planned peak beside the most that PyTorch's process ever held. Wants a machine that does nothing else.

OpenBLAS 0.3.21 takes processors newer than itself for a Prescott and is then four times slower; the peer is
told the processor's family (OPENBLAS_CORETYPE), so that it runs as fast as it can.
"""
import argparse
import collections
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("JM_BUILD", HERE.parent / "build"))
THREADS = "2"
# name: our model, batch, sequence, dimensions; items of a step and their name; the ratio aimed at
SMALL_LLAMA = "layers=6 hidden=768 heads=12 kv-heads=4 ffn=2048 vocab=32000 context=256 theta=10000"
CASES = {
    "resnet18": ("resnet18", 32, 0, "", 32, "images", 1.1),
    "resnet50": ("resnet50", 32, 0, "", 32, "images", 1.25),
    "vit-l16": ("vit-l16", 4, 0, "", 4, "images", 1.4),
    "gpt-117m": ("gpt-117m", 4, 256, "", 1024, "tokens", 1.4),
    "llama-small": ("llama2-7b", 4, 256, SMALL_LLAMA, 1024, "tokens", 1.4),
}


def blas_core():
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return "SkylakeX" if "avx512dq" in flags else "Haswell" if "avx2" in flags else None


class Runner:
    """A program that answers each line with a step's seconds and loss."""

    def __init__(self, command):
        env = dict(os.environ, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2",
                   JM_BACKENDS=str(BUILD / "backends"))
        if blas_core():
            env.setdefault("OPENBLAS_CORETYPE", blas_core())
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=env, text=True, bufsize=1)
        self.hello = self.line().split()
        self.seconds = []
        self.memory = 0

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            sys.exit(f"{self.process.args[0]} has died")
        return text

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        return self.line()

    def step(self, count=True):
        answer = self.ask("step").split()
        if count:
            self.seconds.append(float(answer[0]))
        self.memory = int(answer[2]) if len(answer) > 2 else 0

    def kernels(self):
        """Median seconds and FLOPs of each group of nodes, run alone."""
        rows = []
        text = self.ask("kernels")
        while text.strip():
            name, seconds, flops = text.split()
            rows.append((name, float(seconds), float(flops)))
            text = self.line()
        return rows

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def say(name, seconds, items, unit):
    middle = statistics.median(seconds)
    print(f"  {name:12} {middle * 1e3:8.0f} ms   {items / middle:7.1f} {unit}/s"
          f"   (fastest {min(seconds) * 1e3:.0f}, slowest {max(seconds) * 1e3:.0f} ms,"
          f" {len(seconds)} steps)")
    return middle


def table(rows):
    """Sums by kind of node, the slowest first."""
    kinds = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for name, seconds, flops in rows:
        kind = kinds[name.split(":")[0]]
        kind[0] += 1
        kind[1] += seconds
        kind[2] += flops
    for name, (count, seconds, flops) in sorted(kinds.items(), key=lambda k: -k[1][1]):
        rate = f"{flops / seconds / 1e9:7.0f} GFLOP/s" if flops else ""
        print(f"    {name:18} x{count:<3} {seconds * 1e3:8.1f} ms {rate}")


def bench(case, precision, rounds, with_peer):
    model, batch, seq, dims, items, unit, aim = CASES[case]
    shape = [precision, str(batch), str(seq), THREADS, *dims.split()]
    print(f"{case}, {precision}: batch {batch}, {THREADS} threads", flush=True)
    ours = Runner([str(BUILD / "bench" / "step"), model, "cpu", *shape])
    peer = Runner([sys.executable, str(HERE / "step_torch.py"), case, *shape]) if with_peer else None
    for i in range(rounds + 1):  # the first one warms up
        for runner in filter(None, (ours, peer)):
            runner.step(i > 0)
    rows = ours.kernels()
    middle = say("joulemark", ours.seconds, items, unit)
    memory = int(ours.hello[1])
    print(f"  start to first step {ours.hello[0]} s, memory {memory / 1e6:.0f} MB")
    alone = sum(row[1] for row in rows)
    print(f"  its kernels alone  {alone * 1e3:8.0f} ms   = {alone / middle:.1%} of the step (aim 90 %)")
    table(rows)
    ours.close()
    if peer:
        ratio = say("PyTorch " + peer.hello[1][:4], peer.seconds, items, unit) / middle
        print(f"  ratio to PyTorch   {ratio:.2f} (aim {aim})")
        print(f"  memory of PyTorch  {peer.memory / 1e6:.0f} MB, ours is"
              f" {memory / peer.memory:.2f} of it (aim 0.7)")
        peer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--precision", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true")
    given = parser.parse_args()
    for case in given.models.split(","):
        for precision in given.precision.split(","):
            bench(case, precision, given.rounds, not given.no_peer)


if __name__ == "__main__":
    main()
