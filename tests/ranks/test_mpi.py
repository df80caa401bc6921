# SPDX-License-Identifier: Apache-2.0
"""Transport mpi: ranks that mpirun has started exchange their data by its MPI. Everything runs with Debian's Open MPI 4.1,
against which the plug-in is built, and with Open MPI 5 from PyPI."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from fake_gpus import wait_for
from gangs import GPT, losses, shared_memory
from jm import BIN, BUILD, HANGS_S, jm, skip_with_sanitizers
from mpirun import PLUGIN, Gang, mpirun_of_both, need_plugin  # noqa: F401  the fixture "mpirun"
from runs import FAILED, one

SUMS = ["run", "allreduce", "--device", "ref", "--size", "0.0001", "--warmup", "0", "--source", "null"]
SHORT, LONG = [*SUMS, "--steps", "3", "--transport", "mpi"], [*SUMS, "--seconds", str(4 * HANGS_S)]
SCRIPT = ["sh", "-c", '"$0" "$@"; true']


def records(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_library_is_that_of_the_mpirun(mpirun):
    """The program is linked to none; the plug-in, built once, loads either."""
    assert "libmpi" not in subprocess.run(["ldd", BIN], capture_output=True, text=True, check=True).stdout
    loaded = subprocess.run(["ldd", PLUGIN], env=mpirun.environment(), capture_output=True, text=True, check=True).stdout
    line = next(line for line in loaded.splitlines() if "libmpi.so.40" in line)
    assert (str(mpirun.library) in line) == bool(mpirun.library), line


@pytest.mark.parametrize("n", [2, 3])
def test_the_contract_holds(mpirun, n):
    done = mpirun.run(n, BUILD / "tests/mpi_ranks")
    assert done.returncode == 0 and f"{n} ranks: all results are right" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("more, doubt", [(["--precision", "f32"], 2e-6), (["--precision", "f64"], 1e-12)], ids=["f32", "f64"])
def test_losses_of_20_steps_are_those_of_one_rank(mpirun, more, doubt):
    work = [*GPT, "--device", "ref", "--steps", "20", *more]
    record = records(mpirun.run(2, BIN, *work, "--batch", "2", "--ranks", 2, "--launcher", "started", "--transport", "mpi", "--json", "-"))
    assert losses(record) == pytest.approx(losses(one(*work, "--batch", "4")), rel=doubt)
    assert record["communication"]["transport"] == "mpi" and record["verified"] is True


def test_groups_of_ranks_train_as_one_rank(mpirun):
    """Two models, each divided among two ranks."""
    work = [*GPT, "--device", "ref", "--steps", "5"]
    record = records(mpirun.run(4, BIN, *work, "--batch", "2", "--ranks", 4, "--tp", 2, "--launcher", "started", "--transport", "mpi", "--json", "-"))
    assert losses(record) == pytest.approx(losses(one(*work, "--batch", "4")), rel=2e-6)


def test_shares_of_a_checkpoint_are_gathered(mpirun, tmp_path):
    """Over MPI, as between ranks that share memory: the same bytes, of two ranks, for which no order of sums is another one."""
    work = [*GPT, "--device", "ref", "--batch", 2, "--ranks", 2, "--steps", 3, "--ema", 0.9, "--checkpoint"]
    done = mpirun.run(2, BIN, *work, tmp_path / "mpi", "--launcher", "started", "--transport", "mpi")
    assert done.returncode == 0, done.stderr
    one(*work, tmp_path / "local")
    assert (tmp_path / "mpi").read_bytes() == (tmp_path / "local").read_bytes()


def test_a_sweep_begins_mpi_for_each_case(mpirun):
    done = mpirun.run(2, BIN, *SHORT, "--repeat", 2, "--ranks", 2, "--launcher", "started", "--json", "-")
    assert [(r["verified"], r["transfer"]["transport"]) for r in records(done)] == [(True, "mpi")] * 2


def test_a_rank_that_closes_later_spoils_nothing(mpirun):
    """The others wait for it, so that MPI ends in all, and the next case can begin it."""
    skip_with_sanitizers()  # they refuse a library that is loaded before them
    late = BUILD / "tests/peers/libmpi-late.so"
    done = mpirun.run(2, BIN, *SHORT, "--repeat", 2, "--ranks", 2, "--launcher", "started", "--json", "-", LD_PRELOAD=str(late))
    assert [(r["status"], r["verified"]) for r in records(done)] == [("ok", True)] * 2


# ---- ends: an mpirun may end before it has passed on what a rank printed last, so that records are read from files ----


def at_work(mpirun, *more, **env):
    gang = Gang(mpirun, *LONG, "--transport", "mpi", *more, **env)
    pids = []
    assert wait_for(lambda: pids.clear() or pids.extend(gang.rank(r, "libmpi.so") for r in range(2)) or all(pids), HANGS_S)
    time.sleep(1)
    return gang, pids


def test_a_killed_rank_ends_all_and_is_named(mpirun, tmp_path):
    """The sweep goes on, but MPI cannot begin again under this mpirun, which the next case says at once."""
    gang, pids = at_work(mpirun, "--repeat", "2", "--json", tmp_path / "r.json")
    os.kill(pids[1], signal.SIGKILL)
    status, _, err = gang.ended()
    assert status != 0, err
    first, second = json.loads((tmp_path / "r.json").read_text())
    assert f"Rank 1 of 2 (process {pids[1]} on " in first["reason"] and "was killed by signal 9" in first["reason"], first["reason"]
    assert "MPI cannot begin again under this mpirun" in second["reason"] and "call mpirun anew" in second["reason"], second["reason"]
    assert wait_for(lambda: not gang.others(), HANGS_S)


def test_a_stopped_rank_ends_all_and_is_named(mpirun, tmp_path):
    """Open MPI 5 kills a call a second after it has asked it to end, which on a busy machine is before its record: then once more."""
    for _ in range(5):
        gang, pids = at_work(mpirun, "--json", tmp_path / "r.json")
        os.kill(pids[1], signal.SIGSTOP)
        _, _, err = gang.ended()
        assert wait_for(lambda: not gang.others(), HANGS_S)
        if (tmp_path / "r.json").exists():
            break
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["status"] == "failed", err
    assert f"Rank 1 of 2 (process {pids[1]} on " in record["reason"] and "stopped (SIGSTOP)" in record["reason"], record["reason"]


@pytest.mark.parametrize("transport", ["mpi", "auto"])
@pytest.mark.parametrize("number, script", [(signal.SIGKILL, []), (signal.SIGSTOP, []), (signal.SIGKILL, SCRIPT), (signal.SIGSTOP, SCRIPT)],
                         ids=["killed", "stopped", "killed-script", "stopped-script"])
def test_an_mpirun_that_is_gone_or_stopped_ends_all(mpirun, number, script, transport):
    """Nothing that it has started runs on, by MPI or not."""
    shared_memory()  # one of its own, because Open MPI leaves memory behind there
    gang = Gang(mpirun, *LONG, "--transport", transport, script=script)
    assert wait_for(lambda: all(gang.rank(r, "libmpi.so" if transport == "mpi" else "joulemark") for r in range(2)), HANGS_S)
    time.sleep(1)
    os.kill(gang.process.pid, number)
    try:
        assert wait_for(lambda: not gang.others(), HANGS_S), gang.others()
    finally:
        gang.process.kill()
        gang.process.communicate()


def test_a_rank_that_mpi_does_not_reach_ends_all(mpirun):
    """MPI_Init of one rank never comes back."""
    skip_with_sanitizers()  # they refuse a library that is loaded before them
    hang = BUILD / "tests/peers/libmpi-hang.so"
    done = mpirun.run(2, BIN, *SHORT, "--ranks", 2, "--launcher", "started", "--json", "-", LD_PRELOAD=str(hang), JM_GANG_SECONDS="3")
    reason = json.loads(done.stdout)["reason"]
    assert "MPI has not begun within 3 s" in reason and "Rank " in reason, reason


# ---- refusals ----


def plugin(tmp_path, file):
    shutil.copy(BUILD / file, tmp_path / "mpi.so")
    return {"JM_TRANSPORTS": str(tmp_path)}


def reason_of(**env):
    return one(*SHORT, "--ranks", "2", status=FAILED, env=env)["reason"]


def test_a_plugin_of_another_version_is_refused(tmp_path):
    reason = reason_of(**plugin(tmp_path, "tests/peers/transport-misfit.so"))
    assert "was built for version 2 of the contract of transports, and this joulemark needs version 1" in reason, reason


def test_a_plugin_that_is_none_is_refused(tmp_path):
    assert "exports no jm_transport_entry" in reason_of(**plugin(tmp_path, "tests/peers/libnccl-fake.so"))


@pytest.mark.parametrize("file, said", [("half", "lacks a function that is required"), ("none", "gives no transport")])
def test_a_plugin_that_is_not_whole_is_refused(tmp_path, file, said):
    reason = reason_of(**plugin(tmp_path, f"tests/peers/transport-{file}.so"))
    assert said in reason, reason


def test_a_plugin_that_is_not_there_is_said(tmp_path):
    reason = reason_of(JM_TRANSPORTS=str(tmp_path))
    assert "Transport mpi is not available" in reason and "libopenmpi-dev" in reason and "--transport net" in reason, reason


def test_the_doctor_says_whether_there_is_one(tmp_path):
    rows = json.loads(jm("doctor", "--json", env={"JM_TRANSPORTS": str(tmp_path)}).stdout)
    row, = (r for r in rows if r["member"] == "mpi")
    assert not row["ok"] and "Transport mpi is not available" in row["why"]


def test_ranks_without_mpirun_are_refused():
    need_plugin()
    assert "needs ranks that mpirun has started" in reason_of(JM_TRANSPORTS=str(PLUGIN.parent.resolve()))
