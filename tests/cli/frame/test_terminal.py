# SPDX-License-Identifier: Apache-2.0
"""Output on a terminal of 80 and of 20 columns, without a terminal, and with --output and --quiet."""
import os
import re

import pytest

from jm import BIN, USAGE, jm, sentence, terminal
from reports import DATA

SIM = ["--control", "sim:h100x4"]
SWEEP = ["run", "sim", "--device", "sim:h100x4", "--set", "gpu.power=300W,500W", "--repeat", "2"]
NULL = ["run", "--source", "null"]
COMMANDS = [["--help"], ["measure", "--help"], ["run", "--help"], ["help", "train"], ["doctor"], ["list"],
            ["get", *SIM], ["report", DATA / "h100x4.json"], ["report", "--published", DATA / "h200x4.json"],
            ["compare", "--systems", DATA / "h100x4.json", DATA / "h200x4.json"],
            ["compare", f"{DATA / 'h100x4.json'}:gpu.power=300W", f"{DATA / 'h100x4.json'}:gpu.power=400W"],
            ["describe", "resnet50"], ["describe", "resnet18", "vit-b16", "gpt-117m", "gpt-800m", "llama3-8b"],
            ["measure", "--source", "sim:h100x2,estimate", "--", "true"], SWEEP]
ESCAPES = re.compile(r"\x1b\[[0-9;]*[mK]")


def screen_lines(printed):
    """What a terminal shows: escape sequences removed, each redraw of a line as a line of its own."""
    return re.split(r"[\r\n]+", ESCAPES.sub("", printed))


def words_of(text):
    return re.findall(r"\S+", text)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(map(str, c[:2])).replace(str(DATA), ""))
def test_fits_80_columns(command):
    printed, _ = terminal(*command, columns=80)
    lines = [line for line in screen_lines(printed) if not line.startswith("joulemark measure --source")]
    assert len(lines) > 3
    examples = printed.split("Example")[-1] if "Example" in printed else ""
    assert [line for line in lines if len(line) > 80 and line not in examples] == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(map(str, c[:2])).replace(str(DATA), ""))
def test_fits_20_columns(command):
    """Words and table cells are not cut: only a line that is one word or one cell behind its setting may be longer."""
    printed, _ = terminal(*command, columns=20)
    examples = printed.split("Example")[-1] if "Example" in printed else ""
    for line in screen_lines(printed):
        if len(line) > 20 and line not in examples:
            assert len(re.split(r" {2,}", re.sub("± +", "± ", line.strip()))) <= 3 or len(words_of(line)) <= 3, line


@pytest.mark.parametrize("words", [
    ["measure", "--pid", "4194304"], ["measure", "--source", "estimate", "true"], ["top", "--interval", "1ms"],
    ["run", "gpt-117m", "--device", "ref", "--layers", "1", "--hidden", "16", "--heads", "2", "--ffn", "16", "--context", "8", "--seq",
     "8", "--batch", "1", "--vocab", "256", "--steps", "1", "--warmup", "0", "--source", "null"]])
def test_no_word_of_a_message_is_broken(words):
    printed, _ = terminal(*words, columns=60)
    lines = screen_lines(printed)
    assert any(line.startswith("joulemark: ") for line in lines) and all(len(line) <= 60 for line in lines), printed


def test_a_redraw_stays_on_its_line():
    """Each redraw of the live line begins with a carriage return and leaves the last column free."""
    for columns in (80, 20):
        printed, status = terminal(*SWEEP, columns=columns)
        redraws = [r for r in re.split(r"\r\x1b\[K|\n", printed) if "[" in r and "]" in r]
        assert status == 0 and len(redraws) > 4
        live = [r for r in redraws if r.endswith(("starts", "s")) or "%" in r]
        assert all(len(ESCAPES.sub("", r).rstrip("\r")) < columns for r in live), live


def test_the_reason_of_the_only_run_is_printed_once():
    wrong = ["run", "gpt", "--layers", "1", "--device", "ref", "--steps", "1", "--source", "null"]
    printed, status = terminal(*wrong)
    assert status and printed.count("preset sets it") == 1 and "Failed: 1 of 1 runs; the reason is above" in printed
    both = " ".join(terminal(*wrong, "--repeat", "2")[0].split())
    assert both.count("preset sets it") == 4 and "Failed: 2 of 2 runs" in both
    done = jm(*wrong)  # each of both streams may go elsewhere
    assert "preset sets it" in done.stdout and "preset sets it" in done.stderr
    assert " ".join(jm(*wrong, "--json", "-").stderr.split()).count("preset sets it") == 1


