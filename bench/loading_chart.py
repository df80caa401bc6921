#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/loading.svg from docs/loading.json: pictures per second of the loader by its threads, on each machine that was measured.

loading_chart.py [--add NAME FILE] [--output FILE]     FILE of --add: what `picture_loading threads LIST` printed on machine NAME
"""
import argparse
import json
import pathlib

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 70, 20, 34, 46
COLOURS = ["#0969da", "#bc4c00", "#1a7f37", "#8250df"]
STYLE = "text{font:13px sans-serif;fill:#1b1f24}path{fill:none;stroke-width:2}svg{background:#fff}.grid{stroke:#d0d7de;stroke-width:1}"


def step_of(most):
    """Of the marks of an axis: 1, 2 or 5 times a power of ten, at most six of them."""
    unit = 10 ** (len(str(int(most))) - 2)
    return next(n * unit for n in (1, 2, 5, 10, 20, 50) if most <= 6 * n * unit)


def line(points, x, y, colour, dashes=""):
    path = "M" + "L".join(f"{x(t):.1f},{y(v):.1f}" for t, v in points)
    marks = "".join(f'<circle cx="{x(t):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}"/>' for t, v in points)
    return f'<path d="{path}" stroke="{colour}"{dashes and f" stroke-dasharray={chr(34)}{dashes}{chr(34)}"}/>{marks}'


def draw(runs):
    threads = max(p["threads"] for run in runs for p in run["points"])
    most = max(max(p["loader"], p["alone"]) for run in runs for p in run["points"])
    step, across = step_of(most), max(1, threads // 8)
    top = -(-most // step) * step
    x = lambda t: LEFT + (WIDTH - LEFT - RIGHT) * t / threads
    y = lambda v: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * v / top
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"><style>{STYLE}</style>']
    for k in range(int(top / step) + 1):
        parts.append(f'<path class="grid" d="M{LEFT},{y(k * step):.1f}H{WIDTH - RIGHT}"/>'
                     f'<text x="{LEFT - 6}" y="{y(k * step) + 4:.1f}" text-anchor="end">{k * step:,.0f}</text>')
    parts += [f'<text x="{x(t):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{t}</text>' for t in range(across, threads + 1, across)]
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">threads</text>'
                 f'<text x="8" y="18">pictures/s; solid: loader, dashed: libjpeg-turbo alone</text>')
    for i, (run, colour) in enumerate(zip(runs, COLOURS)):
        for key, dashes in (("loader", ""), ("alone", "5,4")):
            parts.append(line([(p["threads"], p[key]) for p in run["points"]], x, y, colour, dashes))
        parts.append(f'<text x="{LEFT + 14}" y="{TOP + 16 + 18 * i}" style="fill:{colour}">{run["machine"]}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("--add", nargs=2, metavar=("NAME", "FILE"))
    parser.add_argument("--output", type=pathlib.Path, default=DOCS / "loading.svg", metavar="FILE")
    given = parser.parse_args()
    kept = DOCS / "loading.json"
    runs = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    if given.add:
        name, file = given.add
        points = [json.loads(text) for text in pathlib.Path(file).read_text(encoding="utf-8").splitlines() if text.startswith("{")]
        runs = [run for run in runs if run["machine"] != name] + [{"machine": name, "points": points}]
        kept.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    given.output.write_text(draw(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
