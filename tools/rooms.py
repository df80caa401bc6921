# SPDX-License-Identifier: Apache-2.0
"""Checks the rooms of the code, and what each may include, against the code.

rooms.py [--build DIR]           every #include resolved as the compiler does, and every symbol that an object of
                                 the build takes from another: prints each arrow that points the wrong way, each
                                 loop between files, each room that is not in the table; status 1 when there is one
rooms.py --picture               the rooms and their arrows as SVG (docs/rooms.svg) on standard output
rooms.py --picture-is FILE       status 1 when FILE is not that picture
rooms.py --root DIR ...          the same for another tree
"""
import argparse
import collections
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import rooms_svg

# The rooms of lib in their order: each includes only those before it.
LIB = ["base", "meter", "trace", "energy", "measure", "guard", "result", "tune", "store", "run"]

# What a room outside of lib may include besides itself; "lib" is every room of lib, "*" everything.
MAY = {
    "include": "",
    "vendor": "include lib/base",
    "sim": "include lib/base lib/meter",
    "sources": "include vendor sim lib/base lib/meter",
    "controls": "include vendor sim lib/base lib/meter lib/guard",
    "comm": "include vendor lib/base",
    "data": "include vendor lib/base",
    "engine": "include comm lib/base",
    "backends/*": "include engine comm vendor lib/base",
    "models": "include engine lib/base",
    "serving": "include lib/base",
    "workloads": "include models engine serving comm data sim vendor lib/base lib/run",
    "report": "include vendor lib",
    "cli": "include report engine comm data vendor lib",
    "daemon": "include lib/base lib/guard",
    "examples": "include",
    "bench": "*",
    "tests": "*",
    "tools": "*",
}
MAY.update({f"lib/{room}": " ".join(["include"] + [f"lib/{r}" for r in LIB[:i]]) for i, room in enumerate(LIB)})

# Inner rooms in their order: each includes only those before it. "." stands for the files right in the room's folder.
INNER = {
    "lib/base": ". text stat process files net",
    "lib/measure": "session command view",
    "lib/run": ". plan gang worker sweep slurm",
    "sources": ". nvml",
    "engine": "graph device plan run check",
    "backends/cpu": "kernels device ops .",
    "backends/cuda": "kernels device dnn choose ops .",
    "data": "tokenizer sets .",
    "workloads": "parts train serve .",
    "report": "format model judge systems text page .",
    "cli": "frame settings measure run inspect live .",
}

MOST_SOURCES = 25  # in one folder

# Symbols only: the engine names the backend that is built in, which is a row of its table.
NAMED = {("engine", "backends/ref")}

