# SPDX-License-Identifier: Apache-2.0
"""bench/gpu/rows.py and turn.py: the order of a row's runs, with a torch and a joulemark that write down when they ran."""
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from jm import SOURCE

UUID = "GPU-00000000-0000-0000-0000-000000000001"
# What turn.py uses of torch: a compiler of graphs, called on the first step.
TORCH = {
    "torch/__init__.py": """
        def compile(model, backend=None):
            made = []
            def step(x):
                if not made:
                    made.append(backend(model, [x]))
                return made[0](x)
            return step
        """,
    "torch/_functorch/__init__.py": "",
    "torch/_functorch/config.py": "",
    "torch/_inductor/__init__.py": "",
    "torch/_inductor/compile_fx.py": """
        import os, time
        def compile_fx(graph, inputs, **more):
            time.sleep(0.1)
            with open(os.environ["LOG"], "a") as log:
                log.write("compiled\\n")
            return graph
        """,
}
SCRIPT = """
    import json, os, sys, torch
    if "fail" in sys.argv:
        sys.exit("no memory")
    torch.compile(lambda x: x)(1)
    with open(os.environ["LOG"], "a") as log:
        log.write("PyTorch " + " ".join(sys.argv[1:]) + "\\n")
    print(json.dumps({"items_s": 1000, "step_s": 0.1, "least_s": 0.08, "most_s": 0.125, "watts": 500, "bytes": 7, "reserved_bytes": 8}))
    """
# Its parts are compiled separately with --blocks. Its first steps are logged with their begin and end.
RESNET = """
    import json, os, pathlib, sys, time, torch
    def log(text):
        with open(os.environ["LOG"], "a") as file:
            file.write(text + "\\n")
    for _ in range(int(os.environ.get("PARTS", 10)) if "--blocks" in sys.argv else 1):
        torch.compile(lambda x: x)(1)
    log("first steps")
    time.sleep(0.3)
    log("first steps end")
    turn = pathlib.Path(os.environ["TURN_WARM"])
    turn.with_name(turn.name + ".waits").touch()
    while not turn.exists():
        time.sleep(0.01)
    log("PyTorch")
    print(json.dumps({"image_per_s": 1000, "least": 900, "most": 1100, "watts": 500, "peak_bytes": 7, "reserved_bytes": 8}))
    """
OWN = """
    import json, os, sys
    words, mode = sys.argv[1:], "fast" if "--fast" in sys.argv else "default"
    with open(os.environ["LOG"], "a") as log:
        log.write(f"joulemark {mode}{' all' * ('--keep-all' in words)}\\n")
    json.dump({"status": "ok", "throughput": 1200.5, "items": 2401, "unit": "token", "total": {"joules_measured": 1000}, "verified": True,
               "plan": {"peak_bytes": 5, "gradients": "bf16", "parameters": 3, "batch": 4}, "ran_on": {"name": "NVIDIA H100 80GB", "uuid": "%s"}},
              open(words[words.index("--json") + 1], "w"))
    """ % UUID


@pytest.fixture(name="bench")
def fixture_bench(tmp_path):
    """A copy of bench/gpu with scripts that measure nothing, and a joulemark that writes a record."""
    gpu, site = tmp_path / "gpu", tmp_path / "site"
    for name, text in TORCH.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(textwrap.dedent(text))
    gpu.mkdir()
    for name in ("rows.py", "turn.py"):
        (gpu / name).write_text((SOURCE / "bench" / "gpu" / name).read_text(encoding="utf-8"))
    (gpu / "train_torch.py").write_text(textwrap.dedent(SCRIPT))
    (gpu / "resnet_torch.py").write_text(textwrap.dedent(RESNET))
    (tmp_path / "joulemark").write_text(f"#!{sys.executable}\n" + textwrap.dedent(OWN))
    (tmp_path / "joulemark").chmod(0o755)
    return tmp_path


