# SPDX-License-Identifier: Apache-2.0
"""jpwr's command line: its files, columns and output, and the errors of jpwr that joulemark does not repeat."""
import csv
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest

from amd_gpus import surroundings
from hwmon_tree import grace
from jm import BIN, BUILD, FAILURE, NOT_FOUND, USAGE, jm, sentence

FAKE = BUILD / "tests" / "peers" / "libnvidia-ml-fake.so"
WATTS = 300


def gpus(text="gpus=2;wave=const;power=300", **more):
    return {"JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": text, **more}


def jpwr(*args, env=None, methods=("pynvml",), **more):
    return jm("jpwr", "--methods", *methods, *args, env=env or gpus(), **more)


def only(folder, pattern):
    (file,) = pathlib.Path(folder).glob(pattern)
    return file


def table(folder, pattern="power.*.csv"):
    """Columns of the power table as lists of floats; an empty cell is None."""
    with open(only(folder, pattern), encoding="utf-8", newline="") as f:
        rows = list(csv.reader(f))
    assert rows[0][0] == "" and [r[0] for r in rows[1:]] == [str(i) for i in range(len(rows) - 1)]
    return {name: [float(r[i]) if r[i] else None for r in rows[1:]] for i, name in enumerate(rows[0]) if i}


def energy(folder):
    with open(only(folder, "energy.*.csv"), encoding="utf-8", newline="") as f:
        rows = list(csv.reader(f))
    assert rows[0] == ["", "0"]
    return {name: float(wh) if wh else None for name, wh in rows[1:]}


def rectangles(columns, name):
    """The sum that users' scripts make of the power table, in Wh."""
    t, watts = columns["timestamps"], columns[name]
    return sum(p * (b - a) for a, b, p in zip(t, t[1:], watts[1:])) / 3600


def csv_of(tmp_path, *args, **more):
    done = jpwr("--df-out", tmp_path / "out", "--df-filetype", "csv", *args, **more)
    return done, tmp_path / "out"


# ---- files, columns, output


def test_names_columns_and_output(tmp_path):
    before = time.time()
    done, out = csv_of(tmp_path, "--interval", "50", "--", "sh", "-c", "echo hello; sleep 0.5")
    assert done.returncode == 0, done.stderr
    power, used = only(out, "power.*.csv").name, only(out, "energy.*.csv").name
    assert re.fullmatch(rf"power\.{re.escape(socket.gethostname())}\.\d+\.csv", power)
    assert used == power.replace("power", "energy") and len(list(out.iterdir())) == 2
    columns = table(out)
    assert list(columns) == ["timestamps", "pynvml:0", "pynvml:1"] and list(energy(out)) == ["pynvml:0", "pynvml:1"]
    assert before <= columns["timestamps"][0] <= columns["timestamps"][-1] <= time.time()
    text = [line for line in done.stdout.splitlines() if line and not re.match(r" |pynvml|[0-9]", line)]
    assert text == ["Measuring Energy while executing ['sh', '-c', 'echo hello; sleep 0.5']", "hello", "Power data:",
                    "Energy data:", "dtype: float64", f"Writing measurements to {out}",
                    f"Writing power df to {out / power}", f"Writing energy df to {out / used}"]


def test_without_a_folder_nothing_is_written(tmp_path):
    done = jpwr("--", "sleep", "0.2", cwd=tmp_path, env=gpus(JM_STATE=str(tmp_path / "state")))
    assert done.returncode == 0 and "Energy data:" in done.stdout and "Writing" not in done.stdout
    assert [p.name for p in tmp_path.iterdir() if p.name != "state"] == []


def test_a_command_begins_without_dashes(tmp_path):
    """After another option than --methods the command is the first word that is no option."""
    done, out = csv_of(tmp_path, "sh", "-c", "exit 0", "--df-suffix", "mine")
    assert done.returncode == 0 and "'--df-suffix', 'mine']" in done.stdout
    assert "mine" not in only(out, "power.*").name


def test_words_are_quoted_as_in_python():
    words = ["sh", "-c", "exit 0", "it's", 'say "x"', "both ' and \"", "a\\b", "two\nlines"]
    assert jpwr("--", *words).stdout.splitlines()[0] == f"Measuring Energy while executing {words}"


