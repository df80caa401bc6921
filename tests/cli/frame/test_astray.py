# SPDX-License-Identifier: Apache-2.0
"""Messages lead to what was meant: the whole form, the option, the line."""
import pytest

from jm import USAGE, jm, sentence

SIM = ["--device", "sim:h100x1"]


@pytest.mark.parametrize("text", ["200:700", "200W:700W", "200:700W"])
def test_a_range_without_a_step_gets_its_whole_form(text):
    said = sentence(jm("run", "sim", *SIM, "--set", f"gpu.power={text}", "--dry-run"), USAGE)
    form = said.split("write ")[1].split()[0].rstrip(".")
    assert form == "gpu.power=200:700+100W"
    assert jm("run", "sim", *SIM, "--set", form, "--dry-run").returncode == 0


@pytest.mark.parametrize("words, meant", [
    (["measure", "-r", "5", "true"], "--repeat"),
    (["run", "-d", "cpu", "sim"], "--device"),
    (["report", "-o", "x", "a.db"], "--output"),
])
def test_a_short_option_is_told_in_full(words, meant):
    assert f"did you mean {meant}" in sentence(jm(*words), USAGE)


@pytest.mark.parametrize("words", [["watch", "--csv"], ["report", "--csv", "a.db"], ["query", "--csv", "a.db"]])
def test_an_option_named_after_a_format_points_to_format(words):
    """Where a command has no option of that name, its --format has that choice."""
    assert f"write --format {words[1][2:]}." in sentence(jm(*words), USAGE)


def test_a_short_option_of_no_letter():
    said = sentence(jm("measure", "-z", "true"), USAGE)
    assert "did you mean" not in said and said.rstrip().endswith("not '-z'.")


@pytest.mark.parametrize("work", ["llama3-8b", "train", "gemm"])
def test_a_simulated_node_computes_nothing(work):
    said = sentence(jm("run", work, "--device", "sim:h100x4"), USAGE)
    assert f"'{work}'" in said and "run sim --device sim:h100x4" in said and "cuda:0" in said
    assert "--response" in jm("help", "sim").stdout


@pytest.mark.parametrize("lines, at, key", [
    (["title: a", "device: cpu", "workload: sim"], 3, "workload"),
    (["device: cpu", "steps: 2", "", "model: gpt-117m"], 4, "model"),
    (["work: sim", "steps: 2", "stpes: 3"], 3, "stpes"),
    (["work: sim", "device: sim:h100x1", "command: [true]"], 3, "command"),
])
def test_a_wrong_key_is_told_with_its_line(tmp_path, lines, at, key):
    path = tmp_path / "p.yaml"
    path.write_text("\n".join(lines) + "\n")
    said = sentence(jm("plan", path), USAGE)
    assert f"p.yaml:{at}: " in said and f"'{key}'" in said
