# SPDX-License-Identifier: Apache-2.0
"""measure --price and --carbon: what the energy costs by the user's own figures."""
import json
import re

import pytest

from jm import USAGE, jm, sentence
from measured import fakes, record_of

ENV = fakes("gpus=1;wave=square;low=300;high=300;period=1")
FIGURES = ["--price", "0.25", "--currency", "EUR", "--carbon", "380", "--pue", "1.2", "--figures-from", "contract of 2026-01"]
KWH = 3.6e6


def test_cost_and_carbon_are_energy_times_pue_times_the_figures(tmp_path):
    path = tmp_path / "r.json"
    done = jm("measure", "--source", "nvml", "--json", path, "--items-regex", r"(\d+) tokens", "--unit", "token", *FIGURES,
              "sh", "-c", "sleep 0.3; echo 50 tokens", env=ENV)
    record = json.loads(path.read_text())
    found, kwh = record["figures"], 1.2 * record["total"]["joules_measured"] / KWH
    assert kwh > 0 and found["from"] == "contract of 2026-01" and found["currency"] == "EUR"
    assert found["cost"] == pytest.approx(0.25 * kwh, rel=1e-9) and found["carbon_g"] == pytest.approx(380 * kwh, rel=1e-9)
    shown = {label: (float(a), float(b)) for label, a, b in re.findall(
        r"^  (Cost|Carbon) +([0-9.e-]+) \w+, ([0-9.]+) \w+ per million tokens; [0-9.]+ \w+/kWh, PUE 1\.2 \(contract of 2026-01\)", done.stderr, re.M)}
    assert shown["Cost"] == (pytest.approx(found["cost"], rel=1e-3), pytest.approx(1e6 * found["cost"] / 50, rel=1e-3))
    assert shown["Carbon"] == (pytest.approx(found["carbon_g"], rel=1e-3), pytest.approx(1e6 * found["carbon_g"] / 50, rel=1e-3))


def test_unknown_energy_costs_an_unknown_amount():
    record = record_of("--source", "null", *FIGURES, "--", "true")
    assert record["figures"]["cost"] is None and record["figures"]["carbon_g"] is None
    assert "figures" not in record_of("--source", "null", "--", "true")


def test_repeats_have_the_cost_of_one_run():
    record = record_of("--source", "nvml", "--repeat", "3", "--carbon", "400", "--figures-from", "operator", "--", "sleep", "0.2", env=ENV)
    (energy,) = record["repeats"]["energy"]
    assert record["figures"]["carbon_g"] == pytest.approx(400 * energy["joules"] / KWH, rel=1e-9) and record["figures"]["cost"] is None
    assert energy["joules"] < 0.5 * record["total"]["joules_measured"]


@pytest.mark.parametrize("options", [
    ("--price", "1"), ("--carbon", "1"), ("--pue", "1.5"), ("--figures-from", "a"), ("--currency", "EUR"), ("--pue", "0.5", *FIGURES[:6]),
    ("--price", "-1", "--figures-from", "a"), ("--price", "1", "--figures-from", "a", "--repeat", "2", "--compare", "true")])
def test_figures_need_their_source(options):
    done = jm("measure", "--source", "null", *options, "--", "true")
    assert done.returncode == USAGE and sentence(done)


def test_a_price_without_a_currency_is_whole():
    done = jm("measure", "--device", "sim:h100x1", "--price", "0.3", "--figures-from", "contract", "true")
    assert re.search(r"^  Cost +\S+ currency units; 0\.3 currency units/kWh \(contract\)$", done.stderr, re.M), done.stderr