# Headers whose functions several files define: contracts, tables of rows, what one of several files may implement.
CONTRACTS = {
    "backend.h", "commands.h", "cpu.h", "data_frame.h", "joulemark.h", "kernels.h", "launcher.h", "op_case.h", "op_rows.h",
    "ref_kernels.h", "store_db.h", "tensor_map.h", "top_screen.h",
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
PRODUCT = re.compile(r"^(?!tests/|bench/|examples/|tools/)")


def room_of(file):
    """lib/energy/energy.c: lib/energy; cli/main.c: cli. A file right in lib or backends has no room of its own."""
    parts = file.split("/")
    return "/".join(parts[:2]) if parts[0] in ("lib", "backends") and len(parts) > 2 else parts[0]


def inner_of(file):
    """engine/plan/cost.c: plan; "." for a file right in the folder of its room."""
    below = file[len(room_of(file)) + 1:].split("/")
    return below[0] if len(below) > 1 else "."


def inner_wrong(file, other):
    """What is wrong with an arrow within a room; None = nothing."""
    order = INNER.get(room_of(file), ".").split()
    a, b = inner_of(file), inner_of(other)
    if a == b or not PRODUCT.match(file) or not {a, b} <= set(order):
        return None
    return None if order.index(b) < order.index(a) else f"{room_of(file)}: {a} may not use {b}"


# What depends on the text of a file alone: a tree differs from one that was read before in few files.
@functools.lru_cache(None)
def without_comments(text):
    """Each character of a comment is a space."""
    return COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


@functools.lru_cache(None)
def includes_of(text):
    """[(name in quotes, name in angle brackets, line)]"""
    return [(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in INCLUDE.finditer(text)]


@functools.lru_cache(None)
def tables_of(text):
    """Names of the members whose tables this file has."""
    return {name for _, name in re.findall(r"const struct jm_(source|control|workload|command) jm_\1_(\w+)", text)}


@functools.lru_cache(None)
def words_of(text):
    return frozenset(re.findall(r"\b\w+", text))


def twins(tree):
    """Files of one name. A member has the name of its contract's table, and a file of a backend may have that of another's."""
    places = collections.defaultdict(set)
    for file in tree.files:
        name = os.path.basename(file)
        if os.path.splitext(name)[0] not in tables_of(tree.text[file]):
            places[name].add(file)
    for name, files in places.items():
        if len(files) > 1 and len({room_of(f) for f in files if f.startswith("backends/")}) < len(files):
            yield f"{name} is the name of several files: {', '.join(sorted(files))}"


def folders(tree):
    """What is wrong with the folders: one without a row, or with more sources than a reader overlooks."""
    sources = collections.Counter(os.path.dirname(f) for f in tree.files if PRODUCT.match(f) and f.endswith((".c", ".cu")))
    for file in tree.files:
        if allowed(room_of(file)) is None:
            yield f"{file}: '{room_of(file)}' is no room of the table in tools/rooms.py"
        elif PRODUCT.match(file) and inner_of(file) not in INNER.get(room_of(file), ".").split():
            yield f"{file}: '{inner_of(file)}' is no inner room of {room_of(file)} in tools/rooms.py"
    for folder, n in sources.items():
        if n > MOST_SOURCES:
            yield f"{folder}: {n} sources, more than {MOST_SOURCES}; divide it into inner rooms"


def allowed(room):
    """The rooms that `room` may include; None when it is not in the table."""
    words = MAY.get(room, MAY.get(os.path.dirname(room) + "/*"))
    if words is None:
        return None
    return {w for word in words.split() for w in ([f"lib/{r}" for r in LIB] if word == "lib" else [word])}


def reachable(room):
    found, todo = set(), [room]
    while todo:
        for other in allowed(todo.pop()) or ():
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


class Tree:
    """The C files of a tree and what they include."""

    def __init__(self, root, build):
        self.root, self.build = root, build
        self.resolve = functools.lru_cache(None)(self.resolve)
        names = list(self.list_files())
        self.files = sorted(f for f in names if f.endswith((".c", ".h", ".cu", ".cuh")))
        self.templates = {f for f in names if f.endswith(".in")}
        self.meson = {os.path.dirname(f) or "." for f in names if os.path.basename(f) == "meson.build"}
        self.raw = {f: (root / f).read_text(encoding="utf-8") for f in self.files}
        self.text = {f: without_comments(t) for f, t in self.raw.items()}
        self.includes = {f: includes_of(t) for f, t in self.text.items()}
        self.inc = self.main_folders()
        self.edges = {}  # (file, included file): line
        self.missing = {}  # (file, name): line
        self.commands = self.read_commands()
        self.follow_all()

    def list_files(self):
        for path, folders, names in os.walk(self.root):
            folders[:] = [f for f in folders if not f.startswith((".", "build", "node_modules", "echarts"))]
            below = os.path.relpath(path, self.root)
            yield from (os.path.normpath(os.path.join(below, name)) for name in names)

    def read_commands(self):
        """[(source, [include folders], object)] of the build, all within the tree."""
        table = self.build / "compile_commands.json"
        found, known = [], {}
        for row in json.loads(table.read_text()) if table.exists() else []:
            base = pathlib.Path(row["directory"])
            within = lambda p: os.path.relpath(os.path.normpath(base / p), self.root)
            words = row["command"].split() if not re.search(r"[\\'\"]", row["command"]) else shlex.split(row["command"])
            folders = tuple(w[2:] for w in words if w.startswith("-I") and w != "-I")
            if (base, folders) not in known:
                inside = [within(f) for f in folders]
                known[base, folders] = [f for f in inside if not f.startswith("..") and (self.root / f).is_dir()
                                        and not (self.root / f).samefile(self.build)]
            folders = known[base, folders]
            found.append((within(row["file"]), folders, base / row["output"]))
        return found

    def main_folders(self):
        main = (self.root / "meson.build").read_text()
        return re.findall(r"'([^']*)'", re.search(r"^inc = include_directories\((.*)\)", main, re.M)[1])

    def usual_folders(self, file):
        """As Meson gives them to a file that is not of this build, such as a member that is absent here."""
        above = [str(p) for p in pathlib.PurePath(file).parents]
        return tuple(p for p in above if p in self.meson) + tuple(self.inc)

    def resolve(self, folder, quoted, angled, folders):
        """The file of the tree that is meant in a file of this folder; "" when it is not of the tree or generated; None when
        not found."""
        name = quoted or angled
        places = ((folder,) if quoted else ()) + folders
        for place in places:
            path = os.path.normpath(os.path.join(place, name))
            if path in self.text:
                return path
            if path + ".in" in self.templates:
                return ""
        return None if quoted else ""

    def follow(self, file, folders, seen):
        seen.add(file)
        for quoted, angled, line in self.includes[file]:
            path = self.resolve(os.path.dirname(file), quoted, angled, folders)
            if path is None:
                self.missing[file, quoted] = line
            elif path:
                self.edges[file, path] = line
                if path not in seen:
                    self.follow(path, folders, seen)

    def follow_all(self):
        seen = {}
        for file, folders, _ in self.commands:
            if file in self.text:
                self.follow(file, tuple(folders), seen.setdefault(tuple(folders), set()))
        reached = {f for files in seen.values() for f in files}
        for file in self.files:
            if file not in reached:
                self.follow(file, self.usual_folders(file), set(reached))

    def symbols(self):
        """({symbol: its file of the product}, {symbol: files that take it from others}), from the objects of the build."""
        objects = {str(o): f for f, _, o in self.commands if o.exists()}
        home, wanted = {}, collections.defaultdict(set)
        if not objects:
            return home, wanted
        listed = subprocess.run(["nm", "-A", "-P", "-g", *objects], check=False, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        for line in listed.splitlines():
            where, name, kind = line.split()[:3]
            file = objects[where.rstrip(":")]
            if kind == "U":
                wanted[name].add(file)
            elif name not in home and file in self.text and PRODUCT.match(file):
                home[name] = file
        return home, wanted


def uses_of(tree, home, wanted):
    """{(file, other file): [symbols of the other that it takes]} of the product."""
    uses = collections.defaultdict(list)
    for name, files in wanted.items():
        for file in files:
            if file in tree.text and PRODUCT.match(file) and home.get(name, file) != file:
                uses[file, home[name]].append(name)
    return uses


def loops(edges):
    """Sets of files that reach each other, by Tarjan's algorithm."""
    graph, index, low, stack, found = collections.defaultdict(list), {}, {}, [], []
    for a, b in edges:
        graph[a].append(b)

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            found.append(stack[stack.index(v):])
            del stack[stack.index(v):]

    sys.setrecursionlimit(10000)
    for v in list(graph):
        if v not in index:
            visit(v)
    return [sorted(c) for c in found if len(c) > 1] + [[a] for a, b in edges if a == b]


def stem_of(file):
    return os.path.splitext(file)[0].removesuffix("_private")


def circles(tree, uses):
    """Files that need each other, includes and symbols taken together; X.c, X.h and X_private.h are one."""
    arrows = {(stem_of(a), stem_of(b)) for a, b in [*tree.edges, *uses] if PRODUCT.match(a) and PRODUCT.match(b)}
    for circle in loops((a, b) for a, b in arrows if a != b):
        yield f"a circle of files: {', '.join(circle)}"


def declarations(tree, home, wanted):
    """What other files use is declared in the header of its file; the rest is static."""
    if not home:
        return
    words, mentions = collections.defaultdict(set), collections.Counter()
    for file, text in tree.text.items():
        found = words_of(text)
        if file.endswith((".h", ".cuh")):
            for name in found if PRODUCT.match(file) else ():
                words[name].add(file)
        else:
            mentions.update(found)
    for name, file in home.items():
        own = [h for h in words[name] if stem_of(h) == stem_of(file)]
        if wanted[name] - {file} and words[name] and not own:
            places = {os.path.basename(h) for h in words[name]
                      if re.search(rf"\b{name}\b[^;{{}}]*;", tree.text[h])}  # not where a macro calls it
            private = any(stem_of(p).endswith("_parts") or p.endswith("_private.h") for p in places)
            if not private and not places & CONTRACTS:
                yield f"{file}: {name} is declared in {min(words[name])}, not in a header of this name"
        elif mentions[name] == 1 and not wanted[name] - {file} and own:
            yield f"{file}: {name} is used by no other file; make it static"


def headers(tree):
    """What is wrong with the comments on top of the rooms of lib: one header says what lives there."""
    for i, room in enumerate(LIB):
        tops = ["".join(tree.raw[f].split("*/")[:2]) for f in tree.files if f.startswith(f"lib/{room}/") and f.endswith(".h")]
        told = [top for top in tops if f"\n * Room {room}: " in top]
        if len(told) != 1:
            yield f"lib/{room}: {len(told)} headers begin with a comment 'Room {room}: ...'; one should"
        elif f"\n * May include: {', '.join(LIB[:i]) or 'none'}.\n" not in told[0]:
            yield f"lib/{room}: the comment on the room does not say 'May include: {', '.join(LIB[:i]) or 'none'}.'"


def check(tree):
    """Sentences on what is wrong."""
    yield from headers(tree)
    yield from folders(tree)
    yield from twins(tree)
    for (file, name), line in tree.missing.items():
        yield f'{file}:{line}: "{name}" is in no include folder of the build'
    for (file, other), line in tree.edges.items():
        a, b = room_of(file), room_of(other)
        if a != b and not {b, "*"} & (allowed(a) or {"*"}):
            yield f"{file}:{line}: {a} may not include {b} ({other})"
        elif a == b and inner_wrong(file, other):
            yield f"{file}:{line}: {inner_wrong(file, other)} ({other})"
    include_loops = loops(tree.edges)
    for loop in include_loops:
        yield f"a loop of includes: {', '.join(loop)}"
    home, wanted = tree.symbols()
    uses = uses_of(tree, home, wanted)
    for (file, other), names in uses.items():
        a, b = room_of(file), room_of(other)
        if a != b and b not in reachable(a) and (a, b) not in NAMED:
            yield f"{file}: {a} may not use {b} ({names[0]} of {other})"
        elif a == b and inner_wrong(file, other):
            yield f"{file}: {inner_wrong(file, other)} ({names[0]} of {other})"
    use_loops = loops(uses)
    for loop in use_loops:
        yield f"a loop of uses: {', '.join(loop)}"
    if not include_loops and not use_loops:  # each would be told again
        yield from circles(tree, uses)
    yield from declarations(tree, home, wanted)
    for room in MAY:
        if room in reachable(room):
            yield f"'{room}' may include itself through others: the table in tools/rooms.py has a loop"


def picture(tree):
    arrows = {(room_of(a), room_of(b)) for a, b in tree.edges if PRODUCT.match(a)}
    return rooms_svg.draw({(a, b) for a, b in arrows if a != b})


def main(words):
    args = argparse.ArgumentParser(usage=__doc__)
    here = pathlib.Path(__file__).resolve().parent.parent
    args.add_argument("--root", type=pathlib.Path, default=here)
    args.add_argument("--build", type=pathlib.Path)
    args.add_argument("--picture", action="store_true")
    args.add_argument("--picture-is", type=pathlib.Path)
    o = args.parse_args(words)
    root = o.root.resolve()
    tree = Tree(root, (o.build or root / "build").resolve())
    if o.picture:
        sys.stdout.write(picture(tree))
        return 0
    if o.picture_is:
        same = o.picture_is.exists() and o.picture_is.read_text() == picture(tree)
        print("" if same else f"{o.picture_is} is not what the code is; make it anew: "
                              f"python3 tools/rooms.py --picture >docs/rooms.svg", end="" if same else "\n")
        return 0 if same else 1
    if not tree.commands:
        print(f"rooms: {tree.build} is no build; what files take from each other was not checked, only includes", file=sys.stderr)
    wrong = list(check(tree))
    print("".join(line + "\n" for line in wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
