# SPDX-License-Identifier: Apache-2.0
"""Runs every check and prints one line for each; the last line is "N passed, N failed".

check.py [STEP...]   runs the named steps only; check.py --list names them.
Logs and build folders are beside the sources as build-*; a second run compiles only what changed.
"""
import concurrent.futures
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from check_builds import JOBS, LOGS, PLAIN_FOLDER, ROOT, Idle, Tally, build, build_for_tests, build_plain, sh, sources
from check_tests import SANITIZER_ENV, run_tests, sanitized_tests
from check_tidy import ANALYZER_NODES, UNHURRIED, tidy

FUZZ_SECONDS = os.environ.get("FUZZ_SECONDS", "3")

# The parity tests compare numbers with PyTorch for minutes; the same code runs under the sanitizer in
# the tests of the engine, its backends, `run train`, `serve` and saved weights, and `backend_avx2` does in `backend` and `images`.
# learn_denoising, learn_heat and learn_pictures train thousands of steps, whose kernels parity_fields and `backend` check; bounds, places and
# training compute sweeps of what `bounds_one`, `program` and `train` do once, selftest what `backend` does; tokenizers compares
# ids with a package, and `tokenizer` and the fuzzer of its files read them under the sanitizer; split_scale is split_shard and
# split_files with the scaler that `scaler`, `train` and `ranks` have.
# suite_papers compares numbers of plans, which `plan_suites` reads under the sanitizer, too, nodes is what `ranks` does
# and table what `run` does, by a script; a program without sanitizers (Python, a browser) or no C code is all that the others run.
NOT_ASAN = re.compile(r"^parity|^frozen$|^weights$|^served_|^learn_(denoising|heat|pictures)$|^bounds$|^places$|^training$|^selftest$|^tokenizers$|^backend_avx2$"
                      r"|^split_scale$|^suite_papers$|^nodes$|^tools$|^gpu_rows$|^table"
                      r"|^python|^get_power$|^recipes$|^notebook$|^real_|^deb$|^page_visits$|^report_size$")
# Run without a sanitizer, too: some of their cases are skipped under it; or numbers depend on what the optimizer made of a kernel;
# or they claim how fast a function is, or how much memory it takes; or it is another library. The others need no second run:
# what they find is found under the sanitizer, and step `long` has all.
PLAIN = re.compile(r"^(allocations|backend|clock|cpu|cpu_edges|data|describe|device_time|export|gradient|groupnorm|host_load|images|items|kernels"
                   r"|library|live|measure|memory_limit|mpi|network_peers|outside|parallel_for|program|published|report_page|residue|run"
                   r"|serving|session|step|tensor|terminal_text|train)$")
# gcc's and clang's OpenMP runtimes synchronise in ways that ThreadSanitizer cannot see, so what uses
# them (the engine's cpu kernels) is not run under it; every test with threads of our own is. clock_back preloads a clock,
# which the sanitizer's own allocator would read.
TSAN_TESTS = re.compile(r"^child_process$|^output_items$|clock(?!_back)|session|progress|trace|measure|energy|sim|guard|journal|stray|worker|^run(_store)?$|sweep|interrupt|host_load|answer_server|^listen$|^request_queue$|^question_reader$|^serve_listen_ranks$|picture_loader|^comm$|^heartbeat$|^asynchronous$|^tuner$|^live$|^meet$|^frame$")


# Install hundreds of MB from PyPI the first time: step `long`, which sets JM_LONG for sweeps over more cases and seeds.
LONG_TESTS = re.compile(r"^real_keras$|^real_peers$|^real_llama_cpp$")


# For the compilers of sanitizers: a report names functions and lines, and no debugger looks for variables.
LINES_ALONE = ["-Dc_args=-g1"]
# Of gcc's undefined behaviour, without what doubles the size of the code and has found nothing here: the address sanitizer
# reports null pointers, and `fuzz` has all of clang's, also of alignment, for what parses external data.
SMALLER = ["-Dc_args=-g1 -fno-sanitize=null,alignment,object-size,pointer-overflow"]


def step_gcc(log):
    return build_plain(log)


def step_tests(log):
    """What does not run under the address sanitizer, or finds something else without it."""
    found = build_plain(log)
    # more tests than processors: a thread that waits for others at a barrier leaves the processor to them
    return found if found.failed else run_tests(
        log, PLAIN_FOLDER, lambda name: (NOT_ASAN.search(name) or PLAIN.search(name)) and not LONG_TESTS.search(name), {"OMP_WAIT_POLICY": "passive"})


