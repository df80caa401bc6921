# SPDX-License-Identifier: Apache-2.0
"""submit: a plan as jobs of Slurm. Slurm is that of Debian, with two nodes that are this machine (kit/slurm.py)."""
import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fake_gpus import FakeGpus, guard_of, kill
from jm import BIN, FAILURE, SOURCE, USAGE, jm
from runs import records
from slurm import cluster_of_this_machine  # noqa: F401  the fixture `cluster`

INCOMPLETE = 1


can_mount = pytest.mark.skipif(not shutil.which("unshare") or subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"],
                               check=False, capture_output=True).returncode != 0, reason="nothing can be mounted here")


GANG = ["run", "allreduce", "--ranks", "2", "--launcher", "started", "--device", "ref", "--source", "null", "--size", "0.001", "--steps", "2",
        "--warmup", "0", "--store", "s.db"]


def submit(cluster, folder, *words, plan="plan.yaml", timeout=1000):
    return subprocess.run([BIN, "submit", plan, "--store", "all.db", *map(str, words)], cwd=folder, text=True, capture_output=True,
                          check=False, timeout=timeout, env={**cluster.env, "COLUMNS": "400"})


def runs_of(store):
    """How often each (case, repeat) is in the store."""
    return collections.Counter((r["case"]["id"], r["case"]["repeat"]) for r in records(store))


def began(folder):
    """How often each command of PLAN was executed."""
    return collections.Counter((folder / "began").read_text().split())


# each execution of a case leaves a line in the file `began`
PLAN = """
source: "null"
runs:
  - name: "first; touch oops $(touch oops)"
    command: [sh, -c, "echo {a} >>began; sleep 0.2"]
    variables: {a: 1:4+1}
    repeat: 2
  - name: second
    after: "first; touch oops $(touch oops)"
    command: [sh, -c, "grep -c . began >>seen; test {b} != 2"]
    variables: {b: [1, 2]}
  - name: third
    after: second
    command: [touch, oops]
"""


def test_cases_are_those_of_run(cluster, tmp_path):
    """Names have characters of a shell; a run waits for the one before; one after a failed run is omitted."""
    folder = tmp_path / "a $(touch oops) 'b"
    folder.mkdir()
    (folder / "plan.yaml").write_text(PLAN)
    done = submit(cluster, folder, "--wait", "--parts", "2")
    assert done.returncode == INCOMPLETE, done.stderr
    assert "4 cases x 2 repeats in 4 jobs: 4 done" in done.stdout
    assert "second: 2 cases x 1 repeat in 2 jobs: 2 done, 1 of these with failed cases" in done.stdout
    assert "omitted, because the run 'second', which it comes after, did not succeed" in done.stdout
    assert not list(tmp_path.rglob("oops"))
    assert began(folder) == {a: 2 for a in "1234"}
    assert (folder / "seen").read_text().split() == ["8", "8"]  # all of the first run was over
    there = runs_of(folder / "all.db")
    (folder / "began").unlink()
    assert jm("run", "plan.yaml", "--store", "by-hand.db", cwd=folder).returncode == 1
    assert there == runs_of(folder / "by-hand.db") and set(there.values()) == {1}


def test_two_submissions_run_each_case_once(cluster, tmp_path):
    """The second finds the jobs of the first in the queue, and asks no more often than every 10 s."""
    (tmp_path / "plan.yaml").write_text('command: [sh, -c, "echo {a} >>began; sleep 1"]\nvariables: {a: 1:6+1}\nsource: "null"\n')
    first = submit(cluster, tmp_path, "--parts", "6")
    assert first.returncode == 0 and "6 wait" in first.stdout, first.stderr
    arrays = len(cluster.calls("sbatch"))
    second = submit(cluster, tmp_path, "--wait")
    assert second.returncode == 0 and "6 jobs: 6 done" in second.stdout, second.stdout + second.stderr
    assert len(cluster.calls("sbatch")) == arrays
    assert began(tmp_path) == {a: 1 for a in "123456"} and len(runs_of(tmp_path / "all.db")) == 6
    calls = cluster.calls("squeue")
    assert len(calls) >= 2 and min(b - a for a, b in zip(calls, calls[1:])) > 9.9