def test_grace_by_its_labels(tmp_path):
    root = tmp_path / "root"
    for number, what, watts in ((0, "Module", 500), (1, "Grace", 200)):
        grace(root, "old", number, what, watts)
    done, out = csv_of(tmp_path, "--", "sleep", "0.4", methods=("gh", "pynvml"), env=gpus(JM_ROOT=str(root)))
    assert done.returncode == 0, done.stderr
    columns = table(out)
    assert sorted(columns) == sorted(["timestamps", "pynvml:0", "pynvml:1", "gh:Module Power Socket 0",
                                      "gh:Grace Power Socket 0"])
    assert columns["gh:Module Power Socket 0"] == pytest.approx([500] * len(columns["timestamps"]))
    used, t = energy(out), columns["timestamps"]
    assert used["gh:Grace Power Socket 0"] == pytest.approx(200 * (t[-1] - t[0]) / 3600, rel=0.05)


def test_pandas_reads_the_hdf5(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    done = jpwr("--df-out", tmp_path, "--interval", "20", "--", "sleep", "0.5")
    assert done.returncode == 0, done.stderr
    frame = pandas.read_hdf(only(tmp_path, "power.*.h5"), key="jpwr")
    assert list(frame.columns) == ["timestamps", "pynvml:0", "pynvml:1"]
    assert list(frame.index) == list(range(len(frame))) and len(frame) >= 25
    assert frame.dtypes.unique().tolist() == ["float64"] and frame["timestamps"].is_monotonic_increasing
    assert frame["pynvml:1"].tolist() == pytest.approx([WATTS] * len(frame), rel=0.01)
    series = pandas.read_hdf(only(tmp_path, "energy.*.h5"), key="jpwr")
    seconds = frame["timestamps"].iloc[-1] - frame["timestamps"].iloc[0]
    assert isinstance(series, pandas.Series) and list(series.index) == ["pynvml:0", "pynvml:1"]
    assert series.tolist() == pytest.approx([WATTS * seconds / 3600] * 2, rel=0.05)


def test_pandas_writes_what_it_read(tmp_path):
    """HDF5 and CSV of the same layout as pandas' own: written again by pandas, both are the same."""
    pandas = pytest.importorskip("pandas")
    done, out = csv_of(tmp_path, "--", "sleep", "0.3")
    assert done.returncode == 0
    for table_name in ("power", "energy"):
        file = only(out, f"{table_name}.*")
        read = pandas.read_csv(file, index_col=0, float_precision="round_trip")
        assert (read if table_name == "power" else read["0"].rename(None).rename_axis(None)).to_csv() == \
            file.read_text(encoding="utf-8").replace(",0\n", ",0\n")


def test_a_missing_library_is_told_before_the_command(tmp_path):
    done = jpwr("--df-out", tmp_path / "out", "--", "touch", tmp_path / "ran", env=gpus(JM_HDF5_LIB="/nowhere.so"))
    assert "libhdf5" in sentence(done, FAILURE) and not (tmp_path / "ran").exists()
    done, _ = csv_of(tmp_path, "--", "true", env=gpus(JM_HDF5_LIB="/nowhere.so"))
    assert done.returncode == 0


# ---- what jpwr got wrong


def test_rows_are_spaced_evenly_and_reach_both_edges(tmp_path):
    """One row per interval, and the first and last at the beginning and end of the command."""
    begun = time.time()
    done, out = csv_of(tmp_path, "--interval", "100", "--", "sleep", "0.95")
    ended = time.time()
    t = table(out)["timestamps"]
    assert done.returncode == 0 and t[-1] - t[0] >= 0.95 and begun <= t[0] and t[-1] <= ended
    assert [b - a for a, b in zip(t, t[1:-1])] == pytest.approx([0.1] * (len(t) - 2), abs=1e-5)
    assert 0 < t[-1] - t[-2] <= 0.1 + 1e-5


def test_energy_is_the_truth_of_the_gpu(tmp_path):
    """A load that alternates: by the counter to a per cent; the sum over the table comes near it."""
    env = gpus("gpus=1;wave=square;low=100;high=500;period=0.2;duty=0.5;step=0.01;refresh=0.01;window=0.01")
    done, out = csv_of(tmp_path, "--interval", "50", "--", "sleep", "2", env=env)
    assert done.returncode == 0, done.stderr
    columns = table(out)
    t = columns["timestamps"]
    truth = 300 * (t[-1] - t[0]) / 3600  # of whole periods; a part of one is at most 20 J of 600 J
    assert energy(out)["pynvml:0"] == pytest.approx(truth, rel=0.04)
    assert rectangles(columns, "pynvml:0") == pytest.approx(truth, rel=0.06)


@pytest.mark.parametrize("script, status", [("exit 3", 3), ("kill -TERM $$", 143), ("exit 0", 0)])
def test_status_is_the_commands(tmp_path, script, status):
    done, out = csv_of(tmp_path, "--", "sh", "-c", f"sleep 0.2; {script}")
    assert done.returncode == status and only(out, "energy.*.csv").exists()


def test_a_command_that_cannot_start(tmp_path):
    assert "no-such-command" in sentence(csv_of(tmp_path, "--", "no-such-command")[0], NOT_FOUND)
    assert sentence(jpwr(), USAGE) and sentence(jpwr("--"), USAGE)


def test_a_signal_leaves_the_tables(tmp_path):
    child = subprocess.Popen([BIN, "jpwr", "--methods", "pynvml", "--df-out", tmp_path, "--df-filetype", "csv", "--",
                              "sh", "-c", "echo ready; exec sleep 60"], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, **gpus()})
    assert "Measuring" in child.stdout.readline() and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=240) == 143
    assert len(table(tmp_path)["timestamps"]) >= 2
    child.stdout.close()


