# SPDX-License-Identifier: Apache-2.0
"""bench/gpu/serve.py: rows that follow from another one or from files, with a program whose records are known."""
import importlib.util
import json
import subprocess
import sys

import numpy
import pytest

import weights_files
from jm import SOURCE

spec = importlib.util.spec_from_file_location("serve", SOURCE / "bench" / "gpu" / "serve.py")
serve = importlib.util.module_from_spec(spec)
spec.loader.exec_module(serve)

# 2,000 requests in 20 s; the bounds hold below 75 requests/s. The first token is there 1 s after the setup of 2 s.
PROGRAM = """
import json, sys, time
began, words = time.monotonic_ns(), sys.argv[1:]
option = lambda name: words[words.index(name) + 1] if name in words else None
times = {"p50": 0.5, "p99": 0.5}
for word in words:
    if word.startswith("--requests-csv="):
        open(word.split("=", 1)[1], "w").write("request,arrival_s,ttft_s\\n0,0.25,0.75\\n")
rate = float(option("--rate") or 0)
record = {"throughput": 10000.0, "items": 200000, "start_ns": began, "ran_on": {"meter": "gpu", "name": "NVIDIA H200 GPU-1", "uuid": "GPU-1"},
          "provenance": {"drivers": {}}, "detail": "llama, 100 requests at once, 30 pages of 16 tokens",
          "phases": [{"name": "setup", "start_s": 0, "end_s": 2.0},
                     {"name": "steady", "start_s": 3, "end_s": 23, "meters": [{"id": "gpu", "joules": 10000}]},
                     {"name": "window", "start_s": 5, "end_s": 15, "meters": [{"id": "gpu", "joules": 6000}]}],
          "serving": {"cache_type": "bf16", "ttft": times, "tpot": times, "preemptions": 0, "padding": 0, "device_idle": 0.005,
                      "p99_in_bounds": rate < 75, "window": {"requests_done": 1000, "seconds": 10, "tokens_out": 120000}}}
if words[0] == "describe":
    print(json.dumps({"page_bytes": 1 << 20, "parameter_bytes": 15 << 20, "arena_bytes": 5 << 20}))
else:
    json.dump(record, open(next(word for word in words if word.startswith("--json=")).split("=", 1)[1], "w"))
"""


@pytest.fixture(name="rows")
def measured(tmp_path, monkeypatch):
    """Rows by name, as serve.py keeps them."""
    for name, text in (("joulemark", f"#!{sys.executable}\n{PROGRAM}"), ("nvidia-smi", "#!/bin/sh\necho 60\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(serve, "CONFIG", serve.llama_files.config(16, 24, 2, 2, 1, 50, 64))

    def run(*names):
        monkeypatch.setattr(sys, "argv", ["serve.py", str(tmp_path / "joulemark"), "--out", str(tmp_path / "out.json"), "--weights",
                                          str(tmp_path / "weights"), "--no-peer", *(["--rows", *names] if names else [])])
        serve.main()
        return {row["row"]: row for row in json.loads((tmp_path / "out.json").read_text())}
    return run


def test_offered_rate_follows_from_that_of_all_requests(rows):
    found = rows("paper", "interactive", "relaxed")
    # requests that arrive at once: those of the window
    assert found["paper"]["figure"] == pytest.approx(120000 / 10)
    assert found["paper"]["tokens_per_joule_of_node"] == pytest.approx(120000 / (6000 + 25 * 10))
    assert (found["interactive"]["rate"], found["interactive"]["figure"], found["interactive"]["reached"]) == (70, 0.70, True)
    assert (found["relaxed"]["rate"], found["relaxed"]["figure"], found["relaxed"]["reached"]) == (90, 0, False)
    with pytest.raises(SystemExit, match="`paper`"):
        serve.prepare(next(row for row in serve.ROWS if row.name == "relaxed"), [], None)


def test_first_token_with_weights_from_files(rows, tmp_path):
    row = rows("load")["load"]
    assert 3 <= row["figure"] < 6 and row["reached"]  # and the start of the program
    tensors = weights_files.read(tmp_path / "weights" / "model.safetensors")
    shapes = serve.llama_files.shapes_of(serve.CONFIG)
    assert {name: tuple(shape) for name, (_, shape, *_) in tensors.items()} == shapes and {t[0] for t in tensors.values()} == {"BF16"}
    values = {name: (numpy.frombuffer(t[2], "<u2").astype("<u4") << 16).view("<f4") for name, t in tensors.items()}
    assert 0.01 < values["model.layers.1.mlp.up_proj.weight"].std() < 0.03 and (values["model.norm.weight"] == 1).all()


def test_weights_are_written_only_for_a_row_that_is_named(rows, tmp_path, capsys):
    assert {row.name for row in serve.ROWS} - set(rows()) == {"load"} and not (tmp_path / "weights").exists()
    with pytest.raises(SystemExit):
        rows("loads")
    assert "there is no row loads; rows are 128/128, " in capsys.readouterr().err


def test_share_of_the_memory_that_pages_take(rows):
    assert rows("cache")["cache"]["figure"] == pytest.approx(30 / (60 - 15 - 5))


def test_tables_show_all_rows(rows, tmp_path):
    rows("paper", "interactive", "cache", "load")
    shown = subprocess.run([sys.executable, SOURCE / "bench" / "gpu" / "serve.py", "--table", "NVIDIA H200", "--out", tmp_path / "out.json"],
                           check=True, stdout=subprocess.PIPE, text=True).stdout
    assert all(words in shown for words in ("| 1:1024/1:256 | bf16 | 768 |", "| interactive | of the offline rate | 0.7 | **0.70** | 70.0 | 500 | 500 |",
                                            "| cache | of the memory left | 0.92 | 0.75 |", "| load | s from the start | 10 | **3."))
