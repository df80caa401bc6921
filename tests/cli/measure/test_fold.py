# SPDX-License-Identifier: Apache-2.0
"""fold: power inside a kernel of 1 ms from a recording with known power: a window of 25 ms every 100 ms."""
import json
import os
import random
import shutil

import pytest

from jm import BIN, FAILURE, SOURCE, jm, sentence

WINDOW, LENGTH, BASE = 0.025, 0.001, 100
LEVELS = ((0.0004, 700), (0.0006, 300))  # s, W
JOULES = sum(s * w for s, w in LEVELS)
HEAD = "signal,meter,label,device,scope,origin,covers,quantity,unit,step,wrap,refresh_s,window_s,accuracy,stamped\n"


def inside(x):
    """Joules above the base from the begin of a run to x later."""
    joules = 0
    for seconds, watts in LEVELS:
        part = min(max(x, 0), seconds)
        joules += part * (watts - BASE)
        x -= seconds
    return joules


def record(folder, pauses, runs=2500, window=WINDOW, stamped=1):
    """Runs with pauses from a range; readings with a noise of 0.3 W."""
    rng = random.Random(11)
    begins, t = [], 1.0
    for _ in range(runs):
        begins.append(t)
        t += LENGTH + rng.uniform(*pauses)
    rows, at, k = [], 0.037, 0
    while at < t:
        while k < runs and begins[k] + LENGTH < at - WINDOW:
            k += 1
        joules = BASE * WINDOW
        for begin in begins[k:k + 40]:
            if begin > at:
                break
            joules += inside(at - begin) - inside(at - WINDOW - begin)
        rows.append(f"0,{at:.9f},{joules / WINDOW + rng.gauss(0, 0.3):.3f}\n")
        at += 0.1
    folder.mkdir()
    (folder / "meters.csv").write_text(f"{HEAD}0,t:gpu,GPU 0,,gpu,measured,gpu/a,power,W,,,0.1,{window},,{stamped}\n")
    (folder / "readings.csv").write_text("signal,t_s,value\n" + "".join(rows))
    (folder / "phases.csv").write_text(f"name,start_s,end_s,items\ncommand,0.000000000,{t:.9f},\n" + "".join(
        f"kernel,{b:.9f},{b + LENGTH:.9f},\n" for b in begins))
    return folder


@pytest.fixture(name="trace", scope="module")
def shifted_runs(tmp_path_factory):
    return record(tmp_path_factory.mktemp("fold") / "trace", (0.026, 0.126))


def test_two_levels_inside_a_kernel(trace):
    done = jm("fold", "--json", "-", "--output", trace / "text", "--bins", "5", trace)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["phase"] == "kernel" and found["runs"] == 2500
    (gpu,) = found["meters"]
    truth = [700, 700, 300, 300, 300]
    assert gpu["watts"] == [pytest.approx(w, abs=2 * e) for w, e in zip(truth, gpu["error_watts"])]
    assert max(gpu["error_watts"]) < 100 and gpu["resolution_s"] == pytest.approx(0.0002)
    assert gpu["joules"] == pytest.approx(JOULES, abs=2 * gpu["error_joules"]) and gpu["error_joules"] < 0.03 * JOULES
    assert gpu["base_watts"] == pytest.approx(BASE, abs=0.1)
    text = (trace / "text").read_text()
    assert "2500 runs of 'kernel', 1 ms each" in text and "resolution 0.2 ms" in text


def test_as_many_bins_as_are_certain(trace):
    gpu = json.loads(jm("fold", "--json", "-", trace).stdout)["meters"][0]
    mean = gpu["joules"] / gpu["duration_s"]
    assert len(gpu["watts"]) >= 3 and max(gpu["error_watts"]) <= 0.15 * mean


@pytest.mark.parametrize("pauses, words", [((0, 0), "show the mean"), ((0.099, 0.099), "a different point")])
def test_runs_back_to_back_and_in_step_are_refused(tmp_path, pauses, words):
    done = jm("fold", record(tmp_path / "trace", pauses, runs=300))
    assert done.returncode == FAILURE and words in sentence(done)


def test_an_unknown_window_is_asked_for(tmp_path):
    folder = record(tmp_path / "trace", (0.026, 0.126), window="")
    assert "--window" in sentence(jm("fold", folder))
    assert jm("fold", "--window", "25ms", folder).returncode == 0