def test_a_plan_that_changes_does_not_change_its_jobs(cluster, tmp_path):
    plan = 'command: [sh, -c, "echo {a} >>began; until test -e go; do sleep 0.1; done"]\nvariables: {a: 1:4+1}\nsource: "null"\ntimeout: 40s\n'
    (tmp_path / "plan.yaml").write_text(plan)
    assert submit(cluster, tmp_path, "--parts", "4").returncode == 0
    (tmp_path / "plan.yaml").write_text(plan.replace("40s", "1s"))
    refused = submit(cluster, tmp_path)
    assert refused.returncode == FAILURE and "has changed since it was submitted" in refused.stderr, refused.stderr
    refused = submit(cluster, tmp_path, "--parts", "3")
    assert refused.returncode == USAGE and "give --parts 4" in refused.stderr
    (tmp_path / "plan.yaml").write_text(plan)
    (tmp_path / "go").touch()
    assert submit(cluster, tmp_path, "--wait").returncode == 0
    assert began(tmp_path) == {a: 1 for a in "1234"}


@pytest.mark.parametrize("break_it, reason", [
    (["--program", "/nowhere/joulemark"], "there is no joulemark that can be executed at the path given by --program"),
    (None, "was submitted by joulemark 0.0.1, and this host has"),
])
def test_a_node_without_this_joulemark_is_named(cluster, tmp_path, break_it, reason):
    """Once it is there the same command runs what is missing."""
    (tmp_path / "plan.yaml").write_text('command: [sh, -c, "echo {a} >>began"]\nvariables: {a: [1, 2]}\nsource: "null"\n')
    if break_it is None:
        program = tmp_path / "changed"
        program.write_text(f'#!/bin/sh\nsed -i \'s/"joulemark": "[^"]*"/"joulemark": "0.0.1"/\' *.json\nexec {BIN} "$@"\n')
        program.chmod(0o755)
    done = submit(cluster, tmp_path, "--wait", *(break_it or ["--program", program]))
    assert done.returncode == INCOMPLETE and reason in done.stdout, done.stdout + done.stderr
    assert "1 not complete" in done.stdout and (" on n1: " in done.stdout or " on n2: " in done.stdout)
    assert not (tmp_path / "began").exists()
    done = submit(cluster, tmp_path, "--wait")
    assert done.returncode == 0 and began(tmp_path) == {"1": 1, "2": 1}, done.stdout


def calls_with(cluster, word):
    """The processes of joulemark whose first words have this one."""
    for pid in cluster.left():
        with contextlib.suppress(OSError):
            program, *words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if program.endswith(b"joulemark") and word in words[:3]:
                yield pid


def kill_something(cluster, how):
    """False: nothing of the kind runs."""
    running = [job for job in cluster.queue() if job[1] == "RUNNING"]
    if not running:
        return False
    if how == "job":
        cluster.call("scancel", running[0][0])
    elif how == "call":
        for pid in calls_with(cluster, b"--job"):
            kill(pid)
            return True
        return False
    else:
        cluster.stop(how, signal.SIGKILL)
        cluster.start(how)
    return True


def test_nothing_is_lost_or_doubled_by_kills(cluster, tmp_path):
    """60 cases, ten kills of jobs, nodes and joulemark, and a controller that is restarted; what was finished is not repeated. On a
    machine where all cases end before the tenth kill it says so of those kills that there were."""
    (tmp_path / "plan.yaml").write_text('command: [sh, -c, "sleep 0.3; echo {a} >>began"]\nvariables: {a: 1:60+1}\nsource: "null"\n')
    assert submit(cluster, tmp_path, "--parts", "6").returncode == 0
    cluster.until(lambda: (tmp_path / "began").exists(), 60)
    cluster.stop("slurmctld")
    asked = submit(cluster, tmp_path, "--status")
    assert asked.returncode == FAILURE and "'squeue' of Slurm ended with status" in asked.stderr
    cluster.start("slurmctld")
    cluster.until(cluster.queue, 60)
    kills = 0
    while kills < 10:
        if kill_something(cluster, ("job", "n1", "call", "n2")[kills % 4]):
            kills += 1
            time.sleep(0.4)
        elif not cluster.queue():
            done = submit(cluster, tmp_path)
            assert done.returncode in (0, INCOMPLETE), done.stderr
            if "6 jobs: 6 done" in done.stdout:
                break
    assert kills
    cluster.until(lambda: not cluster.queue(), 200)
    for _ in range(3):
        done = submit(cluster, tmp_path, "--wait")
        if not done.returncode:
            break
        assert "lost with its host" in done.stdout, done.stdout
    assert done.returncode == 0 and "6 jobs: 6 done" in done.stdout, done.stdout + done.stderr
    there = runs_of(tmp_path / "all.db")
    assert len(there) == 60 and set(there.values()) == {1}
    # a case that was interrupted begins anew: at most one for each kill
    assert set(began(tmp_path)) == {str(a) for a in range(1, 61)} and sum(began(tmp_path).values()) <= 60 + kills
    assert not cluster.queue() and not list(calls_with(cluster, b"--job"))


