# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess

from fake_gpus import FakeGpus, guard_of, kill, wait_for
from jm import BIN, is_open_to_all
from knobs import as_found, environment, joulemark, settle

STRANGER = 65534
# what another user tries on a path: each must fail or change nothing that matters
TRIES = (
    'flock -n -x "$1" true', 'flock -n -s "$1" true', 'cat "$1"', 'rm -f "$1"', 'mv "$1" "$1.x"', 'echo x >> "$1"',
    'ln -f "$1" "$1.ln"', 'mkfifo "$(dirname "$1")/gpu.power@a-00000000.journal"', 'chmod 777 "$1"',
    'ln -s /etc/passwd "$(dirname "$1")/gpu.power@b-00000000.journal"', 'truncate -s 0 "$1"')


def stranger(*words, **more):
    """As another user: with root by changing to it, else as `nobody` of a user namespace, who owns none of ours."""
    if os.geteuid() == 0:
        words = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", *words)
    else:
        words = ("unshare", "--user", *words)
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=30,
                          **more)


class Suite:
    """Another user reads, locks, links, removes and asks for status while settings are held; truth: the driver."""

    def __init__(self, folder):
        self.gpus = FakeGpus(folder, 4)
        self.found = as_found(self.gpus)
        self.program = None
        self.separate = os.geteuid() == 0  # in a user namespace our own files stay our own

    def paths(self):
        return [os.path.join(folder, name) for folder, _, names in os.walk(self.gpus.env["JM_STATE"])
                for name in names + ["."]]

    def status(self, watts):
        done = stranger(BIN, "status", env=environment(self.gpus))
        assert done.returncode == 0 and done.stdout.count("held by process") == 4, done.stdout + done.stderr
        assert "555 W" in done.stdout and f"{watts} W" not in done.stdout

    def round(self, rng):
        watts = rng.randrange(200, 500)
        self.program = subprocess.Popen([BIN, "set", f"gpu.power={watts}W", "--", "sleep", "30"],
                                        env=environment(self.gpus), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert wait_for(lambda: self.gpus.limits() == [watts] * 4), self.gpus.limits()
        done = []
        for _ in range(4 if self.separate else 0):
            script, path = rng.choice(TRIES), rng.choice(self.paths())
            tried = stranger("sh", "-c", script, "sh", path)
            copy = f"{os.sep}held{os.sep}" in path and script.split()[0] in ("cat", "flock")
            assert copy or tried.returncode or not os.path.basename(path).startswith("gpu."), (script, path)
            done.append("tries by another user")
        if self.separate and is_open_to_all(BIN):
            self.status(watts)
        # somebody waits with a lock on whatever can be opened, while guard or program are killed
        locks = [subprocess.Popen(["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups",
                                   "flock", "-x", path, "sleep", "30"], stderr=subprocess.DEVNULL)
                 for path in self.paths() if path.endswith(".journal")] if self.separate else []
        try:
            victim = rng.choice(("guard", "program", "nobody"))
            if victim == "guard":
                kill(guard_of(self.program.pid))
            kill(self.program.pid, signal.SIGKILL if victim == "program" else signal.SIGTERM)
            self.program.wait(timeout=30)
            assert wait_for(lambda: self.gpus.limits() == self.found, 15), self.gpus.limits()
            restored = joulemark(self.gpus, "restore", timeout=30)
            assert restored.returncode == 0 and self.gpus.limits() == self.found, restored.stderr
        finally:
            for lock in locks:
                lock.kill()
                lock.wait()
        return done + [f"{victim} killed"]

    def close(self):
        if self.program:
            self.program.kill()
            self.program.wait()
        settle(self.gpus)
