# SPDX-License-Identifier: Apache-2.0
"""run --launcher srun: the call starts itself by srun, once for each task. srun is a script here that sets the variables of
Slurm 22.05 for tasks of this machine; in the last test it is that of a cluster of two nodes on this machine."""
import itertools
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from fake_gpus import wait_for
from gangs import ENDS_S, GPT, processes_of
from jm import BIN, HANGS_S, jm
from runs import records
from slurm import cluster_of_this_machine, free_ports  # noqa: F401  the fixture "cluster"

JOBS = itertools.count(os.getpid())
WORK = ["run", "allreduce", "--device", "ref", "--size", "0.0001", "--steps", "2", "--warmup", "0", "--source", "null", "--ranks", "2",
        "--launcher", "srun"]

SRUN = """#!{python}
import os, subprocess, sys
first = next(i for i, word in enumerate(sys.argv[1:], 1) if not word.startswith("--"))
with open({log!r}, "a") as log:
    print(*sys.argv[1:], file=log)
step = {{"SLURM_JOB_ID": {job!r}, "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "127.0.0.[1-2]"}}
tasks = [subprocess.Popen(sys.argv[first:], env={{**os.environ, **step, "SLURM_PROCID": str(r)}}) for r in range(2)]
codes = [task.wait() for task in tasks]
sys.exit(max(codes))
"""


@pytest.fixture(name="srun")
def srun_of_this_machine(tmp_path):
    """The environment in which it is found, and the file in which it notes how it was called."""
    log = tmp_path / "calls"
    script = tmp_path / "srun"
    script.write_text(SRUN.format(python=sys.executable, log=str(log), job=str(next(JOBS))))
    script.chmod(0o755)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MASTER_", "JM_GANG", "SLURM_"))}
    return {**env, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, log


def test_srun_starts_the_ranks(srun):
    """Where they meet follows from the step, and how they know each other from this call."""
    env, log = srun
    done = subprocess.run([BIN, *WORK, "--json", "-"], env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["verified"] is True and record["gang"]["world"] == 2
    called, = log.read_text().splitlines()
    assert called == f"--kill-on-bad-exit=1 {os.path.realpath(BIN)} {' '.join([*WORK, '--json', '-'])}"


def test_only_the_first_rank_writes_a_store(srun, tmp_path):
    env, _ = srun
    done = subprocess.run([BIN, *WORK, "--store", tmp_path / "s.db"], env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    record, = records(tmp_path / "s.db")
    assert record["status"] == "ok"


def test_a_list_of_cases_starts_nothing(srun):
    env, log = srun
    done = subprocess.run([BIN, *WORK, "--dry-run"], env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0 and not log.exists(), done.stderr


def test_a_missing_srun_is_said():
    done = jm(*WORK, env={"PATH": "/nowhere"})
    assert done.returncode == 125 and "srun, which starts the ranks, cannot be executed: No such file or directory" in done.stderr


@pytest.mark.parametrize("nodes, first", [("127.0.0.1", "127.0.0.1"), ("127.0.0.[3-5,7]", "127.0.0.3"), ("127.0.0.9,m[1-2]", "127.0.0.9"),
                                          ("127.[0-1].0.[2-11],x", "127.0.0.2")])
def test_ranks_meet_on_the_first_host_of_the_step(nodes, first):
    env = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3", "SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_STEP_NODELIST": nodes,
           "JM_GANG_SECRET": "0123456789abcdef", "JM_GANG_SECONDS": "0.2"}
    done = jm(*WORK[:-1], "started", env=env)
    port = 15000 + (31 * 4711 + 3) % 15000
    assert re.search(rf"Rank 0 has not joined .*\({re.escape(first)}, port {port}: ", done.stderr), done.stderr


def is_worker(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().split(b"\0")[1:2] == [b"worker"]
    except OSError:
        return False


def test_a_killed_srun_ends_all_ranks(cluster):
    """Slurm ends the step, and with it the calls and what they have started."""
    env = {**cluster.env, "SLURM_NTASKS": "2", "SLURM_NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]),
           "JM_TEST_MARK": f"srun-{os.getpid()}"}
    words = [*GPT, "--device", "ref", "--batch", "1", "--seconds", "3600", "--ranks", "2", "--launcher", "srun"]
    with subprocess.Popen([BIN, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as call:
        mark = f"JM_TEST_MARK={env['JM_TEST_MARK']}"
        try:
            assert wait_for(lambda: sum(map(is_worker, processes_of(mark))) == 2, HANGS_S)
            with open(f"/proc/{call.pid}/cmdline", "rb") as f:
                assert f.read().startswith(b"srun\0")
            os.kill(call.pid, signal.SIGKILL)
            assert wait_for(lambda: not processes_of(mark), ENDS_S), processes_of(mark)
        finally:
            call.kill()
