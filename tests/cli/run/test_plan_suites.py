# SPDX-License-Identifier: Apache-2.0
"""The suites on simulated nodes: results equal the papers' tables; the error at a cap that the tables do not have; each fits
the schema of plans."""
import json
import re
import statistics

import jsonschema
import pytest
import yaml

from described import describe
from jm import BUILD, SOURCE, USAGE, jm
from runs import records

# (GPU, work, cap in W): throughput of one GPU as printed in Tables 3 and 4 of arXiv 2603.16164
PRINTED = {
    ("h100x4", "resnet50", 200): 842.78, ("h100x4", "resnet50", 400): 1426.0, ("h100x4", "vit-l16", 300): 214.90,
    ("h100x4", "sd-v2", 500): 41.62, ("h100x4", "llama3-8b-train", 400): 24853.4,
    ("h100x4", "llama3-8b-infer", 700): 2191.4, ("h200x4", "resnet50", 500): 1915.1, ("h200x4", "vit-l16", 700): 358.70,
    ("h200x4", "sd-v2", 600): 53.94, ("h200x4", "llama3-8b-train", 700): 34107.2,
    ("h200x4", "llama3-8b-infer", 300): 1255.0, ("mi300xx4", "resnet50", 750): 1525.1,
    ("mi300xx4", "vit-l16", 200): 76.64, ("mi300xx4", "llama3-8b-train", 300): 11138.8,
    ("mi300xx4", "llama3-8b-infer", 600): 1758.7}


def test_tables_3_and_4_come_out_as_printed(tmp_path):
    store = tmp_path / "s.db"
    repeats = 1 if "asan" in str(BUILD) else 3  # as the plan has it
    done = jm("run", SOURCE / "suites/power-aware-simulated.yaml", "--repeat", repeats, "--store", store, timeout=1000)
    assert done.returncode == 0, done.stderr
    found = {}
    for r in records(store):
        p = r["case"]["parameters"]
        cap = p["settings"]["gpu.power"].removesuffix("W")
        if cap.isdigit():
            key = p["device"].removeprefix("sim:"), p["options"]["response"], int(cap)
            found.setdefault(key, []).append(r["throughput"] / 4)
    assert len(found) == 5 * (6 + 6 + 7) and all(len(of) == repeats for of in found.values())
    for key, printed in PRINTED.items():
        assert statistics.mean(found[key]) == pytest.approx(printed, rel=0.01), key
    assert "simulated" in jm("report", store).stdout


