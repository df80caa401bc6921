# SPDX-License-Identifier: Apache-2.0
"""watch: its watts and joules compared with the programmed wave of the fake NVML; its formats, its end, its readers."""
import csv
import json
import os
import re
import signal
import subprocess
import time

import pytest

from fake_gpus import FakeGpus, wait_for
from jm import BIN, USAGE, catches, jm, sentence, terminal

SIM = ["watch", "--source", "sim:h100x2", "--interval", "200ms"]
LOW, HIGH, PERIOD, SHIFT = 100, 600, 1.5, 0.25


def used(t, gpu):
    """Joules of a GPU up to this time of CLOCK_MONOTONIC: whole periods, and the high half comes first."""
    whole, part = divmod((t + SHIFT * gpu) / PERIOD, 1)
    return PERIOD * (whole * (LOW + HIGH) / 2 + HIGH * min(part, 0.5) + LOW * max(part - 0.5, 0))


@pytest.fixture(name="gpus")
def two_gpus(tmp_path):
    return FakeGpus(tmp_path, 2, f"wave=square;low={LOW};high={HIGH};period={PERIOD};shift={SHIFT};mem=0")


def test_watts_and_joules_are_the_waves(gpus):
    """On a busy machine joulemark does not run now and then: the watts of that time are unknown, and afterwards the
    counter tells the joules."""
    seen, outside, gaps, told = 0, 0, 0, set()
    with subprocess.Popen([BIN, "watch", "--source", "nvml", "--format", "json"], env={**os.environ, **gpus.env},
                          stdout=subprocess.PIPE, text=True) as child:
        while seen < 12:
            line = json.loads(child.stdout.readline())
            begin = line["start_ns"] / 1e9
            for gpu, meter in enumerate(line["meters"]):
                assert meter["origin"] == "measured"
                if meter["watts"] is None:
                    gaps += 1
                    assert line["total"]["watts_measured"] is None and meter["joules"] is None
                    continue
                t0, t1 = begin + meter["from_s"], begin + meter["until_s"]
                truth = (used(t1, gpu) - used(t0, gpu)) / (t1 - t0)
                seen += 1
                outside += abs(meter["watts"] - truth) > meter["error_watts"]
                if meter["joules"] is None:  # the beginning is unknown
                    assert gpu not in told
                    continue
                told.add(gpu)
                assert meter["joules"] == pytest.approx(used(t1, gpu) - used(begin, gpu), abs=75 * (1 + gaps), rel=0.02)
            if line["total"]["watts_measured"] is not None:
                assert line["total"]["watts_measured"] == pytest.approx(sum(m["watts"] for m in line["meters"]))
            assert line["total"]["joules_estimated"] is None
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=240) == 0
    assert outside <= 2 and (told or gaps)


def test_csv_and_json_agree_on_their_columns():
    done = jm(*SIM, "--format", "csv", "--for", "1s")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert done.returncode == 0 and {row["meter"] for row in rows} >= {"sim:h100x2/gpu0", "sim:h100x2/gpu1/memory"}
    assert {row["origin"] for row in rows} == {"simulated"}
    last = [row for row in rows if row["meter"] == "sim:h100x2/gpu0"][-1]
    assert float(last["watts_W"]) == pytest.approx(75, abs=2)
    assert float(last["energy_J"]) == pytest.approx(75 * float(last["until_s"]), rel=0.1)
    meter = json.loads(jm(*SIM, "--format", "json", "--for", "1s").stdout.splitlines()[-1])["meters"][1]
    assert meter["covered_by"] == "sim:h100x2/gpu0" and meter["origin"] == "simulated"


def test_unknown_is_not_0(tmp_path):
    gpus = FakeGpus(tmp_path, 2, "wave=const;power=200;lost=1@0.5")
    done = jm("watch", "--source", "nvml", "--format", "json", "--for", "3s", env=gpus.env)
    last = json.loads(done.stdout.splitlines()[-1])
    gpu = {m["label"][:5]: m for m in last["meters"] if m["scope"] == "gpu"}
    assert gpu["GPU 0"]["watts"] == pytest.approx(200, rel=0.05)
    assert gpu["GPU 1"]["watts"] is None and gpu["GPU 1"]["joules"] is None
    assert last["total"]["watts_measured"] is None
    text = jm("watch", "--source", "nvml", "--for", "3s", env=gpus.env).stdout.splitlines()
    assert text[-1].split()[1:3] == ["-", "-"] and "0.0" not in text[-1].split()


