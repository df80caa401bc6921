# SPDX-License-Identifier: Apache-2.0
"""A tree of procfs and sysfs at JM_ROOT, behind whose files is a kernel (sysfs_kernel.c)."""
import contextlib
import os
import signal
import subprocess
from pathlib import Path

from fake_gpus import guard_of, kill, wait_for
from jm import BIN, BUILD


class SysfsTree:
    def __init__(self, folder):
        self.root = Path(folder) / "root"
        self.root.mkdir()
        self.state = Path(folder) / "state"
        self.env = {"JM_ROOT": str(self.root), "JM_STATE": str(self.state),
                    "LD_PRELOAD": str(BUILD / "tests" / "peers" / "libsysfs-kernel.so"),
                    "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}

    def put(self, path, text):
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="ascii")

    def get(self, path):
        return (self.root / path.lstrip("/")).read_text(encoding="ascii").strip()

    def run(self, *args, **env):
        return subprocess.run([BIN, *map(str, args)], env={**os.environ, "COLUMNS": "400", **self.env, **env},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False)

    def start(self, *args):
        return subprocess.Popen([BIN, *map(str, args)], env={**os.environ, **self.env}, stderr=subprocess.DEVNULL,
                                start_new_session=True)

    def kill_while_set(self, words, is_set, victims):
        """Sets while a command runs and kills 'client', 'guard' or 'both' once is_set() says so, at once."""
        child = self.start("set", *words, "--", "sleep", "60")
        assert wait_for(is_set)
        guard = guard_of(child.pid)
        if victims == "both":  # none of them may act for the other
            kill(guard, signal.SIGSTOP)
            os.killpg(child.pid, signal.SIGKILL)
            kill(guard)
        else:
            kill(guard if victims == "guard" else child.pid)
        return child

    @staticmethod
    def end(child):
        """With its command, which outlives a joulemark that was killed."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        child.wait(timeout=240)

    def journals(self):
        folder = self.state / "knobs"
        return sorted(f.name for f in folder.glob("*.journal")) if folder.is_dir() else []
