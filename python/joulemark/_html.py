# SPDX-License-Identifier: Apache-2.0
"""A measurement in a notebook: a table, and the power of its regions over time as SVG."""
from html import escape

from ._result import plain, rows

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 160, 64, 20
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")  # told apart by all
MOST_STRETCHES = 500  # more than that would be one pixel each; then a region is one bar


def _bars(results):
    """(colour, name, start, end, watts) of what is drawn; watts None where power is unknown."""
    every = sum(len(r.stretches) for r in results) <= MOST_STRETCHES
    for i, result in enumerate(results):
        parts = result.stretches if every else [result]
        for part in parts:
            yield (COLOURS[i % len(COLOURS)], result.name, part.start, part.start + part.seconds, part.watts)


def _bar(bar, seconds, most):
    colour, name, start, end, watts = bar
    scale, full = (WIDTH - LEFT) / seconds, HEIGHT - BOTTOM
    height = full if watts is None else full * max(watts, 0) / most
    look = f'fill="none" stroke="{colour}" stroke-dasharray="4 3"' if watts is None else \
        f'fill="{colour}" fill-opacity="0.6" stroke="{colour}"'
    text = f"{name}: " + ("power unknown" if watts is None else f"{plain(watts)} W") + f", {plain(end - start)} s"
    return (f'<rect x="{LEFT + start * scale:.2f}" y="{full - height:.2f}" width="{max((end - start) * scale, 0.5):.2f}" '
            f'height="{height:.2f}" {look}><title>{escape(text)}</title></rect>')


def svg(whole, results):
    """Bars: width is time, height is mean power. A dashed one has unknown power."""
    bars = list(_bars(results or [whole]))
    seconds = max([whole.seconds or 0, 1e-9] + [bar[3] for bar in bars])
    most = max([bar[4] for bar in bars if bar[4] is not None] + [0]) or 1
    full = HEIGHT - BOTTOM
    axis = (f'<line x1="{LEFT}" y1="{full}" x2="{WIDTH}" y2="{full}" stroke="currentColor"/>'
            f'<text x="{LEFT - 4}" y="12" text-anchor="end">{plain(most)} W</text>'
            f'<text x="{LEFT - 4}" y="{full}" text-anchor="end">0</text>'
            f'<text x="{LEFT}" y="{HEIGHT - 4}">0 s</text>'
            f'<text x="{WIDTH}" y="{HEIGHT - 4}" text-anchor="end">{plain(seconds)} s</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'font-size="11" font-family="sans-serif" fill="currentColor">'
            + "".join(_bar(bar, seconds, most) for bar in bars) + axis + "</svg>")


def page(whole, results):
    head, *lines = rows([whole, *results])
    colours = [""] + [COLOURS[i % len(COLOURS)] for i in range(len(results))]
    body = "".join(
        "<tr><td>" + (f'<span style="color:{colour}">&#9632;</span> ' if colour else "")
        + "</td><td>".join(escape(text) for text in line) + "</td></tr>" for line, colour in zip(lines, colours))
    return ("<table><thead><tr>" + "".join(f"<th>{escape(text)}</th>" for text in head) + f"</tr></thead><tbody>{body}"
            f"</tbody></table>{svg(whole, results)}")
