# SPDX-License-Identifier: Apache-2.0
"""Output of text from outside: no terminal control sequences, no formulas in CSV, no rounding shown as a gain; and files
that a killed joulemark leaves in the temporary folder."""
import csv
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unicodedata

import pytest

from fake_gpus import wait_for
from jm import BIN, BUILD, SOURCE, jm, skip_with_sanitizers
from reports import records, report, summary, write

ESC = "\x1b]0;owned\x07\x1b[2J"


def controls(text):
    return {c for c in text if unicodedata.category(c) == "Cc"} - {"\n"}


@pytest.mark.parametrize("words", [
    ["measure", "--source", "null", "--", "echo", ESC],
    ["measure", "--source", "null", "--items-json", ESC, "--", "true"],
    ["measure", "--source", "null", "--items-regex", "x" + ESC, "--", "true"],
    ["measure", "--source", "null", "--items-regex", "n (.*)", "--", "printf", "n " + ESC],
    ["measure", "--source", "null", "--", "/no/such/" + ESC],
    ["run", "--source", "null", "--", "echo", ESC],
    ["run", "--source", "null", "--", "/no/such/" + ESC],
    ["run", "--source", "null", "--", "sh", "-c", "printf '\\033[2J\\033]0;x\\007' >&2; exit 3"],
    ["run", "--source", "null", "--unit", "tok" + ESC, "--items-regex", "n", "--", "echo", "n"],
    ["run", "--store", "/no/such/" + ESC, "--source", "null", "--", "true"],
    ["report", "/no/such/" + ESC],
    ["run", ESC], [ESC], ["report", "--format", ESC, "x"],
])
def test_nothing_that_a_terminal_obeys(words):
    done = jm(*words)
    own = done.stderr.removeprefix("\x1b[2J\x1b]0;x\x07")  # what a command prints is its own affair
    assert not controls(own), repr(done.stderr)
    if words[0] == "run":  # the command's own output is its own affair
        assert ESC[:4] not in done.stdout.replace(ESC + "\n", "")


def test_the_name_of_a_store_can_still_be_pasted(tmp_path):
    store = tmp_path / "a\x1b[2J b.db"
    done = jm("run", "null", "--source", "null", "--steps", 1, "--warmup", 0, "--store", store)
    assert done.returncode == 0 and not controls(done.stderr)
    line = next(line for line in done.stderr.splitlines() if line.strip().startswith("joulemark report"))
    page = tmp_path / "report.html"
    subprocess.run(["bash", "-c", line.replace("joulemark", BIN, 1)], cwd=tmp_path, check=True, capture_output=True)
    assert page.exists()


@pytest.mark.parametrize("words", [["doctor"], ["get"], ["set", "gpu.power=300W"],
                                   ["measure", "--source", "nvml", "--", "true"]])
def test_names_of_gpus(words):
    done = jm(*words, env={"JM_NVML_LIB": str(BUILD / "tests/peers/libnvidia-ml-fake.so"),
                           "JM_FAKE_NVML": "gpus=1;name=H100\x1b[2J\x1b]0owned\x07"})
    assert "H100" in done.stdout + done.stderr
    assert not controls(done.stdout) and not controls(done.stderr), repr(done.stdout + done.stderr)


def test_titles_and_names_of_plans(tmp_path):
    plan = tmp_path / "p.yaml"
    run = '  - name: "na\\e[31m{}"\n    command: "true"\n    source: "null"\n'
    plan.write_text('title: "evil \\e]0;x\\a\\e[2J\\u009b2J"\nruns:\n' + run.format(1) + run.format(2) + '    after: "na\\e[31m1"\n')
    for words in (["plan", plan], ["run", plan, "--dry-run"], ["run", plan]):
        done = jm(*words)
        assert done.returncode == 0 and "na?[31m1" in done.stdout + done.stderr, done.stderr
        assert not controls(done.stdout + done.stderr), repr(done.stdout + done.stderr)


def test_names_in_metrics_of_records_from_others(tmp_path):
    rows = records(n=1)
    for row in rows:
        row["unit"] = "GPU\x1b[2J\u009b2J\nx"
    text = report("--format", "openmetrics", write(tmp_path, rows))
    assert 'unit="GPU?[2J?' in text and not controls(text), repr(text)


def test_names_of_python_regions():
    """What the package prints of them; skipped under sanitizers, whose library Python cannot load."""
    skip_with_sanitizers()
    code = ("import joulemark\n"
            "with joulemark.measure('estimate:0,20') as m:\n"
            "    with m.region('a\\x1b[2J\\x07\\x9bb') as r: pass\n"
            "print(m, repr(m[\'a\\x1b[2J\\x07\\x9bb\']))\n")
    done = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True, check=False,
                          env={**os.environ, "JM_LIBRARY": str(BUILD / "libjoulemark.so.0"), "PYTHONPATH": str(SOURCE / "python")})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("a?[2J??b") == 2 and not controls(done.stdout + done.stderr), repr(done.stdout)


# ---- CSV


