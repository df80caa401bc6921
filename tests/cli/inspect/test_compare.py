# SPDX-License-Identifier: Apache-2.0
"""joulemark compare: ratios, intervals and tests against NumPy, pairs, origins, and the exit status for CI."""
import copy
import itertools
import json
import re
import math

import pytest

from jm import FAILURE, USAGE, jm, sentence, terminal
from reports import records, write

np = pytest.importorskip("numpy")
UNDECIDED = 3


def t_within(t, dof):
    """Probability of |T| < t, by Simpson's rule over the density."""
    x = np.linspace(0, t, 20_001)
    density = (1 + x * x / dof) ** (-(dof + 1) / 2) * math.exp(
        math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2)) / math.sqrt(dof * math.pi)
    weights = np.full(x.size, 2.0)
    weights[1::2], weights[0], weights[-1] = 4, 1, 1
    return 2 * float(density @ weights) * (x[1] - x[0]) / 3


def t_quantile(dof):
    low, high = 0, 1000
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, dof) < 0.95 else (low, middle)
    return low


def by_numpy(a, b, paired):
    """Ratio, interval and p of b against a."""
    a, b = np.log(a), np.log(b)
    if paired:
        d = b - a
        dof, error = d.size - 1, d.std(ddof=1) / math.sqrt(d.size)
    else:
        va, vb = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
        dof = int((va + vb) ** 2 / (va**2 / (a.size - 1) + vb**2 / (b.size - 1)))
        error = math.sqrt(va + vb)
    d = b.mean() - a.mean()
    reach = t_quantile(dof) * error
    return math.exp(d), math.exp(d - reach), math.exp(d + reach), 1 - t_within(abs(d) / error, dof)


def runs(times, joules, blocks=None, settings=None, **more):
    """One record for each, of 10 items."""
    rows = []
    for i, (s, j) in enumerate(zip(times, joules)):
        r = copy.deepcopy(records(n=7)[-1])
        r.update(status="ok", reason=None, settings=[], items=10, throughput=10 / s, phase="steady", wall_s=s,
                 total={"joules_simulated": j}, phases=[{"name": "steady", "start_s": 0, "end_s": s, "items": 10}],
                 started=f"2001-01-01T00:00:{i:02}.000Z", **more)
        r["case"].update(repeat=i + 1, block=blocks[i] if blocks else i + 1, reference=False,
                         parameters={"workload": "sim", "options": {"response": "x"}, "settings": settings or {}})
        rows.append(r)
    return rows


def compare(*words, status=0):
    done = jm("compare", *words, "--json", "-")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def metrics(out):
    (work,) = out["works"]
    return {m["metric"]: m for m in work["metrics"]}


TIMES_A, TIMES_B = [1.0, 1.1, 0.95, 1.02], [1.2, 1.25, 1.18, 1.3, 1.21]
JOULES_A, JOULES_B = [300, 320, 310, 305], [290, 300, 310, 280, 295]


def test_independent_runs_as_numpy_has_them(tmp_path):
    a = write(tmp_path, runs(TIMES_A, JOULES_A), "a.json")
    b = write(tmp_path, runs(TIMES_B, JOULES_B), "b.json")
    got = metrics(compare(a, b))
    power = [np.array(j) / np.array(t) for j, t in ((JOULES_A, TIMES_A), (JOULES_B, TIMES_B))]
    for name, (x, y) in {"time": (TIMES_A, TIMES_B), "energy": (JOULES_A, JOULES_B), "power": power}.items():
        m = got[name]
        assert m["test"] == "welch" and (m["n_a"], m["n_b"]) == (4, 5)
        assert [m["ratio"], m["low"], m["high"]] == pytest.approx(by_numpy(x, y, False)[:3], rel=1e-6), name
        assert m["p"] == pytest.approx(by_numpy(x, y, False)[3], abs=1e-6)
    assert got["time"]["verdict"] == "higher" and got["power"]["verdict"] == "lower"
    assert got["energy"]["verdict"] == "unclear"


def test_small_means_have_a_prefix(tmp_path):
    """For people 8.5 ms/image in place of 0.0085, and digits in groups; JSON keeps the plain unit."""
    a = write(tmp_path, runs([t / 12 for t in TIMES_A], [j * 1e6 for j in JOULES_A]), "a.json")
    out = jm("compare", a, a).stdout
    mean = np.exp(np.mean(np.log(TIMES_A))) / 12 / 10
    assert f" {mean * 1e3:.4g} " in out and re.search(r"^ *time ms/", out, re.M), out
    assert re.search(r"^ *energy MJ/\w+ +3", out, re.M) and "e+0" not in out
    assert metrics(compare(a, a))["time"]["unit"].startswith("s/")


