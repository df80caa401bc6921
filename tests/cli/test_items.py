# SPDX-License-Identifier: Apache-2.0
"""Items in the output of a command: expressions that would not terminate, and marks together with an expression."""
import json
import signal
import subprocess
import time

import pytest

from jm import BIN, USAGE, jm, sentence

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


def test_marks_alone_count_as_before(tmp_path):
    record, stderr = measured(tmp_path, command=["sh", "-c", f"{BIN} mark a; {BIN} mark --items 10 a; {BIN} mark --items 15 a"])
    items = {p["name"]: p["items"] for p in record["phases"]}
    assert record["items"] == 25 and items["command"] == 25 and "were ignored" not in stderr
