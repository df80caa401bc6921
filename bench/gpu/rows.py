#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures joulemark and PyTorch on one card in one call, row by row, for the table of docs/speed.md on GPUs.

    rows.py FOLDER [ROW...] [--seconds 3]

All PyTorch programs compile at the same time, while the command of --meanwhile runs; each then waits for its row (turn.py).
The first steps of a ResNet choose algorithms by timing, which takes half a minute; as many programs as find the time take
them while others still compile, one at a time, after that command.
A row is the runs of joulemark, PyTorch, joulemark and joulemark --fast in this order, with nothing else on the card. Rows
of 8 G parameters need the whole memory of a GPU, so name them last: their programs start when it is their turn, and find
the compiled code in PyTorch's cache; joulemark's second run is omitted there, because its start takes longer than the run.
Calls for two cards of one machine (CUDA_VISIBLE_DEVICES) wait for each other with --after.
FOLDER gets the records, what PyTorch printed, and rows.json, which `bench/table.py --gpu-rows` puts into docs/speed_gpu.json.
JM_BIN names the program, JM_BACKENDS its plug-ins.
"""
import argparse
import atexit
import datetime
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
LLAMA = "--layers 16 --hidden 2048 --heads 32 --kv-heads 8 --ffn 8192 --vocab 128256 --context 2048 --theta 500000"
TORCH_LLAMA = "layers=16 hidden=2048 heads=32 kv-heads=8 ffn=8192 vocab=128256 context=2048 theta=500000"
TORCH_8B = "layers=32 hidden=4096 heads=32 kv-heads=8 ffn=14336 vocab=128256 context=2048 theta=500000 true=1"
TORCH_800M = "layers=16 hidden=2048 heads=8 ffn=8192 vocab=50304 context=2048 rotary=1"


def resnet(name, precision, aim, more="", graphs=1):
    return {"workload": name, "batch": "256", "precision": precision, "unit": "image", "aim": aim,
            "own": f"train --model {name} --batch 256",
            "peer": f"resnet_torch.py --model {name} --batch 256 --precision {precision} --seconds SECONDS{more}", "warms": True,
            "graphs": graphs}


def text(name, batch, seq, precision, aim, own, peer, **more):
    return {"workload": name, "batch": f"{batch} x {seq}", "precision": precision, "unit": "token", "aim": aim,
            "own": f"train --model {own} --seq {seq}", "peer": peer and f"train_torch.py {peer}", **more}


ROWS = {
    "resnet50-fp16": resnet("resnet50", "fp16", 1.25),
    "resnet50-bf16": resnet("resnet50", "bf16", 1.12),
    "resnet50-tf32": resnet("resnet50", "tf32", 1.2),
    "resnet152": resnet("resnet152", "bf16", 1.12, " --blocks", 10),
    "vit-l16": {"workload": "vit-l16", "batch": "128", "precision": "bf16", "unit": "image", "aim": 1.15,
                "own": "train --model vit-l16 --batch 128", "peer": "train_torch.py vit-l16 128 0 SECONDS attention=flash"},
    "gpt-117m": text("gpt-117m", 32, 1024, "bf16", 1.15, "gpt-117m --batch 32", "gpt 32 1024 SECONDS attention=cudnn"),
    "gpt-800m": text("gpt-800m", 8, 2048, "bf16", 1.15, "gpt-800m --batch 8", f"gpt 8 2048 SECONDS attention=cudnn {TORCH_800M}"),
    "llama": text("llama", 8, 2048, "bf16", 1.12, f"llama {LLAMA} --batch 8", f"llama 8 2048 SECONDS attention=cudnn {TORCH_LLAMA}"),
    "gpt-800m-fp8": text("gpt-800m", 8, 2048, "fp8", None, "gpt-800m --batch 8", ""),
    "llama-fp8": text("llama", 8, 2048, "fp8", None, f"llama {LLAMA} --batch 8", ""),
    "gemm": {"workload": "gemm", "batch": "8192 x 8192 x 8192", "precision": "bf16", "unit": "product", "aim": 1.0,
             "own": "gemm --m 8192 --n 8192 --k 8192", "peer": "gemm_torch.py 8192 SECONDS", "compiles": False},
    "llama3-8b": text("llama3-8b", 1, 2048, "bf16-true", 1.1, "llama3-8b --lr 1e-4 --batch 1",
                      f"llama 1 2048 SECONDS attention=cudnn {TORCH_8B}", short="batch 1", alone=True, once=True),
    "llama3-8b-4": text("llama3-8b", 4, 2048, "bf16-true", 1.1, "llama3-8b --lr 1e-4 --batch 4",
                        f"llama 4 2048 SECONDS attention=cudnn {TORCH_8B}", short="batch 4", alone=True, once=True),
    "llama3-8b-max": text("llama3-8b", 3, 2048, "bf16-true", 1.2, "llama3-8b --lr 1e-4 --batch max",
                          f"llama 3 2048 SECONDS attention=cudnn {TORCH_8B}", short="largest batch", alone=True, largest=True,
                          once=True),
    "llama3-8b-fp8": text("llama3-8b", 0, 2048, "fp8-true", None, "llama3-8b --lr 1e-4 --batch max", "", short="largest batch",
                          largest=True, once=True),
}


def words_of(row, seconds):
    script, *words = row["peer"].replace("SECONDS", str(seconds)).split()
    return [sys.executable, str(HERE / "turn.py"), str(HERE / script), *words]


START_LIMIT = 150  # seconds beside the windows, for programs whose compiled code is in the cache


def waits_of(turn):
    return turn.with_name(turn.name + ".waits")


class Peer:
    """A PyTorch program, from its start to the line of JSON that it prints."""

    def __init__(self, folder, name, words, waits=True, row=None):
        row = row or {}
        self.name, self.turn, self.output = name, folder / f"{name}.turn", folder / f"{name}.torch.json"
        self.errors, self.warm = folder / f"{name}.torch.txt", folder / f"{name}.warm" if row.get("warms") else None
        self.waits = waits
        for old in (f for f in (self.turn, self.warm) if f):
            old.unlink(missing_ok=True)
            waits_of(old).unlink(missing_ok=True)
        more = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        if waits:
            more = {"TURN": str(self.turn), "TURN_GRAPHS": str(row.get("graphs", 1))} | ({"TURN_WARM": str(self.warm)} if self.warm else {})
        with self.output.open("w") as out, self.errors.open("w") as err:
            self.process = subprocess.Popen(words, stdout=out, stderr=err, env={**os.environ, **more})
        atexit.register(self.end)

    def is_compiled(self):
        waits = waits_of(self.turn).exists() or self.warm and waits_of(self.warm).exists()
        return self.waits and waits or self.process.poll() is not None

    def is_cold(self):
        """It has compiled, and its first steps are still to come."""
        return self.warm and waits_of(self.turn).exists() and not self.turn.exists() and self.process.poll() is None

    def is_warming(self):
        return self.warm and self.turn.exists() and not waits_of(self.warm).exists() and self.process.poll() is None

    def measure(self, seconds):
        """Its figures; None where it failed. seconds: the length of its windows together; the rest is for its start."""
        for turn in (f for f in (self.turn, self.warm) if f):
            turn.touch()
        try:
            self.process.wait(START_LIMIT + 2 * seconds)
            return peer_figures(json.loads(self.output.read_text().strip().splitlines()[-1]))
        except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
            print(f"{self.name}: PyTorch gave no figures: {error}; {self.errors.read_text()[-300:]}", flush=True)
            return None
        finally:
            self.end()

    def end(self):
        self.process.kill()
        self.process.wait()


def peer_figures(found):
    """Of what the scripts of bench/gpu print: rates of items or TFLOP/s, of the median, slowest and fastest window."""
    if "items_s" in found:
        items = found["items_s"] * found["step_s"]
        rates = found["items_s"], items / found["most_s"], items / found["least_s"]
    elif "linear" in found:
        found = found["linear"]
        rates = found["tflops"], found["least"], found["most"]
    else:
        rates = found["image_per_s"], found["least"], found["most"]
    return {**dict(zip(("rate", "least", "most"), rates)), "watts": found["watts"],
            "peak_bytes": found.get("bytes") or found.get("peak_bytes"), "reserved_bytes": found.get("reserved_bytes")}


def own_figures(record):
    rate, scale = record["throughput"], 1.0
    if record["unit"] == "product":
        scale = record["flops_model_per_item"] / 1e12
    plan = record.get("plan") or {}
    joules = record["total"]["joules_measured"]
    return {"rate": rate * scale, "watts": None if joules is None else joules * rate / record["items"],
            "peak_bytes": plan.get("peak_bytes"), "gradients": plan.get("gradients"),
            "loss": record.get("loss_last"), "verified": record["verified"]}


def own(given, name, row, run):
    """The record of one run of joulemark, `1`, `2` or `fast`; None where it failed."""
    path = given.folder / f"{name}.{run}.json"
    path.unlink(missing_ok=True)
    words = [os.environ.get("JM_BIN", "build/joulemark"), "run", *row["own"].split(), *given.own.split(),
             "--precision", row["precision"], "--device", "cuda:0", "--warmup", "1s", "--seconds", str(given.seconds), "--json", str(path)]
    try:
        with path.with_suffix(".txt").open("w") as said:
            subprocess.run(words + ["--fast"] * (run == "fast"), stdout=said, stderr=said, timeout=120 + 4 * given.seconds, check=False)
        record = json.loads(path.read_text())
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"{name}: joulemark left no record: {error}; {path.with_suffix('.txt').read_text()[-300:]}", flush=True)
        return None
    if record["status"] != "ok":
        print(f"{name}: {record['reason']}", flush=True)
        return None
    show(given, f"{name} {run}", own_figures(record))
    return record


def show(given, name, figures):
    watts, peak = figures["watts"], figures["peak_bytes"]
    energy = f"{watts:6.1f} W {figures['rate'] / watts:10.4f}/J" if watts else "W unknown, /J unknown"
    memory = f"{peak / 1e9:6.2f} GB" if peak else "GB unknown"
    windows = f"  windows {figures['least']:,.1f}..{figures['most']:,.1f}/s" if "least" in figures else ""
    print(f"{time.time() - given.begun:5.0f} s  {name:24} {figures['rate']:12,.1f}/s {energy}  {memory}{windows}"
          f"{'' if figures.get('verified', True) else '  WRONG RESULT'}", flush=True)


def describe(row, record, theirs, options=""):
    """What the page says of a row beside its figures; options: those that were added to the row's own."""
    kept = {key: row[key] for key in ("workload", "batch", "precision", "unit", "aim", "short") if row.get(key)}
    if row.get("largest"):
        both = f" beside {row['batch']}, the largest of each" if theirs else ", the largest"
        kept["batch"] = f"{record['plan']['batch']} x 2048{both}"
    if options:
        kept["note"] = f", `{options}`"
    return kept | {"gpu": re.search(r"NVIDIA (\S+)", record["ran_on"]["name"]).group(1), "uuid": record["ran_on"]["uuid"],
                   "date": datetime.date.today().isoformat(), "parameters": (record.get("plan") or {}).get("parameters")}


