# SPDX-License-Identifier: Apache-2.0
"""bench/table.py end to end, on a network that takes milliseconds: its figures, and the page with them."""
import json
import re
import statistics
import subprocess
import sys

import pytest

from jm import BUILD, SOURCE, jm

pytest.importorskip("torch", reason="python3-torch is not installed: no peer")
if not (BUILD / "bench" / "onednn_peak").exists():
    pytest.skip("built without the cpu backend", allow_module_level=True)

LAYERS, HIDDEN, FFN, VOCAB, CONTEXT, SEQ, ITEMS = 2, 64, 256, 256, 48, 32, 64
SMALL = {"name": "gpt learned", "precision": "f32", "joulemark": [1e-7, 3e-7, 4e-7],
         "pytorch": [2e-7, 2e-7, 5e-7]}


def table(*words):
    done = subprocess.run([sys.executable, SOURCE / "bench" / "table.py", *map(str, words)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=1000, check=False)
    assert done.returncode == 0, done.stderr
    return done


def row(page, heading, name):
    """The cells of a network in the first table behind the heading."""
    lines = page[page.index(heading):].splitlines()
    return next([c.strip() for c in line.split("|")[1:-1]] for line in lines if line.startswith(f"| {name} |"))


def numbers(text):
    return [float(n) for n in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", text.replace(",", ""))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    table("--models", "gpt-tiny", "--precision", "f32", "--rounds", 3, "--no-parity", "--date", "2001-02-03",
          "--output", folder / "a.md", "--json", folder / "a.json")
    return folder, json.loads((folder / "a.json").read_text())


@pytest.fixture(name="case", scope="module")
def only_case(made):
    (case,) = made[1]["cases"]
    return case


def test_parameters_are_counted_by_hand(case):
    block = 4 * HIDDEN * HIDDEN + 4 * HIDDEN + 2 * HIDDEN * FFN + FFN + HIDDEN + 4 * HIDDEN
    assert case["parameters"] == LAYERS * block + (VOCAB + CONTEXT) * HIDDEN + 2 * HIDDEN


def test_model_flops_are_counted_by_hand(case):
    products = LAYERS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * FFN) + VOCAB * HIDDEN
    scores = LAYERS * 2 * HIDDEN * SEQ / 2  # causal: half of q k and of p v
    assert case["flops_model_per_item"] == pytest.approx(6 * (products + scores), rel=0.02)


def test_flops_of_all_kernels_are_those_of_the_step(case):
    assert sum(kind["flops"] for kind in case["kernels"]) == case["flops_executed_per_item"] * ITEMS


def test_each_side_has_a_time_of_each_round(case):
    own, pytorch = case["joulemark"]["seconds"], case["pytorch"]["seconds"]
    assert len(own) == len(pytorch) == 3 and min(own + pytorch) > 0


def test_memory_holds_weight_gradient_and_moments(case):
    own = case["joulemark"]
    assert own["rss_bytes"] > own["planned_bytes"] > 16 * case["parameters"]


def test_the_peak_is_of_a_square_product(case):
    assert case["peak"]["flops"] == 2 * case["peak"]["size"] ** 3


@pytest.fixture(name="page", scope="module")
def page_with_errors(made):
    folder, data = made
    kept = folder / "b.json"
    kept.write_text(json.dumps(data | {"parity": [SMALL], "parity_passed": True}))
    table("--from", kept, "--output", folder / "b.md")
    return (folder / "b.md").read_text()


def test_a_page_of_stored_figures_has_their_date(page):
    assert "**2001-02-03**" in page


def test_rates_are_those_of_the_median_slowest_and_fastest_round(page, case):
    speed = row(page, "## Speed", "gpt-tiny")
    for cell, who in ((speed[3], "joulemark"), (speed[4], "pytorch")):
        ends = [ITEMS / f(case[who]["seconds"]) for f in (statistics.median, max, min)]
        assert numbers(cell) == pytest.approx(ends, rel=0.01)


def test_the_ratio_of_speeds_is_that_of_medians_with_its_range_over_rounds(page, case):
    cell = row(page, "## Speed", "gpt-tiny")[5]
    own, pytorch = case["joulemark"]["seconds"], case["pytorch"]["seconds"]
    rounds = [b / a for a, b in zip(own, pytorch)]
    assert float(cell.split("**")[1]) == pytest.approx(statistics.median(pytorch) / statistics.median(own), abs=0.006)
    assert numbers(cell)[1:] == pytest.approx([min(rounds), max(rounds)], abs=0.006)


def test_the_share_of_kernels_and_their_rate_are_those_of_kernels_alone(page, case):
    speed, own = row(page, "## Speed", "gpt-tiny"), statistics.median(case["joulemark"]["seconds"])
    alone = sum(kind["seconds"] for kind in case["kernels"])
    flops, peak = (sum(kind["flops"] for kind in case["kernels"]),
                   max(case["peak"]["flops"] / s for s in case["peak"]["seconds"]))
    assert float(speed[6].split()[0]) == pytest.approx(100 * alone / own, abs=0.6)
    assert float(speed[7].split()[0]) == pytest.approx(flops / alone / 1e9, abs=0.6)
    assert numbers(speed[8]) == pytest.approx([100 * flops / alone / peak, peak / 1e9], abs=0.6)


