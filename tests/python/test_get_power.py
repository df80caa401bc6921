# SPDX-License-Identifier: Apache-2.0
"""joulemark.get_power(): the interface of jpwr's get_power. Its tables against the truth of fake devices, and its columns against
those of `joulemark jpwr`."""
import json

import pytest

from amd_gpus import surroundings
from hwmon_tree import grace
from jm import BIN
from measured import FAKE
from python_package import joules_until, no_sanitizers, python  # noqa: F401  pylint: disable=unused-import

pytest.importorskip("pandas")

HEAD = """
    import json, os, sys, time, joulemark
    def told(measured):
        wh, more = measured.energy()
        print(json.dumps({"df": measured.df.to_dict("list"), "wh": wh.to_dict(),
                          "more": {name: table.to_dict("list") for name, table in more.items()},
                          "types": [str(t) for t in measured.df.dtypes], "report": measured.measurement.report}))
"""
TABLES = HEAD + """
    options = json.loads(sys.argv[3]) if sys.argv[3:] else {}
    with joulemark.get_power(json.loads(sys.argv[1]), 50, options) as measured:
        time.sleep(float(sys.argv[2]))
    told(measured)
"""


def tables(methods, seconds, *args, **more):
    done = python(TABLES, json.dumps(methods), seconds, *args, **more)
    return json.loads(done.stdout), done.stderr


def rectangles(found, name):
    """The sum that jpwr makes of its table, in Wh."""
    t, watts = found["df"]["timestamps"], found["df"][name]
    return sum(p * (b - a) for a, b, p in zip(t, t[1:], watts[1:])) / 3600


def test_tables_are_the_truth_of_the_gpus():
    found, stderr = tables(["pynvml"], 1.3)
    assert not stderr and list(found["df"]) == ["timestamps", "pynvml:0", "pynvml:1"] and set(found["types"]) == {"float64"}
    times, phase, start = found["df"]["timestamps"], found["report"]["phases"][0], found["report"]["start_ns"] * 1e-9
    assert [b - a for a, b in zip(times, times[1:-1])] == pytest.approx([0.05] * (len(times) - 2), abs=1e-6)
    assert times[-1] - times[0] == pytest.approx(phase["end_s"] - phase["start_s"], abs=1e-6) and times[-1] - times[0] >= 1.3
    for gpu, meter in enumerate(phase["meters"]):
        true = joules_until(start + phase["end_s"], gpu) - joules_until(start + phase["start_s"], gpu)
        name = f"pynvml:{gpu}"
        assert abs(found["wh"][name] * 3600 - true) <= meter["error_joules"]
        assert rectangles(found, name) * 3600 == pytest.approx(true, rel=0.25)  # the sensor's window and refresh
        assert min(found["df"][name]) == pytest.approx(100) and max(found["df"][name]) == pytest.approx(600)
    assert found["more"] == {}


def test_timestamps_are_the_wall_clock():
    done = python(HEAD + """
    before = time.time()
    with joulemark.get_power("pynvml") as measured: time.sleep(0.3)
    t = measured.df["timestamps"]
    assert before <= t.iloc[0] and t.iloc[-1] <= time.time(), (before, t)
    """)
    assert not done.stderr


def test_columns_are_those_of_the_command(tmp_path):
    """The methods are a table in C and one in Python."""
    env = {**surroundings(tmp_path / "root", 24, "dsds"), "JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": "gpus=2;mem=0.2;module=1.5"}
    grace(tmp_path / "root", "old", 0, "Module", 500)
    methods = ["rocm", "pynvml", "gh"]
    found, _ = tables(methods, 0.2, env=env)
    done = python("import os, sys; os.execv(sys.argv[1], sys.argv[1:])", BIN, "jpwr", "--methods", *methods, "--df-out", tmp_path,
                  "--df-filetype", "csv", "--", "sleep", "0.2", env=env)
    assert done.returncode == 0
    (file,) = tmp_path.glob("power.*.csv")
    assert ["", *found["df"]] == file.read_text(encoding="utf-8").splitlines()[0].split(",") and len(found["df"]) == 6
    (file,) = tmp_path.glob("energy_from_counter.*.csv")
    assert ["", *found["more"]["energy_from_counter"]] == file.read_text(encoding="utf-8").splitlines()[0].split(",")


def test_amd_gpus_have_a_table_of_counters(tmp_path):
    found, _ = tables(["rocm"], 1, env=surroundings(tmp_path / "root", 24, "xa"))
    seconds = found["df"]["timestamps"][-1] - found["df"]["timestamps"][0]
    for i, watts in ((0, 500), (1, 250)):
        true = pytest.approx(watts * seconds / 3600, rel=0.05)
        assert found["wh"][f"rocm:{i}"] == true and found["more"]["energy_from_counter"][f"rocm:{i}"] == [true]


FAILS = {"JM_FAKE_NVML": "gpus=2;wave=const;power=300;lost=1@0.4", "PYTHONWARNINGS": "always"}


def test_energy_of_a_lost_gpu_is_unknown_and_the_program_goes_on():
    found, stderr = tables(["pynvml"], 0.9, env=FAILS)
    seconds = found["df"]["timestamps"][-1] - found["df"]["timestamps"][0]
    assert found["wh"]["pynvml:1"] != found["wh"]["pynvml:1"]  # NaN
    assert found["wh"]["pynvml:0"] == pytest.approx(300 * seconds / 3600, rel=0.05)
    assert "JoulemarkWarning: The energy of pynvml:1 is unknown" in stderr


def test_errors_that_are_ignored_leave_the_sum_of_the_rows():
    found, stderr = tables(["pynvml"], 0.9, '{"ignore_measure_errors": true}', env=FAILS)
    assert 300 * 0.2 < found["wh"]["pynvml:1"] * 3600 < 300 * 0.8  # of the rows before it was lost
    assert "The energy of pynvml:1 is the sum" in stderr


def test_without_a_sensor_the_tables_are_empty():
    found, stderr = tables(["pynvml"], 0, env={"JM_NVML_LIB": "/nowhere"})
    assert found["df"] == {"timestamps": []} and found["wh"] == {} and "JoulemarkWarning: The measurement failed" in stderr


def test_methods_of_jpwr_and_other_sources_and_use_again():
    python(HEAD + """
    import pandas  # starts threads of its own
    threads = len(os.listdir("/proc/self/task"))
    class power: pass
    power.__module__ = "jpwr.gpu.pynvml"
    measured = joulemark.get_power([power(), "sim:h100x1", "pynvml"], interval=5)
    try: measured.df
    except joulemark.Error as error: assert "'with'" in str(error)
    try:
        with measured:
            time.sleep(0.1)
            raise KeyError("mine")
    except KeyError: pass
    first = measured.df
    assert list(first) == ["timestamps", "pynvml:0", "pynvml:1", "sim:0", "sim:GPU 0 simulated memory"], first
    assert len(first) >= 21
    assert measured.df is first and len(os.listdir("/proc/self/task")) == threads
    with measured: pass
    assert measured.df["timestamps"].iloc[0] > first["timestamps"].iloc[-1]
    for words, wrong in (("nvidia", lambda: joulemark.get_power(["nvidia"]).__enter__()), ("pynvml, gh", lambda: joulemark.get_power([3])),
                         ("at least 1", lambda: joulemark.get_power("pynvml", 0)),
                         ("'mine'", lambda: joulemark.get_power("pynvml", 100, {"mine": 1}))):
        try: wrong()
        except (ValueError, joulemark.Error) as error: assert words in str(error), error
        else: raise AssertionError(words)
    """)
