# SPDX-License-Identifier: Apache-2.0
"""bench/table_gpu.py: the section of docs/speed.md on GPUs, from figures whose ratios are known."""
import importlib.util
import json

import pytest

from jm import SOURCE

spec = importlib.util.spec_from_file_location("table_gpu", SOURCE / "bench" / "table_gpu.py")
table_gpu = importlib.util.module_from_spec(spec)
spec.loader.exec_module(table_gpu)


@pytest.mark.parametrize("ours, theirs, aim, least, shown", [
    (1150, 1000, 1.15, True, "**1.15**"), (1149.9, 1000, 1.15, True, "1.1499"), (1145, 1000, 1.15, True, "1.145"),
    (1144, 1000, 1.15, True, "1.14"), (1151, 1000, 1.15, True, "**1.15**"), (1200, 1000, None, True, "1.20"),
    (800, 1000, 0.8, False, "**0.80**"), (801, 1000, 0.8, False, "0.801"), (700, 1000, 0.8, False, "**0.70**"),
    (None, 1000, 0.8, False, "-")])
def test_unrounded_ratio_decides(ours, theirs, aim, least, shown):
    assert table_gpu.ratio(ours, theirs, aim, least) == shown


def lines_of(section, name):
    return [[c.strip() for c in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith(f"| {name}")]


def test_modes_and_memory(tmp_path):
    state = 16 * 10**9  # of 1 G parameters in bf16 with f32 masters
    row = {"workload": "net", "batch": "8", "precision": "bf16", "gpu": "H100", "card": "X", "unit": "token",
           "parameters": 10**9, "aim": 1.1,
           "joulemark": [{"rate": r, "watts": 500, "peak_bytes": state + 8 * 10**9} for r in (1090, 1092)],
           "fast": [{"rate": 1110, "watts": 555}],
           "pytorch": {"rate": 1000, "least": 990, "most": 1010, "watts": 500, "peak_bytes": state + 10**10,
                       "reserved_bytes": state + 9 * 10**9}}
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"about": "", "remarks": "", "rows": [row, row | {"pytorch": None, "fast": []},
                                                                row | {"fast": [], "pytorch": {"rate": 1000, "watts": 500}}]}))
    plain, fast, alone, no_range, memory = lines_of(table_gpu.section(file), "net, 8")
    assert plain[3:] == ["default", "1,091 (1,090–1,092) token/s", "1,000 (990.0–1,010)", "1.09", "1.10", "500 / 500",
                         "2.18 / 2.00", "**1.09**"]
    assert fast[3:] == ["fast", "1,110 token/s", "1,000 (990.0–1,010)", "**1.11**", "1.10", "555 / 500", "2.00 / 2.00",
                        "1.00"]
    assert no_range[5] == "1,000"
    assert alone[5:] == ["-", "-", "1.10", "500", "2.18", "-"]
    assert memory[3:] == ["8.0", "10.0", "9.0", "**0.80**", "0.89"]


def test_memory_of_gradients_in_16_bits_and_of_two_batches():
    """Gradients count with the type that each side gives them; what different batches need is not compared."""
    row = {"workload": "net", "batch": "8", "precision": "bf16-true", "gpu": "H100", "card": "X", "parameters": 10**9,
           "joulemark": [{"peak_bytes": 11 * 10**9}], "pytorch": {"peak_bytes": 10**10, "reserved_bytes": 12 * 10**9}}
    assert table_gpu.memory_cells(row)[3:] == ["3.0", "2.0", "4.0", "1.50", "**0.75**"]
    masters = row | {"precision": "bf16", "joulemark": [{"peak_bytes": 17 * 10**9, "gradients": "bf16"}],
                     "pytorch": {"peak_bytes": 18 * 10**9, "reserved_bytes": 20 * 10**9}}
    assert table_gpu.memory_cells(masters)[3:] == ["3.0", "2.0", "4.0", "1.50", "**0.75**"]
    assert table_gpu.memory_cells(row | {"batch": "4 beside 2"}) is None


def test_memory_beside_frozen_parameters():
    """Of 1 G parameters a tenth is trained: 16 bytes of each of these in fp16 with f32 masters, 2 of the others."""
    state = 1.6e9 + 1.8e9
    row = {"workload": "net", "batch": "8", "precision": "fp16", "gpu": "H100", "card": "X", "parameters": 10**9, "frozen": 9 * 10**8,
           "joulemark": [{"peak_bytes": state + 3e9, "gradients": "f32"}],
           "pytorch": {"peak_bytes": state + 2e9, "reserved_bytes": state + 4e9}}
    assert table_gpu.memory_cells(row)[3:] == ["3.0", "2.0", "4.0", "1.50", "**0.75**"]


