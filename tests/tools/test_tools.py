# SPDX-License-Identifier: Apache-2.0
"""tools/: wrong arguments are reported immediately, not after minutes."""
import contextlib
import importlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
from unittest import mock

import pytest

from fake_gpus import wait_for
from jm import BIN, BUILD, SOURCE


@pytest.mark.parametrize("program, words, said", [
    ("demo.sh", [BIN, "foo"], "not 'foo'"),
    ("demo.sh", [BIN, "sim:h100x9"], "nodes of 1 to 8"),
    ("demo.sh", [BIN, "nvml"], "LOAD="),
    ("bench.sh", ["build", "nosuch"], "sim_day"),
    ("setup.sh", ["nosuch"], "build|demo|check"),
])
def test_wrong_words(tmp_path, program, words, said):
    done = subprocess.run([SOURCE / "tools" / program, *words], cwd=tmp_path, text=True, timeout=240, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={k: v for k, v in os.environ.items() if k != "LOAD"})
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not done.stdout and not os.listdir(tmp_path)


@pytest.fixture(name="whole_tree", scope="module")
def tree_of_c_files(tmp_path_factory):
    """The C files of this tree, to copy; include folders as in the real build."""
    whole = tmp_path_factory.mktemp("whole") / "tree"
    for folder, folders, names in os.walk(SOURCE):
        folders[:] = [f for f in folders if not f.startswith((".", "build", "node_modules"))]
        inside = whole / os.path.relpath(folder, SOURCE)
        inside.mkdir()
        for name in names:
            if name.endswith((".c", ".h", ".cu", ".cuh", ".in")) or name == "meson.build":
                shutil.copyfile(os.path.join(folder, name), inside / name)
    return whole


def stamps(tree):
    return {pathlib.Path(folder, name): (entry := os.stat(os.path.join(folder, name))) and (entry.st_mtime_ns, entry.st_size)
            for folder, _, names in os.walk(tree) for name in names}


@pytest.fixture(name="tree")
def tree_to_spoil(whole_tree):
    """The tree; what a test changes in it is put right after the test, which takes a tenth of the time of a copy."""
    before, folders = stamps(whole_tree), {folder for folder, *_ in os.walk(whole_tree)}
    yield whole_tree
    for path, stamp in stamps(whole_tree).items():
        if path not in before:
            path.unlink()
        elif stamp != before[path]:
            shutil.copyfile(SOURCE / path.relative_to(whole_tree), path)
    for folder, *_ in list(os.walk(whole_tree)):
        if folder not in folders:
            shutil.rmtree(folder)


def rooms(tree, *words, build="none"):
    """rooms.py in this process, where it remembers the texts that it has read."""
    with mock.patch.object(sys, "path", [str(SOURCE / "tools"), *sys.path]):
        module = importlib.import_module("rooms")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = module.main(["--root", str(tree), "--build", str(tree / build), *map(str, words)])
    return subprocess.CompletedProcess([], status, out.getvalue())


