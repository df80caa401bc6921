# SPDX-License-Identifier: Apache-2.0
"""bench/gpu/rows.py and compile_first.py: the order of a row's runs, with a torch and a joulemark that write down when they ran."""
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from jm import SOURCE

UUID = "GPU-00000000-0000-0000-0000-000000000001"
# What compile_first.py uses of torch: a compiler of graphs, called on the first step.
TORCH = {
    "torch/__init__.py": """
        def compile(model, backend=None, **more):
            made = []
            def step(x):
                if not made:
                    made.append(backend(model, [x], **more))
                return made[0](x)
            return step
        """,
    "torch/_functorch/__init__.py": "",
    "torch/_functorch/config.py": "",
    "torch/_inductor/__init__.py": "def list_mode_options(mode): return {mode: True}",
    "torch/_inductor/compile_fx.py": """
        import os, time
        def compile_fx(graph, inputs, config_patches=None):
            time.sleep(float(os.environ.get("COMPILING", 0.1)))
            with open(os.environ["LOG"], "a") as log:
                log.write("compiled\\n")
            return graph
        """,
}
SCRIPT = """
    import json, os, pathlib, sys, torch
    if "fail" in sys.argv:
        sys.exit("no memory")
    torch.compile(lambda x: x)(1)
    with open(os.environ["LOG"], "a") as log:
        log.write("PyTorch " + " ".join(sys.argv[1:]) + "\\n")
    others = []
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes()
        except OSError:  # has ended
            continue
        if file.parent.name != str(os.getpid()) and os.path.dirname(sys.argv[0]).encode() in words and b"rows.py" not in words:
            others.append(words)
    if others:
        sys.exit(f"not alone: {others}")
    print(json.dumps({"items_s": 1000, "step_s": 0.1, "least_s": 0.08, "most_s": 0.125, "watts": 500, "bytes": 7, "reserved_bytes": 8}))
    """
# Another program that is alive while one measures would disturb it: those of this call are counted by their folder.
RESNET = SCRIPT.replace('"items_s": 1000, "step_s": 0.1, "least_s": 0.08, "most_s": 0.125', '"image_per_s": 1000, "least": 800, "most": 1250') \
    .replace('"bytes": 7', '"peak_bytes": 7')
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
    for name in ("gpu/rows.py", "gpu/compile_first.py", "drawn_rows.py"):
        (tmp_path / name).write_text((SOURCE / "bench" / name).read_text(encoding="utf-8"))
    (gpu / "train_torch.py").write_text(textwrap.dedent(SCRIPT))
    (gpu / "image_torch.py").write_text(textwrap.dedent(RESNET))
    (tmp_path / "joulemark").write_text(f"#!{sys.executable}\n" + textwrap.dedent(OWN))
    (tmp_path / "joulemark").chmod(0o755)
    return tmp_path


def run(bench, *words, modes="default"):
    done = subprocess.run([sys.executable, bench / "gpu" / "rows.py", bench / "out", "--modes", modes, *words], text=True, capture_output=True, timeout=240,
                          check=False, env={**os.environ, "LOG": str(bench / "log"), "PYTHONPATH": str(bench / "site"),
                                            "JM_BIN": str(bench / "joulemark")})
    return done, (bench / "log").read_text().splitlines() if (bench / "log").exists() else []