def test_devices_of_the_job(tmp_path):
    """Columns keep the index on the node."""
    env = gpus("gpus=4;wave=const;power=300", CUDA_VISIBLE_DEVICES="1,3")
    done, out = csv_of(tmp_path, "--", "sleep", "0.2", env=env)
    assert done.returncode == 0 and list(energy(out)) == ["pynvml:1", "pynvml:3"]


def test_text_around_a_variable_is_kept(tmp_path):
    done, out = csv_of(tmp_path, "--df-suffix", "a-%q{ONE}-%q{TWO}-z%q", "--", "true",
                       env=gpus(ONE="first", TWO="2"))
    assert done.returncode == 0 and only(out, "power.a-first-2-z%q.*.csv")
    done, out = csv_of(tmp_path / "unset", "--df-suffix", "x%q{NOT_THERE}", "--", "true")
    assert done.returncode == 0 and only(out, "power.xNone.*.csv") and "NOT_THERE" in done.stderr
    assert "'/'" in sentence(csv_of(tmp_path, "--df-suffix", "a/b", "--", "true")[0], USAGE)
    assert "too long" in sentence(csv_of(tmp_path, "--df-suffix", "a" * 300, "--", "true")[0], USAGE)


def test_a_sensor_that_dies(tmp_path):
    """A GPU that is lost in the middle: the other's energy is right, the command's status is kept, nothing waits."""
    env = gpus("gpus=2;wave=const;power=300;lost=1@0.6")
    done, out = csv_of(tmp_path, "--", "sleep", "1.5", env=env)
    assert "pynvml:1" in sentence(done, FAILURE)
    columns, used = table(out), energy(out)
    t = columns["timestamps"]
    assert None not in columns["pynvml:0"] and columns["pynvml:1"][-1] is None and used["pynvml:1"] is None
    assert used["pynvml:0"] == pytest.approx(300 * (t[-1] - t[0]) / 3600, rel=0.1)
    done, out = csv_of(tmp_path / "ignored", "--ignore-measure-errors", "--", "sleep", "1.5", env=env)
    assert done.returncode == 0 and "pynvml:1" in done.stderr
    columns, used = table(out), energy(out)
    known = [row for row in range(len(columns["timestamps"])) if columns["pynvml:1"][row] is not None]
    seconds = columns["timestamps"][known[-1]] - columns["timestamps"][0]
    assert used["pynvml:1"] == pytest.approx(300 * seconds / 3600, rel=0.01) and 0 < seconds < 1.5
    done, _ = csv_of(tmp_path / "status", "--", "sh", "-c", "sleep 1.5; exit 9", env=env)
    assert done.returncode == 9


