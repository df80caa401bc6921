#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per second and joules per token of serving LLaMA 3 8B on one GPU, row by row, beside limits and aims.

    bench/gpu/serve.py joulemark [--out docs/speed_serving.json] [--seconds 60] [--again] [--rows ROW...] [--weights FOLDER] [--no-peer]
    bench/gpu/serve.py --table 'NVIDIA H200' [--out docs/speed_serving.json]

Random weights and tokens; rows that --out has, of whatever card, are not measured again without --again, which replaces those of the
same card. Prompts of the rows `ttft` arrive at random with pauses between them, so that each finds the GPU idle. `limit` is what an H100 80GB (700 W)
cannot exceed: the larger of bytes / 3.0 TB/s and FLOPs / 740 TFLOP/s (attention 500), with 15.0 GB of weights for a step and
128 KiB of keys and values for a token; in fp8, whose rows have a cache in 8 bits too, 1,400 TFLOP/s (attention 700), 8.0 GB and
64 KiB. `aim`: for tokens per second 1.1 times the best published figure (NVIDIA TensorRT-LLM 0.15, perf-overview.md; ML.ENERGY
leaderboard, Llama 3.1 8B, vLLM; gpt-fast), for joules per token 0.83 times.
`single` is followed by PyTorch with a static cache, compiled (serve_torch.py; aim: 1.10 times its rate). `paper` are the requests of the
paper on capped GPUs; `interactive` and `relaxed` offer a share of the rate of requests that `paper` had on the same card (in --out), and count it
if the 99th percentiles keep their bounds. `cache`: the share of the memory beside weights and arena that the pages of a run take.
`load`, which is measured only where --rows names it: seconds from the start of the program to the first token with weights from
files, written by this program to --weights (16 GB) before and so in the page cache.
"""
import argparse
import copy
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "kit"))
import llama_files  # pylint: disable=wrong-import-position
MODEL = "llama3-8b"
CONFIG = llama_files.config(4096, 14336, 32, 32, 8, 128256, 8192, rope_theta=500000.0)
REST_OF_NODE = 25  # watts that the paper adds for each GPU


class Row:
    def __init__(self, name, given, produced, running, limit, aim, key="throughput", joules=None, step=2048, arrival="closed",
                 rate=None, precision="bf16"):
        self.name, self.given, self.produced, self.running, self.precision = name, given, produced, running, precision
        self.limit, self.aim, self.key, self.joules, self.step, self.arrival, self.rate = limit, aim, key, joules, step, arrival, rate
        self.more, self.seconds = [], None

    def context(self):
        longest = sum(int(str(tokens).rpartition(":")[2]) for tokens in (self.given, self.produced))
        return str(-(-longest // 1024) * 1024)

    def command(self, joulemark, seconds, out):
        # the prompts of the first requests, and as many steps as an answer has tokens
        warmup = 8 if self.arrival != "closed" else self.produced + self.running * self.given // self.step
        return [joulemark, "run", "serve", "--model", MODEL, "--device", "cuda:0", "--precision", self.precision, "--arrival", self.arrival,
                *(["--rate", f"{self.rate:g}"] if self.rate else []), "--running", str(self.running), "--input-tokens", str(self.given), "--output-tokens", str(self.produced),
                "--context", self.context(), "--step-tokens", str(self.step), "--kv", "f8e4m3" if self.precision == "fp8" else "auto", "--warmup", str(warmup),
                "--seconds", str(min(seconds, self.seconds or seconds)), *self.more, f"--json={out}"]


def closed(running, step, limit, aim, joules):
    return Row(f"closed-{running}", 250, 395, running, limit, aim, joules=joules, step=step)


def special(name, given, produced, running, limit, aim, key, step, arrival, more=(), rate=None, seconds=None):
    """seconds: at most, where a longer run would not tell more."""
    row = Row(name, given, produced, running, limit, aim, key=key, step=step, arrival=arrival, rate=rate)
    row.more, row.seconds = list(more), seconds
    return row


def fp8(name, limit, aim, running=None, step=None):
    """The row of that name in fp8, where its limit and aim are known."""
    row = copy.copy(next(row for row in ROWS if row.name == name))
    row.name, row.limit, row.aim, row.joules, row.precision = f"{name}-fp8", limit, aim, None, "fp8"
    row.running, row.step = running or row.running, step or row.step
    return row


# As many requests as the cache of a card of 80 GB holds, on average (2048/128: 66 GB, 1000/1000 in fp8: 107 GB), and steps of a size that
# these fill: each token of an answer brings input/output rows of prompts.
ROWS = [
    Row("128/128", 128, 128, 1024, 25500, 17900),
    Row("128/2048", 128, 2048, 380, 15800, 11800, step=384),
    Row("500/2000", 500, 2000, 300, 12100, 9400, step=384),
    Row("1000/1000", 1000, 1000, 290, 12100, 8500, step=512),
    Row("2048/128", 2048, 128, 240, 2950, 2170, step=4096),
    Row("2048/2048", 2048, 2048, 140, 5920, 4810, step=256),
    Row("5000/500", 5000, 500, 83, 3460, 1990, step=1024),
    closed(8, 64, 1550, 1340, 0.378), closed(64, 128, 10200, 6450, 0.0985), closed(256, 384, 25600, 11700, 0.0636),
    closed(512, 768, 30500, 13000, 0.0583),
    Row("single", 256, 256, 1, 198, 182, step=256, arrival="single"),
    Row("ttft-1024", 1024, 2, 1, 0.0199, 0.023, key="ttft", step=1024, arrival="poisson", rate=2),
    Row("ttft-8192", 8190, 2, 1, 0.190, 0.215, key="ttft", step=8192, arrival="poisson", rate=0.5),
]
ROWS += [
    fp8("128/128", 46700, 31200, 2048, 4096), fp8("128/2048", 35400, 25000, 480, 512), fp8("500/2000", 27200, 19500, 408, 512),
    fp8("1000/1000", 27200, 16800, 1090, 2048), fp8("2048/128", 5460, 3850), fp8("2048/2048", 13300, 10300, 255, 512),
    fp8("5000/500", 7460, 3830, 186, 2048), fp8("single", 372, 300), fp8("ttft-1024", 0.0106, 0.014),
    special("paper", "1:1024", "1:256", 768, 10300, 7700, "throughput", 3072, "all", ["--requests", "2048"]),
    special("interactive", "1:1024", "1:256", 256, 1, 0.70, "offline", 1024, "poisson", ["--ttft", "500ms", "--tpot", "30ms"]),
    special("relaxed", "1:1024", "1:256", 512, 1, 0.90, "offline", 2048, "poisson", ["--ttft", "2s", "--tpot", "100ms"]),
    special("cache", 8000, 8, 512, 1, 0.92, "cache", 2048, "poisson", rate=2, seconds=4),  # long requests, so that no more pages fit
    special("load", 256, 2, 1, None, 10, "load", 256, "single", seconds=2),
]
PEER_AIM = 1.1


def gpu_of(record, name):
    """Joules of the GPU in that phase, and its seconds."""
    phase = next(p for p in record["phases"] if p["name"] == name)
    meters = [m for m in phase["meters"] if m["id"] == record["ran_on"]["meter"]]
    if not meters or meters[0]["joules"] is None:
        sys.exit("The GPU's energy is unknown.")
    return meters[0]["joules"], phase["end_s"] - phase["start_s"]


def make_weights(folder):
    """16 bits, as Hugging Face lays them out: matrices of one block of random numbers again and again. Complete where it exists."""
    if folder.exists():
        return
    new, at, header, shapes = folder.with_suffix(".new"), 0, {}, llama_files.shapes_of(CONFIG)
    new.mkdir(parents=True, exist_ok=True)
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at := at + 2 * int(numpy.prod(shape))]}
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    normal = numpy.random.default_rng(1).standard_normal(1 << 22, numpy.float32) * numpy.float32(0.02)
    block = (normal.view("<u4") >> 16).astype("<u2")
    with (new / "model.safetensors").open("wb") as f:
        f.write(len(words).to_bytes(8, "little") + words)
        for shape in shapes.values():
            left = int(numpy.prod(shape))
            while left:
                part = block[:left] if len(shape) > 1 else numpy.full(left, 0x3f80, "<u2")  # 1
                part.tofile(f)
                left -= len(part)
    (new / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    new.rename(folder)


def prepare(row, rows, options):
    """What a row needs beside the program: a rate, files."""
    if row.key == "offline":
        # of the card that was used last
        found = [one for one in rows if one["row"] == "paper" and one.get("requests_per_s")]
        if not found:
            sys.exit(f"{row.name}: the rate that it offers follows from the row `paper`; measure that first.")
        row.rate = row.aim * found[-1]["requests_per_s"]
    if row.key == "load":
        make_weights(options.weights)
        row.more = ["--from", str(options.weights)]


def measure(row, options):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "record.json")
        table = [f"--requests-csv={folder}/requests.csv"] if row.key == "load" else []
        begun = time.monotonic_ns()
        run = subprocess.run([*row.command(options.joulemark, options.seconds, out), *table], capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"{row.name}: {run.stdout[-600:]}{run.stderr[-600:]}")
        with open(out, encoding="utf-8") as f:
            record = json.load(f)
        if row.key == "load":
            return result(row, record, first_token_s(record, begun, f"{folder}/requests.csv"))
        return result(row, record, cache_share(row, record, options.joulemark) if row.key == "cache" else None)


def first_token_s(record, begun, table):
    """Since the program was started: until it asked for the first request, and what that one took."""
    with open(table, encoding="utf-8") as f:
        first = next(csv.DictReader(f))
    setup = next(p for p in record["phases"] if p["name"] == "setup")
    return (record["start_ns"] - begun) / 1e9 + setup["end_s"] + float(first["arrival_s"]) + float(first["ttft_s"])


def cache_share(row, record, joulemark):
    """Of the card's memory beside weights and arena, which the plan has."""
    words = ["describe", MODEL, "--serve", "--device", "cuda:0", "--precision", row.precision, "--running", str(row.running), "--step-tokens",
             str(row.step), "--context", row.context(), "--json", "-"]
    plan = json.loads(subprocess.run([joulemark, *words], check=True, stdout=subprocess.PIPE).stdout)
    memory = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", record["ran_on"]["uuid"]],
                            check=True, stdout=subprocess.PIPE, text=True).stdout
    pages = int(re.search(r"(\d+) pages of", record["detail"])[1])
    return pages * plan["page_bytes"] / ((int(memory) << 20) - plan["parameter_bytes"] - plan["arena_bytes"])


