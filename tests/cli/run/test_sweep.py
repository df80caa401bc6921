# SPDX-License-Identifier: Apache-2.0
"""run: sweeps in blocks with their reference, and continuation from a store."""
import json
import os
import random
import signal
import subprocess

from jm import BIN, USAGE, jm, sentence
from runs import NULL, SIM, comparable, query, records, sweep


def test_blocks(tmp_path):
    store = tmp_path / "s.db"
    done = sweep(store)
    assert done.returncode == 0, done.stderr
    kept = records(store)
    assert len(kept) == 12
    blocks = {}
    for r in kept:
        blocks.setdefault(r["case"]["block"], {})[r["case"]["position"]] = r
    assert sorted(blocks) == [1, 2, 3, 4]
    orders = set()
    for block in blocks.values():
        assert sorted(block) == [1, 2, 3]
        assert [r["case"]["reference"] for r in block.values()].count(True) == 1
        orders.add(tuple(block[i]["case"]["parameters"]["settings"]["gpu.power"] for i in (1, 2, 3)))
    assert len(orders) > 1
    # 700 W is what was found: that point is the reference, none is added
    assert {r["case"]["parameters"]["settings"]["gpu.power"] for r in kept if r["case"]["reference"]} \
        == {"700W"}
    assert {r["case"]["seed"] for r in kept} == {1, 2, 3, 4}


def test_reference_as_found(tmp_path):
    store = tmp_path / "s.db"
    assert jm(*SIM, "--set", "gpu.power=300W", "--store", store).returncode == 0
    kept = {r["case"]["parameters"]["settings"]["gpu.power"]: r for r in records(store)}
    listed = jm("run", "sim", "--device", "sim:h100x1", "--set", "gpu.power=300W", "--dry-run").stdout
    assert "gpu.power=unchanged (reference)" in listed  # people read that word, records have "as found"
    assert set(kept) == {"300W", "as found"} and kept["as found"]["case"]["reference"]
    assert {s["requested"] for s in kept["as found"]["settings"]} == {700}
    assert {s["state"] for s in kept["300W"]["settings"]} == {"binding"}


def test_states_of_settings(tmp_path):
    """The MI300X takes caps under 400 W and does not keep them, as published."""
    store = tmp_path / "s.db"
    done = jm("run", "sim", "--device", "sim:mi300xx2", "--response", "llama3-8b-infer", "--seconds",
              "5", "--set", "gpu.power=300W,500W", "--store", store)
    assert done.returncode == 0, done.stderr
    states = {r["case"]["parameters"]["settings"]["gpu.power"]: {s["state"] for s in r["settings"]}
              for r in records(store)}
    assert states["300W"] == {"violated"} and states["500W"] == {"binding"}


def test_options_are_axes(tmp_path):
    store = tmp_path / "s.db"
    done = jm("run", "null", "--source", "null", "--warmup", "0", "--steps", "1", "--step-time",
              "1ms,2ms,3ms", "--device", "cpu,ref", "--store", store)
    assert done.returncode == 0, done.stderr
    assert {(r["options"]["step-time"], r["device"]) for r in records(store)} == {
        (t, d) for t in ("0.001s", "0.002s", "0.003s") for d in ("cpu", "ref")}
    assert all(r["precision"] is None for r in records(store))  # waiting has none


