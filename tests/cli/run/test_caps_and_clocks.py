# SPDX-License-Identifier: Apache-2.0
"""Caps against clocks in one plan on a simulated GPU: power and rate of each setting by the rules of docs/simulation.md, computed
here, and what Figure 5 of CompPow shows: an all-gather saves by a lower clock what no cap that it never reaches can save."""
import json
import re

import pytest

from jm import SOURCE, jm

GPU = json.loads((SOURCE / "sim/data/h100.json").read_text())
IDLE, MOST_MHZ = GPU["assumed"]["idle_watts"]["value"], GPU["assumed"]["clock_max_hz"]["value"] / 1e6
WORKS = {name: GPU["responses"][name] for name in ("product", "stream", "all-gather")}


def demand(name):
    return WORKS[name]["assumed"]["demand_watts"]["value"]


@pytest.fixture(name="cases", scope="module")
def fixture_cases(tmp_path_factory):
    """{(work, W, MHz): (W, items/s)} of each record; None = unchanged."""
    folder = tmp_path_factory.mktemp("clocks")
    plan = (SOURCE / "suites/caps-and-clocks-simulated.yaml").read_text()
    (folder / "plan.yaml").write_text(plan.replace("200:700+50W", '"300,400W"').replace("1000:1950+50MHz", "1000,1200,1700MHz"))
    done = jm("run", folder / "plan.yaml", "--repeat", "1", "--json", folder / "r.json", env={"JM_STATE": str(folder / "state")})
    assert done.returncode == 0, done.stderr
    cases = {}
    for record in json.loads((folder / "r.json").read_text()):
        held = {s["knob"]: s["accepted"] if s["knob"] == "gpu.power" else float(re.sub(r".*:|MHz", "", s["value"])) if "value" in s
                else s["accepted"] / 1e6 for s in record["settings"] if s["requested"] is not None}
        cases[record["options"]["response"], held.get("gpu.power"), held.get("gpu.clock")] = (
            next(m["watts_mean"] for m in record["meters"] if m["scope"] == "gpu"), record["throughput"])
    return cases


def test_a_clock_lowers_power_by_its_cube(cases):
    seen = 0
    for (name, cap, mhz), (watts, _) in cases.items():
        if mhz and mhz < MOST_MHZ:
            assert watts == pytest.approx(IDLE + (demand(name) - IDLE) * (mhz / MOST_MHZ) ** 3, rel=0.02), (name, cap, mhz)
            seen += 1
    assert seen == 3 * 3


def test_a_clock_and_the_cap_of_the_same_power_are_as_fast(cases):
    """Published points of the curve at which the work draws its whole cap; between them lines bound what the curve can be."""
    for (name, _, mhz), (watts, rate) in cases.items():
        caps = WORKS[name].get("caps_watts", GPU["caps_watts"])
        points = [(min(c, demand(name)), r) for c, r in zip(caps, WORKS[name]["rate"])]
        if not mhz or mhz >= MOST_MHZ or watts < points[0][0]:
            continue
        low = max(r for c, r in points if c <= watts * 1.02)
        high = min(r for c, r in points if c >= watts * 0.98)
        assert low * 0.97 <= rate <= high * 1.03, (name, mhz, watts, rate)


def test_below_the_curve_the_rate_follows_the_clock(cases):
    (w1, r1), (w2, r2) = cases["all-gather", None, 1000], cases["all-gather", None, 1200]
    assert w1 < w2 < 200 and r1 / r2 == pytest.approx(1000 / 1200, rel=0.01)


def test_a_clock_saves_where_no_cap_binds(cases):
    base_watts, base_rate = cases["all-gather", 400, None]  # which it never draws
    watts, rate = cases["all-gather", None, 1700]
    assert (watts / rate) / (base_watts / base_rate) < 0.8 and base_rate / rate < 1.05
    assert base_watts == pytest.approx(demand("all-gather"), rel=0.02)