def run(bench, *words):
    done = subprocess.run([sys.executable, bench / "gpu" / "rows.py", bench / "out", *words], text=True, capture_output=True, timeout=60,
                          check=False, env={**os.environ, "LOG": str(bench / "log"), "PYTHONPATH": str(bench / "site"),
                                            "JM_BIN": str(bench / "joulemark")})
    return done, (bench / "log").read_text().splitlines() if (bench / "log").exists() else []


def test_programs_compile_before_the_first_row_and_run_in_turn(bench):
    done, log = run(bench, "llama", "gpt-117m", "--seconds", "1", "--meanwhile", "echo meanwhile >>$LOG")
    assert done.returncode == 0, done.stderr
    assert sorted(log[:3]) == ["compiled", "compiled", "meanwhile"]
    each = ["joulemark default", None, "joulemark default", "joulemark fast"]
    assert [line if "PyTorch" not in line else None for line in log[3:]] == each + each
    assert log[4].startswith("PyTorch llama 8 2048 1 ") and log[8].startswith("PyTorch gpt 32 1024 1 ")
    rows = json.loads((bench / "out" / "rows.json").read_text())
    assert [r["workload"] for r in rows] == ["llama", "gpt-117m"]
    mine = {"rate": 1200.5, "watts": 1000 * 1200.5 / 2401, "peak_bytes": 5, "gradients": "bf16", "loss": None, "verified": True}
    assert rows[0]["joulemark"] == [mine, mine] and rows[0]["fast"] == [mine]
    assert rows[0]["pytorch"] == {"rate": 1000, "least": 800, "most": 1250, "watts": 500, "peak_bytes": 7, "reserved_bytes": 8}
    assert (rows[0]["gpu"], rows[0]["uuid"], rows[0]["parameters"]) == ("H100", UUID, 3)


def test_first_steps_of_resnets_one_at_a_time_after_the_command_and_before_the_rows(bench):
    other, until = bench / "other", "until [ $(grep -c '%s' $LOG) = %d ]; do sleep 0.1; done"
    done, log = run(bench, "resnet152", "resnet50-fp16", "--seconds", "1", "--no-fast", "--after", str(other), "--meanwhile",
                    until % ("compiled", 11) + f"; echo meanwhile >>$LOG; ({until % ('steps end', 2)}; touch {other}) >/dev/null 2>&1 &")
    assert done.returncode == 0, done.stderr
    assert log[:12] == ["compiled"] * 11 + ["meanwhile"]
    assert log[12:16] == ["first steps", "first steps end"] * 2 and "first steps taken: 2" in done.stdout
    assert log[16:] == ["joulemark default", "PyTorch", "joulemark default"] * 2


def test_a_network_of_fewer_parts_has_compiled_when_its_first_steps_are_taken(bench, monkeypatch):
    monkeypatch.setenv("PARTS", "9")
    done, log = run(bench, "resnet152", "--seconds", "1", "--no-fast", "--compile-limit", "40")
    assert done.returncode == 0 and "not compiled" not in done.stdout, done.stdout
    assert log == ["compiled"] * 9 + ["first steps", "first steps end", "joulemark default", "PyTorch", "joulemark default"]


def test_first_steps_wait_for_the_row_where_nothing_else_compiles(bench):
    done, log = run(bench, "resnet50-tf32", "--seconds", "1", "--no-fast")
    assert done.returncode == 0, done.stderr
    assert log == ["compiled", "joulemark default", "first steps", "first steps end", "PyTorch", "joulemark default"]


