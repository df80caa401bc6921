# SPDX-License-Identifier: Apache-2.0
"""The section of docs/speed.md on GPUs, from docs/speed_gpu.json: both sides of each row ran in one call on one card.

speed_gpu.json holds what bench/gpu/*.sh printed: of joulemark each run, of PyTorch the median of windows of 1 s with the
slowest and the fastest. The machine that writes the page has no GPU, so `make table` keeps these figures.
"""
import json
import statistics

UNITS = {"token": "token/s", "image": "image/s", "product": "TFLOP/s"}
STATE = {"bf16": 16, "fp16": 16, "tf32": 16, "f32": 16, "bf16-true": 8, "fp8-true": 8}  # bytes a parameter: itself, gradient, moments

METHOD = """\
Training steps as above, on one GPU; [gpu.md](gpu.md#measurements) has the commands, profiles and what was tried. Both sides of a row
ran in one call on one card. joulemark computed in its default mode, whose results repeat bit by bit (no `--fast`), and with the
memory that it takes by itself where a row does not say otherwise; PyTorch 2.11 with `torch.compile`, autocast, channels last for images, fused
AdamW and the same gradient clipping. A range is that of joulemark's runs, or of PyTorch's windows of 1 s. Watts and joules are those
of the GPU by the driver's counter. *Memory* is what is needed beside parameters, gradients and moments: joulemark's plan, PyTorch's
tensors at their maximum, and what its allocator reserves for them. Bold: the aim is met. Cards of one model differ by several percent."""


def number(x):
    return f"{x:,.0f}" if x >= 1000 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def span(low, high):
    return f" ({number(low)}–{number(high)})" if number(low) != number(high) else ""


def per_joule(one):
    return one["rate"] / one["watts"]


def middle(runs, key):
    return statistics.median(run[key] for run in runs)


def beside_state(row, peak):
    """Bytes beside parameters, gradients and moments; None where they are not known."""
    if not peak or row["precision"] not in STATE:
        return None
    return peak - STATE[row["precision"]] * row["parameters"]


def ratio(a, b, aim=None, least=True):
    """Bold where the aim is met."""
    if not a or not b:
        return "-"
    text = f"{a / b:.2f}"
    met = aim and (round(a / b, 2) >= aim if least else round(a / b, 2) <= aim)
    return f"**{text}**" if met else text


def gigabytes(x):
    return f"{x / 1e9:.1f}" if x else "-"


def memory_cells(row):
    """Ours, of PyTorch's tensors, of its allocator; our share of either."""
    theirs = row.get("pytorch") or {}
    ours, tensors, reserve = (beside_state(row, peak) for peak in (
        row["joulemark"][0].get("peak_bytes"), theirs.get("peak_bytes"), theirs.get("reserved_bytes")))
    return [f"{gigabytes(ours)} / {gigabytes(tensors)} / {gigabytes(reserve)}", ratio(ours, tensors, 0.8, least=False),
            ratio(ours, reserve, 0.8, least=False)]


def cells(row):
    ours, theirs = row["joulemark"], row.get("pytorch")
    rates = [run["rate"] for run in ours]
    rate, watts, joule = middle(ours, "rate"), middle(ours, "watts"), statistics.median(map(per_joule, ours))
    return [
        f"{row['workload']}, {row['batch']}{row.get('note', '')}", row["precision"], f"{row['gpu']} {row['card']}",
        f"{number(rate)}{span(min(rates), max(rates))} {UNITS[row['unit']]}",
        f"{number(theirs['rate'])}{span(theirs['least'], theirs['most'])}" if theirs else "-",
        ratio(rate, theirs and theirs["rate"], row.get("aim")), f"{row['aim']:.2f}" if row.get("aim") else "-",
        f"{watts:.0f} / {theirs['watts']:.0f}" if theirs else f"{watts:.0f}",
        f"{number(joule)} / {number(per_joule(theirs))}" if theirs else number(joule),
        ratio(joule, theirs and per_joule(theirs), 1.08), *memory_cells(row),
    ]


def section(path):
    """Markdown; empty where there are no figures."""
    if not path.exists():
        return ""
    data = json.loads(path.read_text(encoding="utf-8"))
    head = ["network, batch", "precision", "GPU, card", "joulemark", "PyTorch", "ratio", "aim", "W", "items/J",
            "ratio, aim 1.08", "memory, GB", "of tensors, aim 0.80", "of reserve, aim 0.80"]
    lines = [head, ["---"] * 3 + ["--:"] * (len(head) - 3), *map(cells, data["rows"])]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"\n## On GPUs\n\n{METHOD}\n\n{data['about']}\n\n{table}\n\n{data['verdict']}\n"
