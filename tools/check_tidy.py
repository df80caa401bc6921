# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the C files whose text changed since they passed."""
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess

from check_builds import JOBS, LOGS, ROOT, Tally, Unhurried, build, sources

UNHURRIED = Unhurried()


def preprocessed(command):
    """A hash of what clang-tidy would see of a compilation: the text after the preprocessor, with its comments (NOLINT), and
    the warnings that are on."""
    words = shlex.split(command["command"])
    warnings = " ".join(word for word in words if word.startswith("-W")).encode()
    words = words[:words.index("-MD")] + ["-E", "-C", "-o", "-", "-c", command["file"]]
    done = subprocess.run(words, cwd=command["directory"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return hashlib.sha256(warnings + re.sub(rb'^# \d+ "<.*', b"", done.stdout, flags=re.M)).hexdigest()  # macros of the command line


def tidy_database(folder, arguments):
    """Writes a compile_commands.json without compilations whose text is another's of the same file. Returns, by file, a
    hash of all that its findings depend on."""
    rules = arguments.encode() + subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, check=True).stdout
    rules += b"".join((ROOT / path).read_bytes() for path in sources(".", ".clang-tidy"))
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


# Nodes of a function's paths that clang's analyzer visits. Its own bound, 225,000, takes 10 times as long, and 50,000 takes 2.8
# times as long. Of 15 defects put at the ends of long functions of this tree (a null pointer, memory lost or freed twice) all three
# bounds reported 15; of 24 files with findings in its history the two larger ones reported the same 24.
ANALYZER_NODES = "8000"


def tidy(log, *arguments):
    """clang-tidy over the C files that changed since they last passed with these arguments, or all. Clang's own warnings
    are errors here, too (clang-diagnostic-* of .clang-tidy); nothing is compiled, as no header is generated."""
    if build(log, "build-clang", "clang", targets=None).failed:
        return Tally(0, 1, note="Meson cannot configure build-clang")
    folder = LOGS / "tidy"
    keys = tidy_database(folder, "".join(arguments))
    passed = folder / "passed.json"
    before = json.loads(passed.read_text()) if passed.exists() else {}
    files = [f for f in keys if keys[f] not in before.get(f, [])]

    def check(file):
        return UNHURRIED("clang-tidy", "--quiet", "-p", folder, *arguments, file)

    bad = []
    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        for file, (status, out) in zip(files, pool.map(check, files)):
            log.write(out)
            if status:
                bad.append(file)
            else:
                before[file] = before.get(file, [])[-7:] + [keys[file]]
    passed.write_text(json.dumps({f: before[f] for f in keys if f in before}))
    note = [os.path.relpath(file, ROOT) for file in bad] or [f"{len(keys) - len(files)} unchanged"]
    return Tally(len(keys) - len(bad), len(bad), note=" ".join(note))
