#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per second and joules per token of serving LLaMA 3 8B on one GPU, row by row, beside limits and aims.

    bench/gpu/serve.py joulemark [--out docs/speed_serving.json] [--seconds 60] [--again] [--rows ROW...]
    bench/gpu/serve.py --table 'NVIDIA H200' [--out docs/speed_serving.json]

Random weights and tokens; rows that --out has, of whatever card, are not measured again without --again, which replaces those of the
same card. Prompts of the rows `ttft` arrive at random with pauses between them, so that each finds the GPU idle. `limit` is what an H100 80GB (700 W)
cannot exceed: the larger of bytes / 3.0 TB/s and FLOPs / 740 TFLOP/s (attention 500), with 15.0 GB of weights for a step and
128 KiB of keys and values for a token; in fp8, whose rows have a cache in 8 bits too, 1,400 TFLOP/s (attention 700), 8.0 GB and
64 KiB. `aim`: for tokens per second 1.1 times the best published figure (NVIDIA TensorRT-LLM 0.15, perf-overview.md; ML.ENERGY
leaderboard, Llama 3.1 8B, vLLM; gpt-fast), for joules per token 0.83 times.
"""
import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile

MODEL = "llama3-8b"


class Row:
    def __init__(self, name, given, produced, running, limit, aim, key="throughput", joules=None, step=2048, arrival="closed",
                 rate=None, precision="bf16"):
        self.name, self.given, self.produced, self.running, self.precision = name, given, produced, running, precision
        self.limit, self.aim, self.key, self.joules, self.step, self.arrival, self.rate = limit, aim, key, joules, step, arrival, rate

    def command(self, joulemark, seconds, out):
        # the prompts of the first requests, and as many steps as an answer has tokens
        warmup = 8 if self.arrival != "closed" else self.produced + self.running * self.given // self.step
        return [joulemark, "run", "serve", "--model", MODEL, "--device", "cuda:0", "--precision", self.precision, "--arrival", self.arrival,
                *(["--rate", str(self.rate)] if self.rate else []), "--running", str(self.running), "--input-tokens", str(self.given), "--output-tokens", str(self.produced),
                "--context", str(-(-(self.given + self.produced) // 1024) * 1024), "--step-tokens", str(self.step),
                "--kv", "f8e4m3" if self.precision == "fp8" else "auto", "--warmup", str(warmup), "--seconds", str(seconds), f"--json={out}"]


def closed(running, step, limit, aim, joules):
    return Row(f"closed-{running}", 250, 395, running, limit, aim, joules=joules, step=step)


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
]


def gpu_of(record):
    """Joules of the GPU in the steady phase, and its seconds."""
    phase = next(p for p in record["phases"] if p["name"] == "steady")
    meters = [m for m in phase["meters"] if m["id"] == record["ran_on"]["meter"]]
    if not meters or meters[0]["joules"] is None:
        sys.exit("The GPU's energy is unknown.")
    return meters[0]["joules"], phase["end_s"] - phase["start_s"]


def measure(row, joulemark, seconds):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "record.json")
        run = subprocess.run(row.command(joulemark, seconds, out), capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"{row.name}: {run.stdout[-600:]}{run.stderr[-600:]}")
        with open(out, encoding="utf-8") as f:
            return result(row, json.load(f))


def result(row, record):
    joules, span = gpu_of(record)
    serving = record["serving"]
    figure = record["throughput"] if row.key == "throughput" else serving["ttft"]["p50"]
    reached = figure >= row.aim if row.key == "throughput" else figure <= row.aim
    return {"row": row.name, "input_tokens": row.given, "output_tokens": row.produced, "running": row.running,
            "step_tokens": row.step, "arrival": row.arrival, "precision": row.precision,
            "cache": serving["cache_type"], "unit": "s" if row.key == "ttft" else "tokens/s",
            "limit": row.limit, "aim": row.aim, "figure": figure, "reached": reached,
            "joules_per_token": joules / record["items"], "aim_joules_per_token": row.joules,
            "watts": joules / span, "seconds": span, "tokens": record["items"], "ttft_p50_s": serving["ttft"]["p50"],
            "tpot_p50_s": serving["tpot"] and serving["tpot"]["p50"], "preemptions": serving["preemptions"],
            "padding": serving["padding"],
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


def tables(rows, card):
    """Both tables of a card, in Markdown: tokens per second, and the time of the first token."""
    rows = sorted((row for row in rows if row["card"] == card), key=place)
    served = [line(row) for row in rows if row["unit"] == "tokens/s"]
    first = [first_token(row) for row in rows if row["unit"] == "s"]
    return "\n".join([
        "| input/output tokens | precision | running | step | limit, tokens/s | aim | tokens/s | TPOT p50, ms | W | J/token (aim) | window, s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", *served, "",
        "| prompt, tokens | precision | limit, ms | aim | first token, ms | window, s |", "|--:|---|--:|--:|--:|--:|", *first])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("joulemark", nargs="?", default="joulemark")
    parser.add_argument("--table", metavar="CARD", help="print the tables of that card, and measure nothing")
    parser.add_argument("--rows", nargs="+", metavar="ROW", default=[])
    parser.add_argument("--out", default="docs/speed_serving.json")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    rows = []
    if os.path.exists(options.out):
        with open(options.out, encoding="utf-8") as f:
            rows = json.load(f)
    if options.table:
        print(tables(rows, options.table))
        return
    for row in ROWS:
        if options.rows and row.name not in options.rows:
            continue
        if not options.again and any(r["row"] == row.name for r in rows):
            continue
        new = measure(row, options.joulemark, options.seconds)
        rows = [r for r in rows if (r["row"], r["card"]) != (row.name, new["card"])] + [new]
        write(options.out, rows)
        print(f"{row.name:10} {new['figure']:10.4g} {new['unit']}, limit {row.limit:g}, aim {row.aim:g}, {new['watts']:.0f} W, "
              f"{new['joules_per_token']:.4f} J/token, TPOT {1e3 * (new['tpot_p50_s'] or 0):.2f} ms", flush=True)


if __name__ == "__main__":
    main()