def peer(row, seconds):
    """PyTorch's figures beside those of a row of one stream; None where it has none."""
    words = [f"precision={row.precision}", f"prompt={row.given}", f"answer={row.produced}", f"seconds={seconds}"]
    run = subprocess.run([sys.executable, str(HERE / "serve_torch.py"), *words], capture_output=True, text=True, check=False)
    if run.returncode:
        print(f"{row.name}: PyTorch gave no figures: {run.stderr[-300:]}", flush=True)
        return None
    found = json.loads(run.stdout.strip().splitlines()[-1])
    return {key: found[key] for key in ("program", "tokens_s", "least", "most", "watts", "joules_per_token")}


def figure_of(row, record, found, rate):
    """And its unit. found: what the record alone does not tell."""
    serving = record["serving"]
    if row.key == "throughput":
        return rate, "tokens/s"
    if row.key == "ttft":
        return serving["ttft"]["p50"], "s"
    if row.key == "offline":
        return row.aim if serving["p99_in_bounds"] else 0.0, "of the offline rate"
    return found, "s from the start" if row.key == "load" else "of the memory left"


def requests_per_s(record):
    window = record["serving"].get("window")
    return window and window["requests_done"] / window["seconds"]


def result(row, record, found=None):
    serving = record["serving"]
    # requests that all arrive at once begin and end with steps that are not full, without a warm-up
    part = "window" if row.arrival == "all" else "steady"
    joules, span = gpu_of(record, part)
    tokens = serving["window"]["tokens_out"] if part == "window" else record["items"]
    figure, unit = figure_of(row, record, found, tokens / span)
    reached = figure <= row.aim if row.key in ("ttft", "load") else figure >= row.aim
    return {"row": row.name, "input_tokens": row.given, "output_tokens": row.produced, "running": row.running,
            "step_tokens": row.step, "arrival": row.arrival, "precision": row.precision,
            "cache": serving["cache_type"], "unit": unit, "rate": row.rate, "requests_per_s": requests_per_s(record),
            "limit": row.limit, "aim": row.aim, "figure": figure, "reached": reached,
            "joules_per_token": joules / tokens, "aim_joules_per_token": row.joules,
            "watts": joules / span, "seconds": span, "tokens": tokens, "ttft_p50_s": serving["ttft"]["p50"],
            "tpot_p50_s": serving["tpot"] and serving["tpot"]["p50"], "ttft_p99_s": serving["ttft"]["p99"],
            "tpot_p99_s": serving["tpot"] and serving["tpot"]["p99"], "preemptions": serving["preemptions"],
            "padding": serving["padding"], "device_idle": serving["device_idle"],
            "tokens_per_joule_of_node": tokens / (joules + REST_OF_NODE * span),
            "card": record["ran_on"]["name"].split(" GPU-")[0], "driver": record["provenance"]["drivers"].get("nvidia")}


