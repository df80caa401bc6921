# SPDX-License-Identifier: Apache-2.0
"""Commands that the checks run, their logs, and build folders: build-* beside the sources."""
import collections
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / "build-check"
JOBS = str(min(os.cpu_count() or 2, 8))
# Runs a command when nothing else wants the processor, also where each session has a share of its own (autogroups).
IDLE = ["sh", "-c", "{ echo 19 >/proc/self/autogroup; chrt --idle --pid 0 $$; } 2>/dev/null; exec \"$@\"", "sh"]
# What was compiled from the same text with the same options, in this clone or another, is not compiled again: the folder is no
# part of what the cache looks up. What is new costs no more than without it, as no preprocessor runs first (CCACHE_DEPEND).
CACHED = ["ccache"] if shutil.which("ccache") else []
os.environ.setdefault("CCACHE_BASEDIR", str(ROOT))
os.environ.setdefault("CCACHE_NOHASHDIR", "1")
os.environ.setdefault("CCACHE_DEPEND", "1")


class Tally:
    """What a step found: how many passed, failed, were skipped, and the words for it."""

    def __init__(self, passed=0, failed=0, skipped=0, note=""):
        self.passed, self.failed, self.skipped, self.note = passed, failed, skipped, note
        self.reasons = {}  # of what was skipped, and how often
        self.cases = []  # that failed, with what they said


def sh(log, *command, env=None, cwd=ROOT):
    """Runs a command; its output goes to the step's log. Returns (status, output)."""
    print("$", " ".join(map(str, command)), file=log, flush=True)
    done = subprocess.run([str(c) for c in command], cwd=cwd, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          env={**os.environ, **(env or {})})
    log.write(done.stdout)
    log.flush()
    return done.returncode, done.stdout


class Idle:
    """Runs commands as `sh` does, while nothing else wants the processor, until `stop`."""

    def __init__(self):
        self.process, self.stopped, self.lock = None, False, threading.Lock()

    def __call__(self, log, *command, env=None):
        print("$", " ".join(map(str, command)), file=log, flush=True)
        with self.lock:
            if self.stopped:
                return 1, ""
            self.process = subprocess.Popen([*IDLE, *map(str, command)], cwd=ROOT, text=True, errors="replace",
                                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                            env={**os.environ, **(env or {})}, start_new_session=True)
        out, _ = self.process.communicate()
        log.write(out)
        return self.process.returncode, out

    def stop(self):
        """Ninja removes what it had begun; what is complete stays."""
        with self.lock:
            self.stopped = True
            if self.process and self.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGTERM)
                self.process.wait()


class Unhurried:
    """Runs commands while nothing else wants the processor, until `hurry`; from then on, and those that run, as any other."""

    def __init__(self):
        self.hurried, self.running, self.lock = False, set(), threading.Lock()

    def __call__(self, *command):
        """Returns (status, output)."""
        with self.lock:
            process = subprocess.Popen([*([] if self.hurried else IDLE), *map(str, command)], cwd=ROOT, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
            self.running.add(process.pid)
        out, _ = process.communicate()
        with self.lock:
            self.running.discard(process.pid)
        return process.returncode, out

    def hurry(self):
        with self.lock:
            self.hurried = True
            for pid in self.running:
                with contextlib.suppress(OSError):
                    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
                    pathlib.Path(f"/proc/{pid}/autogroup").write_text("0")


PLAIN_FOLDER = "build"
# .ci/run compiles CUDA kernels for one architecture and with few optimizations, in a clone that nobody installs; `make check`
# as they are installed
GPU_ARCH = os.environ.get("GPU_ARCH", "all")
MPI = "enabled" if shutil.which("dpkg-query") else "auto"  # where tools/setup.sh installs its headers, its tests are not skipped
CONFIGURED = set()  # build folders, in this run
COMPLETE = {}  # build folders of this run that were built whole, and what came out
BUILDING = collections.defaultdict(threading.Lock)  # steps run side by side


def build(log, folder, compiler, *options, targets=(), run=None):
    """Configures and compiles a build folder, once in a run; warnings are errors. targets: None compiles nothing; run: an
    Idle in place of `sh`."""
    run = run or sh
    with BUILDING[folder]:
        if folder in COMPLETE:
            return COMPLETE[folder]
        tool = ["setup", "--reconfigure"]
        if not (ROOT / folder / "build.ninja").exists():
            shutil.rmtree(ROOT / folder / "meson-private", ignore_errors=True)  # of a configuration that was stopped
            tool = ["setup"]
        linker = {"CC_LD": "lld", "CXX_LD": "lld"} if folder != PLAIN_FOLDER else {}  # takes half as long
        status = 0
        if folder not in CONFIGURED:
            status, _ = run(log, "meson", *tool, folder, "-Dwerror=true", f"-Dgpu_arch={GPU_ARCH}", f"-Dmpi={MPI}", *options,
                            env={"CC": " ".join([*CACHED, compiler]), "CXX": " ".join([*CACHED, compiler + "++"]), **linker})
        if status == 0:
            CONFIGURED.add(folder)
        if status == 0 and targets is not None:
            status, _ = run(log, "ninja", "-C", folder, "-j", JOBS, *targets)
        found = Tally(1) if status == 0 else Tally(0, 1, note="does not build")
        if targets == ():
            COMPLETE[folder] = found
        return found


def build_plain(log, targets=()):
    return build(log, PLAIN_FOLDER, "gcc", targets=targets)


def build_for_tests(log, folder, keep, *options, run=None):
    """Compiles all but benchmarks and the unit tests that are not run."""
    run = run or sh
    found = build(log, folder, *options, targets=None, run=run)
    if found.failed:
        return found
    _, listed = run(log, "ninja", "-C", folder, "-t", "targets", "all")
    linked = re.findall(r"^(\S+): \w*LINKER\w*$", listed, re.M)
    wanted = [name for name in linked if not name.startswith("bench/")
              and (not name.startswith("tests/test_") or keep(name.removeprefix("tests/test_")))]
    status, _ = run(log, "ninja", "-C", folder, "-j", JOBS, *wanted)
    return Tally(1) if status == 0 else Tally(0, 1, note="does not build")


def sources(folder, *suffixes):
    """Files of the tree below a folder; build folders and what others wrote are left out."""
    found = []
    for path, folders, files in os.walk(ROOT / folder):
        folders[:] = [f for f in folders if not f.startswith((".git", "build", "node_modules"))]
        found += [os.path.relpath(os.path.join(path, f), ROOT) for f in files if f.endswith(suffixes)]
    return sorted(found)
