#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures joulemark and PyTorch on one card in one call, row by row, for the table of docs/speed.md on GPUs.

    rows.py FOLDER [ROW...] [--drawn N [--seed S]] [--seconds 3]

First all PyTorch programs compile at the same time and end, while the command of --meanwhile runs; their code stays in PyTorch's
cache. A row is then joulemark, PyTorch and joulemark again, and with --fast joulemark --fast, one program at a time: no other
program of this call exists while one measures. Rows of 8 G parameters have one run of joulemark, because its start takes longer
than the run. --drawn adds N rows that nobody chose: networks, depths, lengths and batches by chance (drawn_rows.py). The seed is
printed and stored in the row; the same seed draws the same rows, and drawn-SEED-I names one of them.
PyTorch runs once in each mode of torch.compile that --modes names, and the fastest counts: reduce-overhead replays CUDA graphs,
which is faster where a step is short, and needs more memory.
FOLDER gets the records, what PyTorch printed, and rows.json, which `bench/table.py --gpu-rows` puts into docs/speed_gpu.json.
JM_BIN names the program, JM_BACKENDS its plug-ins.
"""
import argparse
import atexit
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import drawn_rows  # pylint: disable=wrong-import-position
LLAMA = "--layers 16 --hidden 2048 --heads 32 --kv-heads 8 --ffn 8192 --vocab 128256 --context 2048 --theta 500000"
TORCH_LLAMA = "layers=16 hidden=2048 heads=32 kv-heads=8 ffn=8192 vocab=128256 context=2048 theta=500000"
TORCH_8B = "layers=32 hidden=4096 heads=32 kv-heads=8 ffn=14336 vocab=128256 context=2048 theta=500000 true=1"
TORCH_800M = "layers=16 hidden=2048 heads=8 ffn=8192 vocab=50304 context=2048 rotary=1"


def resnet(name, precision, aim, batch=256, own=None, **more):
    """Neither side clips the gradients of a network for images."""
    return {"workload": name, "batch": str(batch), "precision": precision, "unit": "image", "aim": aim,
            "own": f"train --model {own or name} --batch {batch} --clip 0",
            "peer": f"image_torch.py --model {name} --batch {batch} --precision {precision} --seconds SECONDS", **more}


def vit(name, aim, batch=128, **more):
    return {"workload": name, "batch": str(batch), "precision": "bf16", "unit": "image", "aim": aim,
            "own": f"train --model {name} --batch {batch}", "peer": f"train_torch.py {name} {batch} 0 SECONDS attention=flash", **more}


def text(name, batch, seq, precision, aim, own, peer, **more):
    return {"workload": name, "batch": f"{batch} x {seq}", "precision": precision, "unit": "token", "aim": aim,
            "own": f"train --model {own} --seq {seq}", "peer": peer and f"train_torch.py {peer}", **more}


def fields(name, batch, aim, eager=False):
    """Beside torch.compile, or plain PyTorch."""
    return {"workload": name, "batch": str(batch), "precision": "f32", "unit": "sample", "aim": aim, "compiles": not eager,
            "own": f"train --model {name} --batch {batch} --optimizer adam --lr 1e-4 --weight-decay 1e-5 --clip 0",
            "peer": f"fno_torch.py {name} {batch} SECONDS{' eager' * eager}", **({"short": "eager"} if eager else {})}


def diffusion(batch, precision, aim):
    return {"workload": "unet-sd2", "batch": str(batch), "precision": precision, "unit": "image", "aim": aim,
            "own": f"train --model unet-sd2 --batch {batch} --lr 1e-5 --weight-decay 1e-2",
            "peer": f"unet_torch.py {batch} SECONDS precision={precision}"}


def from_pixels(batch, micro_steps, precision, aim):
    """The encoders of pictures and captions are frozen, so PyTorch compiles three networks."""
    return {"workload": "sd2", "batch": f"{micro_steps} x {batch}", "precision": precision, "unit": "image", "aim": aim, "graphs": 3,
            "own": f"train --model sd2 --batch {batch} --accumulate {micro_steps} --lr 1e-5 --weight-decay 1e-2",
            "peer": f"sd2_torch.py {batch} SECONDS micro-steps={micro_steps} precision={precision}"}


def fine_tuning(batch, micro_steps):
    """LLaVA 1.5 with Llama and projector learnt; Llama's random weights need a small step."""
    return text("llava-13b", batch, 704, "bf16-true", 1.12, f"llava-13b --lr 2e-6 --batch {batch} --accumulate {micro_steps}", "") | {
        "batch": f"{micro_steps} x {batch} x 704", "short": f"batch {batch}", "peer": f"llava_torch.py 13b {batch} 704 SECONDS micro-steps={micro_steps}",
        "compiles": False, "once": True}