def test_the_epilog_of_a_node_puts_back_what_a_killed_job_had_set(cluster, tmp_path):
    """The job, the program that had set it, and its guard are killed at once."""
    gpus = FakeGpus(tmp_path, 2)
    assert jm("get", env=gpus.env).returncode == 0 and gpus.limits() == [700, 700]
    (tmp_path / "plan.yaml").write_text(f'command: [{BIN}, set, gpu.power=300W, --, sleep, "60"]\nsource: "null"\n')
    cluster.epilog({**gpus.env, "JOULEMARK": BIN})
    cluster.env.update(gpus.env)
    try:
        done = submit(cluster, tmp_path)
        assert done.returncode == 0, done.stderr
        cluster.until(lambda: gpus.limits() == [300, 300], 60)
        setter, = calls_with(cluster, b"gpu.power=300W")
        guard, run = guard_of(setter), list(calls_with(cluster, b"--job"))
        for pid, how in (guard, signal.SIGSTOP), *((pid, signal.SIGKILL) for pid in (*run, setter, guard)):
            kill(pid, how)
        cluster.until(lambda: gpus.limits() == [700, 700] and not gpus.journals(), 60)
    finally:
        cluster.epilog({})
        for name in gpus.env:
            del cluster.env[name]
        cluster.call("scancel", "--me")
    cluster.until(lambda: not cluster.queue(), 60)


@can_mount
def test_a_node_whose_spool_is_full_loses_and_doubles_nothing(cluster, tmp_path):
    """Its job stays in the queue, and --status has Slurm's reason; the other node runs the others."""
    spool = cluster.folder / "spool/n1"
    cluster.stop("n1")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", spool], check=True)
    try:
        subprocess.run(["sh", "-c", 'head -c 99999 /dev/zero >"$0"/fill', spool], check=False, stderr=subprocess.DEVNULL)
        cluster.start("n1")
        (tmp_path / "plan.yaml").write_text('command: [sh, -c, "echo {a} >>began"]\nvariables: {a: 1:4+1}\nsource: "null"\n')
        assert submit(cluster, tmp_path, "--parts", "4").returncode == 0
        cluster.until(lambda: "requeued held" in cluster.call("squeue", "--noheader", "--format=%r") and len(cluster.queue()) == 1, 60)
        time.sleep(10)  # the answer of the submission is not used any more
        shown = submit(cluster, tmp_path, "--status")
        assert "3 done, 1 waits" in shown.stdout and "launch failed requeued held" in shown.stdout, shown.stdout
        again = submit(cluster, tmp_path)
        assert "3 done, 1 waits" in again.stdout and len(cluster.queue()) == 1, again.stdout
        cluster.stop("n1")
    finally:
        subprocess.run(["umount", spool], check=True)
    cluster.start("n1")
    cluster.call("scontrol", "update", "nodename=n1", "state=resume")
    (held, _, _), = cluster.queue()
    cluster.call("scontrol", "release", held)
    cluster.call("scontrol", "update", f"jobid={held}", "starttime=now")  # Slurm gives it two minutes more
    done = submit(cluster, tmp_path, "--wait")
    assert done.returncode == 0 and "4 jobs: 4 done" in done.stdout, done.stdout + done.stderr
    assert began(tmp_path) == {a: 1 for a in "1234"} and set(runs_of(tmp_path / "all.db").values()) == {1}


