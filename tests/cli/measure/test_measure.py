# SPDX-License-Identifier: Apache-2.0
"""joulemark measure: the command that is measured, its record, files and stores."""
import csv
import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from jm import BIN, FAILURE, NOT_FOUND, USAGE, jm, sentence
from measured import check, fakes, record_of


@pytest.mark.parametrize("script, status", [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143),
                                            ("kill -KILL $$", 137)])
def test_status_is_the_commands(script, status):
    record = record_of("--source", "estimate", "--", "sh", "-c", script, status=status)
    assert record["exit_status"] == status
    assert record["signal"] == (status - 128 if status > 128 else None)


def test_stdout_is_left_alone():
    done = jm("measure", "--source", "estimate", "--", "printf", "a\\0b\\n")
    assert done.stdout == "a\0b\n"
    assert "Energy" in done.stderr and ", estimated" in done.stderr


def test_output_that_does_not_block_is_whole():
    """Scanned output goes through us; a slow reader of a non-blocking pipe still gets all of it."""
    out, to = os.pipe()
    os.set_blocking(to, False)
    child = subprocess.Popen([BIN, "measure", "--source", "estimate", "--items-regex", "n ([0-9]+)",
                              "--", "head", "-c", "300000", "/dev/zero"],
                             stdout=to, stderr=subprocess.DEVNULL)
    os.close(to)
    time.sleep(0.3)
    with open(out, "rb") as pipe:
        assert len(pipe.read()) == 300000
    assert child.wait(timeout=240) == 0


def test_missing_command():
    assert "no-such-command" in sentence(jm("measure", "--", "no-such-command"), NOT_FOUND)
    assert "executed" in sentence(jm("measure", "--", "/dev/null"), 126)
    assert sentence(jm("measure"), USAGE)
    assert sentence(jm("measure", "--"), USAGE)


def test_did_you_mean():
    assert "did you mean" in sentence(jm("measure", "--sorce", "rapl", "--", "true"), USAGE)
    assert "'rapl'" in sentence(jm("measure", "--source", "rappl", "--", "true"), USAGE)
    assert "range" in sentence(jm("measure", "--interval", "0s", "--", "true"), USAGE)


def test_signal_is_passed_on():
    script = "trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    child = subprocess.Popen([BIN, "measure", "--source", "estimate", "--", "sh", "-c", script],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=240)
    assert out == "got\n" and child.returncode == 9
    assert "Energy" in err


def test_a_command_of_no_length():
    """Known energy is at least that of the processor at rest; unknown energy is null, never 0."""
    record = record_of("--source", "estimate", "--", "true")
    meter = record["meters"][0]
    at_rest = float(re.match(r"([\d.]+) W \+", meter["about"]).group(1))
    assert at_rest > 0 and (meter["joules"] is None or meter["joules"] >= 0.99 * at_rest * meter["covered_s"] > 0)


# ---- records


@pytest.mark.parametrize("option", ["--json", "--csv", "--source", "--items-regex", "--items-json"])
def test_an_option_without_a_value(option):
    assert option in sentence(jm("measure", f"{option}=", "--", "true"), USAGE)


def shows(text, true, rel):
    """That a quantity in joules or watts is what is true, to its last digit. How long a busy machine takes decides the prefix,
    and the decimals of a column of several rows."""
    number, unit = text.split()
    factor = {"mJ": 1e-3, "J": 1, "kJ": 1e3, "mWh": 3.6, "Wh": 3600, "W": 1}[unit]
    last_digit = factor * 10 ** -len(number.partition(".")[2])
    return float(number.replace(",", "")) * factor == pytest.approx(true, rel=rel, abs=last_digit)