def test_errors_beside_the_figures(tmp_path):
    rows = [{"name": "gpt learned", "precision": p, "joulemark": [3e-3, 2e-3, 1e-3], "pytorch": [2e-3, 2e-3, 4e-3]} for p in ("fp8", "f32")]
    (tmp_path / table_gpu.ERRORS_FILE).write_text(json.dumps({"about": "A card.", "rows": rows}))
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"about": "", "remarks": "", "rows": []}))
    assert "A card." in table_gpu.section(file)
    first, second = lines_of(table_gpu.section(file), "gpt")
    assert (first[1], second[1]) == ("f32", "fp8")
    assert first[2:] == ["0.003 : 0.002 = 1.50", "0.002 : 0.002 = 1.00", "0.001 : 0.004 = 0.25"]


def test_verdict_counts_each_row_with_an_aim_and_names_those_that_miss_it():
    row = {"workload": "net", "precision": "bf16", "gpu": "H100", "aim": 1.1, "parameters": 10**9,
           "joulemark": [{"rate": 1099, "watts": 500, "peak_bytes": 24 * 10**9}], "batch": "8",
           "pytorch": {"rate": 1000, "watts": 500, "reserved_bytes": 26 * 10**9}}
    text = table_gpu.verdict([row, row | {"gpu": "H200", "aim": 1.09}, row | {"pytorch": None}])
    assert "**speed**: met by 1 of 2 rows; missed by net bf16 (1.099 of 1.10)." in text
    assert "(1.08)**: met by 2 of 2 rows; missed by none." in text
    assert "reserve)**: met by 2 of 2 rows; missed by none." in text
    text = table_gpu.verdict([row, row | {"gpu": "H200", "aim": 1.2, "pytorch": row["pytorch"] | {"reserved_bytes": 25 * 10**9}}])
    assert "met by 0 of 2 rows; missed by net bf16 (1.099 of 1.10), net bf16 on the H200 (1.10 of 1.20)." in text
    assert "reserve)**: met by 1 of 2 rows; missed by net bf16 on the H200 (0.89)." in text


def test_verdict_judges_both_modes_by_unrounded_figures():
    """1.0994 is shown as 1.099, not as the aim of 1.10 that it misses; the mode fast is judged by its own runs."""
    row = {"workload": "net", "precision": "fp16", "gpu": "H100", "aim": 1.1, "parameters": 10**9,
           "joulemark": [{"rate": 1099.4, "watts": 509.1}], "fast": [{"rate": 1100.4, "watts": 509.5}],
           "pytorch": {"rate": 1000, "watts": 500}}
    text = table_gpu.verdict([row, row | {"workload": "other", "joulemark": []}])
    assert "**speed**: met by 2 of 3 rows; missed by net fp16 (1.099 of 1.10)." in text
    assert ("(1.08)**: met by 0 of 3 rows; missed by net fp16 (1.0797), net fp16 `--fast` (1.0799), other fp16 `--fast` (1.0799)."
            ) in text


def test_rows_replace_those_about_the_same(tmp_path, capsys):
    old = [{"workload": "a", "precision": "bf16", "gpu": "H100", "card": "X", "pytorch": {"rate": 1}},
           {"workload": "a", "precision": "bf16", "gpu": "H200", "card": "Y", "pytorch": {"rate": 2}},
           {"workload": "b", "precision": "bf16", "gpu": "H100", "card": "X", "pytorch": {"rate": 3}, "note": ", `--keep-all`"}]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"about": "é", "rows": old}))
    new = [{"workload": "b", "precision": "bf16", "gpu": "H100", "pytorch": {"rate": 4}},
           {"workload": "a", "precision": "bf16", "gpu": "H100"},
           {"workload": "a", "precision": "bf16", "gpu": "H100", "short": "batch 1"},
           {"workload": "b", "precision": "bf16", "gpu": "H100", "pytorch": {"rate": 5}, "note": ", `--keep-all`"}]
    table_gpu.keep(file, new, "Z")
    data = json.loads(file.read_text(encoding="utf-8"))
    assert data["about"] == "é"
    assert data["rows"] == [old[0], old[1], *({**new[i], "card": "Z"} for i in (3, 0, 2))]
    assert "a bf16 H100: the new row has no PyTorch figures, the older row is kept" in capsys.readouterr().err


def test_energy_that_is_not_known_is_no_figure(tmp_path):
    """A GPU without a counter of energy: its speed still counts, and no verdict on joules names it."""
    row = {"workload": "net", "batch": "8", "precision": "bf16", "gpu": "H100", "card": "X", "unit": "token", "aim": 1.1,
           "joulemark": [{"rate": 1200, "watts": None}], "pytorch": {"rate": 1000, "watts": None}}
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"about": "", "remarks": "", "rows": [row]}))
    text = table_gpu.section(file)
    (cells,) = lines_of(text, "net, 8")
    assert cells[4:] == ["1,200 token/s", "1,000", "**1.20**", "1.10", "- / -", "- / -", "-"]
    assert "**speed**: met by 1 of 1 rows; missed by none." in text and "(1.08)**: met by 0 of 0 rows; missed by none." in text


def test_page_is_of_the_stored_figures():
    """docs/speed.md ends with the section of docs/speed_gpu.json."""
    page = (SOURCE / "docs" / "speed.md").read_text(encoding="utf-8")
    assert page.endswith(table_gpu.section(SOURCE / "docs" / "speed_gpu.json"))
