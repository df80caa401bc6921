# SPDX-License-Identifier: Apache-2.0
"""The wide CSV (time x meter) of `measure --csv` and `watch`, against the long one."""
import bisect
import csv

import pytest

from jm import jm
from measured import fakes

HEAD = ("signal,meter,label,device,scope,origin,covers,quantity,unit,step,wrap,refresh_s,window_s,accuracy,stamped\n"
        "0,power,Sensor,a,gpu,measured,gpu/a,power,W,0.001,,0.01,0,,1\n"
        "1,\"counter, with wrap\",Counter,b,gpu,measured,gpu/b,energy,J,0.001,1000,0.01,,,1\n"
        "2,counter,Counter,c,gpu,measured,gpu/c,energy,J,0.001,100000,0.01,,,1\n")


def table(path):
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def recording(folder):
    """A power with a gap, a counter that wraps, one that is set back far from its end."""
    folder.mkdir()
    (folder / "meters.csv").write_text(HEAD)
    (folder / "phases.csv").write_text("name,start_s,end_s,items\n")
    (folder / "clock.csv").write_text("t_s,wall_ns\n0.000000000,1000000000000\n")
    rows = ["signal,t_s,value"]
    for k in range(40):
        rows.append(f"0,{k * 0.03:.9f}," + ("" if 10 <= k < 15 else f"{100 + k % 7}"))
    rows += [f"1,{0.011 + k * 0.05:.9f},{(900 + 6 * k + k % 3) % 1000}" for k in range(24)]
    rows += [f"2,{k * 0.04:.9f},{k * 2 if k < 12 else (k - 12) * 3}" for k in range(30)]
    (folder / "readings.csv").write_text("\n".join(rows) + "\n")


def held(changes, t):
    """The value of [(time, value)] that holds at t."""
    i = bisect.bisect_right([c[0] for c in changes], t + 1e-12)
    return changes[i - 1][1] if i else None


def truth(readings, signal, wrap):
    """[(time, watts or None)] of a signal, from the long table."""
    rows = [(float(r["t_s"]), float(r["value"]) if r["value"] else None) for r in readings if r["signal"] == str(signal)]
    if signal == 0:
        return rows
    rows = [rows[0]] + [b for a, b in zip(rows, rows[1:]) if b[1] != a[1]]
    out = []
    for (t0, a), (t1, b) in zip(rows, rows[1:]):
        if a is None:
            continue
        joules = 0 if b is None else b - a + (wrap if b < a and wrap else 0)
        out.append((t0, joules / (t1 - t0) if joules > 0 else None))
    return out + ([] if rows[-1][1] is None else [(rows[-1][0], None)])  # once unknown, it does not become so again


@pytest.fixture(scope="module", params=["0.9", "1.4"], ids=["ends_first", "outlasts_the_recording"])
def traces(tmp_path_factory, request):
    base = tmp_path_factory.mktemp("wide")
    recording(base / "given")
    done = jm("measure", "--source", f"replay:{base / 'given'}", "--csv", base / "out", "--", "sleep", request.param)
    assert done.returncode == 0, done.stderr
    return base / "out"


def test_watts_of_every_meter_at_every_change(traces):
    wide, long = table(traces / "watts.csv"), table(traces / "readings.csv")
    names = ["replay:power", "replay:counter, with wrap", "replay:counter"]
    assert list(wide[0]) == ["t_s", *names]
    assert float(wide[-1]["t_s"]) > 0.8  # over several windows of the writer
    changes = [truth(long, i, 1000 if i == 1 else None) for i in range(3)]
    times = [float(r["t_s"]) for r in wide]
    assert times == sorted(set(times)) and set(times) == {t for c in changes for t, _ in c}
    unknown = 0
    for r in wide:
        for name, c in zip(names, changes):
            expected = held(c, float(r["t_s"]))
            unknown += expected is None
            assert (float(r[name]) if r[name] else None) == (pytest.approx(expected, rel=1e-6) if expected else None)
    assert unknown > 5  # the gap, the reset and the ends are empty, not 0


