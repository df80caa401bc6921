# SPDX-License-Identifier: Apache-2.0
"""The section of docs/speed.md on GPUs, from docs/speed_gpu.json: both sides of each row ran in one call on one card.

speed_gpu.json holds what bench/gpu/rows.py measured: of joulemark each run, of PyTorch the median of windows of 1 s with the
slowest and the fastest. The machine that writes the page has no GPU, so `make table` keeps these figures.
"""
import json
import statistics
import sys

UNITS = {"token": "token/s", "image": "image/s", "product": "TFLOP/s"}
# bytes a parameter and its moments take, and its gradient where the run does not tell its type, as in PyTorch
STATE = {"bf16": 12, "fp16": 12, "tf32": 12, "f32": 12, "bf16-true": 6}
GRADIENT = {"bf16": "f32", "fp16": "f32", "tf32": "f32", "f32": "f32", "bf16-true": "bf16"}
TYPE_BYTES = {"bf16": 2, "f32": 4}
FROZEN = 2  # bytes of a parameter that is not trained: rows with such parts compute in 16 bits

METHOD = """\
Training steps as above, on one GPU; [gpu-kernels.md](gpu-kernels.md) has profiles and what was tried.

- Both sides of a row ran in one call on one card, with the same precision and, unless the row names two, the same batch:
  `python3 bench/gpu/rows.py FOLDER [ROW...]`. All PyTorch programs compile first and end; then joulemark, PyTorch and joulemark
  again run one at a time, with no other program of the call on the machine.
- joulemark runs with its default memory, or with the options that the row names. PyTorch 2.11 runs with `torch.compile` over the whole
  network (in `bf16-true` block by block), autocast (in `bf16-true` all in bf16 instead), channels last for images and fused AdamW.
  Of its mode *default* and its mode `reduce-overhead` (CUDA graphs) the faster counts where both were tried; a row says so where the
  latter is faster, which it is where a step is short.
- Both sides clip the gradients of transformers, and neither those of ResNets (on card AH joulemark clips them, too).
- Rows that are *drawn* were not chosen by anybody: `rows.py --drawn 8 --seed N` draws network, depth, width, length and batch.
- In `bf16` the residual stream of transformers is bf16 in joulemark and f32 in PyTorch's autocast: [engine](engine.md#precision) has the
  errors against f64 of both, and [gpu-kernels.md](gpu-kernels.md#time-of-a-step-by-operation) the speed with `--residual f32`.
- In the mode *default* joulemark's results repeat bit by bit; *fast* (`--fast`) also allows algorithms whose results may differ in
  their last bits, as PyTorch's do.
- A range is that of joulemark's runs, or of PyTorch's windows of 1 s.
- Watts and joules are those of the GPU by the driver's counter.
- A letter names the card (`-`: without a name). Cards of one model differ by several percent.
- An aim is a ratio that joulemark is meant to reach. Bold: the aim is met; the unrounded ratio decides."""

MEMORY = """\
Memory beside parameters (frozen ones, too), gradients and the optimizer's moments, in GB: joulemark's plan, PyTorch's tensors at
their maximum, and what PyTorch's allocator reserves for them. Gradients count with the type that each side gives them: in `bf16` those of
gpt and llama wait for the update in bf16 in joulemark and in f32 in PyTorch. They take the place of activations, so with a batch of 1
llama3-8b needs the most when only gradients stand beside its state."""

ERRORS_FILE = "speed_gpu_errors.json"  # beside speed_gpu.json; written by bench/table.py --gpu-errors

ERRORS = """\
The comparison of [Errors against f64](#errors-against-f64) on a GPU. joulemark and PyTorch have the same start values; the truth is
PyTorch's f64 on the same GPU, which agrees with `ref` in f64 to rounding. PyTorch runs in eager mode (not compiled) with its
`scaled_dot_product_attention` and images channels last. tf32: allowed for products and convolutions. bf16, fp16: autocast, in fp16 with a
loss scale of 1024. fp8: PyTorch's `_scaled_mm` for the linear layers of blocks, each factor scaled by its own maximum, the rest as in bf16.
Of the losses of gpt and llama the median of the starts counts. Each cell: joulemark's error : PyTorch's = ratio; above 2 the test fails."""

