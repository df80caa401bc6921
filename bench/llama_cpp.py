#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares decode and prefill of `run serve` with llama-bench: 160 M random parameters in one precision, two threads.

    JM_LLAMA_CPP=FOLDER bench/llama_cpp.py BUILD [--precision bf16] [--pairs 5] [--seconds 20]

FOLDER is llama.cpp with build/bin/llama-bench and gguf-py (tests/kit/llama_cpp.py builds it). A pair is llama.cpp, joulemark,
joulemark, llama.cpp; llama.cpp runs without and with flash attention, and the faster one counts. Decode: answers of 128
tokens, one at a time; prefill: 512 tokens. A cache has the precision of the weights; llama-bench has none of F32, so it is F16
there. Per row: types of the caches, medians with the range, tokens per second, and the ratio joulemark / llama.cpp with the
range of the pairs' ratios. If the load average was above 2 at the start, other work ran: then the ratio is no result, and the
exit status is 1.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(SOURCE / "tests/kit"))
import llama_files  # pylint: disable=wrong-import-position  # from the folder above

LAYERS, HIDDEN, HEADS, FFN, VOCAB, CONTEXT = 12, 768, 12, 3072, 32000, 1024
ANSWER, PROMPT, THREADS = 128, 512, 2
BUSY = 2  # load average
NET = ["--model", "llama", "--layers", LAYERS, "--hidden", HIDDEN, "--heads", HEADS, "--kv-heads", HEADS, "--ffn", FFN,
       "--vocab", VOCAB, "--context", CONTEXT]
OURS = {"decode": ["--arrival", "closed", "--running", 1, "--phase", "decode", "--input-tokens", 4, "--output-tokens", ANSWER,
                   "--step-tokens", 4],
        "prefill": ["--arrival", "single", "--phase", "prefill", "--input-tokens", PROMPT, "--step-tokens", PROMPT]}
THEIRS = {"decode": ["-p", 0, "-n", ANSWER], "prefill": ["-p", PROMPT, "-n", 0]}


def out(command, **env):
    done = subprocess.run([*map(str, command)], env={**os.environ, **env}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def ours(build, phase, precision, seconds):
    """Tokens per second, and the type of the cache."""
    text = out([f"{build}/joulemark", "run", "serve", "--source", "null", "--selftest", 0, *NET, "--device", "cpu",
                "--threads", THREADS, "--precision", precision, *OURS[phase], "--seconds", seconds, "--json", "-", "--quiet"])
    record = json.loads(text)
    each = PROMPT if phase == "prefill" else 1  # an item is an output token, of which a prompt makes one
    return record["throughput"] * each, record["serving"]["cache_type"]


def theirs(folder, file, phase, precision):
    """Tokens per second of the faster kind of attention, and the type of the cache."""
    cache = "f16" if precision == "f32" else precision  # llama-bench has none of f32
    text = out([folder / "build/bin/llama-bench", "-m", file, *THEIRS[phase], "-t", THREADS, "-r", 1, "-fa", "0,1", "-ctk", cache,
                "-ctv", cache, "-o", "json"])
    rows = json.loads(text)
    assert {row["flash_attn"] for row in rows} == {0, 1}
    best = max(rows, key=lambda row: row["avg_ts"])
    assert best["type_k"] == best["type_v"]
    return best["avg_ts"], best["type_k"]


def network(folder, place, precision):
    """The file for llama.cpp."""
    net, file = place / "net", place / "net.gguf"
    llama_files.make(net, llama_files.config(HIDDEN, FFN, LAYERS, HEADS, HEADS, VOCAB, CONTEXT), 0.02)
    out([sys.executable, SOURCE / "tests/kit/llama_files.py", net, file, precision],
        PYTHONPATH=str(folder / "gguf-py"))
    return file


def pair(args, folder, file, phase):
    """Their two rates, ours, and the types of the caches."""
    turns = [theirs(folder, file, phase, args.precision), ours(args.build, phase, args.precision, args.seconds),
             ours(args.build, phase, args.precision, args.seconds), theirs(folder, file, phase, args.precision)]
    rates = [rate for rate, _ in turns]
    return rates[::3], rates[1:3], (turns[0][1], turns[1][1])


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def compare(args, folder, file, phase, load):
    pairs = [pair(args, folder, file, phase) for _ in range(args.pairs)]
    they, we = ([rate for both in side for rate in both] for side in list(zip(*pairs))[:2])
    ratios = [sum(mine) / sum(other) for other, mine, _ in pairs]
    their_cache, our_cache = pairs[0][2]
    name = "ratio" if load <= BUSY else "no result, as other work ran:"
    print(f"{phase:8} {args.precision}, {THREADS} threads: llama.cpp (cache {their_cache}) {spread(they)} token/s, joulemark ({our_cache}) "
          f"{spread(we)} token/s, {name} {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) of {len(pairs)} pairs",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="bf16")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20, help="of each run of joulemark")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"load {load:.2f} at the start", flush=True)
    if "JM_LLAMA_CPP" not in os.environ:
        sys.exit("set JM_LLAMA_CPP to the folder of llama.cpp")
    folder = pathlib.Path(os.environ["JM_LLAMA_CPP"])
    with tempfile.TemporaryDirectory() as place:
        file = network(folder, pathlib.Path(place), args.precision)
        for phase in OURS:
            compare(args, folder, file, phase, load)
    return int(load > BUSY)


if __name__ == "__main__":
    sys.exit(main())
