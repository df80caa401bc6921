# SPDX-License-Identifier: Apache-2.0
"""Reasons for lower clocks on the report page."""
import pytest

import page_data
from pages import make_page
from reports import records

CAP, HEAT, BRAKE, OTHER = 1, 2, 4, 8


def throttle(*masks, bits=True):
    """A signal with these readings, each for the same time; older records have no bits."""
    seen = 0
    for mask in masks:
        seen |= mask
    return {"quantity": "throttle", "unit": "bits", "step": None, "refresh_s": None, "window_s": None,
            "mean": sum(masks) / len(masks), "min": min(masks), "max": max(masks), "last": masks[-1],
            "samples": len(masks), **({"bits": seen} if bits else {})}


@pytest.mark.parametrize("signals, reasons, share", [
    ([throttle(HEAT, BRAKE)], HEAT | BRAKE, None),
    ([throttle(HEAT, OTHER), throttle(CAP, 0)], HEAT | OTHER, 0.5),
    ([throttle(CAP, 0, CAP, CAP)], 0, 0.75),
    ([throttle(HEAT, BRAKE, bits=False)], BRAKE, None)])
def test_reasons_of_all_readings_are_shown(tmp_path, signals, reasons, share):
    row = next(r for r in records("h100x4") if r["status"] == "ok")
    for meter in row["meters"]:
        meter["signals"] = [s for s in meter["signals"] if s["quantity"] != "throttle"]
    row["meters"][0]["signals"] += signals
    (run,) = page_data.runs(page_data.of(make_page(tmp_path, [row]).read_text()))
    assert run["throttle_reasons"] == reasons and run["throttled"] == share
