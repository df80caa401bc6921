# SPDX-License-Identifier: Apache-2.0
"""Records of one job that overlap in time: parts of one run, whose meters count once."""
import copy
import json
import os
import subprocess

import pytest

from jm import BIN, jm
from measured import check, fakes
from runs import records as stored
from slurm import cluster_of_this_machine  # noqa: F401  the fixture `cluster`

WATTS = 300  # of each of the two GPUs, whose power is constant: the energy of any time is known
ENV = fakes(f"gpus=2;wave=square;low={WATTS};high={WATTS};period=1")
PRINTS = ["--items-regex", r"(\d+) items", "--unit", "token"]


def measured(tmp_path, env=None, options=("--job", "train"), offsets=(0, 0.15, 0.3), seconds=1.0, status=0):
    """Records of processes that measure one machine, each begun so many seconds after the first."""
    files = [tmp_path / f"{i}.json" for i in range(len(offsets))]
    running = [subprocess.Popen(
        [BIN, "measure", "--source", "nvml", *options, *PRINTS, "--json", str(file), "sh", "-c",
         f"sleep {offset}; sleep {seconds}; echo {10 + i} items; exit {status if i else 0}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **ENV, **(env or {})})
        for i, (file, offset) in enumerate(zip(files, offsets))]
    for process in running:
        process.wait()
    return [check(json.loads(file.read_text())) for file in files]


def span(record):
    """The time of the command, on the clock of the machine."""
    phase = next(p for p in record["phases"] if p["name"] == "command")
    return record["start_ns"] * 1e-9 + phase["start_s"], record["start_ns"] * 1e-9 + phase["end_s"]


def reported(tmp_path, records):
    path = tmp_path / "all.json"
    path.write_text(json.dumps(records))
    done = jm("report", path, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return [case["values"] for case in found["cases"]], done.stderr


def other_host(record, name, later=0.0):
    """The same on another machine, whose clock began elsewhere."""
    other = copy.deepcopy(record)
    other["provenance"].update(host=name, boot_id=f"boot of {name}")
    other["start_ns"] += int(1e12 + later * 1e9)
    return other


def test_meters_of_a_machine_count_once_over_the_united_time(tmp_path):
    records = measured(tmp_path)
    spans = [span(r) for r in records]
    united = max(end for _, end in spans) - min(begin for begin, _ in spans)
    (values,), said = reported(tmp_path, records)
    items = 10 + 11 + 12
    assert "3 records are parts of 1 run of a job" in said
    assert values["joules_per_item"] * items == pytest.approx(2 * WATTS * united, rel=0.02)
    assert values["throughput"] == pytest.approx(items / united, rel=0.001)
    assert sum(r["total"]["joules_measured"] for r in records) > 2 * 2 * WATTS * united  # what a sum of records would say


def test_meters_of_several_machines_are_added(tmp_path):
    records = measured(tmp_path, offsets=(0, 0))
    both = records + [other_host(r, "second") for r in records]
    (one,), _ = reported(tmp_path, records)
    (two,), said = reported(tmp_path, both)
    assert "4 records are parts of 1 run" in said
    assert two["joules_per_item"] == pytest.approx(one["joules_per_item"], rel=0.01)  # twice the energy, twice the items
    assert two["watts_mean"] == pytest.approx(4 * WATTS, rel=0.02) and one["watts_mean"] == pytest.approx(2 * WATTS, rel=0.02)


@pytest.mark.parametrize("change, runs", [
    (lambda r: r["job"].update(id="other"), 2), (lambda r: r["job"].update(step="7"), 2), (lambda r: r.pop("job"), 2),
    (lambda r: r.update(started="2020-01-01T00:00:00.000Z"), 2), (lambda r: None, 1)])
def test_only_overlapping_records_of_a_job_and_step_are_parts(tmp_path, change, runs):
    records = measured(tmp_path, offsets=(0, 0), seconds=0.4)
    change(records[1])
    values, said = reported(tmp_path, records)
    assert len(values) == runs and ("parts of" in said) == (runs == 1)


def test_what_one_part_does_not_know_is_unknown(tmp_path):
    """The second ends last, so that the first does not know its time either."""
    records = measured(tmp_path, offsets=(0, 0.2), seconds=0.4)
    records[0]["items"] = records[0]["throughput"] = None
    (values,), _ = reported(tmp_path, records)
    assert values["joules_per_item"] is None and values["watts_mean"] == pytest.approx(2 * WATTS, rel=0.1)
    for meter in records[1]["meters"]:
        meter["joules"] = None
    records[1]["total"]["joules_measured"] = None
    (values,), _ = reported(tmp_path, records)
    assert values["watts_mean"] is None


def test_a_part_that_fails_is_a_failed_run(tmp_path):
    records = measured(tmp_path, offsets=(0, 0), seconds=0.4, status=3)
    path = tmp_path / "all.json"
    path.write_text(json.dumps(records))
    (case,) = json.loads(jm("report", path, "--format", "json").stdout)["cases"]
    assert case["ok"] is False


def test_repeats_of_several_processes_are_runs_in_their_order(tmp_path):
    """Two ranks that each measure three runs, in one store: three runs of two parts."""
    store = tmp_path / "r.db"
    running = [subprocess.Popen([BIN, "measure", "--source", "nvml", "--repeat", "3", "--store", str(store), "sleep", "0.6"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                env={**os.environ, **ENV, "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    done = jm("report", store, "--format", "json")
    assert "6 records are parts of 3 runs of a job" in done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert len(cases) == 3 and all(c["values"]["watts_mean"] < 2 * WATTS * 1.1 for c in cases)
    assert jm("report", store, "--html", tmp_path / "p.html").returncode == 0


def test_slurm_names_the_job_and_step(tmp_path):
    (record,) = measured(tmp_path, {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3"}, (), (0,), 0.1)
    assert (record["job"]["id"], record["job"]["step"]) == ("4711", "3")
    (record,) = measured(tmp_path, {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3"}, ("--job", "mine"), (0,), 0.1)
    assert (record["job"]["id"], record["job"]["step"]) == ("mine", None)


@pytest.mark.parametrize("rank, world, printed, told", [(0, 4, True, True), (3, 4, False, False), (0, 1, True, False), (None, None, True, False)])
def test_the_first_rank_alone_prints_its_summary(tmp_path, rank, world, printed, told):
    placed = {} if rank is None else {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(world)}
    words = ["measure", "--source", "nvml", "--store", tmp_path / "job.db", "sh", "-c", "echo out; echo err >&2; exit 3"]
    done = jm(*words, env={**ENV, **placed, "SLURM_JOB_ID": "4711"})
    assert (done.stdout, done.returncode) == ("out\n", 3) and "err\n" in done.stderr
    assert ("Energy" in done.stderr) == printed and ("adds up those in this store" in done.stderr) == told
    assert len(stored(tmp_path / "job.db")) == 1  # of each rank
    alone = jm("measure", "--source", "nvml", "sh", "-c", "exit 0", env={**ENV, **placed, "SLURM_JOB_ID": "4711"})
    assert "Energy" in alone.stderr  # nothing else has it


def test_ranks_of_no_job_each_print_their_summary(tmp_path):
    """Those of mpirun without Slurm: nothing says that their records belong together."""
    placed = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    done = jm("measure", "--source", "nvml", "--store", tmp_path / "r.db", "true", env={**env, **ENV, **placed})
    assert done.returncode == 0 and "Energy" in done.stderr and "This is rank" not in done.stderr


def test_ranks_of_srun_print_one_summary(cluster, tmp_path):
    store = tmp_path / "job.db"
    done = subprocess.run(["srun", "--ntasks=2", BIN, "measure", "--source", "nvml", "--store", store, "sleep", "1"],
                          env={**cluster.env, **ENV}, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Energy") == 1 and f"rank 0 of 2; 'joulemark report {store}'" in done.stderr
    summed = jm("report", store)
    assert "2 records are parts of 1 run of a job" in summed.stderr and "(2 parts of job" in summed.stdout
