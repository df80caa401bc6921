# SPDX-License-Identifier: Apache-2.0
"""tests/hw/nodes.sh with small networks: on four fake GPUs, of which GPU i draws 100 (i + 1) W, and what it would call."""
import json
import os
import re
import subprocess

import pytest

from fake_gpus import FakeGpus
from jm import BUILD, SOURCE, jm
from runs import records

SCRIPT = SOURCE / "tests/hw/nodes.sh"
LEFT = 3


def uuid(gpu):
    return f"GPU-{0x10000000 * gpu + gpu:08x}-fa4e-4000-8000-00000000{gpu:04x}"


@pytest.fixture(name="gpus", scope="module")
def four_gpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpus")
    fake = FakeGpus(folder)
    with open("/proc/uptime", encoding="ascii") as f:
        now = int(float(f.read().split()[0])) - 3600
    fake.config("wave=steps;steps=100*86400/200*86400/300*86400/400*86400;shift=86400;phase=-%d;response=0" % now)
    backends = folder / "backends"
    backends.mkdir()
    (backends / "cuda.so").symlink_to(BUILD / "tests/peers/later.so")
    (backends / "cpu.so").symlink_to(BUILD / "backends/cpu.so")
    return {**fake.env, "JM_BACKENDS": str(backends), "JM_FAKE_LATER_US": "0", "SIZE": "toy", "EACH": "1", "PATIENCE": "10", "LIMIT": "4800",
            "JM_FAKE_LATER_IDS": ",".join(map(uuid, range(4))), "DEVICES": "cuda:0 cuda:1 cuda:2 cuda:3",
            "JM_NCCL_LIB": str(BUILD / "tests/peers/libnccl-fake.so"), "PYTHON": "/usr/bin/python3"}


def nodes(env, folder, *steps, dry=False):
    words = [SCRIPT, *(["--dry-run"] if dry else []), BUILD, folder, *steps]
    return subprocess.run(words, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=1000)


def table(text, title):
    """The rows of a table of Markdown, whose title begins so, as dictionaries."""
    lines = text[text.index(f"**{title}"):].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:1] + lines[2:]]
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [dict(zip(rows[0], row)) for row in rows[1:end - 1]]