@pytest.mark.parametrize("columns", [80, 20])
def test_fits_the_terminal(gpus, columns):
    printed, status = terminal("watch", "--source", "nvml,estimate", "--for", "1s", "--interval", "200ms",
                               columns=columns, env=gpus.env)
    lines = [line for line in printed.splitlines() if line]
    assert status == 0 and len(lines) >= 4
    assert all(len(line) <= columns for line in lines), lines
    assert "sum W" in lines[0] and "measured" in lines[1]
    if columns == 80:
        assert "GPU 0 W" in lines[0] and "CPU 0 W" in lines[0] and "estimated" in lines[1]
        assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d( +[\d.]+| +-)+", lines[-1])
    else:
        assert "not shown" in lines[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it(number):
    with subprocess.Popen([BIN, *SIM], stdout=subprocess.PIPE, text=True) as child:
        assert "sum W" in child.stdout.readline()
        child.send_signal(number)
        assert child.wait(timeout=240) == 0


def test_ends_when_its_reader_goes_away():
    """Also between two lines: the next one is an hour away."""
    read, write = os.pipe()
    with subprocess.Popen([BIN, "watch", "--source", "sim:h100x2", "--interval", "3600s"], stdout=write,
                          stderr=subprocess.PIPE, text=True) as child:
        os.close(write)
        time.sleep(0.3)
        assert child.poll() is None
        os.close(read)
        assert child.wait(timeout=240) == 0 and child.stderr.read() == ""


def test_a_reader_that_never_reads_holds_up_nothing():
    """The pipe is full after some lines; the time is over nevertheless, and Ctrl-C works."""
    command = [BIN, *SIM[:3], "--interval", "100ms", "--format", "json"]
    for extra, number in ((["--for", "3s"], None), ([], signal.SIGINT)):
        read, write = os.pipe()
        # 4 kB are left free in it
        os.set_blocking(write, False)
        try:
            while True:
                os.write(write, b"x" * 4096)
        except BlockingIOError:
            os.read(read, 4096)
        os.set_blocking(write, True)
        with subprocess.Popen([*command, *extra], stdout=write, stderr=subprocess.PIPE, text=True) as child:
            os.close(write)
            if number:
                assert wait_for(lambda: catches(child.pid, number))
                time.sleep(1)  # lines are written meanwhile
                assert child.poll() is None
                child.send_signal(number)
            assert child.wait(timeout=240) == 0
        os.close(read)


def test_output_comes_line_by_line(tmp_path):
    path = tmp_path / "watts.csv"
    with subprocess.Popen([BIN, *SIM, "--format", "csv", "--output", path]) as child:
        end = time.monotonic() + 20
        while not (path.exists() and path.read_text().count("\n") > 4) and time.monotonic() < end:
            time.sleep(0.05)
        assert path.read_text().count("\n") > 4 and child.poll() is None
        child.terminate()
        assert child.wait(timeout=240) == 0
    assert "/none/" in sentence(jm(*SIM, "--output", tmp_path / "none" / "out"))


@pytest.mark.parametrize("length, interval, ends", [(0.5, 5, [0.5]), (1.1, 0.5, [0.5, 1, 1.1]), (1, 0.5, [0.5, 1])])
def test_the_last_line_is_at_the_end_of_the_time(length, interval, ends):
    """Also where that is no multiple of the interval."""
    done = jm("watch", "--source", "sim:h100x1", "--for", f"{length}s", "--interval", f"{interval}s", "--format", "json")
    lines = [json.loads(line)["elapsed_s"] for line in done.stdout.splitlines()]
    assert lines and lines[-1] >= length and len(lines) <= len(ends)
    assert all(any(end <= t < end + 0.4 for end in ends) for t in lines), lines


def test_wrong_use_is_a_sentence():
    assert "--format" in sentence(jm("watch", "--format", "xml"), USAGE)
    assert "--interval" in sentence(jm("watch", "--interval", "1ms"), USAGE)
    assert "sim" in sentence(jm("watch", "--source", "sin:h100x2"), USAGE)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_live_line_of_run_tells_watts_rate_and_joules(columns):
    """On a simulated GPU at 150 W a node: the live line says so, with its origin, and fits its line."""
    printed, status = terminal("run", "sim", "--device", "sim:h100x4", "--real-time", "--steps", "15", columns=columns)
    live = [re.sub(r"(?<=\d),(?=\d{3})", "", line) for line in re.split(r"\r\x1b\[K|\n", printed) if "steady" in line and " W " in line]
    assert status == 0 and live, printed
    assert all(len(line) < columns for line in live)
    told = [re.search(r"([\d.e+]+) W simulated  ([\d.e+]+) token/s  ([\d.]+) mJ/token", line) for line in live]
    assert any(told), live
    for found in filter(None, told):
        watts, rate, joules = map(float, found.groups())
        assert 100 < watts < 4 * 700 * 1.1 and joules / 1000 == pytest.approx(watts / rate, rel=0.01)


def test_the_time_left_of_one_case_is_that_of_its_measured_phase():
    """A warm-up as long as the phase takes no part in it."""
    printed, status = terminal("run", "null", "--source", "sim:h100x1", "--step-time", "20ms", "--warmup", "2s", "--seconds",
                               "2s", columns=80)
    live = [line for line in re.split(r"\r\x1b\[K|\n", printed) if "steady" in line and " left" in line]
    assert status == 0 and live, printed
    assert all(float(re.search(r"(\S+) s left", line)[1]) <= 2 for line in live), live
    assert any("J/wait" in line for line in live), live


def test_shows_other_signals_on_demand(gpus):
    """The fake has 8 GB in use, 40 and 41 degrees and 1980 MHz."""
    more = ["watch", "--source", "nvml", "--interval", "200ms", "--for", "600ms", "--with", "temperature,memory,clock"]
    done = jm(*more, "--width", "200", env=gpus.env)
    titles, row = done.stdout.splitlines()[0], done.stdout.splitlines()[-1].split()
    assert titles.split("GPU 0 W")[1].split()[:9] == "GPU 0 °C GPU 0 GB GPU 0 MHz".split()
    assert row[4:7] == ["40", "8.00", "1980"] and row[8:11] == ["41", "8.00", "1980"]
    last = list(csv.DictReader(jm(*more, "--format", "csv", env=gpus.env).stdout.splitlines()))[-1]
    assert (last["temperature_C"], last["memory_used_B"], last["clock_Hz"]) == ("41", "8e+09", "1.98e+09")
    wide = jm(*more, "--format", "csv-wide", env=gpus.env).stdout.splitlines()
    assert wide[0].endswith(" temperature_C,%s memory_used_B,%s clock_Hz" % ((last["meter"],) * 2))
    assert wide[-1].endswith(",41,8e+09,1.98e+09")
    meter = json.loads(jm(*more, "--format", "json", env=gpus.env).stdout.splitlines()[-1])["meters"][0]
    assert (meter["temperature_C"], meter["memory_used_B"], meter["clock_Hz"]) == (40, 8e9, 1.98e9)


def test_text_shows_degrees_and_below_a_second_tenths(gpus):
    head, _, *rows = jm(*SIM, "--for", "600ms", "--with", "temperature").stdout.splitlines()
    assert "GPU 0 °C" in head and rows and all(re.match(r"\d\d:\d\d:\d\d\.\d ", row) for row in rows)
    assert {len(row) for row in rows} == {len(head)}
    whole = jm("watch", "--source", "nvml", "--interval", "1s", "--for", "1s", env=gpus.env).stdout.splitlines()
    assert re.match(r"\d\d:\d\d:\d\d ", whole[2])


def test_a_meter_without_the_signal_has_none():
    line = json.loads(jm(*SIM, "--for", "300ms", "--format", "json", "--with", "memory").stdout.splitlines()[-1])
    assert {meter["memory_used_B"] for meter in line["meters"]} == {None}
    assert "memory, temperature" in sentence(jm(*SIM, "--with", "memory,heat"), USAGE)
