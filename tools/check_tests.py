# SPDX-License-Identifier: Apache-2.0
"""Meson's tests as the checks run them, and what they said."""
import json
import re
import shutil

from check_builds import JOBS, ROOT, Tally, sh

TEST_JOBS = str(3 * int(JOBS))  # most tests wait more than they compute
AGAIN_JOBS = str(4 * int(JOBS))  # where what fails is run again, alone


def count(result):
    """The cases inside one Meson test: cmocka and pytest say how many there were."""
    out = (result.get("stdout") or "") + (result.get("stderr") or "")
    if result["result"] == "SKIP":
        return 0, 0, 1
    ok = result["result"] == "OK"
    passed = sum(int(n) for n in re.findall(r"\[  PASSED  \] (\d+) test", out))
    failed = sum(int(n) for n in re.findall(r"\[  FAILED  \] (\d+) test", out))
    skipped = sum(int(n) for n in re.findall(r"\[  SKIPPED \] (\d+) test", out))
    for n, word in re.findall(r"(\d+) (passed|failed|error|skipped)", out if not passed + failed else ""):
        passed += int(n) if word == "passed" else 0
        failed += int(n) if word in ("failed", "error") else 0
        skipped += int(n) if word == "skipped" else 0
    if ok and not passed + skipped:
        passed = 1
    if not ok and not failed:
        failed = 1
    return passed, failed, skipped


def failed_cases(result):
    """Names and reasons of what failed inside one Meson test, as pytest, cmocka and Meson give them."""
    out = (result.get("stdout") or "") + (result.get("stderr") or "")
    found = re.findall(r"^(?:FAILED|ERROR) (\S+::.*)$", out, re.M) + sorted(set(re.findall(r"^\[  FAILED  \] ([a-z]\w+)", out, re.M)))
    name = result["name"].split(" / ")[-1]
    return [f"{name}: {case[:300]}" for case in found or [f"{result['result']} after {result.get('duration', 0):.0f} s"]]


def meson_tests(log, folder, jobs, names, env):
    """What each of the programs said, by its suite and name: a unit test and a test of the program may have one name."""
    results = ROOT / folder / "meson-logs" / "testlog.json"
    results.unlink(missing_ok=True)
    sh(log, "meson", "test", "-C", folder, "--no-rebuild", "--num-processes", jobs, "--timeout-multiplier", "10",
       "--print-errorlogs", *names, env=env)
    lines = results.read_text().splitlines() if results.exists() else []
    return {result["name"]: result for result in map(json.loads, lines)}


def short(name):
    return name.split(" / ")[-1]


def run_tests(log, folder, keep=lambda name: True, env=None, again=False):
    """again: what fails is run a second time, alone, and that result counts; the first is told."""
    _, listed = sh(log, "meson", "test", "-C", folder, "--list", "--no-rebuild")
    names = list(dict.fromkeys(re.findall(r"^(?:\S+ / )?([\w.-]+)$", listed, re.M)))
    chosen = [name for name in names if keep(name)]
    if not chosen:
        return Tally(0, 1, note="no tests are there")
    found = meson_tests(log, folder, AGAIN_JOBS if again else TEST_JOBS, chosen, env)
    total, bad, alone = Tally(), [], []
    if again:
        alone = [name for name in found if count(found[name])[1]]
        total.cases += [f"passed alone, not at first: {case}" for name in alone for case in failed_cases(found[name])]
        found.update(meson_tests(log, folder, 1, list(dict.fromkeys(map(short, alone))), env) if alone else {})
    for name, result in found.items():
        passed, failed, skipped = count(result)
        total.passed += passed
        total.failed += failed
        total.skipped += skipped
        for n, reason in re.findall(r"^SKIPPED \[(\d+)\] [^ ]*: (.*)$", result.get("stdout") or "", re.M):
            total.reasons[reason] = total.reasons.get(reason, 0) + int(n)
        if failed:
            bad.append(short(name))
            total.cases = [case for case in total.cases if f": {short(name)}: " not in case] + failed_cases(result)
    for name in chosen:
        if name not in set(map(short, found)):
            total.failed += 1
            bad.append(f"{name} (without a result)")
    total.note = f"{len(found)} programs" + (f"; failed: {', '.join(bad)}" if bad else "")
    left_out = [name for name in names if name not in chosen]
    if left_out:
        total.note += f"; left out: {', '.join(left_out) if len(left_out) < 30 else len(left_out)}"
    return total


SANITIZER_ENV = {
    # gcc 12's ASan guesses where the thread-local variables of opened libraries lie (intercept_tls_get_addr);
    # wrong guesses kill its search for leaks. Of what was freed 16 MB are kept from use in place of 256: fresh pages cost more
    # than the program
    "ASAN_OPTIONS": "abort_on_error=0:strict_string_checks=1:intercept_tls_get_addr=0:quarantine_size_mb=16",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "LSAN_OPTIONS": f"suppressions={ROOT}/tests/lsan.supp:print_suppressions=0",
    # threads that wait for others at a barrier leave the processor to them: instrumented code is slow
    "OMP_WAIT_POLICY": "passive",
    "TSAN_OPTIONS": f"suppressions={ROOT}/tests/tsan.supp:halt_on_error=1",
}


# What the search for leaks says in a process that a test kills meanwhile.
KILLED = re.compile(r"(==\d+==Unable to get registers from thread \d+\.\s*)+")


def sanitized_tests(log, folder, keep):
    """The tests of a sanitizer's build. Each report fails, whatever the test around it said. A claim about time that fails
    in the slow program of a sanitizer, beside other tests, must hold alone; the plain build holds it as it is."""
    reports = ROOT / folder / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    reports.chmod(0o1777)  # tests go on as other users
    logged = {name: f"{SANITIZER_ENV[name]}:log_path={reports}/report" for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")}
    found = run_tests(log, folder, keep, {**SANITIZER_ENV, **logged}, again=True)
    for report in sorted(reports.iterdir()):
        text = report.read_text(errors="replace")
        print(text, file=log)
        if KILLED.fullmatch(text):
            continue
        found.failed += 1
        found.cases.append(next((line for line in text.splitlines() if re.search(r"ERROR|WARNING|runtime error", line)), report.name))
    return found