def test_rooms_as_they_are(tree):
    done = rooms(tree)
    assert (done.returncode, done.stdout) == (0, "")
    # with the build: its include folders and its objects
    done = subprocess.run(["/usr/bin/python3", SOURCE / "tools" / "rooms.py", "--build", BUILD], text=True, timeout=240,
                          check=False, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("file, line, said", [
    # however the compiler finds it
    ("lib/base/stat/stat.c", '#include "store/store.h"', "lib/base may not include lib/store (lib/store/store.h)"),
    ("lib/base/stat/stat.c", '#include "../../store/store.h"', "lib/base may not include lib/store"),
    ("lib/base/stat/stat.c", "#  include <store/store.h>", "lib/base may not include lib/store"),
    ("lib/base/stat/stat.c", '#include "lib/store/store.h"', "lib/base may not include lib/store"),
    ("lib/result/record.h", '#include "engine/graph/model.h"', "lib/result may not include engine"),
    ("sources/null.c", '#include "cli/frame/cli.h"', "sources may not include cli"),
    ("backends/ref/ref.c", '#include "../cpu/device/cpu.h"', "backends/ref may not include backends/cpu"),
    ("engine/plan/cost.c", '#include "engine/run/program.h"', "engine: plan may not use run (engine/run/program.h)"),
    ("lib/base/ctx.c", '#include "base/stat/stat.h"', "lib/base: . may not use stat"),
    ("cli/frame/cli.c", '#include "cli/commands.h"', "cli: frame may not use ."),
    ("lib/base/clock.h", '#include "base/option.h"\n#include "base/clock.h"', "a loop of includes: lib/base/clock.h"),
    ("lib/base/stat/stat.c", '#include "base/nothing.h"', '"base/nothing.h" is in no include folder'),
])
def test_wrong_include(tree, file, line, said):
    (tree / file).write_text(line + "\n" + (tree / file).read_text())
    done = rooms(tree)
    assert done.returncode == 1 and said in done.stdout
    assert f"{file}:1: " in done.stdout or "loop" in said


def test_loop_of_includes(tree):
    one, two = tree / "lib/base/one.h", tree / "lib/base/two.h"
    one.write_text('#include "base/two.h"\n')
    two.write_text('/* #include "base/one.h" */\n')
    assert rooms(tree).returncode == 0
    two.write_text('#include "base/one.h"\n')
    done = rooms(tree)
    assert (done.returncode, done.stdout) == (1, "a loop of includes: lib/base/one.h, lib/base/two.h\n")


@pytest.mark.parametrize("public, private", [
    ("lib/measure/session/session.h", "lib/measure/session/session_private.h"),
    ("lib/guard/journal_record.h", "lib/guard/journal.h"),
    ("engine/plan/program_plan.h", "engine/plan/arena.h"),
    ("backends/cuda/device/math_calls.h", "backends/cuda/device/cuda.h"),
])
def test_a_header_and_its_private_one_in_a_circle(tree, public, private):
    """The private one includes the public one, which is right; the other way as well is a circle."""
    assert f'{pathlib.Path(public).name}"\n' in (tree / private).read_text()
    (tree / public).write_text(f'#include "{pathlib.Path(private).name}"\n' + (tree / public).read_text())
    done = rooms(tree)
    assert (done.returncode, done.stdout) == (1, f"a loop of includes: {', '.join(sorted([public, private]))}\n")


@pytest.mark.parametrize("name, said", [
    ("plant_private", ""), ("other", "a circle of files: lib/base/other, lib/base/plant\n")])
def test_files_that_need_each_other(tree, name, said):
    """An include one way, a use the other way; a header and its private one count as one with their source."""
    build = tree / "objects"
    build.mkdir()
    (tree / f"lib/base/{name}.h").write_text("int jm_y(void);\n")
    (tree / "lib/base/plant.c").write_text(f'#include "base/{name}.h"\nint jm_x(void);int jm_x(void) {{ return 1; }}\n')
    (tree / f"lib/base/{name}.c").write_text("int jm_x(void);int jm_y(void);int jm_y(void) { return jm_x(); }\n")
    (tree / "lib/base/user.c").write_text(f'#include "base/{name}.h"\nstatic int f(void) {{ return jm_y(); }}\n')
    rows = []
    for file in ("plant", name):
        subprocess.run(["cc", "-c", f"-I{tree}/lib", "-o", build / f"{file}.o", tree / f"lib/base/{file}.c"], check=True, timeout=240)
        rows.append({"directory": str(build), "file": f"../lib/base/{file}.c", "output": f"{file}.o", "command": "cc -I../lib"})
    (build / "compile_commands.json").write_text(json.dumps(rows))
    assert rooms(tree, build="objects").stdout == said


@pytest.mark.parametrize("header, user, said", [
    ("plant.h", "jm_x", ""),
    ("other.h", "jm_x", "lib/base/plant.c: jm_x is declared in lib/base/other.h, not in a header of this name\n"),
    ("plant.h", "jm_z", "lib/base/plant.c: jm_x is used by no other file; make it static\n")])
def test_functions_are_declared_in_the_header_of_their_file(tree, header, user, said):
    build = tree / "objects"
    build.mkdir()
    (tree / f"lib/base/{header}").write_text("int jm_x(void);\n")
    (tree / "lib/base/plant.c").write_text(f'#include "base/{header}"\nint jm_x(void) {{ return 1; }}\n')
    (tree / "lib/base/user.c").write_text(f"int {user}(void);static int (*f)(void) = {user};int *g(void);"
                                          "int *g(void) { return (int *)f; }\n")
    rows = []
    for file in ("plant", "user"):
        subprocess.run(["cc", "-c", f"-I{tree}/lib", "-o", build / f"{file}.o", tree / f"lib/base/{file}.c"], check=True, timeout=240)
        rows.append({"directory": str(build), "file": f"../lib/base/{file}.c", "output": f"{file}.o", "command": "cc -I../lib"})
    (build / "compile_commands.json").write_text(json.dumps(rows))
    assert rooms(tree, build="objects").stdout == said


def test_comment_on_a_room(tree):
    file = tree / "lib" / "energy" / "energy.h"
    file.write_text(file.read_text().replace("May include: base, meter, trace.", "May include: base."))
    assert rooms(tree).stdout == "lib/energy: the comment on the room does not say 'May include: base, meter, trace.'\n"
    file.write_text(file.read_text().replace("Room energy: ", ""))
    assert "lib/energy: 0 headers begin with a comment" in rooms(tree).stdout


@pytest.mark.parametrize("file, said", [
    ("lib/cellar/wine.h", "is no room"), ("lib/wine.h", "is no room"), ("cellar/wine.c", "is no room"), ("backends/wine.c", "is no room"),
    ("engine/cellar/wine.c", "'cellar' is no inner room of engine"), ("engine/wine.c", "'.' is no inner room of engine"),
    ("comm/cellar/wine.h", "'cellar' is no inner room of comm")])
def test_room_without_a_row(tree, file, said):
    (tree / file).parent.mkdir(exist_ok=True)
    (tree / file).write_text("struct wine;\n")
    done = rooms(tree)
    assert done.returncode == 1 and f"{file}: '" in done.stdout and said in done.stdout


def test_room_with_too_many_sources(tree):
    for i in range(25):
        (tree / "comm" / f"wine{i}.c").write_text("struct wine;\n")
    done = rooms(tree)
    assert done.returncode == 1 and re.search(r"^comm: \d+ sources, more than 25;", done.stdout, re.M)


def test_members_alone_share_names(tree):
    for file, text in (
            ("comm/energy.c", ""), ("backends/ref/journal.c", ""), ("tests/unit/lib/base/record.h", ""),
            ("workloads/trace.c", "const struct jm_workload jm_workload_traces = {"),  # not the name of its table
            ("backends/cpu/device/attention.c", ""),  # two in one backend
            ("workloads/clock.c", "const struct jm_workload jm_workload_clock = {"), ("backends/cuda/ops/pool.c", "")):
        (tree / file).write_text(text + "\n")
    said = re.findall(r"^(\S+) is the name of several files: ", rooms(tree).stdout, re.M)
    assert sorted(said) == ["attention.c", "energy.c", "journal.c", "record.h", "trace.c"]


def test_wrong_use_without_an_include(tree):
    """A declaration by hand needs no include; the objects tell."""
    build, rows = tree / "objects", []
    build.mkdir()
    planted = {
        "lib/base/plant.c": "int jm_x(void);int jm_y(void);int jm_y(void) { return jm_x(); }",
        "lib/store/ivy.c": "int jm_z(void);int jm_x(void);int jm_x(void) { return jm_z(); }",
        "lib/store/other.c": "int jm_z(void);int jm_x(void);int jm_z(void) { return jm_x(); }",
    }
    for i, (file, text) in enumerate(planted.items()):
        (tree / file).write_text(text + "\n")
        subprocess.run(["cc", "-c", "-o", build / f"{i}.o", tree / file], check=True, timeout=240)
        rows.append({"directory": str(build), "file": f"../{file}", "output": f"{i}.o", "command": "cc -I../lib"})
    (build / "compile_commands.json").write_text(json.dumps(rows))
    done = rooms(tree, build="objects")
    assert done.returncode == 1 and done.stdout.splitlines() == [
        "lib/base/plant.c: lib/base may not use lib/store (jm_x of lib/store/ivy.c)",
        "a loop of uses: lib/store/ivy.c, lib/store/other.c"]


def test_picture_of_the_rooms(tree):
    """Drawn from the code: a new arrow shows, and the file kept in docs is then an old one."""
    assert rooms(tree, "--picture-is", SOURCE / "docs" / "rooms.svg").returncode == 0
    old = rooms(tree, "--picture").stdout
    names = re.findall(r"<text[^>]*>([^<]*)</text>", old)
    assert len(names) == len(set(names)) and {"cli", "engine", "lib/base", "lib/run", "backends/ref"} <= set(names)
    (tree / "models" / "gpt.c").write_text('#include "run/plan/plan.h"\n')
    assert rooms(tree, "--picture").stdout != old
    done = rooms(tree, "--picture-is", SOURCE / "docs" / "rooms.svg")
    assert done.returncode == 1 and "make it anew" in done.stdout


def test_map_of_the_rooms():
    """docs/CONTRIBUTING.md has a row for each room that is drawn."""
    names = set(re.findall(r"<text[^>]*>([^<]*)</text>", (SOURCE / "docs" / "rooms.svg").read_text()))
    table = re.findall(r"^\| ((?:`[\w/]+` ?)+)\|", (SOURCE / "docs" / "CONTRIBUTING.md").read_text(), re.M)
    told = {word for row in table for word in re.findall(r"`([\w/]+)`", row)}
    assert {name if not name.startswith("backends/") else "backends/NAME" for name in names} <= told


def checks_with(monkeypatch, **names):
    """tools/check.py, with other values of names in all of its modules that have them."""
    monkeypatch.syspath_prepend(str(SOURCE / "tools"))
    import check, check_builds, check_tests, check_tidy  # pylint: disable=multiple-imports
    for module in (check, check_builds, check_tests, check_tidy):
        for name in names.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, names[name])
    return check


