# SPDX-License-Identifier: Apache-2.0
"""Items in the output of a command: expressions that would not terminate, and marks together with an expression."""
import json
import signal
import subprocess
import sys
import time

import pytest

from jm import BIN, BUILD, SOURCE, USAGE, jm, sentence
from test_library import skip_with_sanitizers

EXPLODES = r"(a*)(a*)\1\2b"
LINE = 3000 * "a" + "Xb"


def measured(tmp_path, *words, command):
    path = tmp_path / "r.json"
    done = jm("measure", "--source", "null", "--json", path, *words, "--", *command)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done.stderr


def test_a_search_that_would_not_end_makes_items_unknown(tmp_path):
    """Not 'no items', and not the sum of the other lines: 7 is printed in a line that can be searched."""
    record, stderr = measured(tmp_path, "--items-regex", EXPLODES + "|n ([0-9]+)", command=[
        "sh", "-c", f"echo n 7; for i in 1 2 3; do echo {LINE}; done; echo n 7"])
    assert record["items"] is None and record["throughput"] is None
    assert all(p["items"] is None for p in record["phases"])
    assert "could not be evaluated for 3 lines" in stderr and "found no items" not in stderr


@pytest.mark.parametrize("command", ["measure", "run"])
@pytest.mark.parametrize("expression", [50_000 * "(" + 50_000 * ")", "(", "a{2,1}"],
                         ids=["deep", "open", "turned"])
def test_an_expression_that_cannot_be_taken_is_refused_at_once(command, expression):
    text = sentence(jm(command, "--source", "null", "--items-regex", expression, "--", "true"), USAGE)
    assert "is not a regular expression" in text


def test_an_interrupt_is_heard_while_lines_are_searched(tmp_path):
    """The command prints lines that come to the limit as fast as it can, and ends by itself when interrupted."""
    script = f"trap 'exit 3' INT; while :; do echo {LINE}; done"
    with subprocess.Popen([BIN, "measure", "--source", "null", "--items-regex", EXPLODES, "--", "sh", "-c", script],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 3 and "could not be evaluated" in stderr


def test_marks_beside_an_expression_count_items_once(tmp_path):
    """What is printed counts; marks name the phases, which get the items that are printed in them."""
    script = ("{0} mark --items 5 load; echo n 1; sleep 0.2; {0} mark --items 10 work; echo n 20; sleep 0.2; echo n 30; sleep 0.2; "
              "{0} mark --items 15 work").format(BIN)
    record, stderr = measured(tmp_path, "--items-regex", "n ([0-9]+)", command=["sh", "-c", script])
    items = {p["name"]: p["items"] for p in record["phases"]}
    assert record["items"] == 51 and items["command"] == 51
    assert items["load"] == 1 and items["work"] == 50
    assert "The items of 3 marks were ignored" in stderr


LONG = "n 10\n" + 20_000 * "x"


@pytest.mark.parametrize("order, items", [
    (["load", "n 1", "work", "n 20\nn 30", "end"], {"load": 1, "work": 50, "end": None}),
    (["n 4", "load", "n 1", "n 2", "work", "n 3"], {"load": 3, "work": 3}),
    (["n 4", "load", "work", "n 3"], {"load": None, "work": 3}),
    (["load", LONG, LONG, LONG, "work", "n 3"], {"load": 30, "work": 3})],
    ids=["mark-first", "line-first", "empty", "long"])
def test_lines_and_marks_that_wait_together_keep_their_order(tmp_path, order, items):
    """joulemark is stopped while the command sends and prints: neither the time of reading nor that of arrival tells the order."""
    steps = [f"echo '{step}'" if step.startswith("n ") else f"{BIN} mark {step}" for step in order]
    script = "\n".join(["kill -STOP $PPID", *steps, "kill -CONT $PPID"])
    record, _ = measured(tmp_path, "--items-regex", "n ([0-9]+)", command=["sh", "-c", script])
    assert {p["name"]: p["items"] for p in record["phases"] if p["name"] != "command"} == items


SENDER = """
import os, signal, sys, time, joulemark
joulemark.mark("before")
time.sleep(0.2)  # joulemark takes the pipe for marks
os.kill(os.getppid(), signal.SIGSTOP)
for step in sys.argv[1:]:
    if step.startswith("n "):
        print(step, flush=True)
    else:
        joulemark.mark(step)
os.kill(os.getppid(), signal.SIGCONT)
"""


def test_marks_through_a_pipe_keep_their_order_with_lines(tmp_path):
    skip_with_sanitizers()
    order = ["n 4", "load", "n 1", "n 2", "work", "n 3", "end"]
    with_package = ["env", f"PYTHONPATH={SOURCE / 'python'}", f"JM_LIBRARY={BUILD / 'libjoulemark.so.0'}", sys.executable]
    record, _ = measured(tmp_path, "--items-regex", "n ([0-9]+)", command=[*with_package, "-c", SENDER, *order])
    assert {p["name"]: p["items"] for p in record["phases"]} == {"command": 10, "before": 4, "load": 3, "work": 3, "end": None}


def test_marks_with_another_output_come_after_the_lines_that_were_read(tmp_path):
    """A mark whose stdout is not what is searched does not know its byte; here all wait until joulemark goes on."""
    script = ("kill -STOP $PPID; {0} mark load >/dev/null; echo n 1; {0} mark work >/dev/null; echo n 20; "
              "kill -CONT $PPID").format(BIN)
    record, _ = measured(tmp_path, "--items-regex", "n ([0-9]+)", command=["sh", "-c", script])
    assert {p["name"]: p["items"] for p in record["phases"]} == {"command": 21, "load": None, "work": None}


def test_marks_alone_count_as_before(tmp_path):
    record, stderr = measured(tmp_path, command=["sh", "-c", f"{BIN} mark a; {BIN} mark --items 10 a; {BIN} mark --items 15 a"])
    items = {p["name"]: p["items"] for p in record["phases"]}
    assert record["items"] == 25 and items["command"] == 25 and "were ignored" not in stderr