def write(path, rows):
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(rows, f, indent=1)
        f.write("\n")
    os.replace(path + ".new", path)


def place(row):
    return [one.name for one in ROWS].index(row["row"])


def line(row):
    """Of the table of docs/speed_serving.md; bold: the aim is reached."""
    requests = "one at a time" if row["arrival"] == "single" else f"{row['running']:,}"
    figure, joules = f"{row['figure']:,.0f}", f"{row['joules_per_token']:#.3g}"
    figure = f"**{figure}**" if row["reached"] else figure
    if row["aim_joules_per_token"]:
        joules += f" ({row['aim_joules_per_token']:g})"
    return (f"| {row['input_tokens']}/{row['output_tokens']} | {row['precision']} | {requests} | {row['step_tokens']} | {row['limit']:,} | "
            f"{row['aim']:,} | {figure} | {1e3 * row['tpot_p50_s']:.1f} | {row['watts']:.0f} | {joules} | {row['seconds']:.0f} |")


def first_token(row):
    figure = f"{1e3 * row['figure']:.1f}"
    return (f"| {row['input_tokens']:,} | {row['precision']} | {1e3 * row['limit']:.1f} | {1e3 * row['aim']:.1f} | "
            f"{f'**{figure}**' if row['reached'] else figure} | {row['seconds']:.0f} |")


