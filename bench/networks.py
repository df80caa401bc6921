#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/networks.md, one row for each network that was measured on a GPU: networks.py [--output FILE] [--add ROWS.json CARD]

Parameters and FLOPs are those that `joulemark describe` prints now. Speed, power and memory are figures of docs/speed_gpu.json and
of docs/networks.json, errors those of docs/speed_gpu_errors.json. --add puts rows of bench/gpu/rows.py into docs/networks.json.
JM_BIN names the program.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "gpu")]
import rows as gpu_rows  # pylint: disable=wrong-import-position
import step  # pylint: disable=wrong-import-position
import table_gpu  # pylint: disable=wrong-import-position
from table_gpu import gigabytes, median, middle, number, per_joule, ratio, whole  # pylint: disable=wrong-import-position

DOCS = HERE.parent / "docs"
# dense FLOP/s of an H100 SXM and of an H200, by NVIDIA's data sheets
PEAK = {"bf16": 989.4e12, "fp16": 989.4e12, "bf16-true": 989.4e12, "tf32": 494.7e12, "f32": 66.9e12}
# bytes/s of `stream` of 1 GB, read and written: an H100's of docs/kernels.md; an H200's memory was busy 91.9 % of the time there, of
# 4.814 TB/s by the driver
STREAM = {"H100": 3.07e12, "H200": 0.919 * 4.814e12}
# the network of docs/speed_gpu_errors.json that has the same blocks
ERRORS = {"resnet50": "resnet50", "resnet101": "bottleneck", "resnet152": "bottleneck", "vit": "vit", "gpt-117m": "gpt learned",
          "gpt-800m": "gpt rotary", "llama": "llama", "llama3-8b": "llama", "alexnet": "alexnet", "vgg16": "vgg11",
          "xception": "xception", "inception3": "auxiliary"}

PAGE = """\
# Networks

Written by `python3 bench/networks.py`; the figures are in `networks.json`, `speed_gpu.json` and `speed_gpu_errors.json`.

{table}

- **parameters** and **GFLOP** (of the mathematics, a training step for one item) are what `joulemark describe` prints for these options.
- **error**: joulemark's error of all gradients against f64 by PyTorch's at the same precision, at a small width of the same blocks
  ([speed](speed.md#errors-against-f64-on-gpus)).
- **items/s**: one training step after the other on random data, the median of the runs; **ratio**: by PyTorch 2.11 in the same call on
  the same card. Which options, cards and spreads belong to a row is said at its source.
- **of peak**: GFLOP times items/s by the dense peak of the GPU's tensor cores (989.4 TFLOP/s in 16 bits, 494.7 in tf32), in f32 by 66.9
  TFLOP/s. A network that mostly moves memory cannot come near it.
- **of bound**: the least possible time of a step divided by the measured one. The least time is the larger of GFLOP divided by the rate of `joulemark run gemm`
  on such a GPU (bf16, 8192 on each side: {products}; half of it in tf32, in f32 66.9 TFLOP/s) and bytes divided by the rate of
  `joulemark run stream` ({streams} TB/s; that of the H200 is its measured activity of memory, 91.9 %, times the driver's peak).
  The word says which of the two it is. The bytes are the memory traffic that `joulemark describe --device ref` prints, without the
  fusions of a GPU (300 of 334 MB are left for resnet50 in bf16), so where memory is the bound the share is somewhat lower in truth.
- **W**, **items/J**: of the GPU by the driver's counter, beside PyTorch's.
- **GB**: the peak of joulemark's plan by what PyTorch's allocator reserved.
- A dash is a figure that was not measured, or not kept.

## On a processor

{about}
Written from `networks_cpu.json`, which this measures: `bench/table.py --no-parity --precision f32 --rounds {rounds} --output FILE
--json docs/networks_cpu.json --models {models}`.

{processor}

- joulemark, PyTorch {version} (eager, channels last, torchvision's networks without dropout, xception of `tests/peers/torch_xception.py`) and
  products of oneDNN take turns on {threads} threads, {rounds} steps each after one. A figure is the median, in parentheses the slowest and the fastest;
  the ratio has in parentheses the smallest and largest of a round. [speed.md](speed.md) has other networks.
- **kernels by oneDNN's peak**: as [there](speed.md#how-it-is-measured). The aim is a ratio of 1.5, of U-Nets and Fourier operators 1.8,
  or 85 % of that peak where that is less. All rows meet it, xception by its share of the peak. Both sides compute convolutions by
  oneDNN, which take 87 % of the time of our kernels in xception and resnet152.
- unet is `unet-sd2` with 128 channels and 32 x 32 latents; clip the forward pass of the frozen CLIP L/14 within `llava-7b` whose Llama
  has one layer of 64, which takes 0.1 % of the FLOPs (`bench/step.py`).
- **beyond state**: resident MB without the parameters and both moments of AdamW in f32, 12 bytes for each parameter, which both sides
  hold, and 4 for each frozen one; what is left are gradients, activations, copies in other layouts and code. The aim is at most 0.65 of PyTorch's.
"""


