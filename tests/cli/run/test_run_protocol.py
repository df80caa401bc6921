# SPDX-License-Identifier: Apache-2.0
"""run: repeats until intervals are narrow, pauses, retries by kind of failure, only failed cases, one case again."""
import math
import statistics
import time

import pytest

from jm import USAGE, jm, sentence
from runs import COMMAND, SIM, query, records


def t_quantile(p, dof):
    """By bisection on Student's distribution, integrated by Simpson's rule; independent of joulemark."""
    scale = math.gamma((dof + 1) / 2) / (math.sqrt(dof * math.pi) * math.gamma(dof / 2))

    def cdf(t, n=4000):
        h = t / n
        total = sum((1 if k in (0, n) else 4 if k % 2 else 2) * (1 + (k * h) ** 2 / dof) ** (-(dof + 1) / 2)
                    for k in range(n + 1))
        return 0.5 + scale * total * h / 3

    low, high = 0.0, 200.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle) < p else (low, middle)
    return low


def half_width(values, level):
    n = len(values)
    return t_quantile(1 - (1 - level) / 2, n - 1) * statistics.stdev(values) / math.sqrt(n) / statistics.mean(values)


def figures(store):
    """{case: {repeat: (seconds per item, joules per item)}}, from the records alone."""
    found = {}
    for r in records(store):
        joules = sum(m["joules"] for m in r["meters"] if m["topmost"]) if "topmost" in r["meters"][0] else \
            r["total"]["joules_simulated"]
        found.setdefault(r["case"]["id"], {})[r["case"]["repeat"]] = (1 / r["throughput"], joules / r["items"])
    return found


@pytest.mark.parametrize("percent, most", [(0.6, 12), (0.2, 6)])
def test_repeats_until_intervals_are_narrow(tmp_path, percent, most):
    """Stops at the first look at which the rule holds for every case, and not before; at most at --max-repeat."""
    store = tmp_path / "s.db"
    work = [*SIM, "--set", "gpu.power=300W,700W", "--noise", "0.02", "--until-interval", f"{percent}%",
            "--max-repeat", most]
    assert jm(*work, "--dry-run").stdout.startswith(f"2 cases, up to {most} times\n")
    done = jm(*work, "--store", store)
    assert done.returncode == 0, done.stderr
    found = figures(store)
    n = len(next(iter(found.values())))
    assert all(sorted(of) == list(range(1, n + 1)) for of in found.values()) and 3 <= n <= most
    level = 1 - 0.05 / (most - 3 + 1)
    for looks in range(3, n + 1):
        worst = max(half_width([of[r][k] for r in range(1, looks + 1)], level)
                    for of in found.values() for k in (0, 1))
        assert (worst <= percent / 100) == (looks == n and n < most) or (looks == n == most)
    again = jm(*SIM, "--set", "gpu.power=300W,700W", "--noise", "0.02", "--until-interval", f"{percent}%",
               "--max-repeat", most, "--store", store)
    assert again.returncode == 0
    assert query(store, "SELECT count(*), sum(attempt) FROM records") == [(2 * n, 2 * n)]
    if n == most:
        assert "was asked for (--until-interval)" in done.stderr


def test_identical_repeats_stop_at_three(tmp_path):
    store = tmp_path / "s.db"
    done = jm(*SIM, "--noise", "0", "--until-interval", "5%", "--store", store)
    assert done.returncode == 0 and query(store, "SELECT count(*) FROM records") == [(3,)]


@pytest.mark.parametrize("words, why", [
    (["--until-interval", "0"], "share of the mean"), (["--until-interval", "200%"], "share of the mean"),
    (["--until-interval", "wide"], "share of the mean"), (["--max-repeat", "5"], "no effect without"),
    (["--retries", "-1"], "numbers up to 100"), (["--retries", "crush=1"], "did you mean 'crash'"),
    (["--retries", "crash="], "numbers up to 100"), (["--only-failed"], "--store"), (["--rerun", "ab"], "--store"),
    (["--order", "radnom"], "did you mean 'random'")])
def test_refused(words, why):
    assert why in sentence(jm(*SIM, *words), USAGE)


def script(tmp_path, text):
    path = tmp_path / "work.sh"
    path.write_text(f"#!/bin/sh\necho x >>{tmp_path}/log\nn=$(wc -l <{tmp_path}/log)\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("text, retries, runs, failure", [
    ("exit 3", "5", 1, "command"), ("exit 3", "command=2", 3, "command"),
    ("kill -SEGV $$", "2", 3, "crash"), ("kill -SEGV $$", "device=3", 1, "crash"),
    ("[ $n -gt 1 ] || kill -SEGV $$", "1", 2, None), ("sleep 20", "timeout=1", 2, "timeout")])