@pytest.fixture(name="trained", scope="module")
def training(gpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    done = nodes(gpus, folder, "train-gpt")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, table(done.stdout, "Trainings")


def test_trains_on_one_two_and_all(trained):
    assert [row["GPUs"] for row in trained[1]] == ["1", "2", "4"]


def test_idle_gpus_have_watts_too(trained):
    for row in trained[1]:
        busy = int(row["GPUs"])
        found = [list(map(float, row[key].split())) for key in ("W", "W of idle ones")]
        assert found[0] == pytest.approx([100.0 * (i + 1) for i in range(busy)], abs=40)
        assert found[1] == pytest.approx([100.0 * (i + 1) for i in range(busy, 4)], abs=40)


def test_shows_the_energy_of_an_item_with_and_without_idle_gpus(trained):
    for row in trained[1]:
        busy = int(row["GPUs"])
        own, whole = (float(row[key].replace(",", "")) for key in ("mJ", "mJ with idle ones"))
        assert whole / own == pytest.approx(1000 / sum(100 * (i + 1) for i in range(busy)), rel=0.1)


def test_compares_with_the_gpus_alone(trained):
    folder, rows = trained
    alone = [records(folder / f"alone.{i}.db")[0]["throughput"] for i in range(4)]
    for row in rows:
        n, rate = int(row["GPUs"]), float(row["rate"].split()[0].replace(",", ""))
        assert float(row["of alone"]) == pytest.approx(rate / sum(alone[:n]), abs=0.002)
        assert row["by"] == ("nccl" if n > 1 else "")


def test_a_second_call_measures_nothing_again(trained, gpus):
    folder = trained[0]
    before = [r["started"] for r in records(folder / "train.db")]
    done = nodes(gpus, folder, "train-gpt")
    assert done.returncode == 0 and "==" not in done.stdout
    assert [r["started"] for r in records(folder / "train.db")] == before


def test_what_does_not_fit_into_the_time_is_left(gpus, tmp_path):
    """A training may take 90 s, this burn 122 s."""
    done = nodes({**gpus, "LIMIT": "110", "EACH": "4", "PATIENCE": "1"}, tmp_path, "train-gpt-117m-1", "burn")
    assert done.returncode == LEFT and "train-gpt-117m-1: ok" in done.stdout
    assert "left for the next call: burn" in done.stdout


def test_transfers_kills_and_a_burn(gpus, tmp_path):
    done = nodes(gpus, tmp_path, "transfers-allreduce", "killed-4", "stopped-4", "burn")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = table(done.stdout, "Transfers")
    assert [(row["workload"], row["GB"], row["GPUs"]) for row in rows] == [("allreduce", "0.0001", "4"), ("allreduce", "0.001", "4")]
    harms = table(done.stdout, "A rank that")
    assert [(row["harm"], row["ranks left"]) for row in harms] == [("killed", "0"), ("stopped", "0")]
    assert all("Rank 3 of 4" in row["reason"] and float(row["s until all have ended"]) < 10 for row in harms)
    burns = table(done.stdout, "All GPUs at once")
    assert [(row["devices"], row["all right"]) for row in burns] == [("cuda:0,cuda:1,cuda:2,cuda:3", "yes")]


def test_a_model_divided_over_all(gpus, tmp_path):
    """Two tensors and two stages of two micro-steps, of which a stage idles in 1 of 3."""
    done = nodes(gpus, tmp_path, "divided")
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = table(done.stdout, "A model divided")
    assert (row["GPUs"], row["tensors x stages"]) == ("4", "2 x 2")
    assert [float(w) for w in row["W"].split()] == pytest.approx([100, 200, 300, 400], rel=0.05)
    [record] = records(tmp_path / "divided.db")
    assert record["communication"]["bubble"] == pytest.approx(1 / 3)


def test_products_beside_transfers(gpus, tmp_path):
    done = nodes({**gpus, "DEVICES": "cuda:0 cuda:1"}, tmp_path, "overlap")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = table(done.stdout, "Products beside transfers")
    assert [(row["transfer"], row["GB"], row["GPUs"], row["by"]) for row in rows] == [("allgather", "0.0001", "2", "nccl"),
                                                                                     ("allgather", "0.001", "2", "nccl")]
    assert all(float(row[name]) > 0 for row in rows for name in ("products, ms", "transfer, ms", "both / the longer"))


def test_a_batch_that_does_not_fit_is_a_result(gpus, tmp_path):
    done = nodes(gpus, tmp_path, "map-gpt-800m-2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(row["batch"], row["2"] == "OOM") for row in table(done.stdout, "gpt:")] == [("1", False), ("4", False), ("4096", True)]


def test_a_step_that_failed_is_made_again_only_by_name(gpus, tmp_path):
    env = {**gpus, "JM_FAKE_NCCL_FAILS": "1"}
    done = nodes(env, tmp_path, "transfers-allreduce")
    assert done.returncode == 1 and "failed: transfers-allreduce" in done.stdout and "internal error" in done.stdout
    again = nodes(gpus, tmp_path, "transfers-allr")
    assert again.returncode == 1 and "==" not in again.stdout
    assert nodes(gpus, tmp_path, "transfers-allreduce").returncode == 0


def test_transfers_beside_those_of_pytorch(gpus, tmp_path):
    """By gloo here. The bus bandwidths of both have the same factor: 1 for the sums of two ranks."""
    done = nodes({**gpus, "DEVICES": "cuda:0 cuda:1"}, tmp_path, "transfers-allreduce", "nccl")
    if "skipped" in done.stdout:
        pytest.skip("no PyTorch")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "nccl.json").read_text().splitlines()[-1])["transfers"]
    seconds = {t["size"]: t["seconds"] for t in told if t["name"] == "allreduce"}
    for row in table(done.stdout, "Transfers"):
        size = float(row["GB"])
        assert float(row["alone, GB/s"]) == pytest.approx(size / seconds[size], abs=0.006, rel=0.01)


@pytest.mark.parametrize("n, counts", [(1, ["1"]), (4, ["1", "2", "4"]), (8, ["1", "2", "4", "8"])])
def test_a_dry_run_shows_what_it_would_call(n, counts, tmp_path):
    done = nodes({"DEVICES": " ".join(f"cuda:{i}" for i in range(n))}, tmp_path, dry=True)
    assert done.returncode == 0 and not done.stderr
    assert re.findall(r"joulemark run gpt-117m .*--ranks (\d+) ", done.stdout) == counts
    assert ("== nccl" in done.stdout) == (n > 1)
    assert all(int(most) <= 480 for most in re.findall(r"at most (\d+) s", done.stdout))


def test_joulemark_accepts_what_it_would_call(gpus, tmp_path):
    done = nodes({"DEVICES": "cuda:0 cuda:1"}, tmp_path, dry=True)
    lines = [line.split(" run ", 1)[1].split() for line in done.stdout.splitlines() if " run " in line]
    assert len(lines) > 30
    for words in {" ".join(words[:words.index("--store")]) for words in lines}:
        listed = jm("run", *words.split(), "--dry-run", env=gpus)
        assert listed.returncode == 0, (words, listed.stderr)


def test_says_how_it_is_called():
    done = subprocess.run([SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "nodes.sh [--dry-run] BUILD FOLDER" in done.stderr
