# SPDX-License-Identifier: Apache-2.0
"""What screens say: the quality in one line, what a dry run would run, progress and table in one unit."""
import re

import pytest

from jm import USAGE, jm, sentence
from reports import records, report, write

SIM = ["--device", "sim:h100x1"]


def test_quality_is_one_line_and_why_gives_the_reasons():
    text = jm("measure", *SIM, "true").stderr
    assert text.rstrip().splitlines()[-1] == "  Quality  none: simulated only; --why gives the reasons"
    whole = jm("measure", *SIM, "--why", "true").stderr
    lines = whole[whole.index("  Quality"):].splitlines()
    assert lines[0] == "  Quality  none: simulated only" and any(line.startswith("    - No energy was measured") for line in lines)


@pytest.mark.parametrize("words", [["measure", "--source", ",", "true"], ["run", "null", "--source", ",,"], ["watch", "--source", ","]])
def test_commas_alone_name_no_source(words):
    assert "names no source" in sentence(jm(*words), USAGE)


def test_quality_in_a_report(tmp_path):
    rows = records("h100x4")
    for r in rows:
        r["quality"] = {"grade": "B", "reasons": ["It is hot."]}
    text = report(write(tmp_path, rows))
    assert "quality B (A is the best grade, D the worst); 'joulemark report --why' gives the reasons" in " ".join(text.split())
    assert "It is hot." not in text and "It is hot." in report("--why", write(tmp_path, rows))


@pytest.mark.parametrize("words, said", [
    (["--", "sleep", "1"], "sleep 1"),
    (["gpt-117m", "--device", "ref"], "train gpt-117m device=ref precision=f32"),
    (["sim", *SIM], "sim device=sim:h100x1"),
])
def test_a_dry_run_describes_a_single_case(words, said):
    head, case = jm("run", "--dry-run", *words).stdout.splitlines()
    assert head == "1 case, 1 time" and re.fullmatch(rf"  [0-9a-f]{{4}}  {re.escape(said)}", case)


def test_progress_and_table_have_the_same_unit():
    done = jm("run", "sim", *SIM, "--seconds", "2", "--repeat", "2")
    shown = re.findall(r"\] \w+  repeat \d  ([\d,]+) (\S+)  ([\d.]+) (\S+)", done.stderr)
    assert len(shown) == 2
    title = next(line for line in done.stdout.splitlines() if "token" in line and " W" in line)
    for rate, of_rate, energy, of_energy in shown:
        assert of_rate in title.split() and of_energy in title.split()
        assert float(rate.replace(",", "")) == pytest.approx(30250, rel=0.02) and float(energy) == pytest.approx(23.1, rel=0.02)


@pytest.mark.parametrize("name", ["h100x4", "h200x4", "mi300x4"])
def test_a_column_has_one_number_of_decimals(tmp_path, name):
    """As many as its smallest half width needs; signs stand below each other, and no zero has a minus."""
    text = report("--width", "300", write(tmp_path, records(name)))
    rows = [line for line in text.split("\n\n")[1].splitlines()[1:] if "±" in line]
    places = {m.start() for line in rows for m in re.finditer("±", line)}
    assert len(rows) > 4 and len(places) == 5  # throughput, watts, joules, saved, slower
    for at in places:
        pairs = [re.match(r"([\d,.]+) ± *([\d,.]+)", line[line.rindex(" ", 0, at - 1) + 1:].lstrip("(-"))
                 for line in rows if line[at:at + 1] == "±"]
        assert all(pairs) and len({len(n.partition(".")[2]) for p in pairs for n in p.groups()}) == 1
    assert not re.search(r"-0\.?0*( |$)", text) and all(not line.endswith(" ") for line in text.splitlines())
