# SPDX-License-Identifier: Apache-2.0
"""measure --repeat, --until and --until-interval: one command, or several against each other, run again and again."""
import json
import math
import sqlite3
import statistics

import pytest

from jm import USAGE, jm, sentence
from measured import fakes


def drawn(begin, end):
    """Joules of a GPU with "wave=square;low=100;high=600;period=0.13" between two times of CLOCK_MONOTONIC, in seconds."""
    def until(t):
        whole, part = divmod(t, 0.13)
        return 45.5 * whole + 600 * min(part, 0.065) + 100 * max(part - 0.065, 0)
    return until(end) - until(begin)


def test_until_repeats_for_the_given_time(tmp_path):
    """The GPU's power depends on the time alone, so that the truth is known however late everything runs."""
    log = tmp_path / "log"
    done = jm("measure", "--json", "-", "--source", "nvml", "--until", "1s", "--", "sh", "-c", f"echo >>{log}; sleep 0.04",
              env=fakes("gpus=1;wave=square;low=100;high=600;period=0.13"))
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    found, runs = record["repeats"], len(log.read_text())
    assert found["runs"] == runs and found["groups"] >= 4 and found["seconds"] >= 1
    groups = [p for p in record["phases"] if p["name"] == "repeat"]
    assert record["phase"] == "repeats" and len(groups) == found["groups"]
    assert sum(g["end_s"] - g["start_s"] for g in groups) == pytest.approx(found["seconds"], abs=1e-3)
    (energy,) = found["energy"]
    start = record["start_ns"] * 1e-9
    truth = sum(drawn(start + g["start_s"], start + g["end_s"]) for g in groups) / runs
    bound = sum(g["total"]["error_measured_joules"] for g in groups) / runs
    assert energy["joules"] == pytest.approx(truth, abs=bound) and bound < truth
    assert f"{runs} runs in {found['groups']} groups" in done.stderr