ROWS = {
    "resnet50-fp16": resnet("resnet50", "fp16", 1.25),
    "resnet50-bf16": resnet("resnet50", "bf16", 1.12),
    "resnet50-tf32": resnet("resnet50", "tf32", 1.2),
    "resnet152": resnet("resnet152", "bf16", 1.12),
    "alexnet": resnet("alexnet", "bf16", 1.25, 1024),
    "vgg16": resnet("vgg16", "bf16", 1.15),
    "xception": resnet("xception", "bf16", 1.5, 128),
    "inception3": resnet("inception3", "bf16", 1.35),
    "resnet152-cifar": resnet("resnet152-cifar", "bf16", 1.3, 512, "resnet152 --classes 10 --stem cifar --image 32"),
    "vit-l16": vit("vit-l16", 1.15),
    "gpt-117m": text("gpt-117m", 32, 1024, "bf16", 1.15, "gpt-117m --batch 32", "gpt 32 1024 SECONDS attention=cudnn"),
    "gpt-800m": text("gpt-800m", 8, 2048, "bf16", 1.15, "gpt-800m --batch 8", f"gpt 8 2048 SECONDS attention=cudnn {TORCH_800M}"),
    "llama": text("llama", 8, 2048, "bf16", 1.12, f"llama {LLAMA} --batch 8", f"llama 8 2048 SECONDS attention=cudnn {TORCH_LLAMA}"),
    "fno-rbc2d": fields("fno-rbc2d", 20, 1.5),
    "fno-rbc2d-eager": fields("fno-rbc2d", 20, 3, eager=True),
    "fno-rbc3d": fields("fno-rbc3d", 4, 1.5),
    "fno-rbc3d-eager": fields("fno-rbc3d", 4, 3, eager=True),
    "unet-sd2": diffusion(64, "bf16", 1.3),
    "unet-sd2-fp16": diffusion(64, "fp16", 1.3),
    "sd2": from_pixels(64, 3, "fp16", 1.3),
    "llava-13b": text("llava-13b, its projector", 8, 704, "bf16-true", 1.12, "llava-13b --batch 8 --freeze llama.*", "") | {
        "peer": "llava_torch.py 13b 8 704 SECONDS learnt=projector", "compiles": False, "once": True},
    "llava-13b-all": fine_tuning(4, 8),
    "llava-13b-all-8": fine_tuning(8, 4),
    "gpt-800m-fp8": text("gpt-800m", 8, 2048, "fp8", None, "gpt-800m --batch 8", ""),
    "llama-fp8": text("llama", 8, 2048, "fp8", None, f"llama {LLAMA} --batch 8", ""),
    "gemm": {"workload": "gemm", "batch": "8192 x 8192 x 8192", "precision": "bf16", "unit": "product", "aim": 1.0,
             "own": "gemm --m 8192 --n 8192 --k 8192", "peer": "gemm_torch.py 8192 SECONDS", "compiles": False},
    "llama3-8b": text("llama3-8b", 1, 2048, "bf16-true", 1.1, "llama3-8b --lr 1e-4 --batch 1",
                      f"llama 1 2048 SECONDS attention=cudnn {TORCH_8B}", short="batch 1", once=True),
    "llama3-8b-4": text("llama3-8b", 4, 2048, "bf16-true", 1.1, "llama3-8b --lr 1e-4 --batch 4",
                        f"llama 4 2048 SECONDS attention=cudnn {TORCH_8B}", short="batch 4", once=True),
    "llama3-8b-max": text("llama3-8b", 3, 2048, "bf16-true", 1.2, "llama3-8b --lr 1e-4 --batch max",
                          f"llama 3 2048 SECONDS attention=cudnn {TORCH_8B}", short="largest batch", largest=True,
                          once=True),
    "llama3-8b-fp8": text("llama3-8b", 0, 2048, "fp8-true", None, "llama3-8b --lr 1e-4 --batch max", "", short="largest batch",
                          largest=True, once=True),
}