def options_of(row):
    """Of `describe`: those of the row, or those that bench/gpu/rows.py runs it with; None where it has none."""
    if row.get("describe"):
        return row["describe"].split()
    for known in gpu_rows.ROWS.values():
        if known["workload"] == row["workload"] and known["own"].startswith("train --model "):
            words = known["own"].removeprefix("train --model ").split()
            return [w for i, w in enumerate(words) if not {w, words[i - 1]} & {"--clip", "--lr", "--weight-decay", "--batch", "--accumulate"}]
    return None


def describe(row):
    batch = re.match(r"\d+", row["batch"])[0]
    words = [os.environ.get("JM_BIN", "build/joulemark"), "describe", *options_of(row), "--device", "ref", "--batch", batch, "--precision", row["precision"],
             "--json", "-"]
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def error_of(row, errors):
    """The ratio of the errors of the gradients; None where it is not known."""
    names = [name for family, name in ERRORS.items() if re.match(family + r"\b", row["workload"]) and "`" not in row["workload"]]
    for one in errors["rows"]:
        if names and one["name"] == names[-1] and one["precision"] == row["precision"]:
            return one["joulemark"][1] / one["pytorch"][1]
    return None


def products(rows, gpu, precision="bf16"):
    """FLOP/s of products on such a GPU: those of docs/speed_gpu.json, which are in TFLOP/s."""
    gemm = next(row for row in rows if row["workload"] == "gemm" and row["gpu"] == gpu and row["precision"] == "bf16")
    return PEAK["f32"] if precision == "f32" else 1e12 * middle(gemm["joulemark"], "rate") * PEAK[precision] / PEAK["bf16"]


def of_bound(row, plan, rate, rows):
    """The least time of a step by the time that it took."""
    by = {"products": plan["flops_model_per_item"] / products(rows, row["gpu"], row["precision"]),
          "memory": plan["bytes_per_item"] / STREAM[row["gpu"]]}
    what = max(by, key=by.get)
    return f"{100 * by[what] * rate:.0f} %, {what}"


def cells(row, errors, rows):
    plan, runs, theirs = describe(row), row["joulemark"], row.get("pytorch") or {}
    rate, watts, joule = middle(runs, "rate"), middle(runs, "watts"), median(map(per_joule, runs))
    error, share = error_of(row, errors), plan["flops_model_per_item"] * rate / PEAK[row["precision"]]
    source = row.get("source", "speed.md#on-gpus")
    eager = ", PyTorch eager" if row.get("short") == "eager" else ""
    beside = f" / {whole(theirs['watts'])}" if theirs.get("watts") else ""
    reserve = f" / {gigabytes(theirs['reserved_bytes'])}" if theirs.get("reserved_bytes") else ""
    return [
        f"{row['workload']}, {row['batch']}{eager}", row["precision"], row["gpu"], f"{plan['parameters_trained']:,}",
        f"{plan['parameters_frozen']:,}", number(plan["flops_model_per_item"] / 1e9), f"{error:.2f}" if error else "-",
        f"{number(rate)} {row['unit']}/s", ratio(rate, theirs.get("rate")), f"{100 * share:.0f} %", of_bound(row, plan, rate, rows), whole(watts) + beside,
        number(joule), ratio(joule, per_joule(theirs) if theirs else None),
        gigabytes(middle(runs, "peak_bytes")) + reserve, f"[{source.split('.')[0]}]({source})"]