def other(row):
    figure = f"{row['figure']:.2f}"
    figure = f"**{figure}**" if row["reached"] else figure
    rate = f"{row['rate']:.1f}" if row["rate"] else "-"
    p99 = [f"{1e3 * row[key]:.0f}" if row["rate"] else "-" for key in ("ttft_p99_s", "tpot_p99_s")]
    return f"| {row['row']} | {row['unit']} | {row['aim']:g} | {figure} | {rate} | {' | '.join(p99)} | {row['seconds']:.0f} |"


def beside(row):
    theirs, ratio = row["pytorch"], row["figure"] / row["pytorch"]["tokens_s"]
    watts = [f"{watts:.0f}" if watts else "-" for watts in (row["watts"], theirs["watts"])]
    return (f"| {row['precision']} | {row['figure']:.1f} | {theirs['tokens_s']:.1f} ({theirs['least']:.1f} to {theirs['most']:.1f}) | "
            f"{f'**{ratio:.2f}**' if ratio >= PEER_AIM else f'{ratio:.2f}'} | {' / '.join(watts)} |")


def tables(rows, card):
    """Those of a card, in Markdown: tokens per second, the time of the first token, and others as far as there are rows."""
    rows = sorted((row for row in rows if row["card"] == card), key=place)
    served = [line(row) for row in rows if row["unit"] == "tokens/s"]
    first = [first_token(row) for row in rows if row["unit"] == "s"]
    others = [other(row) for row in rows if row["unit"] not in ("tokens/s", "s")]
    pairs = [beside(row) for row in rows if row.get("pytorch")]
    if others:
        others = ["", "| row | figure is | aim | figure | requests/s | TTFT p99, ms | TPOT p99, ms | window, s |",
                  "|---|---|--:|--:|--:|--:|--:|--:|", *others]
    if pairs:
        pairs = ["", f"| one stream | joulemark, tokens/s | PyTorch | ratio (aim {PEER_AIM}) | W, joulemark / PyTorch |", "|---|--:|--:|--:|--:|", *pairs]
    return "\n".join([
        "| input/output tokens | precision | running | step | limit, tokens/s | aim | tokens/s | TPOT p50, ms | W | J/token (aim) | window, s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", *served, "",
        "| prompt, tokens | precision | limit, ms | aim | first token, ms | window, s |", "|--:|---|--:|--:|--:|--:|", *first, *others, *pairs])