def test_starts_are_shifted_against_the_sensor(tmp_path):
    # of a slow sensor: a group ends after ten refreshes, and two runs take less than 2 s on a busy machine
    folder = tmp_path / "sys/class/hwmon/hwmon0"
    folder.mkdir(parents=True)
    for name, text in (("name", "power_meter"), ("power1_average_interval", "200"), ("power1_average", "100000000")):
        (folder / name).write_text(f"{text}\n", encoding="utf-8")
    done = jm("measure", "--json", "-", "--source", "hwmon:channel=power_meter/power1,covers=/", "--interval", "5ms",
              "--repeat", "8", "--", "sleep", "0.04", env={"JM_ROOT": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["repeats"]["runs"] == 8
    (energy,) = record["repeats"]["energy"]  # nothing is known of the sensor's accuracy
    assert energy["error_joules"] is None and energy["error_spread_joules"] >= 0 and "(spread only)" in done.stderr
    groups = [p for p in record["phases"] if p["name"] == "repeat"]
    assert len(groups) == 4  # of two runs each
    pauses = [b["start_s"] - a["end_s"] for a, b in zip(groups, groups[1:])]
    # at least the golden ratio's parts of a refresh of 200 ms: 0.618, 0.236, 0.854
    assert [pause >= part * 0.2 for pause, part in zip(pauses, (0.618, 0.236, 0.854))] == [True] * 3


def test_a_run_that_fails_ends_it():
    done = jm("measure", "--json", "-", "--source", "sim:h100x1", "--repeat", "5", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert json.loads(done.stdout)["repeats"]["runs"] == 1 and "Run 1 ended with status 3" in done.stderr


CONSTANT = fakes("gpus=1;wave=square;low=300;high=300;period=1")
T_4 = 3.182446  # Student's t, 0.975, of 4 values


def compared(tmp_path, *options, count=4):
    """The record's repeats of two commands that write their names, and the names as they were written."""
    log = tmp_path / "log"
    log.unlink(missing_ok=True)
    a, b = (f"sh -c 'echo {name} >>{log}; sleep {s}'" for name, s in (("A", 0.2), ("B", 0.3)))
    done = jm("measure", "--json", tmp_path / "r.json", "--source", "nvml", "--repeat", str(count), *options, "--compare", b,
              "--", "sh", "-c", a[7:-1], env=CONSTANT)
    assert done.returncode == 0, done.stderr
    return json.loads((tmp_path / "r.json").read_text())["repeats"], log.read_text().split(), done.stderr


def test_commands_are_compared_in_blocks_of_random_order(tmp_path):
    found, names, said = compared(tmp_path)
    each = found["each"]
    assert ["AB"[run["command"]] for run in each] == names and "2 commands" in said
    blocks = [names[i:i + 2] for i in range(0, 8, 2)]
    assert all(sorted(block) == ["A", "B"] for block in blocks)
    assert [(run["block"], run["position"]) for run in each] == [(b, p) for b in (1, 2, 3, 4) for p in (1, 2)]
    orders = {seed: "".join(compared(tmp_path, "--seed", seed)[1]) for seed in ("1", "5", "6")}
    assert orders["1"] == "".join(names) and len(set(orders.values())) > 1


@pytest.fixture(name="two", scope="module")
def two_commands_compared(tmp_path_factory):
    return compared(tmp_path_factory.mktemp("two"))


def test_figures_of_compared_commands(two):
    found = two[0]
    for i, least in enumerate((0.2, 0.3)):
        command, runs = found["commands"][i], [r for r in found["each"] if r["command"] == i]
        assert command["runs"] == command["counted"] == 4 and command["failed"] == 0
        assert min(r["seconds"] for r in runs) >= least
        for key in ("seconds", "joules", "watts"):
            values, figures = [r[key] for r in runs], command[key]
            assert figures["mean"] == pytest.approx(statistics.mean(values), rel=1e-9)
            assert figures["sd"] == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-9)
            assert figures["half_width"] == pytest.approx(T_4 * statistics.stdev(values) / 2, rel=1e-5, abs=1e-9)
            assert (figures["min"], figures["max"]) == (min(values), max(values))
            assert figures["median"] == pytest.approx(statistics.median(values), rel=1e-9)
        assert all(r["joules"] == pytest.approx(300 * r["seconds"], rel=0.05) for r in runs)


def test_a_ratio_is_that_of_the_blocks(two):
    found, _, said = two
    by_block = {(r["block"], r["command"]): r["seconds"] for r in found["each"]}
    logs = [math.log(by_block[b, 1] / by_block[b, 0]) for b in (1, 2, 3, 4)]
    ratio, half = found["commands"][1]["ratio_seconds"], T_4 * statistics.stdev(logs) / 2
    mean = statistics.mean(logs)
    assert ratio["pairs"] == 4 and ratio["ratio"] == pytest.approx(math.exp(mean), rel=1e-9)
    assert (ratio["low"], ratio["high"]) == (pytest.approx(math.exp(mean - half), rel=1e-5), pytest.approx(math.exp(mean + half), rel=1e-5))
    assert f"B / A  {ratio['ratio']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})" in said


def test_what_runs_before_is_not_measured(tmp_path):
    found, names, _ = compared(tmp_path, "--warmup", "2", "--prepare", f"sh -c 'echo p >>{tmp_path}/log'", count=2)
    assert names[:8] == ["p", "A", "p", "A", "p", "B", "p", "B"] and names[8::2] == ["p"] * 4 and len(names) == 16
    assert len(found["each"]) == 4 and found["warmups"] == 2 and found["prepare"][0] == "sh"


def test_processor_time_is_what_the_command_had():
    script = ("import resource\nfor i in range(10**6): pass\nu = resource.getrusage(resource.RUSAGE_SELF)\n"
              "print(u.ru_utime + u.ru_stime)")
    done = jm("measure", "--json", "-", "--source", "null", "--", "/usr/bin/python3", "-c", script)
    lines = done.stdout.splitlines()
    record = json.loads("\n".join(lines[1:]))
    assert 0.01 < float(lines[0]) <= record["user_s"] + record["system_s"] + 1e-6 < float(lines[0]) + 0.2


@pytest.mark.parametrize("options, runs, status", [([], 1, 1), (["--ignore-failure"], 3, 0)])
def test_a_failure_ends_it_or_is_counted(tmp_path, options, runs, status):
    done = jm("measure", "--json", "-", "--source", "null", "--repeat", "3", *options, "--compare", "sh -c 'exit 0'", "--", "false")
    record = json.loads(done.stdout)["repeats"]
    first = record["commands"][0]
    assert (first["runs"], first["failed"]) == (runs, runs) and done.returncode == status
    assert f"\n  {runs} {'run' if runs == 1 else 'runs'}, which failed\n" in done.stderr, done.stderr


@pytest.mark.parametrize("options, says", [
    (["--prepare", "false"], "The command of --prepare 'false' ended with status 1."), (["--warmup", "1"], "The warm-up run of 'false' ended with status 1.")])
def test_nothing_is_measured_after_a_failure_before_the_first_run(options, says):
    done = jm("measure", "--source", "null", "--repeat", "2", *options, "--", "false" if "--warmup" in options else "true")
    assert done.returncode != 0 and says in done.stderr and "No run of" in done.stderr


def test_until_the_interval_is_narrow(tmp_path):
    """Times of 0.2 and 0.3 s in turns: an interval of the whole mean takes few runs, one of a millionth is never reached."""
    log = tmp_path / "log"
    script = f"n=$(wc -c <{log}); printf x >>{log}; sleep 0.$((2 + n % 2))"
    found = []
    for options in (["100%"], ["0.0001%", "--max-repeat", "4"]):
        log.write_text("")
        done = jm("measure", "--json", "-", "--source", "null", "--until-interval", *options, "--", "sh", "-c", script)
        found.append((json.loads(done.stdout)["repeats"]["runs"], len(log.read_text()), "--max-repeat allows" in done.stderr))
    assert found[1] == (4, 4, True)
    (runs, written, warned) = found[0]
    assert 3 <= runs == written < 100 and not warned


def test_each_run_is_a_record_of_the_store(tmp_path):
    store = tmp_path / "r.db"
    found, _, _ = compared(tmp_path, "--store", store, count=3)
    with sqlite3.connect(store) as db:
        records = [json.loads(row[0]) for row in db.execute("SELECT record FROM records")]
    stored = {(r["case"]["block"], r["case"]["position"]): r for r in records}
    assert len(stored) == len(found["each"]) == 6
    for run in found["each"]:
        record = stored[run["block"], run["position"]]
        assert record["command"] == found["commands"][run["command"]]["command"]
        assert record["wall_s"] == pytest.approx(run["seconds"], abs=1e-6)
        assert record["total"]["joules_measured"] == pytest.approx(run["joules"], rel=1e-6)
        assert record["user_s"] == pytest.approx(run["user_s"])
    shown = jm("report", store).stdout
    assert shown.count("over 3 runs") == 2 and "sleep 0.2" in shown and "sleep 0.3" in shown
    _, _, _ = compared(tmp_path, "--store", store, count=2)  # more of the same: later blocks
    with sqlite3.connect(store) as db:
        records = [json.loads(row[0]) for row in db.execute("SELECT record FROM records")]
    assert sorted(r["case"]["block"] for r in records) == [b for b in range(1, 6) for _ in "AB"]


@pytest.mark.parametrize("compare", [False, True])
def test_runs_that_ended_are_stored_when_joulemark_is_killed(tmp_path, compare):
    """Run 4 kills joulemark: the three before it are in the store, with their energy and the readings of it."""
    store, log = tmp_path / "r.db", tmp_path / "log"
    script = f"echo x >>{log}; test $(wc -l <{log}) -lt 4 || kill -KILL $PPID; sleep 0.25"
    done = jm("measure", "--source", "nvml", "--repeat", "9", "--store", store,
              *(["--compare", f"sh -c '{script}'"] if compare else []), "--", "sh", "-c", script, env=CONSTANT)
    assert done.returncode == -9, done.stderr
    with sqlite3.connect(store) as db:
        records = [json.loads(row[0]) for row in db.execute("SELECT record FROM records")]
    assert len(records) == 3 and all(r["status"] == "ok" for r in records)
    for r in records:
        total = r["total"]  # a busy machine reads later, and the bound says so
        assert total["joules_measured"] == pytest.approx(300 * r["wall_s"], abs=total["error_measured_joules"])
        assert r["wall_s"] > 0.25
        assert len(r["phases"]) == 1 and r["phases"][0]["end_s"] - r["phases"][0]["start_s"] == pytest.approx(r["wall_s"])
    places = sorted((r["case"]["block"], r["case"]["position"]) for r in records)
    assert places == ([(1, 1), (1, 2), (2, 1)] if compare else [(1, 1), (2, 1), (3, 1)])
    with sqlite3.connect(store) as db:
        assert db.execute("SELECT count(DISTINCT record_n) FROM chunk_t").fetchone() == (3,)


@pytest.mark.parametrize("args", [
    ("--repeat", "3", "--until", "2s", "--", "true"), ("--repeat", "3", "--for", "1s"), ("--repeat", "1", "--", "true"),
    ("--warmup", "1", "--", "true"), ("--compare", "b", "--", "true"), ("--prepare", "b", "--", "true"),
    ("--until", "1s", "--until-interval", "2%", "--", "true"), ("--until-interval", "0", "--", "true"),
    ("--until-interval", "2x", "--", "true"), ("--max-repeat", "9", "--repeat", "3", "--", "true"),
    ("--repeat", "3", "--compare", "a | b", "--", "true"), ("--repeat", "3", "--compare", "", "--", "true"),
    ("--repeat", "3", "--compare", "a 'b", "--", "true"), ("--repeat", "3", "--compare", "a $(b)", "--", "true")])
def test_what_does_not_go_together(args):
    done = jm("measure", "--source", "sim:h100x1", *args)
    assert done.returncode == USAGE and sentence(done)