def test_programs_compile_before_the_first_row_and_measure_alone(bench):
    done, log = run(bench, "llama", "resnet152", "--fast", "--seconds", "1", "--meanwhile", "echo meanwhile >>$LOG")
    assert done.returncode == 0, done.stderr
    assert sorted(log[:3]) == ["compiled", "compiled", "meanwhile"]
    each = ["joulemark default", "compiled", None, "joulemark default", "joulemark fast"]
    assert [line if "PyTorch" not in line else None for line in log[3:]] == each + each
    assert log[5].startswith("PyTorch llama 8 2048 1 ") and log[10].startswith("PyTorch --model resnet152 --batch 256 ")
    rows = json.loads((bench / "out" / "rows.json").read_text())
    assert [r["workload"] for r in rows] == ["llama", "resnet152"]
    mine = {"rate": 1200.5, "watts": 1000 * 1200.5 / 2401, "peak_bytes": 5, "gradients": "bf16", "loss": None, "verified": True}
    assert rows[0]["joulemark"] == [mine, mine] and rows[0]["fast"] == [mine]
    for row in rows:
        assert row["pytorch"] == {"rate": 1000, "least": 800, "most": 1250, "watts": 500, "peak_bytes": 7, "reserved_bytes": 8}
    assert (rows[0]["gpu"], rows[0]["uuid"], rows[0]["parameters"]) == ("H100", UUID, 3)


def test_one_that_does_not_compile_in_time_compiles_in_its_row(bench, monkeypatch):
    monkeypatch.setenv("COMPILING", "3")
    done, log = run(bench, "llama", "--seconds", "1", "--compile-limit", "1")
    assert done.returncode == 0 and "llama default: PyTorch has not compiled within 1 s" in done.stdout
    assert [line.split()[0] for line in log] == ["joulemark", "compiled", "PyTorch", "joulemark"]