def test_tidy_reads_each_text_of_a_file_once(tmp_path, monkeypatch):
    """Two compilations of one text are one; what changes it or how it is read, a comment in a header and the rules count."""
    if not shutil.which("clang-tidy") or not shutil.which("clang"):
        pytest.skip("no clang-tidy")
    checks_with(monkeypatch, ROOT=tmp_path)
    from check_tidy import tidy_database
    (tmp_path / "build-clang").mkdir()
    (tmp_path / "a.h").write_text("int a;\n")
    (tmp_path / "a.c").write_text("#include \"a.h\"\n#ifdef B\nint b;\n#endif\n")
    (tmp_path / "build-clang/compile_commands.json").write_text(json.dumps([
        {"directory": str(tmp_path / "build-clang"), "file": "../a.c", "output": f"{i}.o",
         "command": f"clang {options} -MD -MQ {i}.o -MF {i}.d -o {i}.o -c ../a.c"}
        for i, options in enumerate(["-fPIC", "-O2 -DUNUSED", "-DB", "-funsigned-char -DUNUSED"])]))

    def keys(arguments=""):
        found = tidy_database(tmp_path / "tidy", arguments)
        assert list(found) == [str(tmp_path / "a.c")]
        assert len(json.loads((tmp_path / "tidy/compile_commands.json").read_text())) == 3
        return found

    seen = [keys()]
    assert keys() == seen[0]
    for name, text in (("a.h", "int a; /* NOLINT */\n"), (".clang-tidy", "Checks: bugprone-*\n")):
        (tmp_path / name).write_text(text)
        seen.append(keys())
        assert seen[-1] not in seen[:-1]
    assert keys("--extra-arg=-DC") not in seen


