# SPDX-License-Identifier: Apache-2.0
"""docs/speed.md from the figures that bench/table.py has collected."""
import step

METHOD = """\
A training step is forward, backward, clipping at norm 1 and AdamW, on random images or tokens that stay the
same. joulemark, PyTorch and a matrix product of oneDNN take turns on {threads} threads: {rounds} of one
step each and {products} products, after one that warms up. A figure is the median, in parentheses the slowest
and the fastest. `bf16` is f32 parameters and bf16 products, in PyTorch `torch.autocast`; its images lie
`channels_last`. OpenBLAS gets the processor's family by a variable where it does not know it, else it would be slower.

- **ratio**: PyTorch's median time of a step by ours; in parentheses the smallest and largest of a round.
- **kernels**: each group of nodes run alone, three times after one to warm up, medians summed: as a share of
  the step, as FLOP/s, and as a share of the fastest {size} x {size} product of oneDNN in the same run, on the
  same threads and with operands of the same type. Kernels that move memory only count with their time and no
  FLOPs.
- **FLOP**: a multiply-add is 2. *Model* is what the mathematics needs (backward is twice forward), *executed*
  what ran: without the gradient of the images, with the scores that attention computes again.
- **memory**: the most that either process ever held (maximum resident set), so with code and libraries; and
  what our plan says beforehand, without them.
- **start**: from the start of the process until the first step can begin; in PyTorch this loads its libraries,
  here it plans, allocates, generates code and fills the weights."""

PARITY = """\
The same code at a small size (that of `tests/parity/test_parity*.py`), from the same start values, against the same
mathematics in f64: twenty losses (root mean square difference; of images in f32 the lower quartile of the
differences, for a ReLU that rounding turns over moves a loss a thousand times as far), and the gradients of
the first step (of all as one vector, and of the worst tensor: norm of the difference by norm). Over several
starts. Each cell: ours : PyTorch's = ratio; above 2 the test fails."""

CAVEATS = """\
- One machine, two threads: ratios on others differ, above all with other instructions (AMX) and more cores.
- Kernels run alone find warmer caches than in a step, and a machine at work for others makes either slower: a
  share of the step above 100 % is such noise."""

SLOW = """
- oneDNN's product is slower in bf16 than in f32 here: so is the processor's instruction for it. Our kernels then
  widen bf16 and multiply in f32. bf16 saves memory on such a processor, not time, and *by oneDNN's peak* says
  more than 100 %."""

GPUS = """
[GPUs](#on-gpus) follow at the end; their figures are in `speed_gpu.json`."""

OLD = """
- PyTorch is Debian's, not the newest."""


def rows(head, lines):
    left = "|".join("---" if i < 2 else "--:" for i in range(len(head)))
    return "\n".join(["| " + " | ".join(head) + " |", f"|{left}|",
                      *("| " + " | ".join(line) + " |" for line in lines)])


def digits(x, n=3):
    """Three digits that count, no exponent."""
    return f"{x:.{n}g}" if abs(x) < 10 ** n - 0.5 else f"{x:.0f}"


def megabytes(x):
    return f"{x / 1e6:,.0f}"


def rate(found, one):
    """Items per second: median, slowest, fastest."""
    times = sorted(one["seconds"])
    middle = step.statistics.median(times)
    low, mid, high = (digits(found["items"] / t) for t in (times[-1], middle, times[0]))
    return f"{mid} {found['unit']}s/s ({low}–{high})"


def speed(cases):
    head = ["network", "precision", "batch", "joulemark", "PyTorch", "ratio", "kernels by step", "kernels",
            "by oneDNN's peak"]
    lines = []
    for c in cases:
        f, pytorch = step.figures(c), c["pytorch"]
        batch = f"{c['batch']} x {c['seq']}" if c["seq"] else str(c["batch"])
        ratio = f"**{f['ratio']:.2f}** ({f['ratio_low']:.2f}–{f['ratio_high']:.2f})" if pytorch else "-"
        lines.append([
            c["name"], c["precision"], batch, rate(c, c["joulemark"]), rate(c, pytorch) if pytorch else "-", ratio,
            f"{f['kernel_share'] * 100:.0f} %", f"{f['kernel_flops_per_s'] / 1e9:.0f} GFLOP/s",
            f"{f['peak_share'] * 100:.0f} % of {f['peak_flops_per_s'] / 1e9:.0f}"])
    return rows(head, lines)