def measure(given, name, row, peer):
    """One row; None without a run of joulemark. peer() returns PyTorch's program, or None where the row has none."""
    first = own(given, name, row, "1")
    program = peer()
    theirs = program and program.measure(given.seconds)
    if theirs:
        show(given, f"{name} PyTorch", theirs)
    runs = [r for r in (first, None if row.get("once") else own(given, name, row, "2")) if r]
    fast = None if given.no_fast else own(given, name, row, "fast")
    if not runs:
        return None
    found = {"joulemark": [own_figures(r) for r in runs], "fast": [own_figures(fast)] if fast else [], "pytorch": theirs}
    return describe(row, runs[0], theirs, given.own) | {key: value for key, value in found.items() if value}


def start(given, names):
    """Starts the PyTorch programs; returns those that wait for their row, and those that only fill the cache."""
    waiting, caching = {}, []
    for name in names:
        row = ROWS[name]
        if row.get("alone"):  # two layers compile the same code as all; the program is ended before its first step
            words = [word.replace("layers=32", "layers=2") for word in words_of(row, 1)]
            caching.append(Peer(given.folder, f"{name}.two-layers", words))
        elif row.get("compiles", row["peer"]):
            waiting[name] = Peer(given.folder, name, words_of(row, given.seconds), row=row)
    return waiting, caching