def good_and_bad(folder):
    """A tree of one file without findings and one with a warning of clang."""
    shutil.copy(SOURCE / ".clang-tidy", folder)
    (folder / "build-clang").mkdir()
    rows = []
    for name, text in (("good.c", "int a;"), ("bad.c", "short f(int a);short f(int a) { return a; }")):
        (folder / name).write_text(text + "\n")
        rows.append({"directory": str(folder / "build-clang"), "file": f"../{name}", "output": f"{name}.o",
                     "command": f"clang -Wconversion -Werror -MD -MQ {name}.o -MF {name}.d -o {name}.o -c ../{name}"})
    (folder / "build-clang/compile_commands.json").write_text(json.dumps(rows))


def test_tidy_reports_warnings_of_clang(tmp_path, monkeypatch):
    """No step compiles with clang for these alone."""
    if not shutil.which("clang-tidy") or not shutil.which("clang"):
        pytest.skip("no clang-tidy")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    check = checks_with(monkeypatch, ROOT=tmp_path, LOGS=tmp_path, IDLE=["env"], build=lambda *_, **__: mock.Mock(failed=0))
    good_and_bad(tmp_path)
    log = io.StringIO()
    found = check.tidy(log)
    assert (found.passed, found.failed, found.note) == (1, 1, "bad.c"), log.getvalue()
    assert "clang-diagnostic-implicit-int-conversion" in log.getvalue()