def test_a_job_over_two_nodes_is_one_record(cluster, tmp_path):
    (tmp_path / "plan.yaml").write_text('work: allreduce\ndevice: ref\nranks: 2\nsize: 0.0001\nsteps: 2\nwarmup: 0\nsource: "null"\n')
    cluster.env["MASTER_ADDR"] = "127.0.0.1"  # n1 and n2 are no names of hosts
    done = submit(cluster, tmp_path, "--wait", "--nodes", "2")
    del cluster.env["MASTER_ADDR"]
    assert done.returncode == 0, done.stdout + done.stderr
    record, = records(tmp_path / "all.db")
    assert record["gang"]["world"] == 2 and record["verified"] is True


def test_ranks_that_pmix_numbers_meet(cluster, tmp_path):
    """Both on one node: on two that are one machine the plug-in of Slurm would make one folder twice."""
    done = subprocess.run(["srun", "--mpi=pmix", "-N1", "-n2", "--overcommit", "sh", "-c", 'echo "$PMIX_RANK" >>ranks; exec "$@"', "sh", BIN,
                           *GANG], cwd=tmp_path, text=True, capture_output=True, check=False, timeout=100,
                          env={**cluster.env, "JM_GANG_SECRET": "a secret of this test", "MASTER_ADDR": "127.0.0.1"})
    if "Couldn't find the specified plugin" in done.stderr or "invalid MPI type" in done.stderr:
        pytest.skip("this Slurm has no PMIx")
    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "ranks").read_text().split()) == ["0", "1"]
    (record,) = records(tmp_path / "s.db")
    assert record["gang"]["world"] == 2


def test_cancel_ends_the_jobs_of_this_store(cluster, tmp_path):
    (tmp_path / "plan.yaml").write_text('command: [sleep, "60"]\nrepeat: 3\nsource: "null"\n')
    assert submit(cluster, tmp_path).returncode == 0
    cluster.until(lambda: [job for job in cluster.queue() if job[1] == "RUNNING"], 30)
    done = submit(cluster, tmp_path, "--cancel")
    assert done.returncode == 0 and done.stdout == "3 jobs cancelled.\n", done.stderr
    cluster.until(lambda: not cluster.queue(), 30)
    again = submit(cluster, tmp_path)  # the answer of before, with the cancelled jobs, is not used again
    assert again.returncode == 0 and "3 jobs: 3 wait" in again.stdout and len(cluster.queue()) == 3, again.stdout
    assert submit(cluster, tmp_path, "--cancel").returncode == 0
    cluster.until(lambda: not cluster.queue(), 30)


