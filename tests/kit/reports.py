# SPDX-License-Identifier: Apache-2.0
"""Functions that the tests of `report` share: hand-made records, and reports of them."""
import json
from statistics import mean, stdev

from jm import SOURCE, jm

DATA = SOURCE / "tests/data/report"
FIXTURES = ["h100x4", "h200x4", "mi300x4"]
T_975 = {1: 12.7062, 2: 4.30265, 3: 3.18245}  # Student's t, tables
NASTY = '</script><script>alert("x")</script><!-- & | \\ `a` \u2028 \U0001F600'


def records(name="h200x4", n=None):
    return json.loads((DATA / f"{name}.json").read_text())[:n]


def report(*args, **more):
    done = jm("report", *args, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def summary(*args):
    return json.loads(report("--format", "json", *args))


def write(tmp_path, value, name="records.json"):
    path = tmp_path / name
    path.write_text(json.dumps(value))
    return path


def costs(r):
    """(seconds, joules) per item from the raw meters, another way than the program's."""
    steady = next(p for p in r["phases"] if p["name"] == r["phase"])
    joules = sum(m["joules"] for m in r["meters"] if m["covered_by"] is None)
    return (steady["end_s"] - steady["start_s"]) / steady["items"], joules / steady["items"]


def setting(r):
    return r["case"]["parameters"]["gpu.power"]


def expected(rows, name):
    """{setting: values of a metric} over the blocks, each against the reference of its own block."""
    out = {}
    ok = [r for r in rows if r["status"] == "ok"]
    for r in ok:
        d, e = costs(r)
        d_ref, e_ref = next(costs(x) for x in ok
                            if x["case"]["reference"] and x["case"]["block"] == r["case"]["block"])
        value = {"throughput": 1 / d, "joules_per_item": e, "items_per_wh": 3600 / e, "edp": e * d,
                 "eds_k1.5": (0.5 / 1.5) * e / e_ref + (1 / 1.5) * d / d_ref,
                 "eds_k2": 0.5 * e / e_ref + 0.5 * d / d_ref,
                 "energy_gain_percent": 100 * (e_ref - e) / e_ref,
                 "time_loss_percent": 100 * (d - d_ref) / d_ref,
                 "gain_minus_loss": 100 * (e_ref - e) / e_ref - 100 * (d - d_ref) / d_ref}[name]
        out.setdefault((r["case"]["reference"], setting(r)), []).append(value)
    return out


def interval(values):
    """Mean and half of its 95 % interval."""
    return mean(values), T_975[len(values) - 1] * stdev(values) / len(values) ** 0.5


def best_within(rows, limit):
    """Settings with the largest energy gain among those whose slowdown's interval ends below the limit."""
    gain, loss = ({k: interval(v) for k, v in expected(rows, metric).items()}
                  for metric in ("energy_gain_percent", "time_loss_percent"))
    violated = {setting(r) for r in rows for s in r["settings"] if s["state"] == "violated"}
    fast = [k for k in gain if not k[0] and k[1] not in violated and sum(loss[k]) <= limit]
    saving = [k for k in fast if gain[k][0] - gain[k][1] > 0]
    if not saving:
        return []
    best = max(saving, key=lambda k: gain[k][0])
    return [k[1].replace("W", " W") for k in fast if sum(gain[k]) >= gain[best][0] - gain[best][1]]