def step_long(log):
    """All tests without a sanitizer, with sweeps over sizes and seeds whole, and those with large packages from PyPI, skipped
    where it cannot be reached."""
    found = build_plain(log)
    return found if found.failed else run_tests(log, PLAIN_FOLDER, env={"OMP_WAIT_POLICY": "passive", "JM_LONG": "1"})


def runs_under_asan(name):
    return not NOT_ASAN.search(name)


def build_asan(log, run=None):
    return build_for_tests(log, "build-asan", runs_under_asan, "gcc", "-Db_sanitize=address,undefined", "-Db_lundef=false",
                           "-Doptimization=1", *SMALLER, run=run)


def step_asan(log):
    """All tests of C code under the address and undefined-behaviour sanitizers."""
    found = build_asan(log)
    return found if found.failed else sanitized_tests(log, "build-asan", runs_under_asan)


def build_tsan(log, run=None):
    return build_for_tests(log, "build-tsan", TSAN_TESTS.search, "clang", "-Ddnnl=disabled", "-Dcuda=disabled",
                           "-Db_sanitize=thread", "-Db_lundef=false", "-Doptimization=1", *LINES_ALONE, run=run)


def step_tsan(log):
    """Thread sanitizer over everything that starts threads of its own, in a build without oneDNN and CUDA."""
    found = build_tsan(log)
    if not found.failed:
        status, _ = sh(log, "build-tsan/joulemark", "list", env=SANITIZER_ENV)
        found.failed += status != 0
    return found if found.failed else sanitized_tests(log, "build-tsan", TSAN_TESTS.search)


def step_format(log):
    status, out = sh(log, "clang-format", "--dry-run", "--Werror", *sources(".", ".c", ".h"))
    bad = sorted(set(re.findall(r"^(\S+?):\d+", out, re.M)))
    return Tally(1) if status == 0 else Tally(0, 1, note=" ".join(bad[:8]) + " (make format)")


def step_lint(log):
    status, out = sh(log, "tools/lint.sh", env={"JM_BUILD": str(ROOT / PLAIN_FOLDER)})
    passed = len(re.findall(r"^ok ", out, re.M))
    failed = len(re.findall(r"^not ok ", out, re.M))
    note = "; ".join(re.findall(r"^not ok (.*)", out, re.M))
    return Tally(passed, failed or int(status != 0), note=note)


def step_tidy(log):
    """clang-tidy and clang's warnings over the C files; findings are errors."""
    return tidy(log, *(f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang",
                                                           f"max-nodes={ANALYZER_NODES}")))


def step_analyze(log):
    """clang-tidy, where its analyzer follows all paths that it would by itself."""
    return tidy(log)


def build_fuzz(log, run=None):
    return build(log, "build-fuzz", "clang", "-Dfuzz=true", "-Ddnnl=disabled", "-Db_sanitize=address,undefined",
                 "-Db_lundef=false", "-Doptimization=1", *LINES_ALONE, targets=["fuzzers"], run=run)


def step_fuzz(log):
    """Every parser of bytes from outside, a few seconds each, under the address sanitizer."""
    found = build_fuzz(log)
    if found.failed:
        return found
    harnesses = sorted(p for p in (ROOT / "build-fuzz/tests/fuzz").glob("fuzz_*") if p.is_file())
    bad = []

    def fuzz(harness):
        corpus = ROOT / "tests/fuzz" / harness.name.removeprefix("fuzz_")
        found = LOGS / "corpus" / harness.name
        found.mkdir(parents=True, exist_ok=True)
        return subprocess.run(
            [harness, f"-max_total_time={FUZZ_SECONDS}", "-timeout=5", "-rss_limit_mb=2048",
             "-print_final_stats=1", f"-artifact_prefix={LOGS}/{harness.name}-", found]
            + ([corpus] if corpus.is_dir() else []), cwd=LOGS, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            env={**os.environ, **SANITIZER_ENV,
                 # in the tests it has found nothing and costs 30 % of their time
                 "ASAN_OPTIONS": SANITIZER_ENV["ASAN_OPTIONS"] + ":detect_stack_use_after_return=1"})

    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        for harness, done in zip(harnesses, pool.map(fuzz, harnesses)):
            log.write(f"== {harness.name}\n{done.stdout}")
            if done.returncode:
                bad.append(harness.name)
    return Tally(len(harnesses) - len(bad), len(bad) + (not harnesses),
                 note=" ".join(bad) or f"{FUZZ_SECONDS} s each")