def test_tidy_does_not_read_again_what_passed_in_another_clone(tmp_path, monkeypatch):
    """A finding is reported each time, and a text that changed is read."""
    if not shutil.which("clang-tidy") or not shutil.which("clang"):
        pytest.skip("no clang-tidy")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = []
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        good_and_bad(tmp_path / name)
        if name == "three":
            (tmp_path / name / "good.c").write_text("short f(int a);short f(int a) { return a; }\n")
        check = checks_with(monkeypatch, ROOT=tmp_path / name, LOGS=tmp_path / name, IDLE=["env"], build=lambda *_, **__: mock.Mock(failed=0))
        log = io.StringIO()
        tally = check.tidy(log)
        found.append((tally.passed, tally.failed, tally.note, "good.c" in log.getvalue()))
    assert found[:2] == [(1, 1, "bad.c", False)] * 2 and found[2] == (0, 2, "bad.c good.c", True)
    kept = json.loads((tmp_path / "cache/joulemark-check/tidy.json").read_text())
    assert list(kept) == ["good.c"] and len(kept["good.c"]) == 1


def test_what_runs_idle_goes_on_like_others_once_it_is_waited_for(monkeypatch):
    monkeypatch.syspath_prepend(str(SOURCE / "tools"))
    from check_builds import Unhurried
    unhurried, seen = Unhurried(), []
    thread = threading.Thread(target=lambda: seen.append(unhurried("sh", "-c", "chrt --pid $$; read _ </dev/null; sleep 1; chrt --pid $$")))
    thread.start()
    deadline = time.monotonic() + 60
    while not unhurried.running and time.monotonic() < deadline:
        time.sleep(0.01)
    pid = next(iter(unhurried.running))
    while os.sched_getscheduler(pid) != os.SCHED_IDLE and time.monotonic() < deadline:
        time.sleep(0.01)
    unhurried.hurry()
    assert os.sched_getscheduler(pid) == os.SCHED_OTHER
    thread.join()
    (status, out), = seen
    assert status == 0 and out.splitlines()[-2].endswith("SCHED_OTHER")
    assert "SCHED_OTHER" in unhurried("sh", "-c", "chrt --pid $$")[1]


def test_failed_attacks_come_first_and_say_how_to_repeat_them(monkeypatch):
    """As tests/attack/attack.py prints them, with a reason of several lines and one without a command."""
    out = ("attack: seed 3, 9 s\nok     broker        11 s  51 rounds held, 0 failed  " + "33 cpu.clock, " * 30 + "\n"
           "FAILED kills round 4: AssertionError: two limits\nwere left: 300\n"
           "       again: tests/attack/attack.py --seed 3 --suite kills --round 4\n"
           "Traceback (most recent call last):\n  ...\n"
           "FAILED kills while it was ended: OSError: busy\n"
           "FAILED kills          7 s  15 rounds held, 2 failed  2 guards killed\n66 passed, 2 failed\n")
    lines = checks_with(monkeypatch).attack_cases(out)
    assert lines[:3] == ["FAILED kills round 4: AssertionError: two limits were left: 300",
                         "again: tests/attack/attack.py --seed 3 --suite kills --round 4",
                         "FAILED kills while it was ended: OSError: busy"]
    assert [line.split()[:2] for line in lines[3:]] == [["ok", "broker"], ["FAILED", "kills"]]
    assert max(map(len, lines[3:])) <= 100