def test_a_replay_that_is_read_late_loses_no_reading(tmp_path):
    """Between two reads are 200 ms, in which most signals change several times."""
    recording(tmp_path / "given")
    done = jm("measure", "--source", f"replay:{tmp_path / 'given'}", "--interval", "200ms", "--csv", tmp_path / "out",
              "--", "sleep", "1.5")
    assert done.returncode == 0, done.stderr
    given, got = table(tmp_path / "given/readings.csv"), table(tmp_path / "out/readings.csv")
    offset = round(float(got[0]["t_s"]) * 1e9)  # the recording begins at 0, with signal 0
    for signal in "012":
        a, b = ([(round(float(r["t_s"]) * 1e9), r["value"]) for r in rows if r["signal"] == signal] for rows in (given, got))
        there = dict(b)
        # a value that repeats the one before and the one after is not kept
        kept = [r for r, before, after in zip(a[1:], a, a[2:]) if not r[1] == before[1] == after[1]] + [a[0], a[-1]]
        assert all(there.get(t + offset, "absent") == value for t, value in kept), signal


def test_its_sum_is_the_energy_of_the_counter(traces):
    wide = table(traces / "watts.csv")
    joules = sum(float(a["replay:counter, with wrap"]) * (float(b["t_s"]) - float(a["t_s"]))
                 for a, b in zip(wide, wide[1:]) if a["replay:counter, with wrap"])
    values = [float(r["value"]) for r in table(traces / "readings.csv") if r["signal"] == "1" and r["value"]]
    assert joules == pytest.approx(sum((b - a) % 1000 for a, b in zip(values, values[1:])), rel=1e-6)


def test_pandas_reads_it(traces):
    pandas = pytest.importorskip("pandas")
    watts = pandas.read_csv(traces / "watts.csv", index_col="t_s")
    assert watts.index.is_monotonic_increasing and len(watts.columns) == 3
    assert watts["replay:power"].max() == 106 and watts["replay:power"].isna().any()


def test_nothing_read_is_an_empty_table(tmp_path):
    assert jm("measure", "--source", "null", "--csv", tmp_path / "o", "--", "true").returncode == 0
    head, *rows = (tmp_path / "o/watts.csv").read_text().splitlines()
    assert head.startswith("t_s,") and all(row.endswith(",") for row in rows)


def test_watch(tmp_path):
    done = jm("watch", "--source", "nvml", "--format", "csv-wide", "--interval", "300ms", "--for", "1.5s",
              env=fakes("gpus=2;wave=const;power=200"))
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert done.returncode == 0 and len(rows) >= 3 and list(rows[0])[0] == "time"
    gpus = [n for n in rows[0] if n.startswith("nvml:GPU-") and "/" not in n]
    assert len(gpus) == 2 and all(float(rows[-1][n]) == pytest.approx(200, rel=0.05) for n in gpus)
    assert not done.stdout.splitlines()[0].endswith(",") and len({r["time"] for r in rows}) == len(rows)


def test_watch_has_no_column_of_what_only_accompanies(tmp_path):
    """A source of circumstances has no watts."""
    folder = tmp_path / "proc/pressure"
    folder.mkdir(parents=True)
    for name in ("cpu", "memory", "io"):
        (folder / name).write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=14\n")
    env = fakes("gpus=1;wave=const;power=200") | {"JM_ROOT": str(tmp_path)}
    done = jm("watch", "--source", "nvml", "--source", "psi", "--format", "csv-wide", "--interval", "200ms",
              "--for", "1s", env=env)
    rows = list(csv.reader(done.stdout.splitlines()))
    assert done.returncode == 0, done.stderr
    assert rows[0][0] == "time" and all(name.startswith("nvml:") for name in rows[0][1:])
    assert {len(row) for row in rows} == {len(rows[0])}