def attack_cases(out):
    """Of what attacks printed: each failed round in two lines, what was wrong and how to repeat it; then the suites."""
    failed = re.findall(r"^FAILED (\S+ (?:round \d+|while it was ended): .*?)(?:\n +again: ([^\n]*)|(?=\n(?:FAILED|ok) )|\Z)", out, re.M | re.S)
    lines = [line for what, again in failed for line in (f"FAILED {' '.join(what.split())[:300]}", f"again: {again}")
             if line != "again: "]
    return lines + [line[:100] for line in re.findall(r"^(?:FAILED|ok) +\S+ +\d+ s  .*$", out, re.M)]


def step_attack(log):
    """Random attacks on settings, records and counters for two minutes; the seed is in the log."""
    found = build_plain(log)
    if found.failed:
        return found
    seconds = os.environ.get("ATTACK_SECONDS", "120")
    status, out = sh(log, "tests/isolate.sh", sys.executable, "tests/attack/attack.py", "--seconds", seconds,
                     env={"JM_BUILD": str(ROOT / PLAIN_FOLDER)})
    last = re.search(r"^(\d+) passed, (\d+) failed$", out, re.M)
    if not last:
        return Tally(0, 1, note="it did not come to its end")
    seed = re.search(r"^attack: (seed \d+)", out, re.M)
    found = Tally(int(last[1]), int(last[2]) or int(status != 0), note=seed[1] if seed else "")
    found.cases = attack_cases(out) if found.failed else []
    return found


def step_man(log):
    """The man page and the help of every command come out whole."""
    found = build_plain(log, targets=["joulemark"])
    if found.failed:
        return found
    status, page = sh(log, f"{PLAIN_FOLDER}/joulemark", "help", "--man")
    if status:
        return Tally(0, 1, note="no man page")
    path = LOGS / "joulemark.1"
    path.write_text(page)
    status, out = sh(log, "groff", "-man", "-Tutf8", "-ww", "-z", path)
    return Tally(1) if status == 0 and not out.strip() else Tally(0, 1, note="groff complains")


def example_wrong(log, script):
    """What is wrong with a script of examples/: its status, or lines '# prints: REGEX' at its head that it did not print.
    One that 'needs: gpus' gets those of the false NVML."""
    head = (ROOT / script).read_text(encoding="utf-8")
    driver = LOGS / f"example-gpus-{pathlib.Path(script).stem}"
    driver.unlink(missing_ok=True)
    gpus = ["env", f"JM_NVML_LIB={ROOT}/{PLAIN_FOLDER}/tests/peers/libnvidia-ml-fake.so", "JM_FAKE_NVML=gpus=2",
            f"JM_FAKE_NVML_STATE={driver}"] if re.search("^# needs: gpus$", head, re.M) else []
    status, out = sh(log, "tests/isolate.sh", *gpus, "sh", "-eu", ROOT / script,
                     env={"PATH": f"{ROOT}/{PLAIN_FOLDER}:{os.environ['PATH']}"})
    expected = re.findall("^# prints: (.*)$", head, re.M)
    wrong = [f"status {status}"] if status else [] if expected else ["has no line '# prints:'"]
    return wrong + [f"does not print '{line}'" for line in expected if not re.search(line, out, re.M)]


def step_examples(log):
    """Every script of examples/ ends well, and prints what its head says."""
    found = build_plain(log)
    if found.failed:
        return found
    scripts = sources("examples", ".sh")
    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:  # they mostly wait
        bad = {s: wrong for s, wrong in zip(scripts, pool.map(functools.partial(example_wrong, log), scripts)) if wrong}
    return Tally(len(scripts) - len(bad), len(bad), note="; ".join(f"{s} {', '.join(w)}" for s, w in bad.items()))


def step_demo(log):
    """The demo, with a shorter training: it ends well, marks what is simulated, leaves a page."""
    found = build_plain(log)
    if found.failed:
        return found
    page = LOGS / "demo.html"
    page.unlink(missing_ok=True)
    status, out = sh(log, "tests/isolate.sh", "tools/demo.sh", f"{PLAIN_FOLDER}/joulemark",
                     env={"DEMO_OUT": str(LOGS / "demo"), "DEMO_SECONDS": "3"})
    wrong = [word for word, bad in (
        (f"status {status}", status), ("nothing is marked simulated", "simulated" not in out),
        ("no best setting", not re.search(r"Best setting by one metric alone\n(.*\n)*?\s+least energy per token +\d+ W", out)),
        ("no page", not page.exists() or "<html" not in page.read_text()[:400])) if bad]
    return Tally(int(not wrong), len(wrong), note="; ".join(wrong))


