# SPDX-License-Identifier: Apache-2.0
"""The section of docs/speed.md on GPUs, from docs/speed_gpu.json: both sides of each row ran in one call on one card.

speed_gpu.json holds what bench/gpu/*.sh printed: of joulemark each run, of PyTorch the median of windows of 1 s with the
slowest and the fastest. A GPU is not at hand where the page is written, so `make table` keeps these figures.
"""
import json
import statistics

UNITS = {"token": "token/s", "image": "image/s", "product": "TFLOP/s"}
SMALL_STATE = {"bf16": 16, "fp16": 16, "tf32": 16, "f32": 16, "bf16-true": 8}  # bytes a parameter: itself, gradient, moments

METHOD = """\
Training steps as above, on one GPU; [gpu.md](gpu.md#measurements) has the commands, more rows and what was tried. Each row is
one call on one card: joulemark in its default mode, whose results repeat bit by bit (without `JM_CUDA_FAST`), and with the memory
that it takes by itself unless the row says otherwise; PyTorch 2.11 with `torch.compile`, autocast, channels last for images, fused
AdamW and the same gradient clipping. A range is that of joulemark's runs, or of PyTorch's windows of 1 s. Watts and joules are those
of the GPU by the driver's counter. *Memory* is what is needed beside parameters, gradients and moments: by the plan, and by the
maximum of PyTorch's allocator. Cards of one model differ by several percent; ratios of one row do not depend on that."""


def number(x):
    return f"{x:,.0f}" if x >= 1000 else f"{x:.1f}" if x >= 100 else f"{x:.3g}"


def span(low, high):
    return f" ({number(low)}–{number(high)})" if number(low) != number(high) else ""


def per_joule(one):
    return one["rate"] / one["watts"]


def middle(runs, key):
    return statistics.median(run[key] for run in runs)


def beside_state(row, peak):
    """Bytes beside parameters, gradients and moments; None where they are not known."""
    if not peak or row["precision"] not in SMALL_STATE:
        return None
    return peak - SMALL_STATE[row["precision"]] * row["parameters"]


def ratio(a, b, aim=None, least=True):
    """Bold where the aim is met."""
    if not a or not b:
        return "-"
    text = f"{a / b:.2f}"
    met = aim and (round(a / b, 2) >= aim if least else round(a / b, 2) <= aim)
    return f"**{text}**" if met else text


def cells(row):
    ours, theirs = row["joulemark"], row.get("pytorch")
    rates = [run["rate"] for run in ours]
    rate, watts, joule = middle(ours, "rate"), middle(ours, "watts"), statistics.median(map(per_joule, ours))
    memory = beside_state(row, ours[0].get("peak_bytes"))
    other = beside_state(row, theirs.get("peak_bytes")) if theirs else None
    return [
        f"{row['workload']}, {row['batch']}", row["precision"], f"{row['gpu']} {row['card']}",
        f"{number(rate)}{span(min(rates), max(rates))} {UNITS[row['unit']]}",
        f"{number(theirs['rate'])}{span(theirs['least'], theirs['most'])}" if theirs else "-",
        ratio(rate, theirs and theirs["rate"], row.get("aim")), f"{row['aim']:.2f}" if row.get("aim") else "-",
        f"{watts:.0f} / {theirs['watts']:.0f}" if theirs else f"{watts:.0f}",
        f"{number(joule)} / {number(per_joule(theirs))}" if theirs else number(joule),
        ratio(joule, theirs and per_joule(theirs), 1.08),
        f"{memory / 1e9:.1f} / {other / 1e9:.1f}" if memory and other else f"{memory / 1e9:.1f}" if memory else "-",
        ratio(memory, other, 0.8, least=False),
    ]


def section(path):
    """Markdown; empty where there are no figures."""
    if not path.exists():
        return ""
    data = json.loads(path.read_text(encoding="utf-8"))
    head = ["network, batch", "precision", "GPU, card", "joulemark", "PyTorch", "ratio", "aim", "W", "items/J",
            "ratio, aim 1.08", "memory, GB", "ratio, aim 0.80"]
    lines = [head, ["---"] * 3 + ["--:"] * (len(head) - 3), *map(cells, data["rows"])]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"\n## On GPUs\n\n{METHOD}\n\n{data['about']}\n\n{table}\n\n{data['verdict']}\n"