def test_colours_only_on_a_terminal():
    assert "\x1b[3" in terminal("doctor")[0] and "\x1b[1m" in terminal("report", DATA / "h100x4.json")[0]
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in terminal("doctor", env=env)[0]
    assert "\x1b[3" in terminal("doctor", env={"NO_COLOR": ""})[0]
    assert "\x1b" not in jm("doctor").stdout and "\x1b" not in terminal("doctor", "--output", os.devnull)[0]


@pytest.mark.parametrize("words", [["help", "serve"], ["help", "list"], ["check", DATA / "h100x4.json"], ["doctor"]])
def test_sentences_fit_a_terminal_of_40_columns(words):
    """But for a word that is longer, which has a line of its own."""
    lines = jm(*words, "--width", "40").stdout.splitlines()
    assert lines and [line for line in lines if len(line) > 40 and len(line.split()) > 1 and not line.startswith("joulemark list")] == []


def test_lines_behind_the_first_have_at_least_20_columns():
    """Text beside a column of names goes on below the names where the terminal is narrow."""
    lines = jm("describe", "gpt-117m", "--device", "ref", "--width", "40").stdout.splitlines()
    at = lines.index("start values:")
    assert any(len(line.split()) > 1 for line in lines[at + 1:] if line.startswith(20 * " "))
    assert not any(line.startswith(21 * " ") for line in lines[at + 1:])


def test_width_without_a_terminal():
    def longest(*args, **env):
        return max(map(len, jm("report", *args, DATA / "h100x4.json", env=env).stdout.splitlines()))
    assert 60 < longest(COLUMNS="") <= 80 and longest(COLUMNS="60") <= 60 < longest("--width", "120", COLUMNS="60")
    assert longest(COLUMNS="abc") <= 80
    assert "range" in sentence(jm("report", "--width", "19", DATA / "h100x4.json"), USAGE)


@pytest.mark.parametrize("command", [
    ["doctor"], ["list", "--json"], ["get", *SIM], ["help", "--man"], ["describe", "alexnet", "--json"],
    ["describe", "alexnet", "--svg", "-"], ["compare", DATA / "h200x4.json", DATA / "h200x4.json", "--json"],
    ["compare", "--systems", DATA / "h200x4.json", "--json"],
    ["calibrate", "--json", "--from", DATA.parent / "h100" / "calibrate.json"]])
def test_output_to_a_file(command, tmp_path):
    path = tmp_path / "out"
    done = jm(*command, "--output", path)
    assert done.returncode == 0 and done.stdout == ""
    assert path.read_text() == jm(*command).stdout
    assert sentence(jm(*command, "--output", tmp_path / "none" / "out")).count("none")
    assert jm(*command, "--output", "-").stdout == path.read_text()


def test_output_and_quiet_of_measure(tmp_path):
    path = tmp_path / "out"
    done = jm("measure", "--source", "estimate", "--output", path, "--", "echo", "x")
    assert done.stdout == "x\n" and done.stderr == "" and "estimated" in path.read_text()
    done = jm("measure", "--source", "estimate", "--quiet", "--", "echo", "x")
    assert done.stdout == "x\n" and "estimated" in done.stderr


def test_output_and_quiet_of_run(tmp_path):
    path = tmp_path / "out"
    done = jm(*SWEEP, "--output", path, "--quiet")
    assert done.returncode == 0 and done.stdout == "" and done.stderr == ""
    assert "500 W" in path.read_text()
    assert "[1/6]" in jm(*SWEEP).stderr.replace("[ 1/6]", "[1/6]")


@pytest.mark.parametrize("work", [SWEEP, [*NULL, "--", "false"], [*NULL, "--", "true"],
                                  ["report", "--published", DATA / "h200x4.json"]])
def test_no_two_empty_lines_follow_each_other(work):
    printed = jm(*work).stdout
    assert printed.strip() and "\n\n\n" not in printed


def test_a_name_that_is_too_long_gets_its_own_line():
    lines = jm("list", "--all", "--width", 80).stdout.splitlines()
    at = lines.index("    snmp:community-file=FILE")
    assert lines[at + 1].startswith(" " * 27 + "file with the community")
    assert "    snmp:user=NAME         user of SNMPv3" in lines


def test_help_has_the_common_options():
    for command in ("measure", "report", "doctor"):
        text = jm("help", command, "--all").stdout
        assert all(text.count(f"\n  --{name}") == 1 for name in ("output", "quiet", "width"))
    assert "did you mean --quiet" in sentence(jm("doctor", "--quite"), USAGE)
    assert os.path.basename(BIN) == "joulemark"