def test_text_of_a_measurement(tmp_path):
    """Totals with uncertainty, Wh and mean power; phases as a table; all against the record's figures."""
    path = tmp_path / "r.json"
    script = f"sleep 0.4; '{BIN}' mark train; sleep 0.4; '{BIN}' mark save --items 100; sleep 0.2"
    done = jm("measure", "--source", "nvml", "--unit", "token", "--json", path, "sh", "-c", script,
              env=fakes("gpus=2;power=300"))
    record = check(json.loads(path.read_text()))
    joules, error = record["total"]["joules_measured"], record["total"]["error_measured_joules"]
    gpus = [m for m in record["meters"] if m["covered_by"] is None]
    parts = [sum(m["error_sampling_joules"] ** 2 for m in gpus) ** 0.5,
             sum(m["error_calibration_joules"] for m in gpus)]
    assert record["unit"] == "token" and error == pytest.approx((parts[0] ** 2 + parts[1] ** 2) ** 0.5)
    for meter in record["meters"]:
        assert meter["error_joules"] == pytest.approx(
            (meter["error_sampling_joules"] ** 2 + meter["error_calibration_joules"] ** 2) ** 0.5)
    energy, = re.findall(r"^  Energy +(\S+ k?J) ± (\S+ k?J) \((\S+ m?Wh)\), mean (\S+ W), measured", done.stderr, re.M)
    for text, true in zip(energy, [joules, error, joules, joules / record["wall_s"]], strict=True):
        assert shows(text, true, rel=0.05), (text, true)
    units = re.search(r"phase +s +(k?J) +mean W +tokens +(k?J)/token", done.stderr)
    phases = {p["name"]: p for p in record["phases"]}
    for name in ("command", "train", "save"):
        cells, p = re.search(rf"^  {name} +(.*)$", done.stderr, re.M).group(1).split(), phases[name]
        seconds, total = p["end_s"] - p["start_s"], p["total"]
        assert float(cells[0]) == pytest.approx(seconds, rel=1e-3)
        assert shows(f"{cells[1]} {units[1]}", total["joules_measured"], rel=0.05), cells
        assert shows(f"{cells[3]} {units[1]}", total["error_measured_joules"], rel=0.4), cells
        assert float(cells[4]) == pytest.approx(total["joules_measured"] / seconds, rel=1e-3)
        if p["items"]:
            assert cells[5] == "100"
            assert shows(f"{cells[6]} {units[2]}", total["joules_measured"] / 100, rel=0.05), cells


def test_the_first_word_begins_the_command(tmp_path):
    """As with time and perf stat: what follows it is the command's own."""
    path = tmp_path / "r.json"
    done = jm("measure", "--source", "estimate", "--json", path, "echo", "--json", "-", "--", "x")
    assert done.stdout == "--json - -- x\n"
    assert check(json.loads(path.read_text()))["command"] == ["echo", "--json", "-", "--", "x"]
    assert sentence(jm("measure", "--source", "estimate", "no-such-command", "--epochs", "3"), NOT_FOUND)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_command_is_named_by_its_signal(number):
    command = ["sh", "-c", f"kill -{int(number)} $$"]
    done = jm("measure", "--source", "estimate", *command)
    assert f"killed by {number.name} (signal {int(number)}, exit status {128 + number})" in done.stderr
    assert f"was killed by {number.name}" in jm("run", "--source", "null", "--", *command).stderr


