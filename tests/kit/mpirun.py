# SPDX-License-Identifier: Apache-2.0
"""Ranks that mpirun has started on this machine: Debian's Open MPI 4.1, and Open MPI 5 from PyPI."""
import os
import pathlib
import random
import shutil
import socket
import subprocess

import pytest

from jm import BIN, BUILD, HANGS_S, is_sanitized
from gangs import processes_of
from packages import packages

LONG = bool(os.environ.get("JM_LONG"))  # make check STEPS=long
PLUGIN = BUILD / "comm/mpi.so"


class Mpirun:
    """One Open MPI."""

    def __init__(self, program, library=None):
        self.program, self.library = program, library

    def environment(self, **more):
        with socket.socket() as s:  # a port that is free
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "JM_GANG_SECRET": "0123456789abcdef",
               "JM_TRANSPORTS": str(PLUGIN.parent.resolve()), **more}
        if "ASAN_OPTIONS" in env:  # libraries that Open MPI has closed leave memory behind, of which nothing else is known
            env["ASAN_OPTIONS"] += ":detect_leaks=0"
        if self.library:
            env["LD_LIBRARY_PATH"] = str(self.library)
        return env

    def words(self, n, *command):
        return [self.program, "--allow-run-as-root", "--oversubscribe", "-np", str(n), *map(str, command)]

    def run(self, n, *command, **more):
        return subprocess.run(self.words(n, *command), env=self.environment(**more), text=True, capture_output=True, timeout=HANGS_S,
                              check=False)


class Gang:
    """Calls of joulemark that mpirun has started."""

    def __init__(self, mpirun, *words, n=2, script=(), **more):
        """script: what mpirun starts, which starts joulemark."""
        self.mark = f"JM_TEST_MARK={random.getrandbits(64):x}"
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(mpirun.words(n, *script, BIN, *words, "--ranks", n, "--launcher", "started"), text=True,
                                        env=mpirun.environment(**{name: value}, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def rank(self, r, maps):
        """The worker of rank r, when it has mapped this; None before."""
        for pid in processes_of(self.mark):
            try:
                env = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if b"worker" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() and f"OMPI_COMM_WORLD_RANK={r}".encode() in env and \
                        maps in pathlib.Path(f"/proc/{pid}/maps").read_text(errors="replace"):
                    return pid
            except OSError:
                pass
        return None

    def others(self):
        """What runs, besides mpirun."""
        return [pid for pid in processes_of(self.mark) if pid != self.process.pid]

    def ended(self):
        texts = self.process.communicate(timeout=HANGS_S)
        return self.process.returncode, *texts


def need_plugin():
    if not PLUGIN.exists():
        pytest.skip("this build has no plug-in of transport mpi")
    if not shutil.which("mpirun"):
        pytest.skip("mpirun (openmpi-bin) is not installed")


@pytest.fixture(name="mpirun", scope="module", params=["4.1"] if is_sanitized() else ["4.1", "5"] if LONG else ["5"])
def mpirun_of_both(request):
    """One with a sanitizer and one without: joulemark's code is the same."""
    need_plugin()
    if request.param == "4.1":
        return Mpirun("mpirun")
    folder = packages("mpi", "--prefix")
    found = next(iter(folder.glob("**/bin/mpirun")))
    return Mpirun(str(found), found.parent.parent / "lib")