@pytest.mark.parametrize("word", ["=1+1", "+1", "-2+3", "@SUM(A1)", "\t=1", "=cmd|' /C calc'!A0"])
def test_no_cell_is_a_formula(tmp_path, word):
    rows = records(n=7)
    for i, r in enumerate(rows):
        r.update(workload=word, unit=word, settings=[])
        r["case"]["parameters"] = {"workload": word, "mode": word if i % 2 else "other"}
    rows[1].update(status="failed", reason=word)
    for more in ([], ["--cases"]):
        cells = [c for row in csv.reader(io.StringIO(report("--format", "csv", *more, write(tmp_path, rows)))) for c in row]
        text = word.replace("\t", " ")
        assert any(text in c for c in cells)
        bad = [c for c in cells if re.match(r"[=@\t\r]|[+-][^0-9.]|[+-].*[^0-9.eE+-]", c)]
        assert not bad, bad


def test_numbers_below_zero_stay_numbers(tmp_path):
    rows = list(csv.DictReader(io.StringIO(report("--format", "csv", write(tmp_path, records())))))
    values = [float(v) for r in rows for k, v in r.items() if v and k.endswith(("low95", "mean"))]
    assert min(values) < 0


# ---- figures


def test_rounding_is_no_gain(tmp_path):
    """Three repeats with the very figures of their reference, in another order of operations."""
    rows = records(n=1)
    base = rows[0]
    rows = []
    for i in range(6):
        r = json.loads(json.dumps(base))
        reference = i % 2 == 0
        r["case"].update(reference=reference, block=i // 2, repeat=i // 2 + 1)
        r["case"]["parameters"]["settings"] = {"gpu.power": "as found" if reference else "700W"}
        scale = 1 if reference else 1 + 2e-16
        r["total"]["joules_simulated"] = 80090.26079999999 * scale
        r["throughput"] *= 3.0 / 3 * scale
        rows.append(r)
    path = write(tmp_path, rows)
    gains = [p["metrics"]["energy_gain_percent"]["mean"] for s in summary(path)["series"] for p in s["points"]]
    assert gains == [0, 0]
    assert not re.search(r"[0-9]e-[0-9]+", report("--columns", "all", path))


# ---- measure and run


def test_items_of_a_measurement_are_no_runs(tmp_path):
    path = tmp_path / "r.json"
    script = f"{BIN} mark a; sleep 0.1; {BIN} mark --items 20 a; sleep 0.1; {BIN} mark --items 10 a"
    assert jm("measure", "--source", "estimate", "--json", path, "--", "sh", "-c", script).returncode == 0
    assert json.loads(path.read_text())["unit"] == "item"
    text = report(path)
    assert "item/s" in text and "run/s" not in text and "J/run" not in text


@pytest.mark.parametrize("given", ["file", "pipe"])
def test_run_says_that_its_input_is_not_passed_on(tmp_path, given):
    words = ["run", "--source", "null", "--", "sh", "-c", "cat; echo end"]
    data = tmp_path / "data"
    data.write_text("words\n")
    reading, writing = os.pipe()
    os.write(writing, b"words\n")
    os.close(writing)
    with open(data, encoding="ascii") as file, open(reading, encoding="ascii") as pipe:
        done = jm(*words, stdin=file if given == "file" else pipe)
    assert done.returncode == 0 and "words" not in done.stdout and "end" in done.stdout
    assert "standard input of 'run' is not passed on" in done.stderr
    assert "standard input" not in jm(*words).stderr


def test_measure_passes_its_input_on(tmp_path):
    data = tmp_path / "data"
    data.write_text("words\n")
    with open(data, encoding="ascii") as file:
        assert jm("measure", "--source", "null", "--", "cat", stdin=file).stdout == "words\n"


# ---- temporary files


def folders(tmp):
    return sorted(p.name for p in pathlib.Path(tmp).glob("joulemark-*"))


@pytest.fixture(name="short_path")
def make_short_path():
    """The path of a socket is at most 107 bytes long."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="jm-") as folder:
        yield pathlib.Path(folder)


def test_what_a_killed_joulemark_left_is_removed_by_the_next(short_path):
    tmp_path = short_path
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    (tmp_path / "joulemark-abcdef").mkdir()  # somebody's own folder
    (tmp_path / "joulemark-abcdef" / "data").write_text("kept")
    with subprocess.Popen([BIN, "measure", "--source", "null", "--items-regex", "x", "--", "sleep", "60"], env=env,
                          stderr=subprocess.DEVNULL, start_new_session=True) as process:
        assert wait_for(lambda: len(folders(tmp_path)) == 2)
        assert wait_for(lambda: list(tmp_path.glob("*/output")))  # how much of the output was read
        assert jm("measure", "--source", "null", "--", "true", env={"TMPDIR": str(tmp_path)}).returncode == 0
        assert len(folders(tmp_path)) == 2  # that of a joulemark that lives stays
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGKILL)
    assert len(folders(tmp_path)) == 2
    assert jm("measure", "--source", "null", "--", "true", env={"TMPDIR": str(tmp_path)}).returncode == 0
    assert folders(tmp_path) == ["joulemark-abcdef"] and (tmp_path / "joulemark-abcdef" / "data").exists()