def test_the_epilog_puts_settings_back(tmp_path):
    """And fails where that is not possible, so that Slurm drains the node."""
    gpus = FakeGpus(tmp_path, 2)
    assert jm("set", "gpu.power=300W", env=gpus.env).returncode == 0 and gpus.limits() == [300, 300]
    env = {**os.environ, **gpus.env, "JOULEMARK": BIN}
    epilog = [SOURCE / "examples/slurm/epilog"]
    done = subprocess.run(epilog, env={**env, "JOULEMARK": "/nowhere"}, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 1 and gpus.limits() == [300, 300]
    done = subprocess.run(epilog, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0 and gpus.limits() == [700, 700], done.stderr


@pytest.mark.parametrize("words, plan, reason", [
    (["--parts", "2"], "work: sim\ndevice: sim:h100x1\nset: {gpu.power: [300W, 400W]}\n", "compared with the reference of their block"),
    ([], 'command: ["true"]\nuntil-interval: 1%\n', "repeats until its intervals are narrow"),
    (["--wait", "--status"], 'command: ["true"]\n', "exclude each other"),
])
def test_what_cannot_be_submitted_is_refused(tmp_path, words, plan, reason):
    (tmp_path / "plan.yaml").write_text(plan)
    done = jm("submit", "plan.yaml", "--store", "all.db", *words, cwd=tmp_path)
    assert done.returncode == USAGE and reason in done.stderr, done.stderr
    assert not (tmp_path / "all.db.jobs").exists()


def test_without_slurm_the_missing_command_is_named(tmp_path):
    (tmp_path / "plan.yaml").write_text('command: ["true"]\n')
    done = jm("submit", "plan.yaml", "--store", "all.db", cwd=tmp_path, env={"PATH": "/nowhere"})
    assert done.returncode == FAILURE and "There is no command 'sbatch' here" in done.stderr


def test_the_lines_of_sbatch_are_kept_apart(tmp_path):
    (tmp_path / "plan.yaml").write_text('command: ["true"]\n')
    for name, body in (("squeue", "exit 0"), ("sbatch", "printf 'first line\\nsecond line\\n' >&2; exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    done = jm("submit", "plan.yaml", "--store", "all.db", cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == FAILURE and "first line; second line" in " ".join(done.stderr.split()), done.stderr


def test_a_job_by_hand(tmp_path):
    """What the script of a job calls can be called without Slurm."""
    (tmp_path / "plan.yaml").write_text('command: ["true", "{a}"]\nvariables: {a: 1:5+1}\nrepeat: 2\nsource: "null"\n')
    script = tmp_path / "sbatch"
    script.write_text("#!/bin/sh\necho 7\n")
    script.chmod(0o755)
    assert jm("submit", "plan.yaml", "--store", "all.db", "--parts", "2", cwd=tmp_path, env={"PATH": str(tmp_path)}).returncode == 0
    file, = (tmp_path / "all.db.jobs").glob("*.json")
    ids = []
    for job in range(4):
        assert jm("run", "--job", f"{file}:{job}", "--store", tmp_path / f"{job}.db").returncode == 0
        ids.append(set(runs_of(tmp_path / f"{job}.db")))
    assert [len(one) for one in ids] == [2, 3, 2, 3] and len(set.union(*ids)) == 10
    assert {repeat for _, repeat in ids[0] | ids[1]} == {1}
    for words, reason in ((["--job", f"{file}:4"], "has the jobs 0 to 3"), (["--job", f"{file}"], "the number of a job"),
                          (["--job", f"{file}:0", "--repeat", "2"], "including --repeat"),
                          (["--job", f"{file}:0", "null"], "omit the plan")):
        done = jm("run", *words)
        assert done.returncode == USAGE and reason in done.stderr, done.stderr
    file.write_text(json.dumps({"joulemark": "0.1.0", "folder": "/", "parts": 0, "request": {}}))
    done = jm("run", "--job", f"{file}:0")
    assert done.returncode == FAILURE and "submit the plan again" in done.stderr


# what a job leaves that is killed before its store has been made: between two system calls, or within its first transaction
EMPTY = "open(path, 'w')"
TORN = """import os, sqlite3
db = sqlite3.connect(path, isolation_level=None)
for word in ("PRAGMA cache_size=1", "BEGIN", "CREATE TABLE t(x)", *["INSERT INTO t VALUES (randomblob(3000))"] * 30):
    db.execute(word)
os.link(path + "-journal", path + "-kept")
db.execute("COMMIT")
os.rename(path + "-kept", path + "-journal")"""


@pytest.mark.parametrize("left", [EMPTY, TORN], ids=["empty", "torn"])
def test_a_job_that_was_killed_before_its_store_was_made_is_submitted_again(tmp_path, left):
    (tmp_path / "plan.yaml").write_text('command: ["true", "{a}"]\nvariables: {a: 1:4+1}\nsource: "null"\n')
    for name, text in ("sbatch", "echo 7"), ("squeue", "true"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho $0 >>{tmp_path}/calls\n{text}\n")
        (tmp_path / name).chmod(0o755)
    words = ("submit", "plan.yaml", "--store", "all.db", "--parts", "2")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert jm(*words, cwd=tmp_path, env=env).returncode == 0
    file, = (tmp_path / "all.db.jobs").glob("*.json")
    part = Path(f"{file.with_suffix('')}.0.0")
    Path(f"{part}.start").write_text("n1 7_0\n")
    subprocess.run([sys.executable, "-c", f"path = '{part}.db'\n{left}"], check=True)
    assert (left == TORN) == Path(f"{part}.db-journal").exists()
    done = jm("run", "--job", f"{file}:1", "--store", f"{file.with_suffix('')}.0.1.db")
    assert done.returncode == 0, done.stderr
    Path(f"{file.with_suffix('')}.0.1.end").write_text("0 n2 7_1\n")
    done = jm(*words, cwd=tmp_path, env=env)
    assert done.returncode in (0, INCOMPLETE), done.stderr
    assert (tmp_path / "calls").read_text().count("sbatch") == 2, done.stdout  # the lost job again
    assert len(runs_of(tmp_path / "all.db")) == 2
    assert jm("run", "--job", f"{file}:0", "--store", f"{part}.db").returncode == 0  # takes the file as it is
    assert len(runs_of(f"{part}.db")) == 2