def drawn(seed, number):
    """The rows of a seed, by name."""
    make = {"resnet": lambda one: resnet(one["model"], one["precision"], None, one["batch"]),
            "vit": lambda one: vit(one["model"], None, one["batch"]), "gpt": drawn_text, "llama": drawn_text}
    return {f"drawn-{seed}-{i}": {**make[one["family"]](one), "seed": seed}
            for i, one in enumerate(drawn_rows.draw(seed, number), 1)}


def drawn_text(one):
    options = " ".join(f"--{key} {value}" for key, value in one["dims"].items()) + " --positions learned" * (one["family"] == "gpt")
    dims = " ".join(f"{key}={value}" for key, value in one["dims"].items())
    family, batch, seq, layers, hidden = one["family"], one["batch"], one["seq"], one["dims"]["layers"], one["dims"]["hidden"]
    return text(f"{family} of {layers} layers, {hidden} wide", batch, seq, "bf16", None, f"{family} {options} --batch {batch}",
                f"{family} {batch} {seq} SECONDS attention=cudnn {dims}")


def row_of(name):
    """None where there is no such row."""
    found = re.fullmatch(r"drawn-(\d+)-([1-9]\d*)", name)
    return drawn(int(found[1]), int(found[2]))[name] if found else ROWS.get(name)


def words_of(row, seconds, mode):
    script, *words = row["peer"].replace("SECONDS", str(seconds)).split()
    if mode != "default" and row.get("compiles", True):
        words += ["--mode", mode] if script.startswith("image") else [f"mode={mode}"]
    return [sys.executable, str(HERE / "compile_first.py"), str(HERE / script), *words]


def start(words, errors, **env):
    """A program of PyTorch, which writes its errors to that file; it ends with this one."""
    more = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", **env}
    with errors.open("w") as file:
        process = subprocess.Popen(words, env={**os.environ, **more}, text=True, stdout=subprocess.PIPE, stderr=file)
    atexit.register(process.kill)
    return process


def compile_words(row, mode):
    """Of the program that fills the cache. Two layers compile the same code as all where each layer is compiled separately."""
    return [word.replace("layers=32", "layers=2") if row.get("once") else word for word in words_of(row, 1, mode)]


def modes_of(given, row):
    """Those of torch.compile in which PyTorch runs; layers that are compiled separately have the default only."""
    return given.modes if row.get("compiles", row["peer"]) and not row.get("once") else ["default"]


