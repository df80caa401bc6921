# SPDX-License-Identifier: Apache-2.0
"""measure --phase-regex: phases of what a program prints, without a change of the program."""
import json
import re
import sys

import pytest

from jm import USAGE, jm, sentence
from measured import check, fakes

WATTS = 300
ENV = fakes(f"gpus=1;wave=square;low={WATTS};high={WATTS};period=1")


def phases_of(script, *options, status=0):
    """(name, seconds, items) of each phase but the command; the energy of each is that of its time."""
    done = jm("measure", "--source", "nvml", "--json=/dev/fd/1", *options, "--", "sh", "-c", script, env=ENV)
    assert done.returncode == status, done.stderr
    record = check(json.loads(done.stdout[done.stdout.index("{"):]))
    for p in record["phases"]:
        if p["end_s"] - p["start_s"] > 0.15:
            assert p["total"]["joules_measured"] == pytest.approx(WATTS * (p["end_s"] - p["start_s"]), rel=0.1)
    return [(p["name"], p["end_s"] - p["start_s"], p["items"]) for p in record["phases"] if p["name"] != "command"], done


# Prints a line for each time, sleeps before or after it, and notes when it printed.
EPOCHS = """
import sys, time
at, times = sys.argv[1], open(sys.argv[2], "w")
for e in 1, 2, 3:
    time.sleep(0.1 * e if at == "end" else 0)
    print(time.monotonic(), file=times, flush=True)
    print(f"Epoch {e}/3", flush=True)
    time.sleep(0.1 * e if at == "begin" else 0)
"""


def epochs(folder, at):
    """Names of the phases, and how long after its line each epoch began or ended; no phase begins before its line, and the
    next one begins where it ends."""
    times, out = folder / "times", folder / "record.json"
    done = jm("measure", "--source", "nvml", "--json", out, "--phase-regex", r"Epoch (\d+)", "--phase-at", at, "--", sys.executable, "-c",
              EPOCHS, at, times, env=ENV)
    assert done.returncode == 0 and "Epoch 1/3\n" in done.stdout and " Epoch 2 " in done.stderr and "buffer" not in done.stderr, done.stderr
    record = check(json.loads(out.read_text()))
    found = [p for p in record["phases"] if p["name"] != "command"]
    key = "start_s" if at == "begin" else "end_s"
    late = [record["start_ns"] / 1e9 + p[key] - t for p, t in zip(found, map(float, times.read_text().split()))]
    assert len(late) == 3 and min(late) > -1e-3
    assert all(a["end_s"] == pytest.approx(b["start_s"], abs=1e-6) for a, b in zip(found, found[1:]))
    return [p["name"] for p in found], late


@pytest.mark.parametrize("at", ["begin", "end"])
def test_lines_begin_and_end_phases(tmp_path, at):
    """What comes after the last end has no name of its own. A busy machine reads a line late now and then, not each time."""
    for _ in range(20):
        names, late = epochs(tmp_path, at)
        assert names[:3] == ["Epoch 1", "Epoch 2", "Epoch 3"] and names[3:] in ([], ["rest"] if at == "end" else [])
        if max(late) < 0.15:
            return
    pytest.fail(f"each time: {late}")


@pytest.mark.parametrize("at, items", [("begin", {"Epoch 1": 20, "Epoch 2": 50}), ("end", {"Epoch 1": 10, "Epoch 2": 40})])
def test_items_are_of_the_phase_of_their_line(at, items):
    """Also where lines come together: 'Epoch 1' has 10 before its line and 20 after it; 'Epoch 2' 20 in its line and 30 after it."""
    script = ("echo 10 images; sleep 0.2; echo Epoch 1; sleep 0.1; printf '20 images\\nEpoch 2: 20 images\\n'; sleep 0.2; echo 30 images")
    found, _ = phases_of(script, "--phase-regex", r"Epoch (\d+)", "--phase-at", at, "--items-regex", r"(\d+) images", "--items-kind", "amount")
    assert {name: count for name, _, count in found if name in items} == items