def is_other_ready(given):
    return not given.after or given.after.exists()


def compile_step(given, peers, meanwhile):
    """One look at the programs: whether all have compiled, here and in the other call, and none takes its first steps."""
    compiled = all(p.is_compiled() for p in peers) and (not meanwhile or meanwhile.poll() is not None)
    if compiled:
        (given.folder / "compiled").touch()
    done = compiled and is_other_ready(given)
    if any(p.is_warming() for p in peers):
        return False
    cold = [p for p in peers if p.is_cold()]
    if cold and not done and (not meanwhile or meanwhile.poll() is not None):
        cold[0].turn.touch()
    return done


def compile_all(given, names):
    """PyTorch's programs when all have compiled and nothing else runs; one that takes too long is ended and has no figures."""
    waiting, caching = start(given, names)
    peers = [*waiting.values(), *caching]
    meanwhile = given.meanwhile and subprocess.Popen(["bash", "-c", given.meanwhile])
    limit = time.time() + given.compile_limit
    while not compile_step(given, peers, meanwhile) and time.time() < limit:
        time.sleep(0.1)
    for peer in peers:
        if not peer.is_compiled():
            print(f"{peer.name}: PyTorch has not compiled within {given.compile_limit} s", flush=True)
        if peer in caching or not peer.is_compiled():
            peer.end()
    if meanwhile:
        meanwhile.wait()
    (given.folder / "compiled").touch()
    warm = sum(1 for p in peers if p.warm and waits_of(p.warm).exists())
    print(f"{time.time() - given.begun:5.0f} s  compiled: {' '.join(waiting)}; first steps taken: {warm}", flush=True)
    while not is_other_ready(given) or any(p.is_warming() for p in waiting.values()):
        time.sleep(0.1)
    return waiting