def test_intervals_without_a_reading(tmp_path):
    """A GPU that answers nothing for half a second: its counter has the energy of that time, too."""
    done, out = csv_of(tmp_path, "--interval", "100", "--", "sleep", "2",
                       env=gpus("gpus=1;wave=const;power=300;fails=0@0.9"))
    columns = table(out)
    t, watts = columns["timestamps"], columns["pynvml:0"]
    assert done.returncode == 0 and None in watts[1:] and "known from its counter" in done.stderr
    assert energy(out)["pynvml:0"] == pytest.approx(300 * (t[-1] - t[0]) / 3600, rel=0.1)


# ---- ranks


@pytest.mark.parametrize("launcher", [{"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "{}"},
                                      {"PMI_RANK": "5", "MPI_LOCALRANKID": "{}"},
                                      {"SLURM_PROCID": "5", "SLURM_LOCALID": "{}"}])
def test_one_rank_of_a_node_measures(tmp_path, launcher):
    for local in ("0", "1"):
        env = gpus(**{name: value.format(local) for name, value in launcher.items()})
        done, out = csv_of(tmp_path / local, "--use-mpi", "--", "sh", "-c", "exit 4", env=env)
        assert done.returncode == 4
        assert done.stdout.startswith("Executing ['sh'") == (local == "1") and out.exists() == (local == "0")
    assert only(tmp_path / "0" / "out", "power.*").name == "power.5.csv"


def test_ranks_that_are_named(tmp_path):
    env = gpus(PMIX_RANK="2", SLURM_LOCALID="1")
    done, out = csv_of(tmp_path, "--use-mpi", "--mpi-ranks", "0", "2", "--", "true", env=env)
    assert done.returncode == 0 and only(out, "power.2.csv")
    done, _ = csv_of(tmp_path, "--use-mpi", "--mpi-ranks", "0", "1", "--", "no-such-command", env=env)
    assert "no-such-command" in sentence(done, NOT_FOUND)
    assert "requires --use-mpi" in sentence(jpwr("--mpi-ranks", "1", "--", "true"), USAGE)
    clean = {name: "" for name in ("PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")}
    assert "mpirun" in sentence(jpwr("--use-mpi", "--", "true", env=gpus(**clean)), USAGE)


# ---- methods


def test_amd_gpus_have_a_table_of_counters(tmp_path):
    env = surroundings(tmp_path / "root", 24, "xa")
    done, out = csv_of(tmp_path, "--", "sleep", "1", methods=("rocm",), env=env)
    assert done.returncode == 0, done.stderr
    columns = table(out)
    t = columns["timestamps"]
    assert list(columns) == ["timestamps", "rocm:0", "rocm:1"]
    lines = only(out, "energy_from_counter.*.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == ",rocm:0,rocm:1" and lines[1].startswith("0,") and len(lines) == 2
    for i, watts in ((0, 500), (1, 250)):  # the power of the fake GPUs
        truth = pytest.approx(watts * (t[-1] - t[0]) / 3600, rel=0.05)
        assert energy(out)[f"rocm:{i}"] == truth and float(lines[1].split(",")[i + 1]) == truth
    assert "Additional data:\nenergy_from_counter\n" in done.stdout and "Writing energy_from_counter df to" in done.stdout


def test_two_dies_of_a_board_have_one_column(tmp_path):
    done, out = csv_of(tmp_path, "--", "sleep", "0.4", methods=("rocm",), env=surroundings(tmp_path / "root", 24, "dsds"))
    assert done.returncode == 0 and list(table(out)) == ["timestamps", "rocm:0", "rocm:2"]


def test_methods_that_are_not_there():
    nowhere = gpus(JM_AMDSMI_LIB="/nowhere", JM_ROCMSMI_LIB="/nowhere")
    assert "AMD" in sentence(jpwr("--", "true", methods=("rocm",), env=nowhere), FAILURE)
    assert sentence(jpwr("--", "true", methods=("gc",)), FAILURE)
    assert "nvidia" in sentence(jpwr("--", "true", methods=("nvidia",)), USAGE)
    assert "--methods" in sentence(jm("jpwr", "--", "true"), USAGE)
    done = jpwr("--", "sleep", "0.1", methods=("pynvml", "pynvml"))
    assert done.returncode == 0 and done.stdout.count("pynvml:0") == 2  # in the head of the one table, and the other