def test_the_table_of_memory_has_both_sides_and_their_ratio(page, case):
    own, pytorch = case["joulemark"], case["pytorch"]
    memory = row(page, "## Memory", "gpt-tiny")
    assert numbers(" ".join(memory[2:5])) == pytest.approx(
        [own["planned_bytes"] / 1e6, own["rss_bytes"] / 1e6, pytorch["rss_bytes"] / 1e6], abs=0.6)
    assert numbers(" ".join(memory[5:])) == pytest.approx(
        [own["rss_bytes"] / pytorch["rss_bytes"], own["start_s"], pytorch["start_s"]], abs=0.006)


def test_the_table_of_work_has_parameters_and_flops(page, case):
    work = row(page, "## Work", "gpt-tiny")
    assert int(work[2].replace(",", "")) == case["parameters"]
    assert numbers(work[3] + work[4]) == pytest.approx(
        [case[k] / 1e9 for k in ("flops_model_per_item", "flops_executed_per_item")], rel=1e-3)


def test_the_table_of_errors_has_the_least_median_and_greatest_ratio(page):
    assert row(page, "## Errors", "gpt-tiny")[2:] == [
        "1e-07 : 2e-07 = 0.50", "3e-07 : 2e-07 = 1.50", "4e-07 : 5e-07 = 0.80"]


@pytest.mark.parametrize("bf16_time, said", [(2, True), (0.5, False)])
def test_a_slow_bf16_is_explained(made, bf16_time, said):
    """Where oneDNN's bf16 is behind its f32, a share of more than its peak is no mistake."""
    folder, data = made
    (f32,) = data["cases"]
    peak = f32["peak"] | {"seconds": [s * bf16_time for s in f32["peak"]["seconds"]]}
    kept = folder / "d.json"
    kept.write_text(json.dumps(data | {"cases": [f32, f32 | {"precision": "bf16", "peak": peak}]}))
    table("--from", kept, "--output", folder / "d.md")
    assert ("slower in bf16 than in f32" in (folder / "d.md").read_text()) == said


@pytest.mark.parametrize("rate, shown", [(98.76, "98.8"), (999.4, "999"), (999.7, "1000"), (12345.6, "12346")])
def test_rates_have_no_exponent(made, rate, shown):
    folder, data = made
    case = data["cases"][0] | {"joulemark": data["cases"][0]["joulemark"] | {"seconds": [ITEMS / rate] * 3}}
    kept = folder / "e.json"
    kept.write_text(json.dumps(data | {"cases": [case]}))
    table("--from", kept, "--output", folder / "e.md")
    page = (folder / "e.md").read_text()
    assert row(page, "## Speed", "gpt-tiny")[3] == f"{shown} tokens/s ({shown}–{shown})"


@pytest.mark.parametrize("words, said", [
    (["--models", "resnet19"], "there is no 'resnet19'"), (["--precision", "f32,f8"], "there is no 'f8'"),
    (["--rounds", "0"], "from 1 on"), (["--rounds", "x"], "from 1 on")])
def test_words_that_are_wrong(words, said):
    for program in ("step.py", "table.py"):
        done = subprocess.run([sys.executable, SOURCE / "bench" / program, *words], text=True,
                              stderr=subprocess.PIPE, timeout=240, check=False)
        assert done.returncode == 2 and said in done.stderr


def test_what_failed_is_said(made):
    folder, data = made
    kept = folder / "c.json"
    kept.write_text(json.dumps(data | {"parity": [SMALL], "parity_passed": False}))
    done = subprocess.run([sys.executable, SOURCE / "bench" / "table.py", "--from", kept, "--output",
                           folder / "c.md"], text=True, stderr=subprocess.PIPE, timeout=240, check=False)
    assert done.returncode == 1 and "parity" in done.stderr
    assert "parity test failed" in (folder / "c.md").read_text()


def test_drawn_rows_repeat_and_can_be_planned():
    """The generator is SplitMix64, whose first numbers of seed 0 are published with it; both programs know each case."""
    sys.path.insert(0, str(SOURCE / "bench"))
    try:
        import drawn_rows
        import step
    finally:
        sys.path.pop(0)
    chance = drawn_rows.Chance(0)
    assert [chance.number() for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert drawn_rows.draw(7, 8, "cpu")[:4] == drawn_rows.draw(7, 4, "cpu") != drawn_rows.draw(8, 4, "cpu")
    assert {row["family"] for row in drawn_rows.draw(7, 4)} == {"resnet", "vit", "gpt", "llama"}
    for place in range(1, 5):
        (model, batch, seq, dims, items, _, _), peer = step.case_of(f"drawn-7-{place}")
        assert items == batch * (seq or 1) and (peer in ("gpt", "llama") or peer == model)
        words = [word for dim in dims.split() for word in ("--" + dim).split("=")] + (["--seq", seq] if seq else [])
        done = jm("describe", model, "--device", "ref", "--batch", batch, *words)
        assert done.returncode == 0, done.stderr
    assert step.case_of("drawn-7-0") is None and step.case_of("resnet51") is None
