# SPDX-License-Identifier: Apache-2.0
"""Draws an acyclic graph as SVG: rows of boxes, each above all boxes that it points to."""
import collections

WIDTH, HEIGHT = 104, 30  # of a box
GAP_X, GAP_Y = 22, 34
MARGIN = 16
STYLE = """text{font:13px sans-serif;text-anchor:middle;fill:#1b1f24}
rect{fill:#f6f8fa;stroke:#57606a}rect.lib{fill:#ddf4ff;stroke:#0969da}
path{fill:none;stroke:#57606a;stroke-width:1.2}svg{background:#fff}"""


def without_detours(arrows):
    """Without the arrows that a longer way says as well."""
    after = collections.defaultdict(set)
    for a, b in arrows:
        after[a].add(b)

    def reaches(a, b, not_straight=False):
        return any((c != b or not not_straight) and (c == b or reaches(c, b)) for c in after[a])

    return {(a, b) for a, b in arrows if not reaches(a, b, not_straight=True)}


def levels(arrows):
    """{box: rows above the lowest}"""
    after = collections.defaultdict(set)
    for a, b in arrows:
        after[a].add(b)
    found = {}

    def level(v):
        if v not in found:
            found[v] = max((level(w) + 1 for w in after[v]), default=0)
        return found[v]

    for v in sorted({v for arrow in arrows for v in arrow}):
        level(v)
    return found


def with_bends(arrows, level):
    """Long arrows as chains of short ones: (rows of names, top first; chains)."""
    rows = [[] for _ in range(max(level.values()) + 1)]
    for v in sorted(level):
        rows[-1 - level[v]].append(v)
    chains = []
    for a, b in sorted(arrows):
        chain = [a] + [(a, b, k) for k in range(level[a] - 1, level[b], -1)] + [b]
        for bend in chain[1:-1]:
            rows[-1 - bend[2]].append(bend)
        chains.append(chain)
    return rows, chains


def order(rows, links):
    """Sorts each row by the mean place of its neighbours, down and up again, until few arrows cross."""
    for sweep in range(40):
        sequence = range(1, len(rows)) if sweep % 2 == 0 else range(len(rows) - 2, -1, -1)
        for i in sequence:
            other = rows[i - 1] if sweep % 2 == 0 else rows[i + 1]
            place = {v: k / max(len(other) - 1, 1) for k, v in enumerate(other)}

            def mean(v, place=place):
                near = [place[w] for w in links[v] if w in place]
                return sum(near) / len(near) if near else 0.5

            rows[i].sort(key=lambda v: (mean(v), str(v)))


def width_of(v):
    return WIDTH if isinstance(v, str) else 10


def spread(row, want):
    """Places near those that are wanted, in the row's order, boxes apart."""
    at, groups = {}, []
    for v in row:
        groups.append(([v], want[v]))
        while len(groups) > 1:
            (left, a), (right, b) = groups[-2:]
            need = sum(width_of(u) + GAP_X for u in left) / 2 + sum(width_of(u) + GAP_X for u in right) / 2
            if b - a >= need:
                break
            both = left + right
            groups[-2:] = [(both, (a * len(left) + b * len(right)) / len(both))]
    for members, centre in groups:
        x = centre - sum(width_of(u) + GAP_X for u in members) / 2
        for u in members:
            at[u] = x + (width_of(u) + GAP_X) / 2
            x += width_of(u) + GAP_X
    return at


def places(rows, links):
    at = {v: k * (WIDTH + GAP_X) for row in rows for k, v in enumerate(row)}
    for sweep in range(60):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            want = {v: sum(at[w] for w in links[v]) / len(links[v]) for v in row}
            at.update(spread(row, want))
    left = min(x - width_of(v) / 2 for v, x in at.items())
    return {v: x - left + MARGIN for v, x in at.items()}


def line(chain, at, y):
    """A path from the foot of the first box, straight through the rows between, to the head of the last."""
    points = [(at[chain[0]], y[chain[0]] + HEIGHT)]
    for bend in chain[1:-1]:
        points += [(at[bend], y[bend]), (at[bend], y[bend] + HEIGHT)]
    points.append((at[chain[-1]], y[chain[-1]] - 2))
    text = f"M{points[0][0]:.0f} {points[0][1]:.0f}"
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        middle = (y0 + y1) / 2
        text += f"C{x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {y1:.0f}"
    return f'<path d="{text}" marker-end="url(#tip)"/>'


def draw(arrows):
    kept = without_detours(arrows)
    rows, chains = with_bends(kept, levels(kept))
    links = collections.defaultdict(list)
    for chain in chains:
        for a, b in zip(chain, chain[1:]):
            links[a].append(b)
            links[b].append(a)
    order(rows, links)
    at = places(rows, links)
    y = {v: MARGIN + i * (HEIGHT + GAP_Y) for i, row in enumerate(rows) for v in row}
    width = max(x + width_of(v) / 2 for v, x in at.items()) + MARGIN
    height = 2 * MARGIN + len(rows) * (HEIGHT + GAP_Y) - GAP_Y
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
           f'height="{height}">', "<!-- made by tools/rooms.py; an arrow points to what is included, and those "
           "that a longer way says as well are left out -->", f"<style>{STYLE}</style>",
           '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
           '<polygon points="0,0 8,4 0,8" fill="#57606a"/></marker>']
    out += [line(chain, at, y) for chain in chains]
    for v in sorted(v for v in at if isinstance(v, str)):
        kind = ' class="lib"' if v.startswith("lib/") else ""
        out.append(f'<rect{kind} x="{at[v] - WIDTH / 2:.0f}" y="{y[v]:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>'
                   f'<text x="{at[v]:.0f}" y="{y[v] + HEIGHT / 2 + 5:.0f}">{v}</text>')
    return "\n".join(out + ["</svg>", ""])
