# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the C files whose text changed since they passed, in this clone or another."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile

from check_builds import JOBS, LOGS, ROOT, Tally, Unhurried, build, sources

UNHURRIED = Unhurried()


def preprocessed(command):
    """A hash of what clang-tidy would see of a compilation: the text after the preprocessor, with its comments (NOLINT), the
    warnings that are on, and what else decides how the text is read (not where code may lie). It is the same in each clone,
    as paths of the tree are relative."""
    words = shlex.split(command["command"])
    flags = " ".join(word for word in words if word.startswith(("-W", "-std=", "-f", "-m")) and word != "-fPIC").encode()
    words = words[:words.index("-MD")] + ["-E", "-C", "-o", "-", "-c", command["file"]]
    done = subprocess.run(words, cwd=command["directory"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return hashlib.sha256(flags + re.sub(rb'^# \d+ "<.*', b"", done.stdout, flags=re.M)).hexdigest()  # macros of the command line


def tidy_database(folder, arguments):
    """Writes a compile_commands.json without compilations whose text is another's of the same file. Returns, by file, a
    hash of all that its findings depend on."""
    rules = arguments.encode() + subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, check=True).stdout
    rules += b"".join(path.encode() + (ROOT / path).read_bytes() for path in sources(".", ".clang-tidy"))
    commands = json.loads((ROOT / "build-clang" / "compile_commands.json").read_text())
    path = {c["file"]: os.path.normpath(os.path.join(c["directory"], c["file"])) for c in commands}
    commands = [c for c in commands if "/build" not in path[c["file"]][len(str(ROOT)):]]
    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        distinct = {(path[c["file"]], text): c for c, text in zip(commands, pool.map(preprocessed, commands))}
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(list(distinct.values())))
    keys = {}
    for file, text in sorted(distinct):
        keys[file] = hashlib.sha256(keys.get(file, "").encode() + rules + text.encode()).hexdigest()
    return keys


def passed_before():
    """The file that has, by path, keys of texts that passed: of all clones of this user."""
    folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "joulemark-check"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "tidy.json"


def keep(keys, passed):
    """Those of the paths that passed, each with its last eight; of others what is there."""
    file = passed_before()
    kept = json.loads(file.read_text()) if file.exists() else {}
    for path in passed:
        kept[path] = [key for key in kept.get(path, []) if key != keys[path]][-7:] + [keys[path]]
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as new:
        json.dump(kept, new)
    os.replace(new.name, file)


# Nodes of a function's paths that clang's analyzer visits. Its own bound, 225,000, takes 10 times as long, and 50,000 takes 2.8
# times as long. Of 15 defects put at the ends of long functions of this tree (a null pointer, memory lost or freed twice) all three
# bounds reported 15; of 24 files with findings in its history the two larger ones reported the same 24.
ANALYZER_NODES = "8000"
TOGETHER = 8  # files that one process of clang-tidy reads


def tidy(log, *arguments):
    """clang-tidy over the C files that changed since they last passed with these arguments, or all. Clang's own warnings
    are errors here, too (clang-diagnostic-* of .clang-tidy); nothing is compiled, as no header is generated."""
    if build(log, "build-clang", "clang", targets=None).failed:
        return Tally(0, 1, note="Meson cannot configure build-clang")
    folder = LOGS / "tidy"
    keys = {os.path.relpath(file, ROOT): key for file, key in tidy_database(folder, "".join(arguments)).items()}
    before = json.loads(passed_before().read_text()) if passed_before().exists() else {}
    files = [f for f in keys if keys[f] not in before.get(f, [])]

    def check(some):
        return UNHURRIED("clang-tidy", "--quiet", "-p", folder, *arguments, *(ROOT / file for file in some))

    def check_each(some):
        """The files with findings, and what was said. A process reads several files: a fifth of the time goes into its start."""
        status, out = check(some)
        if not status or len(some) == 1:
            return (some if status else []), out
        each = [check([file]) for file in some]
        return [file for file, (status, _) in zip(some, each) if status], "".join(out for _, out in each)

    bad = []
    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        for wrong, out in pool.map(check_each, [files[i:i + TOGETHER] for i in range(0, len(files), TOGETHER)]):
            log.write(out)
            bad += wrong
    keep(keys, [file for file in files if file not in bad])
    note = bad or [f"{len(keys) - len(files)} unchanged"]
    return Tally(len(keys) - len(bad), len(bad), note=" ".join(note))