def memory(cases):
    head = ["network", "precision", "planned, MB", "joulemark, MB", "PyTorch, MB", "ratio",
            "start, s", "PyTorch's start, s"]
    lines = []
    for c in cases:
        own, pytorch = c["joulemark"], c["pytorch"]
        lines.append([
            c["name"], c["precision"], megabytes(own["planned_bytes"]), megabytes(own["rss_bytes"]),
            megabytes(pytorch["rss_bytes"]) if pytorch else "-",
            f"**{own['rss_bytes'] / pytorch['rss_bytes']:.2f}**" if pytorch else "-",
            f"{own['start_s']:.2f}", f"{pytorch['start_s']:.2f}" if pytorch else "-"])
    return rows(head, lines)


def work(cases):
    head = ["network", "precision", "parameters", "model", "executed", "at that speed"]
    lines = []
    for c in cases:
        per = f"GFLOP/{c['unit']}"
        rate_of_model = c["flops_model_per_item"] * step.figures(c)["items_per_s"]
        lines.append([
            c["name"], c["precision"], f"{c['parameters']:,}",
            f"{c['flops_model_per_item'] / 1e9:.4g} {per}", f"{c['flops_executed_per_item'] / 1e9:.4g} {per}",
            f"{rate_of_model / 1e9:.0f} GFLOP/s"])
    return rows(head, lines)


def parity(data):
    head = ["network", "precision", "losses", "gradients", "worst gradient"]
    lines = []
    for c in data["cases"]:
        for row in data["parity"]:
            if (row["name"], row["precision"]) != (c["small"], c["precision"]):
                continue
            cells = [f"{a:.2g} : {b:.2g} = {a / b:.2f}" for a, b in zip(row["joulemark"], row["pytorch"])]
            lines.append([c["name"], c["precision"], *cells])
    return rows(head, lines)


def slow_bf16(cases):
    """Does oneDNN multiply slower in bf16 than in f32?"""
    best = {}
    for c in cases:
        best[c["precision"]] = max(best.get(c["precision"], 0), step.figures(c)["peak_flops_per_s"])
    return "bf16" in best and best["bf16"] < best.get("f32", 0)


def sized(cases):
    """What the names stand for where no paper has the size."""
    made = {c["name"]: f"`{c['name']}` is `{c['model']}`{' with ' if c['dims'] else ''}{', '.join(c['dims'].split())}"
            for c in cases if c["dims"] or c["name"].startswith("drawn-")}
    drawn = "\n\n`drawn-SEED-I` are rows that chance drew (`--drawn`); nobody chose them." if any(
        c["name"].startswith("drawn-") for c in cases) else ""
    return "".join(f"\n\n{text}." for text in made.values()) + drawn


def libraries(cases):
    """What the processes themselves said they were."""
    for case in cases[:1]:
        yield case["peak"]["library"]
        if case["pytorch"]:
            yield "PyTorch " + case["pytorch"]["version"]


def setting(data):
    m, v = data["machine"], data["versions"]
    about = [f"**{data['date']}**, {m['processor']}{' (virtual)' if m['virtual'] else ''}, {m['cores']} cores, "
             f"{', '.join(m['instructions']) or 'no vectors'}, {m['memory_bytes'] / 2 ** 30:.0f} GiB; {m['os']}, "
             f"Linux {m['kernel']}; load before the run {m['load']:.1f}.",
             ", ".join([f"{name} {value}" for name, value in v.items()] + list(libraries(data["cases"]))) + "."]
    return "\n".join(about + ([data["note"]] if data["note"] else []))


def page(data, gpus=""):
    """gpus: the section of table_gpu.py"""
    cases = data["cases"]
    first = cases[0]
    method = METHOD.format(products=step.PRODUCTS, threads=data["machine"]["threads"],
                           rounds=f"{first['rounds']} round{'s' * (first['rounds'] != 1)}", size=first["peak"]["size"])
    errors = f"\n\n## Errors against f64\n\n{PARITY}\n\n{parity(data)}" if data["parity"] else ""
    if data["parity_passed"] is False:
        errors += "\n\n**A parity test failed or could not run.**"
    return f"""\
# Training speed on a processor

Written by `make table` (`bench/table.py`); all raw figures are in `speed.json`.{GPUS if gpus else ""}

{setting(data)}

## Speed

{speed(cases)}{sized(cases)}

## Memory and start

{memory(cases)}

## Work

{work(cases)}{errors}

## How it is measured

{method}

## What to keep in mind

{CAVEATS}{SLOW if slow_bf16(cases) else ""}{OLD if "python3-torch" in data["versions"] else ""}
{gpus}"""