def compile_all(given, rows):
    """All programs at the same time; one that takes too long is ended, and compiles again in its row."""
    wanted = {f"{name} {mode}": (row, mode) for name, row in rows.items() if row.get("compiles", row["peer"])
              for mode in modes_of(given, row)}
    errors = {name: given.folder / f"{name.replace(' ', '.')}.compile.txt" for name in wanted}
    graphs = {name: row.get("graphs", 2 if row.get("once") else 1) for name, (row, _) in wanted.items()}
    programs = {name: start(compile_words(*one), errors[name], COMPILE_ONLY=str(graphs[name])) for name, one in wanted.items()}
    meanwhile = given.meanwhile and subprocess.Popen(["bash", "-c", given.meanwhile])
    limit = time.time() + given.compile_limit
    for name, program in programs.items():
        try:
            if program.wait(max(0.1, limit - time.time())):
                print(f"{name}: PyTorch did not compile: {errors[name].read_text()[-300:]}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"{name}: PyTorch has not compiled within {given.compile_limit} s", flush=True)
            program.kill()
            program.wait()
    if meanwhile:
        meanwhile.wait()
    print(f"{time.time() - given.begun:5.0f} s  compiled: {' '.join(programs)}", flush=True)


def peer(given, name, row, mode):
    """PyTorch's figures; None where the program failed. Its start and its first steps are not counted."""
    errors = given.folder / f"{name}.{mode}.torch.txt"
    program = start(words_of(row, given.seconds, mode), errors)
    name += f" PyTorch{'' if mode == 'default' else ' ' + mode}"
    try:
        out, _ = program.communicate(timeout=given.start_limit + 2 * given.seconds)
        errors.with_suffix(".json").write_text(out)
        figures = peer_figures(json.loads(out.strip().splitlines()[-1]))
    except subprocess.TimeoutExpired:
        print(f"{name} gave no figures within {given.start_limit} s beside its windows", flush=True)
    except (ValueError, IndexError):
        print(f"{name} gave no figures: {errors.read_text()[-300:]}", flush=True)
    else:
        show(given, name, figures)
        return figures | ({} if mode == "default" else {"mode": mode})
    finally:
        program.kill()
        program.wait()
    return None


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
    kept = {key: row[key] for key in ("workload", "batch", "precision", "unit", "aim", "short", "seed") if row.get(key) is not None}
    if row.get("largest"):
        both = f" beside {row['batch']}, the largest of each" if theirs else ", the largest"
        kept["batch"] = f"{record['plan']['batch']} x 2048{both}"
    if options:
        kept["note"] = f", `{options}`"
    plan = record.get("plan") or {}
    return kept | {"gpu": re.search(r"NVIDIA (\S+)", record["ran_on"]["name"]).group(1), "uuid": record["ran_on"]["uuid"],
                   "date": datetime.date.today().isoformat(), "parameters": plan.get("parameters"),
                   "frozen": plan.get("parameters_frozen")}


def measure(given, name, row):
    """One row; None without a run of joulemark."""
    first = own(given, name, row, "1")
    forms = [peer(given, name, row, mode) for mode in modes_of(given, row)] if row["peer"] else []
    theirs = max((form for form in forms if form), key=lambda form: form["rate"], default=None)
    runs = [r for r in (first, None if row.get("once") else own(given, name, row, "2")) if r]
    fast = own(given, name, row, "fast") if given.fast else None
    if not runs:
        return None
    found = {"joulemark": [own_figures(r) for r in runs], "fast": [own_figures(fast)] if fast else [], "pytorch": theirs}
    return describe(row, runs[0], theirs, given.own) | {key: value for key, value in found.items() if value}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER",
                        help="gets the records, what PyTorch printed, and rows.json")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all where none is named: " + ", ".join(ROWS) + ", drawn-SEED-I")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="also N rows drawn by chance")
    parser.add_argument("--seed", type=int, help="of the drawn rows; by default the time of day draws one")
    parser.add_argument("--seconds", type=int, default=3, help="length of a run, and of PyTorch's windows together (default: 3)")
    parser.add_argument("--modes", type=lambda words: words.split(","), default=["default", "reduce-overhead"], metavar="MODE,...",
                        help="of torch.compile; the fastest counts (default: default,reduce-overhead)")
    parser.add_argument("--own", default="", metavar="OPTIONS", help="further options of joulemark, such as --own=--keep-all")
    parser.add_argument("--fast", action="store_true", help="also a run of joulemark --fast")
    parser.add_argument("--meanwhile", help="a shell command that runs while PyTorch compiles")
    parser.add_argument("--compile-limit", type=int, default=240, metavar="SECONDS",
                        help="a program of PyTorch that has not compiled by then is ended (default: 240)")
    parser.add_argument("--start-limit", type=int, default=150, metavar="SECONDS",
                        help="for the start of a program of PyTorch whose code is in the cache (default: 150)")
    given = parser.parse_intermixed_args()
    unknown = [name for name in given.rows if not row_of(name)]
    if unknown:
        parser.error(f"There is no row {', '.join(unknown)}; rows are {', '.join(ROWS)}.")
    return given


def main():
    given = arguments()
    seed = given.seed if given.seed is not None else int(time.time()) % 100000
    rows = {name: row_of(name) for name in given.rows or ROWS} | drawn(seed, given.drawn)
    if given.drawn:
        print(f"seed {seed}: " + "; ".join(f"{row['workload']}, {row['batch']}" for row in rows.values() if "seed" in row), flush=True)
    given.folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the programs, too
    given.begun, found = time.time(), []
    (given.folder / "rows.json").unlink(missing_ok=True)
    compile_all(given, rows)
    for name, row in rows.items():
        done = measure(given, name, row)
        found += [done] if done else []
        (given.folder / "rows.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
