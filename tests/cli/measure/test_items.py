# SPDX-License-Identifier: Apache-2.0
"""Items in the output of a command: expressions that would not terminate, and marks together with an expression."""
import json
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from jm import BIN, BUILD, SOURCE, USAGE, jm, sentence, skip_with_sanitizers

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
        _, stderr = process.communicate(timeout=240)
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


def counted(numbers):
    """In one write: lines that come apart would be a stretch of their own, without the first one's items."""
    return ["sh", "-c", f"printf 'Epoch %s\\n' {' '.join(map(str, numbers))}"]


@pytest.mark.parametrize("numbers, given, items, kind, says", [
    ([1, 2, 3], None, 3, "total", "count up, so each is the total so far: 3 items. If each is an amount to be added, give "
     "--items-kind amount"),
    ([1, 2, 3], "amount", 6, "amount", None),
    ([100, 101, 105], None, 306, "amount", "were added up: 306 items. If each is the total so far, give --items-kind total"),
    ([100, 101, 105], "total", 105, "total", None),
    ([64, 64, 64], None, 192, "amount", None),
    ([64, 64, 64], "total", 64, "total", None),
    ([40, 20], None, 60, "amount", None),
    ([9], None, 9, "amount", None),
    ([1, 2, 3, 1, 2, 3], None, 6, "total", "count up")])
def test_numbers_that_count_up_are_totals(tmp_path, numbers, given, items, kind, says):
    words = ["--items-kind", given] if given else []
    record, stderr = measured(tmp_path, "--items-regex", r"Epoch (\d+)", *words, command=counted(numbers))
    assert (record["items"], record["items_kind"]) == (items, kind)
    assert record["phases"][0]["items"] == items
    assert " ".join(says.split()) in " ".join(stderr.split()) if says else "--items-kind" not in stderr


def test_totals_of_phases_are_what_was_counted_in_them(tmp_path):
    script = "{0} mark load; echo n 10; echo n 20; {0} mark work; echo n 30; echo n 40; echo n 50".format(BIN)
    record, _ = measured(tmp_path, "--items-regex", "n ([0-9]+)", command=["sh", "-c", script])
    items = {p["name"]: p["items"] for p in record["phases"]}
    assert (items["command"], items["load"], items["work"]) == (50, 20, 30)


def test_json_numbers_follow_the_same_rule(tmp_path):
    command = ["printf", '{"step": %d}\\n', "100", "200", "300"]
    record, _ = measured(tmp_path, "--items-json", "step", command=command)
    assert (record["items"], record["items_kind"]) == (300, "total")
    record, _ = measured(tmp_path, "--items-json", "step", "--items-kind", "amount", command=command)
    assert (record["items"], record["items_kind"]) == (600, "amount")


def test_matches_without_a_number_have_no_kind(tmp_path):
    record, _ = measured(tmp_path, "--items-regex", "Epoch", command=counted([1, 2, 3]))
    assert record["items"] == 3 and "items_kind" not in record


def test_run_and_plans_follow_the_rule_and_the_option(tmp_path):
    """The kind is part of what a case is: a store keeps both apart."""
    store = tmp_path / "s.db"
    words = ["run", "--source", "null", "--store", store, "--items-regex", r"Epoch (\d+)"]
    for more in ([], ["--items-kind", "amount"]):
        done = jm(*words, *more, "--", *counted([1, 2, 3]))
        assert done.returncode == 0, done.stderr
        assert ("count up" in done.stderr) == (not more)
    plan = tmp_path / "p.yaml"
    plan.write_text("command: sh -c 'printf \"Epoch %s\\n\" 4 5'\nitems-regex: Epoch (\\d+)\nitems-kind: total\nsource: 'null'\n")
    assert jm("run", plan, "--store", store).returncode == 0
    with sqlite3.connect(store) as db:
        assert [row[0] for row in db.execute("SELECT items FROM results ORDER BY items")] == [3, 5, 6]


@pytest.mark.parametrize("command", ["measure", "run"])
@pytest.mark.parametrize("words, says", [
    (["--items-regex", "Epoch", "--items-kind", "total"], "no group that is a number"),
    (["--items-kind", "total"], "give one of them"),
    (["--items-regex", r"(\d+)", "--items-kind", "sum"], "amount")], ids=["group", "alone", "word"])
def test_a_kind_without_numbers_is_refused(command, words, says):
    assert says in sentence(jm(command, "--source", "null", *words, "--", "true"), USAGE)
