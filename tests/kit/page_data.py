# SPDX-License-Identifier: Apache-2.0
"""Reads the data of a page (joulemark.page/1) as report/page/page_data.c and report/page/page_trace.h say it is written."""
import base64
import json
import re


def of(page):
    """The data within the text of a page."""
    return json.loads(re.search(r'id="jm-data">(.*?)</script>', page, re.S).group(1))


def runs(data):
    """One dictionary per run; a property that all runs have alike is kept once."""
    n = data["runs"]["n"]
    return [{k: v[i] if isinstance(v, list) else v for k, v in data["runs"].items() if k != "n"} for i in range(n)]


def varints(data):
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7f) << shift
        shift += 7
        if not byte & 0x80:
            yield value
            value = shift = 0


def points(meter):
    """[(seconds, watts)] of a meter; None is a gap."""
    numbers = list(varints(base64.b64decode(meter["points"])))
    out, ms, tenths = [], 0, 0
    for dt, code in zip(numbers[::2], numbers[1::2]):
        ms += dt
        if code:
            tenths += (code - 1) // 2 if code % 2 else -(code // 2)
        out.append((ms / 1000, tenths / 10 if code else None))
    assert len(out) == meter["n"] and len(numbers) == 2 * meter["n"]
    return out