SMALL = {
    "basic": "resnet18, 8 wide", "bottleneck": "resnet of 14 layers, 8 wide", "resnet18": "resnet18, 64 wide",
    "resnet50": "resnet50, 64 wide", "cifar": "resnet18 for 16 pixels, 8 wide", "alexnet": "alexnet, 6 wide", "vgg11": "vgg11, 8 wide",
    "xception": "xception, 4 wide", "inception": "inception3 without its second loss, 4 wide", "auxiliary": "inception3, 2 wide", "vit": "vit", "gpt learned": "gpt", "gpt rotary": "gpt, rotary positions", "llama": "llama",
    "mlp": "mlp", "towers": "towers",
}
PRECISIONS = ("f32", "tf32", "bf16", "fp16", "fp8")


def number(x):
    if x is None:
        return "-"
    return f"{x:,.0f}" if x >= 1000 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def span(low, high):
    return f" ({number(low)}–{number(high)})" if low and number(low) != number(high) else ""


def per_joule(one):
    """None where the watts are not known: a GPU without a counter of energy."""
    return one["rate"] / one["watts"] if one["watts"] else None


def median(figures):
    """Of those that are known; None without one."""
    known = [x for x in figures if x is not None]
    return statistics.median(known) if known else None


def middle(runs, key):
    return median(run[key] for run in runs)


def beside_state(row, run, peak):
    """Bytes beside parameters, gradients and moments; None where they are not known, or where both sides had their own batch.
    run: figures of one side, which have that peak."""
    if not run.get(peak) or row["precision"] not in STATE or " beside " in row["batch"]:
        return None
    gradient, frozen = TYPE_BYTES[run.get("gradients") or GRADIENT[row["precision"]]], row.get("frozen") or 0
    trained = row["parameters"] - frozen
    return run[peak] - (STATE[row["precision"]] + gradient) * trained - FROZEN * frozen


def ratio(a, b, aim=None, least=True):
    """Bold where the aim is met; more digits where two would look like the aim that is missed."""
    if not a or not b:
        return "-"
    met = aim and (a / b >= aim if least else a / b <= aim)
    digits = 2 if met or not aim else next(d for d in range(2, 17) if round(a / b, d) != aim)
    text = f"{a / b:.{digits}f}"
    return f"**{text}**" if met else text


def whole(x):
    return "-" if x is None else f"{x:.0f}"


def gigabytes(x):
    return f"{x / 1e9:.1f}" if x else "-"


def name_cells(row):
    drawn = f", drawn by {row['seed']}" if row.get("seed") is not None else ""
    return [f"{row['workload']}, {row['batch']}{row.get('note', '')}{drawn}", row["precision"], f"{row['gpu']} {row['card']}".strip()]


def speed_cells(row, mode, ours):
    theirs = row.get("pytorch")
    rates = [run["rate"] for run in ours]
    rate, watts, joule = middle(ours, "rate"), middle(ours, "watts"), median(map(per_joule, ours))
    return [
        *name_cells(row), mode, f"{number(rate)}{span(min(rates), max(rates))} {UNITS[row['unit']]}",
        f"{number(theirs['rate'])}{span(theirs.get('least'), theirs.get('most'))}{' ' + theirs['mode'] if theirs.get('mode') else ''}"
        if theirs else "-",
        ratio(rate, theirs and theirs["rate"], row.get("aim")), f"{row['aim']:.2f}" if row.get("aim") else "-",
        f"{whole(watts)} / {whole(theirs['watts'])}" if theirs else whole(watts),
        f"{number(joule)} / {number(per_joule(theirs))}" if theirs else number(joule),
        ratio(joule, theirs and per_joule(theirs), 1.08),
    ]


def own(row):
    """Runs of the default mode, or of the other where there are none."""
    return row.get("joulemark") or row["fast"]


def modes(row):
    """Both modes that were run: name and runs."""
    return [(mode, row[key]) for mode, key in (("default", "joulemark"), ("fast", "fast")) if row.get(key)]


def memory_cells(row):
    """The peaks, and our share of PyTorch's two; None where no run told its memory."""
    theirs = row.get("pytorch") or {}
    ours, tensors, reserve = (beside_state(row, *one) for one in (
        (own(row)[0], "peak_bytes"), (theirs, "peak_bytes"), (theirs, "reserved_bytes")))
    if not ours or not tensors:
        return None
    return [*name_cells(row), *map(gigabytes, (ours, tensors, reserve)), ratio(ours, tensors, 0.8, least=False),
            ratio(ours, reserve, 0.8, least=False)]