def test_retries_by_kind_of_failure(tmp_path, text, retries, runs, failure):
    store = tmp_path / "s.db"
    done = jm(*COMMAND, "--retries", retries, "--timeout", "1s" if "sleep" in text else "20s", "--store", store, "--",
              script(tmp_path, text))
    assert done.returncode == (1 if failure else 0), done.stderr
    assert len((tmp_path / "log").read_text().split()) == runs
    record, = records(store)
    assert record.get("failure") == failure
    assert query(store, "SELECT attempt FROM records") == [(runs,)]


def test_out_of_memory_is_a_result(tmp_path):
    store = tmp_path / "s.db"
    done = jm("run", "resnet50", "--device", "ref", "--batch", "64", "--memory", "0.1", "--source", "null",
              "--retries", "3", "--store", store)
    assert done.returncode == 1, done.stderr
    record, = records(store)
    assert record["failure"] == "memory", record["reason"]
    assert query(store, "SELECT attempt FROM records") == [(1,)]


def failing(tmp_path):
    """Two variables; the case n=2 fails while the file `bad` is there."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"""
command: sh -c 'echo {{n}} >> {tmp_path}/log; test {{n}} != 2 || test ! -e {tmp_path}/bad'
variables: {{n: [1, 2, 3]}}
source: "null"
""")
    (tmp_path / "bad").touch()
    store = tmp_path / "s.db"
    assert jm("run", plan, "--store", store).returncode == 1
    (tmp_path / "bad").unlink()
    (tmp_path / "log").unlink()
    return plan, store


def test_only_failed(tmp_path):
    plan, store = failing(tmp_path)
    assert jm("run", plan, "--store", store, "--only-failed").returncode == 0
    assert (tmp_path / "log").read_text() == "2\n"
    # a case that was never run is left to another call
    plan.write_text(plan.read_text().replace("[1, 2, 3]", "[1, 2, 3, 4]"))
    jm("run", plan, "--store", store, "--only-failed")
    assert (tmp_path / "log").read_text() == "2\n"


def test_rerun_one_case(tmp_path):
    plan, store = failing(tmp_path)
    one = next(r["case"]["id"] for r in records(store) if r["case"]["parameters"]["options"]["n"] == "3")
    assert jm("run", plan, "--store", store, "--rerun", one[:12]).returncode == 1  # n=2 is failed as before
    assert (tmp_path / "log").read_text() == "3\n"
    assert "begins with 'zz'" in sentence(jm("run", plan, "--store", store, "--rerun", "zz"))


def test_order_as_given(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"command: sh -c 'echo {{n}} >> {tmp_path}/log'\nvariables: {{n: 1:9+1}}\nsource: \"null\"\n"
                    "order: given\nrepeat: 2\n")
    assert jm("run", plan).returncode == 0
    assert (tmp_path / "log").read_text().split() == [str(n) for n in range(1, 10)] * 2


def test_cooldown_is_between_cases_in_real_time_only(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("command: \"true\"\nvariables: {n: [1, 2, 3]}\nsource: \"null\"\ncooldown: 700ms\n")
    begin = time.monotonic()
    assert jm("run", plan).returncode == 0
    assert time.monotonic() - begin >= 1.4
    assert jm(*SIM, "--repeat", "3", "--cooldown", "6000s").returncode == 0  # in real time it would hang


def test_failed_cases_alone_leave_no_rest_of_an_adaptive_plan(tmp_path):
    """Its three blocks are all that it needs, though --max-repeat allows more."""
    words = [*SIM, "--until-interval", "5%", "--max-repeat", "6", "--store", tmp_path / "s.db"]
    done = jm(*words)
    assert done.returncode == 0 and "# the rest" not in done.stderr and 0 < len(records(tmp_path / "s.db")) < 6
    assert "# the rest" not in jm(*words, "--only-failed").stderr


def test_added_watts(tmp_path):
    store = tmp_path / "s.db"
    done = jm(*SIM, "--repeat", "3", "--add-watts", "100", "--store", store)
    assert "--add-watts 100" in done.stderr
    assert done.stdout.strip() == jm("report", store, "--add-watts", "100").stdout.strip()
    assert done.stdout.strip() == jm("report", store).stdout.strip()  # the plan in the store says it
    assert "+ 100 W assumed" in done.stdout and "assumed" not in jm("report", store, "--add-watts", "0").stdout
    other = tmp_path / "other.db"
    assert jm(*SIM[:-1], "4", "--repeat", "3", "--store", other).returncode == 0
    done = jm("report", store, other)
    assert "assumed" not in done.stdout and "differ" in done.stderr and "--add-watts" in done.stderr