def test_devices_are_axes(tmp_path):
    """Each device is measured by its own sensors."""
    store = tmp_path / "s.db"
    done = jm("run", "sim", "--device", "sim:h100x1,sim:mi300xx2", "--seconds", "1", "--store", store)
    assert done.returncode == 0, done.stderr
    kept = {r["device"]: r for r in records(store)}
    assert [len(kept[d]["meters"]) // kept[d]["devices"] * kept[d]["devices"] for d in sorted(kept)] \
        == [len(kept[d]["meters"]) for d in sorted(kept)]
    for device, record in kept.items():
        assert all(m["id"].startswith(device) for m in record["meters"])


def test_knobs_are_as_before(tmp_path):
    before = jm("get", "--control", "sim:h100x4").stdout
    assert sweep(tmp_path / "s.db").returncode == 0
    assert jm("get", "--control", "sim:h100x4").stdout == before


def test_trace_is_kept(tmp_path):
    store = tmp_path / "s.db"
    assert jm(*SIM, "--store", store).returncode == 0
    (meters,), = query(store, "SELECT meters FROM trace_t")
    signals = sum(len(m["signals"]) for m in json.loads(meters))
    (n, readings), = query(store, "SELECT count(DISTINCT signal), sum(readings) FROM chunk_t")
    assert n == signals and readings > 100


def test_same_command_again_does_nothing(tmp_path):
    store = tmp_path / "s.db"
    first = sweep(store)
    before = query(store, "SELECT record FROM records")
    again = sweep(store)
    assert again.returncode == 0 and again.stdout == first.stdout
    assert query(store, "SELECT record FROM records") == before
    assert query(store, "SELECT max(attempt) FROM records") == [(1,)]


def test_more_repeats_go_on(tmp_path):
    store = tmp_path / "s.db"
    assert jm(*NULL, "--store", store).returncode == 0
    before = records(store)
    assert jm(*NULL, "--repeat", "3", "--store", store).returncode == 0
    after = records(store)
    assert after[0] == before[0] and [r["case"]["repeat"] for r in after] == [1, 2, 3]


def killed_on_the_way(args, rng, kills):
    """Runs again after each kill until it ends by itself; returns how often it was killed."""
    while True:
        child = subprocess.Popen([BIN, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert child.wait(timeout=rng.uniform(0.01, 0.2) if kills < 15 else 60) == 0
            return kills
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            kills += 1


def test_resumed_equals_uninterrupted(tmp_path):
    """Killed at random moments again and again, a store ends up with the same figures."""
    whole = tmp_path / "whole.db"
    reference = sweep(whole)
    assert reference.returncode == 0
    rng, kills, stores = random.Random(7), 0, 0
    while kills < 8:
        parts, stores = tmp_path / f"parts{stores}.db", stores + 1
        args = [*SIM, "--set", "gpu.power=300W,400W,700W", "--repeat", "4", "--store", str(parts)]
        kills = killed_on_the_way(args, rng, kills)
        done = jm(*args)
        assert done.returncode == 0 and done.stdout == reference.stdout
        assert [comparable(r) for r in records(parts)] == [comparable(r) for r in records(whole)]
        assert query(parts, "PRAGMA integrity_check") == [("ok",)]


def test_the_reference_stays_what_was_found_first(tmp_path):
    """Another setting before the second call makes no other reference, and comes back after it."""
    store, control = tmp_path / "s.db", ["--control", "sim:h200x1"]
    args = ["run", "sim", "--device", "sim:h200x1", "--seconds", "1", "--set", "gpu.power=300W", "--store", store]
    assert jm(*args).returncode == 0
    assert jm("set", *control, "gpu.power=500W").returncode == 0
    try:
        assert jm("run", "--store", store, "--resume", "--repeat", "2").returncode == 0
        references = [r for r in records(store) if r["case"]["reference"]]
        assert [r["case"]["block"] for r in references] == [1, 2]
        assert {s["requested"] for r in references for s in r["settings"]} == {700}
        assert "500 W" in jm("get", *control).stdout
    finally:
        assert jm("restore").returncode == 0


def test_seed_of_a_begun_plan(tmp_path):
    store = tmp_path / "s.db"
    assert jm(*NULL, "--seed", "3", "--store", store).returncode == 0
    assert "--seed 3" in sentence(jm(*NULL, "--seed", "4", "--store", store), USAGE)
    assert jm(*NULL, "--repeat", "2", "--store", store).returncode == 0
    assert [r["case"]["seed"] for r in records(store)] == [3, 4]