def table(head, words, rows):
    """head: its first `words` columns are text, the others numbers."""
    lines = [head, ["---"] * words + ["--:"] * (len(head) - words), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short_name(row, mode):
    """Of a row in a sentence: GPUs other than the H100 are named, and the mode where it is not the default."""
    words = [row["workload"], row["precision"], "" if row["gpu"] == "H100" else f"on the {row['gpu']}", row.get("short", ""),
             (row.get("note") or "").removeprefix(", "), "" if mode == "default" else f"`--{mode}`"]
    return " ".join(word for word in words if word)


def speeds(row, runs):
    theirs = row.get("pytorch")
    return (middle(runs, "rate"), theirs["rate"], row["aim"]) if theirs and row.get("aim") else None


def joules(row, runs):
    theirs = row.get("pytorch")
    both = [median(map(per_joule, runs)), theirs and per_joule(theirs)]
    return (*both, 1.08) if all(both) else None


def memories(row, runs):
    theirs = row.get("pytorch") or {}
    both = beside_state(row, runs[0], "peak_bytes"), beside_state(row, theirs, "reserved_bytes")
    return (*both, 0.8) if all(both) else None


def judge(rows, title, figures, least=True):
    """One sentence: how many rows meet the aim, and which do not, in which mode, each with its ratio. Bold cells show the former."""
    met, missed = 0, []
    for row, mode, runs in ((row, *one) for row in rows for one in modes(row)):
        found = figures(row, runs)
        if found:
            a, b, aim = found
            if a / b >= aim if least else a / b <= aim:
                met += 1
                continue
            of = f" of {aim:.2f}" if figures is speeds else ""
            missed.append(f"{short_name(row, mode)} ({ratio(a, b, aim, least)}{of})")
    return f"**{title}**: met by {met} of {met + len(missed)} rows; missed by {', '.join(missed) or 'none'}."


def verdict(rows):
    return "\n".join([
        "Aims, judged in the default mode except where `--fast` is named:\n",
        "- " + judge(rows, "speed", speeds),
        "- " + judge(rows, "joules per item (1.08)", joules),
        "- " + judge(rows, "memory (0.80 of PyTorch's reserve)", memories, least=False)])


SPEED_HEAD = ["network, batch", "precision", "GPU, card", "mode", "joulemark", "PyTorch", "ratio", "aim", "W, joulemark / PyTorch",
              "items/J, joulemark / PyTorch", "ratio of items/J, aim 1.08"]
MEMORY_HEAD = ["network, batch", "precision", "GPU, card", "joulemark", "PyTorch's tensors", "PyTorch's reserve",
               "of tensors, aim 0.80", "of reserve, aim 0.80"]


def name_of(row):
    """What a row is about and with which further options, whichever card it was measured on."""
    return tuple(row.get(key) or "" for key in ("workload", "precision", "gpu", "short", "note"))


def keep(path, found, card):
    """Puts rows of bench/gpu/rows.py in place of those about the same, or at the end; one without PyTorch replaces none with it."""
    data = json.loads(path.read_text(encoding="utf-8"))
    places = {name_of(row): i for i, row in enumerate(data["rows"])}
    for row in found:
        old = data["rows"][places[name_of(row)]] if name_of(row) in places else {}
        if old.get("pytorch") and not row.get("pytorch"):
            print(f"{' '.join(filter(None, name_of(row)))}: the new row has no PyTorch figures, the older row is kept", file=sys.stderr)
        elif old:
            data["rows"][places[name_of(row)]] = row | {"card": card}
        else:
            data["rows"].append(row | {"card": card})
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def errors(path):
    """Parts of the page; none where there are no figures."""
    if not path.exists():
        return []
    data = json.loads(path.read_text(encoding="utf-8"))
    names, rows = list(SMALL), []
    for row in sorted(data["rows"], key=lambda r: (names.index(r["name"]), PRECISIONS.index(r["precision"]))):
        pairs = zip(row["joulemark"], row["pytorch"])
        rows.append([SMALL[row["name"]], row["precision"], *(f"{a:.2g} : {b:.2g} = {a / b:.2f}" for a, b in pairs)])
    return ["### Errors against f64 on GPUs", ERRORS, data["about"],
            table(["network", "precision", "losses", "gradients", "worst gradient"], 2, rows)]


def section(path):
    """Markdown; empty where there are no figures."""
    if not path.exists():
        return ""
    data = json.loads(path.read_text(encoding="utf-8"))
    speed = [speed_cells(row, *one) for row in data["rows"] for one in modes(row)]
    memory = [cells for cells in map(memory_cells, data["rows"]) if cells]
    parts = ["## On GPUs", METHOD, data["about"], table(SPEED_HEAD, 4, speed), verdict(data["rows"]), data["remarks"], MEMORY,
             table(MEMORY_HEAD, 3, memory), *errors(path.with_name(ERRORS_FILE))]
    return "\n" + "\n\n".join(part for part in parts if part) + "\n"
