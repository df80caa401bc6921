# SPDX-License-Identifier: Apache-2.0
"""measure --hdf5: every reading, the phases and the record, read by PyTables."""
import csv
import json

import pytest

from jm import BIN, BUILD, jm, sentence

FAKE = BUILD / "tests" / "peers" / "libnvidia-ml-fake.so"
GPUS = {"JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": "gpus=2;wave=square;low=100;high=500;period=0.3"}


def test_the_readings_are_those_of_the_csv(tmp_path):
    tables = pytest.importorskip("tables")
    done = jm("measure", "--source", "nvml", "--json", "-", "--csv", tmp_path / "csv", "--hdf5", tmp_path / "run.h5",
              "--", "sh", "-c", f'"{BIN}" mark a --items 5; sleep 0.6; "{BIN}" mark end', env=GPUS)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    with open(tmp_path / "csv" / "meters.csv", encoding="utf-8", newline="") as f:
        signals = list(csv.DictReader(f))
    readings = {s["signal"]: [] for s in signals}
    with open(tmp_path / "csv" / "readings.csv", encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f):
            readings[row["signal"]].append((float(row["t_s"]), float(row["value"] or "nan")))
    with tables.open_file(str(tmp_path / "run.h5")) as h5:
        assert str(h5.root._v_attrs.schema) == "joulemark.trace/1"
        assert json.loads(h5.root.record[0].decode()) == record
        assert [n.decode() for n in h5.root.phases.name[:]] == [p["name"] for p in record["phases"]]
        assert h5.root.phases.start_s[:].tolist() == pytest.approx([p["start_s"] for p in record["phases"]])
        for s in signals:
            group = h5.get_node(f"/s{s['signal']}")
            assert str(group._v_attrs.meter) == s["meter"] and str(group._v_attrs.quantity) == s["quantity"]
            assert group.t_s[:].tolist() == pytest.approx([t for t, _ in readings[s["signal"]]], abs=1e-8)
            assert group.value[:].tolist() == pytest.approx([v for _, v in readings[s["signal"]]], nan_ok=True)
        assert sum(len(r) for r in readings.values()) > 20


def test_what_cannot_be_written_is_told_before_the_command(tmp_path):
    for name, env in (("no/run.h5", {}), ("run.h5", {"JM_HDF5_LIB": "/no.so"})):
        done = jm("measure", "--hdf5", tmp_path / name, "--", "touch", tmp_path / "ran", env=env)
        assert sentence(done) and not (tmp_path / "ran").exists()