COUNT_INTERRUPTS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
signal.sigwaitinfo([signal.SIGINT])
print("first", flush=True)
print("again" if signal.sigtimedwait([signal.SIGINT], 0.7) else "no more", flush=True)
"""


def test_the_terminals_interrupt_comes_once():
    """Ctrl-C reaches the command from its terminal; joulemark, which hears it later, does not pass it on too."""
    pid, terminal = pty.fork()
    if not pid:
        os.execv(BIN, [BIN, "measure", "--source", "estimate", "--", sys.executable, "-c", COUNT_INTERRUPTS])
    said = b""
    while b"no more" not in said and b"again" not in said:
        more = os.read(terminal, 4096)
        said += more
        if b"ready" in more:
            os.kill(pid, signal.SIGSTOP)
            os.write(terminal, b"\x03")
        if b"first" in more:
            os.kill(pid, signal.SIGCONT)
    os.close(terminal)
    os.waitpid(pid, 0)
    assert b"no more" in said, said


def test_lost_output_is_told():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = jm("measure", "--source", "estimate", "--items-regex", "x", "--", "echo", "x", stdout=full)
    assert "standard output" in sentence(done, FAILURE)


def test_an_endless_command_whose_reader_goes(tmp_path):
    """measure ... -- yes | head -1"""
    path = tmp_path / "r.json"
    child = subprocess.Popen([BIN, "measure", "--source", "estimate", "--json", path, "--items-regex", "y",
                              "--", "yes"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert child.stdout.readline() == b"y\n"
        child.stdout.close()
        assert child.wait(timeout=240) == 128 + signal.SIGPIPE
    finally:
        child.kill()
    record = check(json.loads(path.read_text()))
    assert record["items"] > 0 and record["signal"] == signal.SIGPIPE


def test_unwritable_before_the_command_runs(tmp_path):
    flag = tmp_path / "ran"
    done = jm("measure", "--source", "estimate", "--json", "/no/such/folder/r.json", "--", "touch",
              flag)
    assert "/no/such/folder/r.json" in sentence(done, FAILURE)
    assert not flag.exists()
    done = jm("measure", "--source", "estimate", "--json", tmp_path, "--", "touch", flag)
    assert "is a folder" in sentence(done, FAILURE) and not flag.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk():
    done = jm("measure", "--source", "estimate", "--json", "/dev/full", "--", "true")
    assert "/dev/full" in sentence(done, FAILURE)
    assert "Energy" in done.stderr
    done = jm("measure", "--source", "estimate", "--json", "/dev/full", "--", "sh", "-c", "exit 4")
    assert done.returncode == 4 and "/dev/full" in done.stderr


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_record_for_whom_the_umask_says(tmp_path, mask):
    path = tmp_path / "r.json"
    jm("measure", "--source", "estimate", "--json", path, "--", "true", umask=mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_json_replaces_whole(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("old")
    jm("measure", "--source", "estimate", "--json", path, "--", "true")
    check(json.loads(path.read_text()))
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_recording_and_replay(tmp_path):
    wave = "gpus=2;wave=square;low=100;high=600;period=0.8;shift=0.25"
    first = record_of("--source", "nvml", "--csv", tmp_path / "rec", "--", "sleep", "1.5",
                      env=fakes(wave))
    with open(tmp_path / "rec" / "readings.csv", newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) > 20 and set(rows[0]) == {"signal", "t_s", "value"}
    again = record_of("--source", f"replay:{tmp_path / 'rec'}", "--", "sleep", "1.3")
    assert {m["origin"] for m in again["meters"]} == {"replayed"}
    for a, b in zip(first["meters"], again["meters"]):
        assert b["watts_mean"] == pytest.approx(a["watts_mean"], rel=0.3)
    assert again["total"]["joules_measured"] is None
    assert again["total"]["joules_replayed"] > 0


def test_error_of_a_locked_load_is_told_without_a_counter(tmp_path):
    """The sensor sees 25 of 100 ms: the rest may be anything from 0 W to the limit of 700 W."""
    env = fakes("gpus=1;wave=saw;low=150;high=250;period=0.9")
    assert jm("measure", "--source", "nvml", "--csv", tmp_path / "rec", "--", "sleep", "2", env=env).returncode == 0
    replay = ["--source", f"replay:{tmp_path / 'rec'}", "--", "sleep", "0.8"]
    assert "error_locked_joules" not in record_of(*replay)["meters"][0]
    meters = tmp_path / "rec" / "meters.csv"
    meters.write_text(meters.read_text(encoding="utf-8").replace(",energy,J,", ",clock,Hz,"), encoding="utf-8")
    record = record_of(*replay)
    (meter,) = record["meters"]
    assert meter["joules"] == meter["joules_integrated"]
    unseen = 700 * record["wall_s"] - meter["joules"]
    assert meter["error_locked_joules"] == pytest.approx(0.75 * unseen, rel=0.02)
    assert meter["error_locked_joules"] > meter["error_sampling_joules"]


def test_few_alike_readings_without_a_counter_have_the_bound_of_a_locked_load(tmp_path):
    """A nearly constant load could also be one in step with the sensor, unless the counter excludes it."""
    env = fakes("gpus=1;wave=saw;low=199;high=201;period=0.9")
    assert jm("measure", "--source", "nvml", "--csv", tmp_path / "rec", "--", "sleep", "3", env=env).returncode == 0
    replay = ["--source", f"replay:{tmp_path / 'rec'}", "--", "sleep", "2"]
    quality = record_of(*replay)["quality"]
    assert not any("are alike" in reason for reason in quality["reasons"])
    meters = tmp_path / "rec" / "meters.csv"
    meters.write_text(meters.read_text(encoding="utf-8").replace(",energy,J,", ",clock,Hz,"), encoding="utf-8")
    record = record_of(*replay)
    (meter,) = record["meters"]
    assert meter["error_sampling_joules"] == meter["error_locked_joules"] > 0.5 * meter["joules"]
    assert record["quality"]["grade"] == "D" and any("are alike" in reason for reason in record["quality"]["reasons"])


def test_damaged_recording(tmp_path):
    assert "replay" in sentence(jm("measure", "--source", "replay", "--", "true"), USAGE)
    done = jm("measure", "--source", f"replay:{tmp_path}/nothing", "--", "true")
    assert "meters.csv" in sentence(done, FAILURE)
    jm("measure", "--source", "sim:h100x1", "--csv", tmp_path, "--", "sleep", "0.1")
    readings = tmp_path / "readings.csv"
    whole = readings.read_text()
    for bad in ("7,what,3", "0,999.000000000,many", "0,999.000000000,inf", "0,999.000000000,-4", "0,999.000000000,0x10",
                "0,999.000000000, 5", "0x0,999.000000000,5", "0,999.000000000,1e999"):
        readings.write_text(whole + bad + "\n")
        done = jm("measure", "--source", f"replay:{tmp_path}", "--", "true")
        assert "readings.csv, line" in sentence(done, FAILURE)
    readings.write_text(whole)
    meters = tmp_path / "meters.csv"
    rows = meters.read_text().splitlines()
    for column, wrong in [(9, "-1"), (10, "0x10"), (11, "inf"), (12, "-0.1"), (13, "-0.05"), (13, "5 %")]:
        fields = next(csv.reader(rows[1:2]))
        fields[column] = wrong
        meters.write_text("\n".join([rows[0], ",".join(f'"{f}"' for f in fields), *rows[2:]]) + "\n")
        assert "meters.csv, line 2" in sentence(jm("measure", "--source", f"replay:{tmp_path}", "--", "true"), FAILURE)


def test_records_of_run_fit_the_schema():
    done = jm("run", "sim", "--device", "sim:h100x2", "--set", "gpu.power=300W,400W", "--json", "-")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    for record in records if isinstance(records, list) else [records]:
        check(record)


def test_starts_and_returns_soon():
    # the figures are in bench/sampler_cost; here only that nothing waits for long
    def seconds():
        began = time.monotonic()
        jm("measure", "--source", "nvml", "--", "true", env=fakes("gpus=8;power=300"))
        return time.monotonic() - began
    assert any(seconds() < 3 for _ in range(8))  # who waits does so each time; a busy machine is late now and then


def test_measure_into_a_store(tmp_path):
    """Each call is one more repeat of the case that `run` makes of the same command; report reads both."""
    path, command = tmp_path / "s.db", ["sh", "-c", "sleep 0.2; echo 30 tokens"]
    more = ["--items-regex", "([0-9]+) tokens", "--unit", "token"]
    for _ in range(2):
        done = jm("measure", "--source", "estimate:0,20", "--store", path, *more, *command)
        assert done.returncode == 0 and done.stdout == "30 tokens\n", done.stderr
    assert os.listdir(tmp_path) == ["s.db"]
    assert jm("run", "--source", "estimate:0,20", "--repeat", "3", "--store", path, *more, "--", *command).returncode == 0
    document = json.loads(jm("report", "--format", "json", path).stdout)
    assert [(c["repeat"], c["items"]) for c in document["cases"]] == [(1, 30), (2, 30), (3, 30)]
    with sqlite3.connect(path) as db:
        for (text,) in db.execute("SELECT record FROM records"):
            record = check(json.loads(text))
            assert record["status"] == "ok" and record["unit"] == "token" and record["case"]["id"]
        assert db.execute("SELECT count(DISTINCT record_n) FROM chunk_t").fetchone() == (3,)


def test_a_failed_command_in_a_store(tmp_path):
    path = tmp_path / "s.db"
    assert jm("measure", "--source", "estimate", "--store", path, "false").returncode == 1
    assert jm("measure", "--source", "estimate", "--store", path, "sh", "-c", "kill -9 $$").returncode == 137
    text = jm("report", path).stdout
    assert "ended with status 1" in text and "killed by SIGKILL" in text
    assert jm("measure", "--store", tmp_path / "new.db", "no-such-command").returncode == NOT_FOUND
    assert os.listdir(tmp_path) == ["s.db"]
    assert jm("measure", "--store", tmp_path / "none" / "s.db", "true").returncode == FAILURE


# ---- an end that joulemark did not see


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def wait_until(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["--", "--repeat=2", "--pid"])
def test_the_end_came_while_joulemark_was_stopped(tmp_path, how):
    """The bounds contain the end. That of the command came after joulemark stopped and before it went on."""
    named, go, file, state = (tmp_path / name for name in ("pid", "go", "r.json", "state"))
    script = ["sh", "-c", f"echo $$ >{named}.new; mv {named}.new {named}; until [ -e {go} ]; do sleep 0.02; done"]
    work = subprocess.Popen(script) if how == "--pid" else None
    t0 = time.monotonic()
    child = subprocess.Popen([BIN, "measure", "--source", "estimate", "--json", str(file)]
                             + ([f"--pid={work.pid}"] if work else [how, *script]),
                             stderr=subprocess.PIPE, text=True, env={**os.environ, "JM_STATE": str(state)})
    # what 'joulemark status' shows of it is there when it has measured for a second
    wait_until(lambda: named.exists() and any(f"-{child.pid}-" in path.name for path in state.rglob("*.json")))
    began = time.monotonic()
    child.send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(child.pid) == "T")
    stopped = time.monotonic()
    go.touch()
    wait_until(lambda: state_of(int(named.read_text())) == "Z")
    time.sleep(0.8)
    went_on = time.monotonic()
    child.send_signal(signal.SIGCONT)
    err = child.communicate(timeout=240)[1]
    if work:
        work.wait()
    record = check(json.loads(file.read_text()))
    assert 0 <= record["wall_least_s"]
    if "repeats" not in record:  # its second run came later
        assert record["wall_least_s"] <= stopped - t0
    assert record["wall_s"] >= went_on - began
    assert record["wall_s"] - record["wall_least_s"] >= went_on - stopped
    assert "stood still between" in err and re.search(r"Time +between [\d.]+ s and [\d.]+ s", err)


def test_an_end_that_was_seen_has_one_time():
    # on a loaded machine joulemark may really have stood still, but not each time
    assert any("wall_least_s" not in record_of("--source", "estimate", "--", "sleep", "0.7") for _ in range(5))