def tests_of(monkeypatch, tmp_path, *rounds):
    """The module, whose programs say what stands in the rounds, in turn; and the names of each round."""
    asked, answers = [], iter(rounds)

    def said(_log, _folder, _jobs, names, _env):
        asked.append(names)
        return next(answers)
    return checks_with(monkeypatch, ROOT=tmp_path, sh=lambda *_, **__: (0, "cli / slow\ncli / wrong\n"), meson_tests=said), asked


def program(name, word, out):
    return {"name": f"joulemark:cli / {name}", "result": word, "stdout": out}


SLOW = program("slow", "FAIL", "FAILED t.py::test_a - assert 9 < 8\n1 failed, 4 passed\n")
WRONG = program("wrong", "FAIL", "[  FAILED  ] test_b\n[  PASSED  ] 3 test(s).\n[  FAILED  ] 1 test(s)\n")


def test_what_fails_under_a_sanitizer_must_hold_alone(monkeypatch, tmp_path):
    (tmp_path / "b").mkdir()
    check, asked = tests_of(monkeypatch, tmp_path, {"slow": SLOW, "wrong": WRONG},
                            {"slow": program("slow", "OK", "5 passed\n"), "wrong": WRONG})
    found = check.sanitized_tests(io.StringIO(), "b", lambda name: True)
    assert asked == [["slow", "wrong"], ["slow", "wrong"]] and (found.passed, found.failed) == (8, 1)
    assert found.cases == ["passed alone, not at first: slow: t.py::test_a - assert 9 < 8", "wrong: test_b"]


def test_a_plain_failure_gets_no_second_chance(monkeypatch, tmp_path):
    check, asked = tests_of(monkeypatch, tmp_path, {"slow": SLOW, "wrong": program("wrong", "TIMEOUT", "")})
    found = check.run_tests(io.StringIO(), "b")
    assert len(asked) == 1 and found.failed == 2
    assert found.cases == ["slow: t.py::test_a - assert 9 < 8", "wrong: TIMEOUT after 0 s"]


def test_a_report_of_a_sanitizer_fails_whatever_its_test_said(monkeypatch, tmp_path):
    (tmp_path / "b").mkdir()
    check, _ = tests_of(monkeypatch, tmp_path)

    def said(*_):
        (tmp_path / "b/reports/report.7").write_text("==7==ERROR: AddressSanitizer: heap-use-after-free\n")
        return {name: program(name, "OK", "2 passed\n") for name in ("slow", "wrong")}
    checks_with(monkeypatch, meson_tests=said)
    found = check.sanitized_tests(io.StringIO(), "b", lambda name: True)
    assert (found.passed, found.failed, found.cases) == (4, 1, ["==7==ERROR: AddressSanitizer: heap-use-after-free"])


@pytest.mark.parametrize("last", [0, 100], ids=["in-time", "late"])
def test_what_a_later_step_builds_is_compiled_beside_others(monkeypatch, tmp_path, last):
    """The step ends what takes too long and goes on itself; clang-tidy begins after these builds."""
    order, idle = [], []

    def build_asan(log, run=None):
        idle.append(run)
        return run(log, "sh", "-c", f"touch begun; sleep {last}; touch built")

    def step(name):
        def do(_log):
            order.append(name)
            if name == "tests":
                assert wait_for((tmp_path / ("begun" if last else "built")).exists)
            return mock.Mock(failed=0, passed=1)
        return do
    check = checks_with(monkeypatch, ROOT=tmp_path, LOGS=tmp_path, AHEAD={"asan": build_asan}, tell=lambda *_: None,
                        STEPS={name: step(name) for name in ("gcc", "tests", "asan", "tidy", "man")})
    found = check.run_steps(["gcc", "tests", "asan", "man", "tidy"])
    assert [(f.passed, f.failed) for f in found] == [(1, 0)] * 5
    assert (tmp_path / "built").exists() == (not last) and idle[0].process.poll() is not None
    assert [name for name in order if name != "tidy"] == ["gcc", "tests", "asan", "man"]
    assert order.count("tidy") == 1 and (not last or order.index("tidy") > order.index("tests"))