def show(row, new):
    idle = "" if new["device_idle"] is None else f", device idle {new['device_idle']:.2%}"
    p99 = f", TTFT p99 {1e3 * new['ttft_p99_s']:.0f} ms, TPOT p99 {1e3 * new['tpot_p99_s']:.1f} ms" if row.rate and new["tpot_p99_s"] else ""
    node = f", {new['tokens_per_joule_of_node']:.2f} tokens/J with {REST_OF_NODE} W" if row.name == "paper" else ""
    limit = f"limit {row.limit:g}, " if row.limit else ""
    print(f"{row.name:10} {new['figure']:10.4g} {new['unit']}, {limit}aim {row.aim:g}, {new['watts']:.0f} W, "
          f"{new['joules_per_token']:.4f} J/token, TPOT {1e3 * (new['tpot_p50_s'] or 0):.2f} ms{p99}{node}{idle}", flush=True)
    theirs = new.get("pytorch")
    if theirs:
        print(f"{row.name:10} PyTorch {theirs['tokens_s']:.1f} tokens/s: {new['figure'] / theirs['tokens_s']:.3f} of it, aim {PEER_AIM}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("joulemark", nargs="?", default="joulemark")
    parser.add_argument("--table", metavar="CARD", help="print the tables of that card, and measure nothing")
    parser.add_argument("--rows", nargs="+", metavar="ROW", default=[], help="these alone; without it all but `load`")
    parser.add_argument("--out", default="docs/speed_serving.json")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--weights", type=pathlib.Path, default=pathlib.Path("llama3-8b-random"), metavar="FOLDER",
                        help="of `--rows load`, which writes 16 GB there unless it exists (default: llama3-8b-random)")
    parser.add_argument("--no-peer", dest="peer", action="store_false", help="without PyTorch behind `single`")
    options = parser.parse_args()
    rows = []
    if os.path.exists(options.out):
        with open(options.out, encoding="utf-8") as f:
            rows = json.load(f)
    if options.table:
        print(tables(rows, options.table))
        return
    unknown = set(options.rows) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"there is no row {', '.join(sorted(unknown))}; rows are {', '.join(row.name for row in ROWS)}")
    for row in ROWS:
        if row.name not in options.rows and (options.rows or row.key == "load"):
            continue
        if not options.again and any(r["row"] == row.name for r in rows):
            continue
        prepare(row, rows, options)
        new = measure(row, options)
        if row.arrival == "single" and row.key == "throughput" and options.peer:
            new["pytorch"] = peer(row, min(options.seconds, 10))
        rows = [r for r in rows if (r["row"], r["card"]) != (row.name, new["card"])] + [new]
        write(options.out, rows)
        show(row, new)


if __name__ == "__main__":
    main()