def test_toys_run_on_two_cores_without_sensors():
    done = jm("run", SOURCE / "suites/toys.yaml", "--threads", 2, "--json", "-", timeout=240,
              env={"OMP_WAIT_POLICY": "passive"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(r["case"]["run"] for r in found) == ["toy-2d", "toy-2d", "toy-3d", "toy-llava", "toy-resnet", "toy-sd2", "toy-serve"]
    served = next(r for r in found if r["case"]["run"] == "toy-serve")
    assert served["serving"]["requests_done"] > 0 and served["verified"] is True
    for r in found:
        if r is served:
            continue
        losses = r["step_series"]["loss"]
        assert r["device"] == "cpu" and r["settings"] == [] and len(losses) > 3 and r["meters"]
        assert all(loss > 0 for loss in losses) and len(set(losses)) > 3, losses


def test_the_share_of_concurrency_follows_its_model(tmp_path):
    """Eight GPUs at the rates of the node's data file; sums of layers of equal size, which are faster than their backward pass."""
    responses = json.loads((SOURCE / "sim/data/mi300x.json").read_text())["responses"]
    flop_rate, bus_rate = 1e12 * responses["product"]["rate"][-1], 1e9 * responses["all-gather"]["rate"][-1]
    store = tmp_path / "s.db"
    done = jm("run", SOURCE / "suites/concurrency-simulated.yaml", "--store", store, "--quiet")
    assert done.returncode == 0, done.stderr
    shares = {}
    for r in records(store):
        options, found = r["options"], r["communication"]
        layers, hidden, batch, seq = (int(options[name]) for name in ("layers", "hidden", "batch", "seq"))
        compute = 3 * layers * batch * seq * (24 * hidden ** 2 + 2 * seq * hidden) / flop_rate
        one_sum = 2 * 7 / 8 * 24 * hidden ** 2 / bus_rate
        assert one_sum < compute * 2 / 3 / layers
        shares[hidden, batch, seq] = found["concurrent_share"]
        assert found["concurrent_share"] == pytest.approx((layers - 1) * one_sum / (compute + one_sum), rel=1e-6)
        assert r["throughput"] == pytest.approx(8 * batch * seq / (compute + one_sum), rel=0.02)
        for rank in found["ranks"]:
            kind, = rank["kinds"]
            assert rank["compute_s"] + rank["exposed_s"] == pytest.approx(rank["step_s"], rel=1e-9)
            assert kind["busy_s"] == pytest.approx(kind["exposed_s"] + kind["overlapped_s"], rel=1e-9) and rank["late_ranks_s"] == 0
    assert len(shares) == 3 * 3 * 2
    assert all(shares[h, b, 4096] > shares[h, b, 8192] for h in (2048, 4096, 8192) for b in (1, 2, 4))
    assert "concurrent %" in done.stdout and "simulated" in done.stdout


# ---- a cap that the node was not made from ----

def slope_inside(h, k, d, e):
    return 0 if d * e <= 0 else 3 * (h + k) / ((2 * k + h) / d + (k + 2 * h) / e)


def slope_at_end(h, k, d, e):
    s = ((2 * h + k) * d - h * e) / (h + k)
    if s * d <= 0:
        return 0
    return 3 * d if d * e <= 0 and abs(s) > 3 * abs(d) else s


def pchip(x, y, at):
    """Fritsch and Butland 1984, written again."""
    n = len(x)
    h = [b - a for a, b in zip(x, x[1:])]
    d = [(b - a) / w for a, b, w in zip(y, y[1:], h)]
    s = [slope_at_end(h[0], h[1], d[0], d[1]),
         *(slope_inside(h[i - 1], h[i], d[i - 1], d[i]) for i in range(1, n - 1)),
         slope_at_end(h[-1], h[-2], d[-1], d[-2])]
    i = max(k for k in range(n - 1) if at >= x[k])
    t = (at - x[i]) / h[i]
    return ((1 - t) ** 2 * ((1 + 2 * t) * y[i] + t * h[i] * s[i])
            + t ** 2 * ((3 - 2 * t) * y[i + 1] - (1 - t) * h[i] * s[i + 1]))


def busy_watts(gpu, work, cap):
    assumed = json.loads((SOURCE / f"sim/data/{gpu}.json").read_text())
    demand = assumed["responses"][work]["assumed"]["demand_watts"]["value"]
    held = cap + 0.5 * (400 - cap) if gpu == "mi300x" and cap < 400 else cap
    return min(held, demand)


def left_out(gpu):
    """Relative errors of throughput at each inner cap, when the curve is made from the other caps."""
    data = json.loads((SOURCE / f"sim/data/{gpu}.json").read_text())
    published = {work: r for work, r in data["responses"].items() if r["source"].startswith("arXiv")}
    for work, response in published.items():
        x = [busy_watts(gpu, work, cap) for cap in data["caps_watts"]]
        y = response["rate"]
        for i in range(1, len(x) - 1):
            yield pchip(x[:i] + x[i + 1:], y[:i] + y[i + 1:], x[i]) / y[i] - 1


@pytest.mark.parametrize("gpu", ["h100", "h200", "mi300x"])
def test_the_error_at_a_cap_left_out_is_as_documented(gpu):
    errors = list(left_out(gpu))
    rms = 100 * statistics.mean(e * e for e in errors) ** 0.5
    worst = 100 * max(map(abs, errors))
    text = (SOURCE / "docs/plans.md").read_text()
    row = re.search(rf"^\| {gpu} \| (\d+) \| ([\d.]+) % \| ([\d.]+) % \|$", text, re.M)
    assert row, f"docs/plans.md: | {gpu} | {len(errors)} | {rms:.1f} % | {worst:.1f} % |"
    assert (int(row[1]), float(row[2]), float(row[3])) == (len(errors), round(rms, 1), round(worst, 1))


# ---- the schema ----

def schema():
    return json.loads(jm("plan", "--schema").stdout)


def test_schema_is_one(tmp_path):
    jsonschema.Draft7Validator.check_schema(schema())
    good = yaml.safe_load("runs: [{work: gemm, m: [8, 16], set: {gpu.power: 300W}, repeat: 3}]")
    jsonschema.validate(good, schema())
    for bad in ({"runs": [{"work": "gemm", "mm": 8}]}, {"runs": []}, {"runs": [{"m": 8}]},
                {"runs": [{"work": "gemm", "repeat": 0}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema())


@pytest.mark.parametrize("more", ["--cases", "plan.yaml"])
def test_schema_is_of_no_plan(more):
    refused = jm("plan", "--schema", more)
    assert refused.returncode == USAGE and "omit" in refused.stderr and not refused.stdout


@pytest.mark.parametrize("path", sorted((SOURCE / "suites").rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_suite_fits_the_schema_and_can_be_planned(path):
    jsonschema.validate(yaml.safe_load(path.read_text()), schema())
    head = path.read_text().split("\n\n")[0]
    assert "Needs" in head or "platforms" in path.parts, "the head of a suite says what it needs"
    if "platforms" not in path.parts:
        done = jm("plan", path)
        assert done.returncode in (0, 1), done.stderr
        assert "measurements in all" in done.stdout


@pytest.mark.parametrize("path", sorted((SOURCE / "suites/platforms").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_plan_on_a_platform_needs_what_its_file_names(path, tmp_path):
    what = yaml.safe_load(path.read_text())
    plan = tmp_path / "plan.yaml"
    plan.write_text("runs: [{work: gemm, m: 8, n: 8, k: 8}]" if "device" in what else "runs: [{command: [sleep, 1]}]")
    done = jm("plan", plan, "--platform", path, "--cases", "--width", 1000)
    assert done.returncode in (0, 1), done.stderr
    named = {key: value if isinstance(value, list) else [value] for key, value in what.items()}
    assert re.findall(r"^  source (\S+)", done.stdout, re.M) == named.get("source", [])
    assert set(re.findall(r"^  device (\S+)", done.stdout, re.M)) == set(named.get("device", []))


@pytest.mark.parametrize("tag, nodes", [("13b", 44), ("175b", 16), ("128", 128)])
def test_the_larger_models_of_caraml_are_one_job_over_all_nodes(tag, nodes, tmp_path):
    """Four ranks a node, which the model's division makes whole models of; what a rank needs fits into 80 GB."""
    plan = SOURCE / "suites/caraml-split.yaml"
    done = jm("submit", plan, "--tag", tag, "--store", tmp_path / "s.db", "--nodes", nodes, "--tasks", 4 * nodes, "--dry-run")
    assert done.returncode == 0 and done.stdout.count("sbatch") == 1, done.stderr
    assert f"'--nodes={nodes}' '--ntasks={4 * nodes}'" in done.stdout and "'--launcher=srun'" in done.stdout
    every = yaml.safe_load(plan.read_text())
    (run,) = [r for r in every["runs"] if tag in map(str, r["tags"])]
    assert run["ranks"] == 4 * nodes
    one = describe(run["work"], "--tp", str(run["tp"]), "--pp", str(run["pp"]),
                   "--pp-last", str(run["pp-last"]), "--dp", str(run["ranks"] // run["tp"] // run["pp"]),
                   "--sequence-parallel", "--batch", str(every["batch"]), "--accumulate", str(every["accumulate"]),
                   "--precision", run["precision"], "--device", "ref")
    assert one["ranks"]["n"] == run["ranks"] and one["seq"] == every["seq"] and one["peak_bytes"] < 80e9


# ---- Table 1 of the capping paper, by the equations of docs/simulation.md ----

CAPPING = [100, 150, 160, 170, 180, 200, 230, 260]
GAINS = {  # by energy and time of an item, as ratios to those at 260 W
    "energy": lambda e, t: 1 - e,
    "energy saved minus slowdown": lambda e, t: (1 - e) - (t - 1),
    "EDP": lambda e, t: 1 - e * t,
    "EDS k=1.5": lambda e, t: 1 - (0.5 / 1.5 * e + 1 / 1.5 * t),
    "EDS k=2": lambda e, t: 1 - (0.5 * e + 0.5 * t)}
TABLE_1 = {"energy": (25.39, 160), "energy saved minus slowdown": (15.03, 170), "EDP": (17.32, 170),
           "EDS k=1.5": (2.26, 200), "EDS k=2": (7.52, 170)}


def node_of(gpus, cap):
    """Seconds and joules of an image on the node of 8, of which the others are idle."""
    data = json.loads((SOURCE / "sim/data/rtx6000.json").read_text())
    work, idle = data["responses"]["xception"], data["assumed"]["idle_watts"]["value"]
    alone = pchip(data["caps_watts"], work["rate"], cap)
    exchange = {"1": 0} | work["exchange_s_per_item"]["value"]
    seconds = (1 / alone + exchange[str(gpus)]) / gpus
    return seconds, seconds * (255 + gpus * cap + (8 - gpus) * idle)


def test_table_1_comes_out_as_printed(tmp_path):
    store = tmp_path / "s.db"
    done = jm("run", SOURCE / "suites/capping-simulated.yaml", "--store", store, "--repeat", "3", "--noise", "0",
              "--set", "gpu.power=" + ",".join(f"{cap}W" for cap in CAPPING), timeout=300)
    assert done.returncode == 0, done.stderr
    for r in records(store):
        p = r["case"]["parameters"]
        gpus, cap = int(p["options"]["gpus"]), int(p["settings"]["gpu.power"].removesuffix("W"))
        seconds, joules = node_of(gpus, cap)
        phase = next(x for x in r["phases"] if x["name"] == r["phase"])
        took = phase["end_s"] - phase["start_s"]
        assert 1 / r["throughput"] == pytest.approx(seconds, rel=1e-3)
        idle = r.get("idle_gpus") or {"n": 0, "joules": 0, "joules_with": r["total"]["joules_simulated"]}
        assert idle["n"] == 8 - gpus == 8 - r["devices"] and idle["joules"] == pytest.approx(20 * (8 - gpus) * took, rel=1e-3)
        assert idle["joules_with"] == pytest.approx(r["total"]["joules_simulated"] + idle["joules"])
        assert (idle["joules_with"] + 255 * took) / r["items"] == pytest.approx(joules, rel=3e-3)
    told = json.loads(jm("report", "--published", "--format", "json", store).stdout)["published"]
    rows = [row for work in told for row in work["rows"] if row["metric"]]
    assert len(rows) == 8
    for row in rows:
        t_ref, e_ref = node_of(row["devices"], 260)
        gain = {cap: 100 * GAINS[row["metric"]](e / e_ref, t / t_ref) for cap in CAPPING
                for t, e in [node_of(row["devices"], cap)]}
        best = max(gain, key=gain.get)
        assert row["own_cap_watts"] == best and row["own_gain_percent"] == pytest.approx(gain[best], abs=0.1), row
        if row["devices"] == 8:
            assert (row["gain_percent"], row["cap_watts"]) == TABLE_1[row["metric"]]
            assert best == row["cap_watts"] and gain[best] == pytest.approx(row["gain_percent"], abs=0.05), row


def test_of_several_series_none_is_beside_the_paper(tmp_path):
    """Node a saves most at 160 W, node b at 170 W: neither order of the files may choose one."""
    words = ["--device", "sim:rtx6000x8", "--response", "xception", "--gpus", "8", "--seconds", "10", "--noise", "0"]
    files = []
    for name, caps in ("a", "260W,160W"), ("b", "260W,170W"):
        assert jm("run", "sim", *words, "--set", f"gpu.power={caps}", "--store", tmp_path / f"{name}.db").returncode == 0
        rows = records(tmp_path / f"{name}.db")
        for r in rows:
            r["clock"], r["device"], r["provenance"]["host"] = "real", "cuda:0", name  # a machine of its own
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(rows))
    for given, n in ((files[:1], 1), (files[1:], 1), (files, 0), (files[::-1], 0)):
        told = json.loads(jm("report", "--published", "--format", "json", *given).stdout)["published"]
        work, = (w for w in told if any(row["metric"] for row in w["rows"]))
        own = {row["own_cap_watts"] for row in work["rows"] if row["metric"] and row["devices"] == 8}
        assert own == ({[160, 170][given == files[1:]]} if n else {None}), (given, own)
        assert any("Several series" in note for note in work["notes"]) == (not n), work["notes"]


def test_plans_that_differ_in_idle_gpus_count_none(tmp_path):
    words = ["device: sim:rtx6000x8", "response: xception", "gpus: 2", "work: sim"]
    for name, idle, seconds in ("a", True, 10), ("b", False, 20):
        (tmp_path / f"{name}.yaml").write_text("\n".join([*words, f"seconds: {seconds}s", "idle-gpus: true" if idle else ""]))
        assert jm("run", tmp_path / f"{name}.yaml", "--store", tmp_path / f"{name}.db").returncode == 0
    def watts(*words):
        done = jm("report", "--format", "json", *words)
        return [p["metrics"]["watts_mean"]["mean"] for s in json.loads(done.stdout)["series"] for p in s["points"]], done.stderr
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    (idle,), quiet = watts(a)
    (work,), _ = watts(b)
    assert idle == pytest.approx(work + 6 * 20, rel=0.01) and "idle" not in quiet
    both, note = watts(a, b)
    assert both == pytest.approx([work] * len(both), rel=0.01) and "give --idle-gpus" in note
    both, note = watts(a, b, "--idle-gpus")
    assert both == pytest.approx([idle] * len(both), rel=0.01) and "idle-gpus" not in note


def test_without_idle_gpus_is_what_those_that_work_take(tmp_path):
    words = ["--device", "sim:rtx6000x8", "--response", "xception", "--gpus", "2", "--seconds", "20"]
    done = jm("run", "sim", *words, "--store", tmp_path / "s.db")
    assert done.returncode == 0 and "idle GPUs included" not in done.stdout
    with_idle, = (json.loads(jm("report", *more, "--format", "json", tmp_path / "s.db").stdout)["series"][0]["points"][0]
                  ["metrics"]["watts_mean"]["mean"] for more in [["--idle-gpus"]])
    without = json.loads(jm("report", "--format", "json", tmp_path / "s.db").stdout)["series"][0]["points"][0]["metrics"]
    assert without["watts_mean"]["mean"] == pytest.approx(520, rel=0.01) and with_idle == pytest.approx(640, rel=0.01)


def test_more_gpus_than_the_node_has_are_refused():
    done = jm("run", "sim", "--device", "sim:h100x4", "--gpus", "5", "--seconds", "1", "--json", "-")
    assert "has 4 GPUs; --gpus 5 is more" in json.loads(done.stdout)["reason"]
