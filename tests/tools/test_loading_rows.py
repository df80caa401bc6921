# SPDX-License-Identifier: Apache-2.0
"""bench/gpu/loading.py: the files that it makes, and its figures from a record that is known."""
import json
import sys

import pytest

from jm import SOURCE, jm

for folder in ("bench", "bench/gpu"):
    sys.path.insert(0, str(SOURCE / folder))
pytest.importorskip("PIL", reason="python3-pil is not installed")
import loading  # pylint: disable=wrong-import-position

PROGRAM = """
import json, sys
words = sys.argv[1:]
with open(CALLS, "a") as f:
    f.write(" ".join(words) + chr(10))
data = {"threads": 3, "decoded": 1000, "corrupt": 0, "wait_s": 0.05, "load_per_s": 500.0} if "--data" in words else None
phases = [{"name": name, "start_s": a, "end_s": b} for name, a, b in (("setup", 0, 4), ("warmup", 4, 6), ("steady", 6, 14))]
record = {"throughput": 90.0 if data else 100.0, "unit": "image", "items": 800, "total": {"joules_measured": 1600.0}, "verified": True,
          "phases": phases, "data": data}
json.dump(record, open(words[words.index("--json") + 1], "w"))
"""


def counted(folder):
    return json.loads(jm("data", folder, "--json").stdout)


def test_files_are_data_sets(tmp_path, monkeypatch):
    loading.make_jpegs(tmp_path / "pictures", 6)
    found = counted(tmp_path / "pictures")
    assert (found["format"], found["pictures"], found["classes"], found["corrupt_files"]) == ("folder", 6, 3, 0)
    assert len({file.read_bytes() for file in (tmp_path / "pictures").glob("*/*.jpg")}) == 6
    monkeypatch.setattr(loading, "CIFAR_PICTURES", 20)
    loading.make_cifar(tmp_path / "cifar")
    found = counted(tmp_path / "cifar")
    assert (found["format"], found["pictures"], found["classes"]) == ("CIFAR", 100, 10)


def test_share_of_waiting_and_resume(tmp_path, monkeypatch, capsys):
    program, calls = tmp_path / "joulemark", tmp_path / "calls"
    program.write_text(f"#!{sys.executable}\nCALLS = {str(calls)!r}\n{PROGRAM}")
    program.chmod(0o755)
    monkeypatch.setenv("JM_BIN", str(program))
    monkeypatch.setattr(loading, "CIFAR_PICTURES", 20)
    for rows in (["cifar"], ["cifar", "cifar-random"]):
        monkeypatch.setattr(sys, "argv", ["loading.py", str(tmp_path / "work"), *rows, "--rounds", "1"])
        loading.main()
    assert len(calls.read_text().splitlines()) == 2  # cifar was not measured again
    found = {row["row"]: row for row in json.loads((tmp_path / "work" / "loading.json").read_text())}
    assert found["cifar"]["wait_share"] == pytest.approx(0.05 / 10)
    assert found["cifar-random"]["joules_per_item"] == pytest.approx(1600 / 800)
    assert "cifar / cifar-random: 90 / 100 = 0.900" in capsys.readouterr().out