def peer_of(given, name, waiting):
    row = ROWS[name]
    if name in waiting or not row["peer"]:
        return waiting.get(name)
    return Peer(given.folder, name, words_of(row, given.seconds), waits=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER",
                        help="gets the records, what PyTorch printed, and rows.json")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all where none is named: " + ", ".join(ROWS))
    parser.add_argument("--seconds", type=int, default=3, help="length of a run, and of PyTorch's windows together (default: 3)")
    parser.add_argument("--own", default="", metavar="OPTIONS", help="further options of joulemark, such as --own=--keep-all")
    parser.add_argument("--no-fast", action="store_true", help="omit the runs of joulemark --fast")
    parser.add_argument("--meanwhile", help="a shell command that runs while PyTorch compiles")
    parser.add_argument("--after", type=pathlib.Path, metavar="FILE",
                        help="begin with the first row when FILE exists: FOLDER/compiled of another call")
    parser.add_argument("--compile-limit", type=int, default=200, metavar="SECONDS",
                        help="a program of PyTorch that has not compiled by then is ended (default: 200)")
    given = parser.parse_args()
    unknown = [name for name in given.rows if name not in ROWS]
    if unknown:
        parser.error(f"There is no row {', '.join(unknown)}; rows are {', '.join(ROWS)}.")
    names = given.rows or list(ROWS)
    given.folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the programs, too
    given.begun, found = time.time(), []
    for old in ("compiled", "rows.json"):
        (given.folder / old).unlink(missing_ok=True)
    waiting = compile_all(given, names)
    for name in names:
        done = measure(given, name, ROWS[name], functools.partial(peer_of, given, name, waiting))
        found += [done] if done else []
        (given.folder / "rows.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