def test_a_meter_of_unknown_window_is_left_out(trace, tmp_path):
    """The other one is folded as if it were alone; --meter does not do without it."""
    folder = tmp_path / "two"
    shutil.copytree(trace, folder)
    with open(folder / "meters.csv", "a", encoding="utf-8") as f:
        f.write("1,t:board,Board,,gpu,measured,gpu/b,power,W,,,0.1,,,1\n")
    with open(folder / "readings.csv", "a", encoding="utf-8") as f:
        f.write("1,1.0,100\n1,1.1,101\n")
    alone = jm("fold", "--bins", "2", trace)
    both = jm("fold", "--bins", "2", "--json", folder / "json", folder)
    assert both.returncode == 0 and both.stdout == alone.stdout
    assert "Board (t:board) is left out" in both.stderr and "window" in both.stderr
    found = json.loads((folder / "json").read_text())
    assert [m["meter"] for m in found["meters"]] == ["t:gpu"] and found["left_out"][0]["meter"] == "t:board"
    assert "--window" in sentence(jm("fold", "--meter", "t:board", folder))


def test_a_phase_whose_name_is_not_utf8(trace, tmp_path):
    folder = tmp_path / "latin"
    shutil.copytree(trace, folder)
    (folder / "phases.csv").write_bytes((trace / "phases.csv").read_bytes().replace(b"kernel", b"k\xe9rn"))
    for options in ((), ("--phase", os.fsdecode(b"k\xe9rn"))):
        done = jm("fold", "--bins", "2", "--json", folder / "json", *options, folder)
        assert done.returncode == 0, done.stderr
        assert "2500 runs of 'k?rn'" in done.stdout and json.loads((folder / "json").read_text())["phase"] == "k?rn"


def test_products_of_1_ms_on_an_h200(tmp_path):
    """The energy counter gave 901 W within a product and 115.4 W between two; the lag is that of calibrate on that card."""
    done = jm("fold", "--window", "2.5ms", "--delay", "2ms", "--lag", "15ms", "--json", tmp_path / "json",
              SOURCE / "tests" / "data" / "h200" / "fold")
    assert done.returncode == 0, done.stderr
    (gpu,) = json.loads((tmp_path / "json").read_text())["meters"]
    assert gpu["watts"] == [pytest.approx(901, rel=0.05)] and gpu["error_watts"][0] < 40
    assert gpu["base_watts"] == pytest.approx(115.4, rel=0.02)


@pytest.mark.parametrize("file, text", [("phases.csv", "name,start_s,end_s,items\nkernel,1,0,\n"),
                                        ("readings.csv", "signal,t_s,value\n0,1.0,x\n"), ("meters.csv", "signal\n"),
                                        ("readings.csv", "signal,t_s,value\n7,1.0,3\n"), ("phases.csv", None)])
def test_damage(tmp_path, file, text):
    folder = record(tmp_path / "trace", (0.026, 0.126), runs=20)
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    done = jm("fold", folder)
    assert done.returncode == FAILURE and file in sentence(done)


@pytest.mark.parametrize("file", ["meters.csv", "readings.csv"])
@pytest.mark.parametrize("kind", ["device", "pipe", "line"])
def test_endless_files_are_refused_as_recordings(tmp_path, file, kind):
    folder = record(tmp_path / "trace", (0.026, 0.126), runs=20)
    path = folder / file
    if kind == "line":  # 1 GB of nothing, of which only the beginning may be read
        with open(path, "ab") as f:
            f.truncate(1 << 30)
    else:
        path.unlink()
        path.symlink_to("/dev/zero") if kind == "device" else os.mkfifo(path)
    for words in (["fold", folder], ["measure", "--source", f"replay:{folder}", "--", "true"]):
        done = jm(*words)
        assert file in sentence(done, FAILURE)
        assert ("damaged" if kind == "line" else "not a plain file") in done.stderr


def test_a_recording_of_this_program(tmp_path):
    """Phases and readings as `measure --csv` writes them are read; of nine runs little is known."""
    script = "for i in 1 2 3 4 5 6 7 8 9; do $JM mark kernel; $JM mark pause; sleep 0.05; done"
    done = jm("measure", "--csv", tmp_path / "trace", "--interval", "2ms", "--source", "sim:h100x1", "--",
              "sh", "-c", script.replace("$JM", BIN))
    assert done.returncode == 0, done.stderr
    done = jm("fold", "--phase", "kernel", tmp_path / "trace")
    assert "9 runs of 'kernel'" in done.stdout or "do not determine" in sentence(done)