STEPS = {name[5:]: function for name, function in globals().items() if name.startswith("step_")}
LONG = {"analyze", "long"}  # run when they are named


def find(name):
    """What a step found, and the seconds that it took."""
    began = time.monotonic()
    with open(LOGS / f"{name}.log", "w", encoding="utf-8") as log:
        try:
            found = STEPS[name](log)
        except Exception as problem:  # a broken check is a failed check, and the rest goes on
            found = Tally(0, 1, note=f"{type(problem).__name__}: {problem}")
            print(found.note, file=log)
    return found, time.monotonic() - began


def tell(name, found, seconds):
    word = "FAILED" if found.failed else "ok"
    print(f"{word:6} {name:9} {seconds:6.1f} s  {found.passed} passed, "
          f"{found.failed} failed, {found.skipped} skipped  {found.note}", flush=True)
    for reason, n in found.reasons.items():
        print(f"       skipped {n}: {reason}", flush=True)
    for case in found.cases[:40]:
        print(f"       | {case}", flush=True)
    if found.failed and not found.cases:
        tail = (LOGS / f"{name}.log").read_text(errors="replace").splitlines()[-60:]
        print("\n".join("       | " + line for line in tail))
    if found.failed:
        print(f"       the whole log: build-check/{name}.log")


# Steps that begin after others, beside those that follow: clang-tidy takes the time that tests wait; the examples, the demo and the
# attacks mostly wait themselves, and run one after the other. Their turn to be told is for what then remains. The attacks last as
# long as what follows `asan`, so that the others are over by then.
BESIDE = {"tidy": "gcc", "examples": "tests", "demo": "tests", "attack": "asan"}
# After `gcc`, too, while tests wait: what these steps build, one folder after the other. Then clang-tidy begins.
AHEAD = {"asan": build_asan, "tsan": build_tsan, "fuzz": build_fuzz}


def build_ahead(name, idle):
    """Compiles beside other steps. The step itself builds what is missing, and says what is wrong."""
    with open(LOGS / f"{name}-ahead.log", "w", encoding="utf-8") as log:
        AHEAD[name](log, run=idle)


def run_steps(names):
    """One after the other, except those of BESIDE and the builds of AHEAD."""
    all_found, begun, told, idle = [], {}, set(), {name: Idle() for name in AHEAD if name in names}
    with concurrent.futures.ThreadPoolExecutor(1) as when_idle, concurrent.futures.ThreadPoolExecutor(1) as side:
        try:
            for name in names:
                if name in idle:
                    idle[name].stop()
                if name == "tidy":  # its turn: nothing goes before it any more
                    for ahead in idle.values():
                        ahead.stop()
                    UNHURRIED.hurry()
                found, seconds = begun[name].result() if name in begun else find(name)
                tell(name, found, seconds)
                told.add(name)
                all_found.append(found)
                for later in idle if name == "gcc" and not found.failed else ():
                    when_idle.submit(build_ahead, later, idle[later])
                for later, after in BESIDE.items():
                    if name == after and later in names and later not in told:
                        begun[later] = (when_idle if later == "tidy" else side).submit(find, later)
        finally:
            for ahead in idle.values():
                ahead.stop()
    return all_found


def main(args):
    if args == ["--list"]:
        print("\n".join(f"{n:9} {(f.__doc__ or '').splitlines()[0] if f.__doc__ else ''}"
                        for n, f in STEPS.items()))
        return 0
    unknown = [a for a in args if a not in STEPS]
    if unknown:
        print(f"check: there is no step {unknown[0]}; there are {', '.join(STEPS)}.", file=sys.stderr)
        return 2
    try:
        LOGS.mkdir(exist_ok=True)
    except OSError as problem:
        print(f"check: builds and logs go beside the sources, but: {problem}. Copy them to where you may write.",
              file=sys.stderr)
        return 1
    found = run_steps(args or [name for name in STEPS if name not in LONG])
    passed, failed, skipped = (sum(getattr(f, k) for f in found) for k in ("passed", "failed", "skipped"))
    last = f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")
    (LOGS / "summary").write_text(last + "\n")
    print(last, flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