def test_rows_that_take_all_memory_start_in_their_turn(bench):
    done, log = run(bench, "llama3-8b-max", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    # a program of two layers fills the cache and ends before its first step
    assert log[:3] == ["compiled", "joulemark default", "compiled"] and "layers=32 " in log[3]
    assert log[4:] == ["joulemark fast"]  # no second run: its start takes longer than the run
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert row["batch"] == "4 x 2048 beside 3 x 2048, the largest of each"


def test_a_program_that_fails_costs_only_its_figures(bench):
    text = (bench / "gpu" / "rows.py").read_text()
    (bench / "gpu" / "rows.py").write_text(text.replace("gpt 32 1024 SECONDS", "gpt fail"))
    done, log = run(bench, "gpt-117m", "--seconds", "1")
    assert done.returncode == 0 and "gpt-117m: PyTorch gave no figures" in done.stdout and "no memory" in done.stdout
    assert log == ["joulemark default", "joulemark default", "joulemark fast"]
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert "pytorch" not in row and len(row["joulemark"]) == 2


def test_a_gpu_without_a_counter_of_energy(bench):
    """Its watts are unknown, and the rates still stand, with the spread of PyTorch's windows in the line."""
    for name, known in (("joulemark", '"joules_measured": 1000'), ("gpu/train_torch.py", '"watts": 500')):
        text = (bench / name).read_text()
        assert known in text
        (bench / name).write_text(text.replace(known, known.split(":")[0] + ": None"))
    done, _ = run(bench, "llama", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert [r["watts"] for r in [*row["joulemark"], *row["fast"], row["pytorch"]]] == [None] * 4
    assert [r["rate"] for r in [*row["joulemark"], row["pytorch"]]] == [1200.5, 1200.5, 1000]
    lines = [line for line in done.stdout.splitlines() if " llama" in line and "/s" in line]
    assert len(lines) == 4 and all("W unknown" in line for line in lines)
    assert "windows 800.0..1,250.0/s" in next(line for line in lines if "PyTorch" in line)


def test_the_limit_of_pytorch_counts_from_the_end_of_its_windows(bench):
    """START_LIMIT is for its start: with none, a program still has the time that --seconds asks for."""
    text, script = (bench / "gpu" / "rows.py").read_text(), (bench / "gpu" / "train_torch.py").read_text()
    (bench / "gpu" / "rows.py").write_text(text.replace("START_LIMIT = 150", "START_LIMIT = 0.5"))
    (bench / "gpu" / "train_torch.py").write_text(script.replace("print(", "__import__('time').sleep(1); print("))
    done, _ = run(bench, "llama", "--seconds", "1")
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert row["pytorch"]["rate"] == 1000, done.stdout


def test_calls_for_two_cards_begin_together(bench):
    (bench / "out").mkdir()
    other = bench / "other"
    done, log = run(bench, "llama", "--seconds", "1", "--after", str(other),
                    "--meanwhile", f"(sleep 0.6; echo other >>$LOG; touch {other}) >/dev/null 2>&1 &")
    assert done.returncode == 0, done.stderr
    assert log[:3] == ["compiled", "other", "joulemark default"] and (bench / "out" / "compiled").exists()


def test_options_of_joulemark_and_rows_without_pytorch(bench):
    done, log = run(bench, "llama-fp8", "--seconds", "1", "--own=--keep-all")
    assert done.returncode == 0, done.stderr
    assert log == ["joulemark default all", "joulemark default all", "joulemark fast all"]
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert (row["precision"], row["note"]) == ("fp8", ", `--keep-all`") and "pytorch" not in row and "aim" not in row


def test_records_of_an_earlier_call_are_not_taken_for_new_ones(bench):
    run(bench, "llama-fp8", "--seconds", "1")
    (bench / "joulemark").write_text(f"#!{sys.executable}\nraise SystemExit('no GPU')\n")
    done, _ = run(bench, "llama-fp8", "--seconds", "1")
    assert done.returncode == 0 and done.stdout.count("joulemark left no record") == 3 and "no GPU" in done.stdout
    assert json.loads((bench / "out" / "rows.json").read_text()) == []


def test_unknown_row_is_refused(bench):
    done, log = run(bench, "resnet51")
    assert done.returncode == 2 and "There is no row resnet51" in done.stderr and not log


def read(path):
    try:
        return path.read_bytes()
    except OSError:  # has ended
        return b""


def test_programs_end_with_the_call(bench):
    """A program that waits for its turn would disturb whatever runs next on the GPU."""
    (bench / "joulemark").write_text(f"#!{sys.executable}\nimport os, signal, time\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)\n")
    done, _ = run(bench, "llama", "--seconds", "1")
    assert done.returncode == 143
    left = [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if str(bench).encode() in read(p)]
    assert not left