def rows_of(data):
    """Networks that somebody chose, with a batch that both sides have and without options that only one row has."""
    return [row for row in data if row.get("joulemark") and row.get("seed") is None and not row.get("note") and row["precision"] in PEAK
            and re.fullmatch(r"\d+( x \d+)*", row["batch"]) and options_of(row)]


def beyond_state(found, side):
    """Bytes that a side held beside the parameters and both moments of the trained ones in f32, which no training can do without."""
    return found[side]["rss_bytes"] - 3 * 4 * found["parameters"] + 2 * 4 * found["parameters_frozen"]


def processor_cells(found):
    f, theirs, own = step.figures(found), found["pytorch"], found["joulemark"]
    beyond = [beyond_state(found, side) for side in ("joulemark", "pytorch")]
    rates = lambda side: [number(found["items"] / take(side["seconds"])) for take in (statistics.median, max, min)]
    return [f"{found['name']}, {found['batch']}", found["precision"], "{} ({} to {})".format(*rates(own)), "{} ({} to {})".format(*rates(theirs)),
            f"**{f['ratio']:.2f}** ({f['ratio_low']:.2f} to {f['ratio_high']:.2f})", f"{100 * f['peak_share']:.0f} %",
            f"{own['rss_bytes'] / 1e6:,.0f} / {theirs['rss_bytes'] / 1e6:,.0f}", f"{f['rss_ratio']:.2f}",
            "{:,.0f} / {:,.0f}".format(*(n / 1e6 for n in beyond)), ratio(*beyond, aim=0.65, least=False)]


def processor():
    """What the page says of docs/networks_cpu.json."""
    data = json.loads((DOCS / "networks_cpu.json").read_text(encoding="utf-8"))
    m, cases = data["machine"], data["cases"]
    head = ["network, batch", "precision", "joulemark, items/s", "PyTorch, items/s", "ratio", "kernels by oneDNN's peak", "resident MB, PyTorch's", "ratio",
            "beyond state", "ratio"]
    return {"about": f"{data['date']}, {m['cores']} cores of a virtual {m['processor']}, {', '.join(m['instructions'])},\n"
                     f"load {m['load']:.1f} before the run." + (f"\n{data['note']}" if data.get("note") else ""),
            "models": ",".join(found["name"] for found in cases), "rounds": cases[0]["rounds"], "threads": m["threads"],
            "version": cases[0]["pytorch"]["version"][:4],
            "processor": table_gpu.table(head, 2, [processor_cells(found) for found in cases])}


def page():
    kept = [json.loads((DOCS / name).read_text(encoding="utf-8"))["rows"] for name in ("speed_gpu.json", "networks.json")]
    errors = json.loads((DOCS / table_gpu.ERRORS_FILE).read_text(encoding="utf-8"))
    head = ["network, batch", "precision", "GPU", "trained", "frozen", "GFLOP", "error", "items/s", "ratio", "of peak", "of bound",
            "W, PyTorch's", "items/J", "ratio", "GB, PyTorch's", "source"]
    gpus = sorted(STREAM)
    return PAGE.format(table=table_gpu.table(head, 3, [cells(row, errors, kept[0]) for row in rows_of(kept[0] + kept[1])]),
                       products=" and ".join(f"{gpu} {products(kept[0], gpu) / 1e12:.0f} TFLOP/s" for gpu in gpus),
                       streams=" and ".join(f"{gpu} {STREAM[gpu] / 1e12:.2f}" for gpu in gpus), **processor())


def add(path, card):
    """Rows of rows.py in place of those of the same network, precision and GPU."""
    file = DOCS / "networks.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    key = lambda row: (row["workload"], row["precision"], row["gpu"], row.get("short"))
    found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    data["rows"] = [row for row in data["rows"] if key(row) not in set(map(key, found))]
    data["rows"] += [row | {"card": card, "source": "networks.json"} for row in found]
    file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("--output", type=pathlib.Path, default=DOCS / "networks.md", metavar="FILE")
    parser.add_argument("--add", nargs=2, metavar=("ROWS.json", "CARD"))
    given = parser.parse_args()
    if given.add:
        add(*given.add)
    given.output.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