def test_layers_compiled_separately_are_compiled_once(bench):
    """Two layers fill the cache: the program ends at its second graph, before its first step."""
    (bench / "gpu" / "train_torch.py").write_text((bench / "gpu" / "train_torch.py").read_text().replace(
        "torch.compile(lambda x: x)(1)", "torch.compile(lambda x: x)(1); torch.compile(lambda x: x)(1)"))
    done, log = run(bench, "llama3-8b-max", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    assert log[:5] == ["compiled", "compiled", "joulemark default", "compiled", "compiled"] and "layers=32 " in log[5]
    assert len(log) == 6  # no second run: its start takes longer than the run
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert row["batch"] == "4 x 2048 beside 3 x 2048, the largest of each"


def test_all_networks_of_a_row_are_compiled(bench):
    """U-Net and both encoders of sd2: the program that fills the cache ends at its third graph."""
    (bench / "gpu" / "sd2_torch.py").write_text((bench / "gpu" / "train_torch.py").read_text().replace(
        "torch.compile(lambda x: x)(1)", "[torch.compile(lambda x: x)(1) for _ in range(3)]"))
    done, log = run(bench, "sd2", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    three = ["compiled"] * 3
    assert log == [*three, "joulemark default", *three, "PyTorch 64 1 micro-steps=3 precision=fp16", "joulemark default"]


def test_fastest_mode_of_pytorch_counts(bench):
    """Each mode compiles and runs; where one fails, the other counts."""
    script = (bench / "gpu" / "train_torch.py").read_text()
    (bench / "gpu" / "train_torch.py").write_text(script.replace('"items_s": 1000', '"items_s": 1100 if "mode=quick" in sys.argv else 1000'))
    done, log = run(bench, "llama", "--seconds", "1", modes="default,quick")
    assert done.returncode == 0, done.stderr
    assert log[:2] == ["compiled"] * 2 and [line.split()[-1] for line in log if "PyTorch" in line][1] == "mode=quick"
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert (row["pytorch"]["rate"], row["pytorch"]["mode"]) == (1100, "quick")
    (bench / "gpu" / "train_torch.py").write_text(script.replace('"fail" in', '"mode=quick" in'))
    done, _ = run(bench, "llama", "--seconds", "1", modes="default,quick")
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert row["pytorch"]["rate"] == 1000 and "mode" not in row["pytorch"]


def test_drawn_rows_are_those_of_the_seed(bench):
    names = [f"drawn-7-{i}" for i in (1, 2, 3, 4)]
    done, _ = run(bench, *names, "--seconds", "1")
    assert done.returncode == 0, done.stderr
    rows = json.loads((bench / "out" / "rows.json").read_text())
    assert {r["seed"] for r in rows} == {7} and all("aim" not in r for r in rows)
    assert {r["workload"].split("-")[0].split()[0].rstrip("0125") for r in rows} == {"resnet", "vit", "gpt", "llama"}
    again, _ = run(bench, "gemm", "--drawn", "4", "--seed", "7", "--seconds", "1")
    said = again.stdout.splitlines()[0]
    assert said.startswith("seed 7: ") and all(f"{r['workload']}, {r['batch']}" in said for r in rows)
    other, _ = run(bench, "gemm", "--drawn", "4", "--seed", "8", "--seconds", "1")
    assert other.stdout.splitlines()[0].split(": ")[1] != said.split(": ")[1]


def test_a_program_that_fails_costs_only_its_figures(bench):
    text = (bench / "gpu" / "rows.py").read_text()
    (bench / "gpu" / "rows.py").write_text(text.replace("gpt 32 1024 SECONDS", "gpt fail"))
    done, log = run(bench, "gpt-117m", "--seconds", "1", "--fast")
    assert done.returncode == 0 and "gpt-117m PyTorch gave no figures" in done.stdout and "no memory" in done.stdout
    assert log == ["joulemark default", "joulemark default", "joulemark fast"]
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert "pytorch" not in row and len(row["joulemark"]) == 2


def test_a_gpu_without_a_counter_of_energy(bench):
    """Its watts are unknown, and the rates still stand, with the spread of PyTorch's windows in the line."""
    for name, known in (("joulemark", '"joules_measured": 1000'), ("gpu/train_torch.py", '"watts": 500')):
        text = (bench / name).read_text()
        assert known in text
        (bench / name).write_text(text.replace(known, known.split(":")[0] + ": None"))
    done, _ = run(bench, "llama", "--fast", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert [r["watts"] for r in [*row["joulemark"], *row["fast"], row["pytorch"]]] == [None] * 4
    assert [r["rate"] for r in [*row["joulemark"], row["pytorch"]]] == [1200.5, 1200.5, 1000]
    lines = [line for line in done.stdout.splitlines() if " llama" in line and "/s" in line]
    assert len(lines) == 4 and all("W unknown" in line for line in lines)
    assert "windows 800.0..1,250.0/s" in next(line for line in lines if "PyTorch" in line)


def test_the_limit_of_pytorch_counts_beside_its_windows(bench):
    """--start-limit is for its start: with a short one, a program still has the time that --seconds asks for."""
    script = (bench / "gpu" / "train_torch.py").read_text()
    (bench / "gpu" / "train_torch.py").write_text(script.replace("print(", "__import__('time').sleep(3); print("))
    done, _ = run(bench, "llama", "--seconds", "5", "--start-limit", "2")
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert row["pytorch"]["rate"] == 1000, done.stdout


def test_options_of_joulemark_and_rows_without_pytorch(bench):
    done, log = run(bench, "llama-fp8", "--seconds", "1", "--fast", "--own=--keep-all")
    assert done.returncode == 0, done.stderr
    assert log == ["joulemark default all", "joulemark default all", "joulemark fast all"]
    row, = json.loads((bench / "out" / "rows.json").read_text())
    assert (row["precision"], row["note"]) == ("fp8", ", `--keep-all`") and "pytorch" not in row and "aim" not in row


def test_records_of_an_earlier_call_are_not_taken_for_new_ones(bench):
    run(bench, "llama-fp8", "--seconds", "1")
    (bench / "joulemark").write_text(f"#!{sys.executable}\nraise SystemExit('no GPU')\n")
    done, _ = run(bench, "llama-fp8", "--seconds", "1")
    assert done.returncode == 0 and done.stdout.count("joulemark left no record") == 2 and "no GPU" in done.stdout
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
    """A program that goes on would disturb whatever runs next on the GPU."""
    (bench / "joulemark").write_text(f"#!{sys.executable}\nimport os, signal, time\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)\n")
    done, _ = run(bench, "llama", "--seconds", "1")
    assert done.returncode == 143
    left = [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if str(bench).encode() in read(p)]
    assert not left