def test_a_line_that_comes_again_is_the_same_phase():
    bars = "for i in 1 2 3; do printf 'Epoch 1 %d%%\\r' $i; sleep 0.1; done; printf 'Epoch 2\\r'; sleep 0.1; echo"
    found, _ = phases_of(bars, "--phase-regex", r"Epoch \d+")
    assert [name for name, _, _ in found] == ["Epoch 1", "Epoch 2"] and found[0][1] >= 0.3


def test_lines_of_one_name_are_told():
    """They are one phase, or end one each; a group tells them apart, and one epoch with its progress bar is no mistake."""
    found, done = phases_of("for e in 1 2; do echo Epoch $e; sleep 0.1; done", "--phase-regex", "Epoch")
    assert [name for name, _, _ in found] == ["Epoch"] and "found one name, 'Epoch', in 2 lines, which are one phase;" in " ".join(done.stderr.split())
    found, done = phases_of("for e in 1 2; do sleep 0.1; echo Epoch $e; done", "--phase-regex", "Epoch", "--phase-at", "end")
    assert [name for name, _, _ in found][:2] == ["Epoch"] * 2 and "'Epoch', in 2 lines; a group tells" in " ".join(done.stderr.split())
    _, done = phases_of("for i in 1 2; do echo Epoch 1; sleep 0.1; done", "--phase-regex", r"Epoch (\d+)")
    assert "one name" not in done.stderr


def test_a_buffered_output_is_named():
    _, done = phases_of("printf 'Epoch 1\\nEpoch 2\\n'; sleep 0.1", "--phase-regex", r"Epoch (\d+)")
    assert "PYTHONUNBUFFERED" in done.stderr


def test_what_matches_nothing_is_named():
    found, done = phases_of("echo a", "--phase-regex", r"Epoch (\d+)")
    assert found == [] and "matches nothing that 'sh' printed" in done.stderr


def test_names_of_joulemark_are_not_taken():
    found, _ = phases_of("echo command; sleep 0.1", "--phase-regex", "command")
    assert [name for name, _, _ in found] == ["line.command"]


def test_more_phases_than_are_kept():
    found, done = phases_of("seq 1 5000", "--phase-regex", r"\d+")
    assert len(found) == 4096 and "more than 4096" in done.stderr


def test_marks_and_lines_are_phases_side_by_side(tmp_path):
    from jm import BIN
    found, done = phases_of(f"echo Epoch 1; '{BIN}' mark load; sleep 0.2; '{BIN}' mark train --items 5; sleep 0.1; '{BIN}' mark end; sleep 0.1",
                            "--phase-regex", r"Epoch (\d+)")
    names = [name for name, _, _ in found]
    assert set(names) == {"Epoch 1", "load", "train", "end", "marked"} and "marked: from the first mark to the last" in done.stderr


@pytest.mark.parametrize("args", [
    ("--phase-at", "end", "--", "true"), ("--phase-regex", "(", "--", "true"), ("--phase-regex", "a", "--phase-at", "middle", "--", "true"),
    ("--phase-regex", "a", "--for", "1s")])
def test_what_does_not_go_together(args):
    done = jm("measure", "--source", "null", *args)
    assert done.returncode == USAGE and sentence(done)


def test_a_command_that_ends_with_its_last_line_has_no_rest():
    found, done = phases_of("for e in 1 2; do sleep 0.3; echo epoch $e; done", "--phase-regex", r"epoch (\d+)", "--phase-at", "end")
    assert all(seconds >= 0 for _, seconds, _ in found) and {"epoch 1", "epoch 2"} <= {name for name, _, _ in found}
    table = done.stderr[done.stderr.index("phase"):]
    assert " -0" not in table and {"command", "epoch"} <= set(re.findall(r"^ +(command|epoch) ", table, re.M)), table