def test_the_text_fits_80_columns(tmp_path):
    rows = runs(TIMES_B, JOULES_B, settings={"gpu.power": "300W", "gpu.clock": "1.2GHz", "gpu.memory-clock": "2.6GHz"})
    a = write(tmp_path, rows, "a.json")
    for r in rows:
        r["device"] = "sim:h100x1"
    b = write(tmp_path, rows, "b.json")
    out, status = terminal("compare", a, b)
    assert status == 0 and "The devices differ" in out and max(map(len, out.splitlines())) <= 80


def ranks_of(values):
    """Ranks from 1; ties have the mean of theirs."""
    values = np.asarray(values)
    return np.array([(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values])


def by_all_choices(x, y):
    """Two-sided p of the sum of ranks, over every way to choose which values are x."""
    ranks = ranks_of([*x, *y])
    mean = len(x) * (len(ranks) + 1) / 2
    sums = np.array([ranks[list(c)].sum() for c in itertools.combinations(range(len(ranks)), len(x))])
    return np.mean(abs(sums - mean) >= abs(ranks[:len(x)].sum() - mean) - 1e-9)


def test_ranks_as_all_choices_have_them(tmp_path):
    """Without ties, with ties, and alike: Mann and Whitney's test by brute force."""
    cases = [(TIMES_A, TIMES_B), ([1, 2, 2, 3], [2, 3, 3, 5, 8]), ([4, 4, 4], [4, 4]), ([1, 5, 9, 2], [3, 4])]
    for x, y in cases:
        a, b = (write(tmp_path, runs(t, [300] * len(t)), n) for t, n in ((x, "a.json"), (y, "b.json")))
        m = metrics(compare(a, b))["time"]
        assert m["p_rank"] == pytest.approx(by_all_choices(x, y), rel=1e-9), (x, y)
    assert "p by ranks (Mann-Whitney): time " in jm("compare", a, b).stdout


def test_ranks_of_many_runs_are_close_to_those_of_all_orders(tmp_path):
    """Beyond 60 values: the normal distribution against 200,000 random orders."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(1, 0.1, 35).round(3), rng.normal(1.04, 0.1, 40).round(3)
    a, b = (write(tmp_path, runs(t, [300] * len(t)), n) for t, n in ((x, "a.json"), (y, "b.json")))
    ranks = ranks_of([*x, *y])
    mean, seen = 35 * 76 / 2, abs(ranks[:35].sum() - 35 * 76 / 2)
    orders = rng.permuted(np.tile(ranks, (200_000, 1)), axis=1)[:, :35].sum(axis=1)
    assert metrics(compare(a, b))["time"]["p_rank"] == pytest.approx(np.mean(abs(orders - mean) >= seen), abs=0.004)


def test_blocks_of_one_file_are_pairs(tmp_path):
    """The machine drifts by a factor of two over the blocks; the difference of 3 % is in each of them."""
    drift = np.array([1, 1.3, 1.6, 2.0])
    noise = np.array([1.001, 0.999, 1.0, 1.002])
    a, b = drift, 1.03 * drift * noise
    rows = runs(a, 100 * a, [1, 2, 3, 4], {"gpu.power": "300W"})
    rows += runs(b, 100 * b, [4, 3, 2, 1], {"gpu.power": "400W"})
    for r, block in zip(rows[4:], [1, 2, 3, 4]):
        r["case"]["block"] = block
    one = write(tmp_path, rows)
    m = metrics(compare(f"{one}:gpu.power=300W", f"{one}:gpu.power=400W"))["time"]
    assert m["test"] == "paired" and m["n_a"] == 4 and m["verdict"] == "higher" and m["p_rank"] is None
    assert [m["ratio"], m["low"], m["high"]] == pytest.approx(by_numpy(a, b, True)[:3], rel=1e-6)
    # in two files the blocks were not run side by side, and the drift hides the difference
    files = write(tmp_path, rows[:4], "a.json"), write(tmp_path, rows[4:], "b.json")
    m = metrics(compare(f"{files[0]}:gpu.power=300W", f"{files[1]}:gpu.power=400W"))["time"]
    assert m["test"] == "welch" and m["verdict"] == "unclear"


@pytest.mark.parametrize("condition, status", [
    ("time>0%", 1), ("time>+9%", 1), ("time>18%", 0), ("time>25%", 0), ("time<0%", 0), ("power<-5%", 1),
    ("energy>-50%", 1), ("energy<0%", 0), ("energy>+2%,time>+9%", 1), ("energy>+2%", 0),
])
def test_the_condition_needs_the_whole_interval(tmp_path, condition, status):
    a = write(tmp_path, runs(TIMES_A, JOULES_A), "a.json")
    b = write(tmp_path, runs(TIMES_B, JOULES_B), "b.json")
    done = jm("compare", a, b, "--fail-if", condition)
    assert done.returncode == status, done.stdout
    assert ("is met" in done.stderr) == (status == 1)


def test_by_estimate_one_run_is_enough(tmp_path):
    a, b = (write(tmp_path, runs([t], [300]), f"{t}.json") for t in (1.0, 1.2))
    assert jm("compare", a, b).returncode == 0
    done = jm("compare", a, b, "--fail-if", "time>10%")
    assert done.returncode == UNDECIDED and "cannot be decided" in done.stderr
    assert jm("compare", a, b, "--fail-if", "time>10%", "--by-estimate").returncode == 1
    assert jm("compare", a, b, "--fail-if", "time>30%", "--by-estimate").returncode == 0
    assert "too few repeats" in jm("compare", a, b).stdout


def test_simulated_and_measured_are_never_compared(tmp_path):
    """Neither in time nor in energy, and by no way of asking."""
    a = write(tmp_path, runs(TIMES_A, JOULES_A), "a.json")
    rows = runs(TIMES_B, JOULES_B, clock="real")
    for r in rows:
        r["device"], r["total"] = "cuda:0", {"joules_measured": 300}
        for m in r["meters"]:
            m["origin"] = "measured"
        for d in r["provenance"].get("devices", []):
            d["source"], d["id"] = "nvml", "GPU-1"
    b = write(tmp_path, rows, "b.json")
    for m in metrics(compare(a, b)).values():
        assert m["verdict"] == "no verdict" and "simulated" in m["why"]
    for words in ((), ("--by-estimate",)):
        done = jm("compare", a, b, "--fail-if", "time>0%", *words)
        assert done.returncode == UNDECIDED


def test_other_work_is_refused(tmp_path):
    rows = runs(TIMES_B, JOULES_B)
    for r in rows:
        r["case"]["parameters"]["options"]["response"] = "y"
    a, b = write(tmp_path, runs(TIMES_A, JOULES_A), "a.json"), write(tmp_path, rows, "b.json")
    why = sentence(jm("compare", a, b), FAILURE)
    assert "no work in common" in why and "(A.db:gpu.power=700W)" in why and "compare --systems" in why
    assert jm("compare", "--systems", a, b).returncode == 0  # the way on
    assert "selects no record" in sentence(jm("compare", a, f"{b}:gpu.power=1W"), FAILURE)


@pytest.mark.parametrize("words", [
    ["--fail-if", "heat>2%"], ["--fail-if", "energy"], ["--fail-if", "energy>"], ["--fail-if", "energy>2"],
    ["--fail-if", "energy>x%"], ["--fail-if", ""], ["--fail-if", "energy>1%,"], ["--by-estimate"],
    ["--fail-if", "energy>inf%"], ["--fail-if", "energy>-100%"],
])
def test_conditions_that_say_nothing(tmp_path, words):
    a = write(tmp_path, runs(TIMES_A, JOULES_A))
    sentence(jm("compare", a, a, *words), USAGE)


def test_runs_of_a_store_by_their_id(tmp_path):
    store = tmp_path / "s.db"
    done = jm("run", "sim", "--device", "sim:h100x1", "--set", "gpu.power=300W,500W", "--seconds", 1, "--repeat", 3,
              "--store", store, "--json", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    ids = {r["case"]["parameters"]["settings"].get("gpu.power"): r["case"]["id"]
           for r in json.loads((tmp_path / "r.json").read_text())}
    for a, b in ((f"id={ids['300W'][:8]}", f"id={ids['500W'][:8]}"), ("gpu.power=300W", "gpu.power=500W")):
        got = metrics(compare(f"{store}:{a}", f"{store}:{b}"))
        assert got["power"]["verdict"] == "higher" and got["time"]["verdict"] == "lower"
        assert got["power"]["ratio"] == pytest.approx(500 / 300, rel=0.02) and got["power"]["test"] == "paired"
    assert metrics(compare(f"{store}:reference=yes", f"{store}:gpu.power=300W"))["power"]["verdict"] == "lower"
    assert len(compare(store, store)["works"]) == 3


def test_a_damaged_record_is_left_out_and_told_by_the_exit_status(tmp_path):
    rows = runs(TIMES_A, JOULES_A)
    a = write(tmp_path, rows, "a.json")
    rows[0]["meters"] = 3
    done = jm("compare", a, write(tmp_path, rows, "b.json"))
    assert done.returncode == 4 and "Omitted: " in done.stderr and "4 and 3 independent" in done.stdout


COSTS = ["--purchase", "250000,310000", "--years", "4", "--price", "0.25", "--pue", "1.3", "--currency", "EUR"]


def test_cost_of_purchase_and_electricity(tmp_path):
    """Of each run: its share of four years of the purchase, and its kWh; then as the other metrics."""
    a = write(tmp_path, runs(TIMES_A, JOULES_A), "a.json")
    b = write(tmp_path, runs(TIMES_B, JOULES_B), "b.json")
    x, y = ([(s * buy / (4 * 365.25 * 86400) + j / 3.6e6 * 0.25 * 1.3) / 10 * 1e6 for s, j in zip(times, joules)]
            for times, joules, buy in ((TIMES_A, JOULES_A, 250000), (TIMES_B, JOULES_B, 310000)))
    got = metrics(compare(a, b, *COSTS, "--figures-from", "offers"))["cost"]
    assert [got["ratio"], got["low"], got["high"]] == pytest.approx(by_numpy(x, y, False)[:3], rel=1e-6)
    assert got["a"] == pytest.approx(np.exp(np.mean(np.log(x)))) and got["unit"].startswith("EUR/1e6 ")
    assert "cost" not in metrics(compare(a, b))
    text = jm("compare", a, b, *COSTS, "--figures-from", "offers").stdout
    assert "source: offers." in text and re.search(r"^  cost EUR/1e6 ", text, re.M)
    assert jm("compare", a, b, *COSTS, "--figures-from", "x", "--fail-if", "cost>+1%").returncode == 1


@pytest.mark.parametrize("words", [["--purchase", "1,2"], ["--purchase", "1", "--figures-from", "x"],
                                   ["--purchase", "0,1", "--figures-from", "x"], ["--fail-if", "cost>1%"], ["--years", "3"]])
def test_costs_that_say_nothing(tmp_path, words):
    a = write(tmp_path, runs(TIMES_A, JOULES_A), "a.json")
    assert "purchase" in sentence(jm("compare", a, a, *words), USAGE)


def test_columns_are_named_by_what_differs(tmp_path):
    rows = runs(TIMES_A, JOULES_A)
    (tmp_path / "x").mkdir()
    a, b = write(tmp_path, rows, "old.json"), write(tmp_path, rows, "new.json")
    heads = [line.split() for line in jm("compare", a, b).stdout.splitlines() if "B/A" in line]
    assert heads[0][:4] == ["A", "old.json", "B", "new.json"]
    for r in rows:
        r.update(device="cuda:0", clock="real", provenance=dict(r["provenance"] or {}, host="node1"))
    a = write(tmp_path, rows, "old.json")
    for r in rows:
        r["provenance"] = dict(r["provenance"], host="node2")
    b = write(tmp_path, rows, "new.json")
    text = jm("compare", a, b).stdout
    assert re.search(r"A node1 +B node2 +B/A", text) and text.startswith("A: node1, ")
    assert compare(a, b)["b"].startswith("node2, ")


def test_works_of_one_name_are_told_apart_by_their_options(tmp_path):
    """Only by what differs; a row whose name no other has is left as it is."""
    rows = []
    for rate, watts in ("20", "200W"), ("60", "200W"), ("20", "300W"):
        of_rate = runs(TIMES_A, JOULES_A, settings={"gpu.power": watts})
        for r in of_rate:
            r["case"]["parameters"]["options"].update(rate=rate, seed="1")
        rows += of_rate
    a = write(tmp_path, rows, "a.json")
    assert sorted(w["work"] for w in compare(a, a)["works"]) == [
        "resnet50 x, gpu.power 200W, rate 20", "resnet50 x, gpu.power 200W, rate 60", "resnet50 x, gpu.power 300W"]


def test_the_drawing_has_the_intervals_on_one_scale(tmp_path):
    a = write(tmp_path, runs(TIMES_A, JOULES_A), "a.json")
    b = write(tmp_path, runs(TIMES_B, JOULES_B), "b.json")
    got, lines = metrics(compare(a, b)), jm("compare", a, b, "--width", "80").stdout.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("  B - A"))
    end = float(re.search(r"\+(\d+) %", lines[head]).group(1))
    zero = lines[head].index(" 0 ") + 1
    for line in lines[head + 1:head + 4]:
        m = got[line.split()[0]]
        for mark, value in (("├", m["low"]), ("●", m["ratio"]), ("┤", m["high"])):
            assert line.index(mark) - zero == pytest.approx(100 * (value - 1) / end * (zero - 12), abs=0.51)


def test_a_change_that_rounds_to_nothing_has_no_minus(tmp_path):
    """B takes 0.001 % less time, and so it says in every run."""
    times = [1, 1.000001, 0.999999, 1.0000005]
    a = write(tmp_path, runs(times, JOULES_A), "a.json")
    b = write(tmp_path, runs([t * 0.99999 for t in times], JOULES_A), "b.json")
    (time,) = [line for line in jm("compare", a, b).stdout.splitlines() if " time ms" in line]
    assert "+0.00 to +0.00" in time, time
