#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training from picture files beside training on random images, and beside PyTorch's DataLoader, on one GPU, row by row.

    loading.py FOLDER [ROW...] [--pictures 100000] [--rounds 2] [--seconds 15]

Rows, in turns in each round: `random` (images on the GPU), `folder` (JPEG files), `torch` (the same files by image_torch.py with as many
workers as joulemark has threads), `decode` (bare loops of libjpeg-turbo on all cores, by picture_loading); and of CIFAR-10
`cifar-random` and `cifar` (resnet152 --stem cifar, as many epochs as --epochs says). Before the first row that needs them, and outside all times, FOLDER gets
the files: JPEGs of 500 x 375 pixels in 1,000 classes, copies of at most 500 different pictures, each with pages of its own in the page
cache, to which all were just written; and CIFAR-10's binary files of its size with pixels by chance. Figures go to FOLDER/loading.json; rows that it has are not measured again.
JM_BIN names the program, JM_BACKENDS its plug-ins, JM_BUILD the folder of build results with bench/picture_loading.
"""
import argparse
import concurrent.futures
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys

import numpy
from PIL import Image

import rows

HERE = pathlib.Path(__file__).resolve().parent
CORES = len(os.sched_getaffinity(0))
THREADS = max(1, CORES - 1)  # as joulemark has them
WIDTH, HEIGHT, QUALITY, OCTAVES, DIFFERENT, CLASSES = 500, 375, 92, 7, 500, 1000
CIFAR_PARTS = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
CIFAR_PICTURES, CIFAR_BYTES = 10000, 3073  # of each part; a class and the pixels
CIFAR_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"
ROWS = ("random", "folder", "torch", "decode", "cifar-random", "cifar")


def draw(seed):
    """A JPEG with detail of all sizes, as photographs have it."""
    rng = numpy.random.default_rng(seed)
    values = numpy.full((HEIGHT, WIDTH, 3), 128.0)
    for octave in range(OCTAVES):
        shape = (HEIGHT >> octave) + 2, (WIDTH >> octave) + 2, 3
        noise = Image.fromarray(rng.integers(0, 256, shape, numpy.uint8)).resize((WIDTH, HEIGHT), Image.BILINEAR)
        values += (14 + (1 << octave)) * (numpy.asarray(noise) / 128.0 - 1)
    kept = io.BytesIO()
    Image.fromarray(values.clip(0, 255).astype(numpy.uint8)).save(kept, "JPEG", quality=QUALITY)
    return kept.getvalue()


def write_class(folder, files):
    folder.mkdir()
    for i, file in enumerate(files):
        (folder / f"{i}.jpg").write_bytes(file)


def make_jpegs(folder, number):
    """In folders of classes; complete where `folder` exists."""
    if folder.exists():
        return
    new = folder.with_suffix(".new")
    new.mkdir()
    with concurrent.futures.ProcessPoolExecutor() as pool:
        different = list(pool.map(draw, range(min(DIFFERENT, number)), chunksize=8))
    classes = min(CLASSES, number // 2)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for c in range(classes):
            pool.submit(write_class, new / f"{c:04}", [different[i % len(different)] for i in range(c, number, classes)])
    found = sum(1 for _ in new.glob("*/*.jpg"))
    if found != number:
        sys.exit(f"{new} has {found} of {number} pictures: is the disk full?")
    new.rename(folder)


def make_cifar(folder):
    folder.mkdir(exist_ok=True)
    rng = numpy.random.default_rng(1)
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR_NAMES.split()) + "\n")
    for name in CIFAR_PARTS:
        if not (folder / name).exists():
            pictures = rng.integers(0, 256, (CIFAR_PICTURES, CIFAR_BYTES), numpy.uint8)
            pictures[:, 0] %= len(CIFAR_NAMES.split())
            pictures.tofile(folder / name)


def own(given, row, number, words):
    """The record of a run of joulemark."""
    path = given.folder / f"{row}.{number}.json"
    run = subprocess.run([os.environ.get("JM_BIN", "build/joulemark"), "run", "train", *words, "--clip", "0", "--precision", given.precision,
                          "--device", given.device, "--json", str(path)], capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{row}: {run.stdout[-600:]}{run.stderr[-600:]}")
    return json.loads(path.read_text())


def figures(record):
    """wait_share: of the time of all steps, at most; the host waits ahead of the device."""
    found = {"rate": record["throughput"], "watts": rows.own_figures(record)["watts"], "joules_per_item": None}
    if found["watts"]:
        found["joules_per_item"] = found["watts"] / found["rate"]
    data = record.get("data")
    if data:
        steps = sum(p["end_s"] - p["start_s"] for p in record["phases"] if p["name"] in ("warmup", "steady"))
        found |= {key: data[key] for key in ("threads", "decoded", "corrupt", "wait_s", "load_per_s")} | {"wait_share": data["wait_s"] / steps}
    return found


def peer(given, files):
    words = [sys.executable, str(HERE / "image_torch.py"), "--model", given.model, "--batch", str(given.batch), "--precision",
             given.precision, "--seconds", str(given.seconds), "--data", str(files), "--workers", str(THREADS)]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"torch: {run.stderr[-600:]}")
    return rows.peer_figures(json.loads(run.stdout.strip().splitlines()[-1])) | {"threads": THREADS}


def decode(given, files):
    bench = pathlib.Path(os.environ.get("JM_BUILD", "build")) / "bench" / "picture_loading"
    run = subprocess.run([str(bench), "threads", str(CORES), str(given.seconds / 3), str(files)], capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"decode: {run.stderr[-600:]}")
    found = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("{")))
    return {"rate": found["alone"], "watts": None, "threads": CORES, "loader_rate": found["loader"]}


def measure(given, row, number):
    files, cifar = given.folder / f"pictures{given.pictures}", given.folder / "cifar"
    timed = ["--warmup", "3s", "--seconds", str(given.seconds)]
    net = ["--model", given.model, "--batch", str(given.batch)]
    small = ["--model", given.cifar_model, "--stem", "cifar", "--image", "32", "--batch", str(given.cifar_batch)]
    if row == "random":
        return figures(own(given, row, number, [*net, *timed]))
    if row == "cifar-random":
        return figures(own(given, row, number, [*small, "--classes", "10", *timed]))
    if row == "cifar":
        make_cifar(cifar)
        return figures(own(given, row, number, [*small, "--data", str(cifar), "--epochs", str(given.epochs)]))
    make_jpegs(files, given.pictures)
    if row == "folder":
        return figures(own(given, row, number, [*net, *timed, "--data", str(files), "--data-threads", str(THREADS)]))
    return peer(given, files) if row == "torch" else decode(given, files)


def summary(found):
    """Ratios of medians, as far as their rows were measured."""
    rate = {row: statistics.median(one["rate"] for one in found if one["row"] == row) for row in {one["row"] for one in found}}
    for a, b, aim in (("folder", "random", "0.98, or 0.9 of decode"), ("folder", "decode", "0.9, or 0.98 of random"), ("folder", "torch", "2"),
                      ("cifar", "cifar-random", "0.99")):
        if a in rate and b in rate:
            print(f"{a} / {b}: {rate[a]:,.0f} / {rate[b]:,.0f} = {rate[a] / rate[b]:.3f} (aim: {aim})")
    waits = [one["wait_share"] for one in found if one["row"] == "cifar"]
    if waits:
        print(f"cifar: the device waited for pictures at most {max(waits):.2%} of the time (aim: 1 %)")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="gets the files, the records and loading.json")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all where none is named: " + ", ".join(ROWS))
    parser.add_argument("--pictures", type=int, default=100000, metavar="N")
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--epochs", type=int, default=4, help="of CIFAR-10")
    parser.add_argument("--model", default="resnet50", help="of the JPEGs")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--cifar-model", default="resnet152")
    parser.add_argument("--cifar-batch", type=int, default=512)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--device", default="cuda:0")
    given = parser.parse_intermixed_args()
    unknown = [row for row in given.rows if row not in ROWS]
    if unknown:
        parser.error(f"There is no row {', '.join(unknown)}; rows are {', '.join(ROWS)}.")
    return given


def main():
    given = arguments()
    given.folder.mkdir(parents=True, exist_ok=True)
    kept = given.folder / "loading.json"
    found = json.loads(kept.read_text()) if kept.exists() else []
    for number in range(1, given.rounds + 1):
        for row in given.rows or ROWS:
            if any((one["row"], one["round"]) == (row, number) for one in found):
                continue
            found.append({"row": row, "round": number, **measure(given, row, number)})
            kept.write_text(json.dumps(found, indent=1) + "\n")
            one = found[-1]
            wait = f", waited {one['wait_s']:.2f} s, at most {one['wait_share']:.2%}" if "wait_s" in one else ""
            print(f"{row:12} {one['rate']:10,.0f}/s {one['watts'] or 0:6.0f} W{wait}", flush=True)
    summary(found)


if __name__ == "__main__":
    main()
