# SPDX-License-Identifier: Apache-2.0
"""The workload overlap: products and transfers, each alone and both at once."""
import os
import re

import pytest

from fake_gpus import FakeGpus
from gangs import devices
from jm import jm, sentence
from runs import FAILED, one

STEPS = ["--warmup", 0, "--steps", 2, "--selftest", 0]
SHAPE = ["--m", 24, "--n", 40, "--k", 16]
RANKS = ["--ranks", 2]
WORK = ["run", "overlap", *SHAPE, *RANKS, *STEPS]
SMALL = ["--precision", "f32", "--size", "0.00001"]


@pytest.fixture(name="exact")
def exact_devices():
    """Two fake devices whose events tell the time that is programmed, by microseconds of a product and a transfer."""
    return lambda product, transfer: {**devices(2), "JM_FAKE_LATER_EXACT": "1", "JM_FAKE_LATER_US": str(product),
                                      "JM_FAKE_NCCL_US": str(transfer)}


def parts(record):
    o = record["overlap"]
    return o["product"], o["collective"], o["both"]


# products of a pair, us of each; transfers of a pair, us of each
@pytest.mark.parametrize("products, product, transfers, transfer", [(3, 400, 1, 500), (1, 700, 4, 900), (2, 300, 2, 300)])
def test_times_are_those_of_the_device(exact, products, product, transfers, transfer):
    """Its queues do not slow each other down: the shorter work is hidden behind the longer one."""
    r = one(*WORK, *SMALL, "--device", "later:0,later:1", "--transport", "nccl", "--source", "null", "--products", products,
            "--transfers", transfers, "--pairs", 2, env=exact(product, transfer))
    p, c = products * product * 1e-6, transfers * transfer * 1e-6
    of_product, of_collective, both = parts(r)
    assert r["verified"] is True and r["overlap"]["pairs"] == 4
    assert [of_product["seconds"], of_product["beside_s"], of_product["slowdown"]] == pytest.approx([p, p, 1])
    assert [of_collective["seconds"], of_collective["beside_s"], of_collective["slowdown"]] == pytest.approx([c, c, 1])
    assert [both["seconds"], both["exposed_s"], both["overlapped_s"]] == pytest.approx([max(p, c), max(0, c - p), min(p, c)])
    assert both["of_longer"] == pytest.approx(1)
    assert [of_product["per_s"], of_collective["bytes_per_s"]] == pytest.approx([products / p, transfers * r["overlap"]["bytes"] / c])


@pytest.mark.parametrize("kind", ["allgather", "allreduce", "alltoall", "reducescatter", "broadcast"])
def test_all_collectives_are_verified(kind):
    r = one(*WORK, *SMALL, "--device", "ref", "--collective", kind, "--products", 2, "--pairs", 1, "--source", "null")
    o = r["overlap"]
    assert r["verified"] is True and (o["kind"], o["transport"], o["pairs"]) == (kind, "local", 2)
    assert o["bytes"] == pytest.approx(1e4, abs=8)
    # a step: on each rank, a pair one after the other, and one at once
    assert (r["unit"], r["items"]) == ("pair", 2 * 2 * 2)
    assert r["flops_model_per_item"] == 2 * 2 * 24 * 40 * 16


def test_sides_on_processors_are_seen_by_one_clock():
    """Both at once take at least as long as either of them does then, and no longer than one after the other did."""
    of_product, of_collective, both = parts(one(*WORK, *SMALL, "--device", "ref", "--pairs", 3, "--products", 4, "--source", "null"))
    assert both["seconds"] >= max(of_product["beside_s"], of_collective["beside_s"]) * (1 - 1e-9)
    assert both["exposed_s"] == pytest.approx(both["seconds"] - of_product["seconds"])
    assert both["overlapped_s"] == pytest.approx(of_product["seconds"] + of_collective["seconds"] - both["seconds"])
    assert of_product["slowdown"] == pytest.approx(of_product["beside_s"] / of_product["seconds"])


def test_energy_of_each_part_is_that_of_its_phases(tmp_path):
    gpus = FakeGpus(tmp_path, 1, "wave=square;low=100;high=100;response=1")
    os.makedirs(os.path.dirname(gpus.state), exist_ok=True)
    for _ in range(10):  # where the machine was busy only while pairs were counted, turns are too short for the sensor
        r = one(*WORK, *SMALL, "--device", "ref", "--turn", "800ms", "--source", "nvml", env=gpus.env)
        if all(part["watts"] is not None for part in parts(r)):
            break
    for name, part in zip(["product", "collective", "both"], parts(r)):
        phases = [p for p in r["phases"] if p["name"] == name]
        seconds, pairs = sum(p["end_s"] - p["start_s"] for p in phases), r["overlap"]["pairs"]
        assert len(phases) == 2 and sum(p["items"] for p in phases) == 2 * pairs  # of both ranks
        assert part["watts"] == pytest.approx(100, rel=0.05)
        assert 0 < part["error_watts"] < 100
        assert part["joules"] == pytest.approx(100 * seconds / pairs / 2, rel=0.05)


def test_power_of_unknown_accuracy_is_kept():
    """Its bound is unknown, not its value."""
    for part in parts(one(*WORK, *SMALL, "--device", "ref", "--turn", "200ms", "--source", "estimate")):
        assert part["watts"] > 0 and part["joules"] > 0 and part["error_watts"] is None and part["error_joules"] is None


NCCL = ["--device", "later:0,later:1", "--transport", "nccl", "--source", "null", "--pairs", 1, "--products", 2]


def asked(path):
    """What NCCL was asked for: limits of CTAs and the policy of its communicators, bytes of windows."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return {tuple(map(int, n)) for what, *n in lines if what == "config"}, sorted(int(n[0]) for what, *n in lines if what == "window")


@pytest.mark.parametrize("more, config", [
    ([], (-1, -1, -1)), (["--max-ctas", 8], (-1, 8, -1)), (["--min-ctas", 2, "--max-ctas", 4], (2, 4, -1)),
    (["--buffers", "registered"], (-1, -1, -1)), (["--buffers", "copy-engines"], (-1, -1, 2)),
    (["--buffers", "copy-engines", "--max-ctas", 1], (-1, 1, 2)),
], ids=str)
def test_nccl_is_asked_for_what_is_given(exact, tmp_path, more, config):
    log = tmp_path / "asked"
    r = one(*WORK, *SMALL, *NCCL, *more, env={**exact(10, 10), "JM_FAKE_NCCL_LOG": str(log)})
    configs, windows = asked(log)
    bytes_ = r["overlap"]["bytes"]
    assert r["verified"] is True and configs == {config}
    assert windows == ([bytes_ / 2] * 2 + [bytes_] * 2 if "--buffers" in more else [])  # what each of two ranks gives, and gets


@pytest.mark.parametrize("work", ["allreduce", "alltoall", "p2p"])
def test_transfers_alone_have_buffers_too(exact, tmp_path, work):
    log = tmp_path / "asked"
    r = one("run", work, *RANKS, *STEPS, "--size", "0.00001", *NCCL[:6], "--buffers", "copy-engines", env={**exact(10, 10), "JM_FAKE_NCCL_LOG": str(log)})
    assert r["verified"] is True and asked(log) == ({(-1, -1, 2)}, [r["transfer"]["bytes"]] * 4)


@pytest.mark.parametrize("more, version, reason", [
    (["--max-ctas", 8], "21604", "NCCL 2.16 has no limits of CTAs, which need 2.17 or newer"),
    (["--buffers", "copy-engines"], "22705", "NCCL 2.27 has no transfers by copy engines, which need 2.28 or newer"),
    (["--min-ctas", 8, "--max-ctas", 4], "22803", "--min-ctas 8 is above --max-ctas 4"),
], ids=str)
def test_what_nccl_cannot_is_refused(exact, more, version, reason):
    r = one(*WORK, *SMALL, *NCCL, *more, env={**exact(10, 10), "JM_FAKE_NCCL_VERSION": version}, status=FAILED)
    assert reason in r["reason"], r["reason"]


@pytest.mark.parametrize("more, reason", [
    (["--max-ctas", 8], "Transport local has no limits of CTAs"), (["--buffers", "registered"], "Transport local registers no memory"),
], ids=str)
def test_other_transports_have_no_limits(more, reason):
    r = one(*WORK, *SMALL, "--device", "ref", "--source", "null", *more, status=FAILED)
    assert reason in r["reason"], r["reason"]


def test_a_single_rank_is_refused():
    r = one("run", "overlap", *SHAPE, *SMALL, *STEPS, "--device", "ref", "--source", "null", status=FAILED)
    assert "--ranks 2 or more" in r["reason"]


def test_f64_needs_the_reference():
    done = jm(*WORK, "--precision", "f64", "--device", "cpu", "--source", "null")
    assert done.returncode == 2 and sentence(done) and "--device ref" in done.stderr


def test_report_has_a_table_of_the_three(exact, tmp_path):
    """Two sizes of two fake devices: the cells are the record's figures, in ms; what does not exist is '-'."""
    store = tmp_path / "o.db"
    done = jm("run", "overlap", *SHAPE, *RANKS, *STEPS, "--precision", "f32", "--size", "0.00001,0.00002", "--device", "later:0,later:1",
              "--transport", "nccl", "--source", "null", "--products", 3, "--pairs", 2, "--store", store, env=exact(400, 500))
    assert done.returncode == 0, done.stderr
    parts = {"products": ["1.200", "1.200", "1.000"], "transfers": ["0.5000", "0.5000", "1.000"], "both at once": ["1.200", "-", "-"]}
    for form, cut in (("table", " {2,}"), ("md", r" *\| *")):
        text = jm("report", store, "--format", form, "--width", 120).stdout
        rows = [re.split(cut, line.strip("| ")) for line in text.splitlines()]
        assert [row[1:] for row in rows if row[1:2] and row[1] in parts] == [[name, *cells, *["-"] * 4] for name, cells in parts.items()] * 2, text
        both = [[float(cell) for cell in row[1:]] for row in rows if len(row) == 5 and row[-1] == "1.000"]
        assert both == [[1.2, 0, 0.5, 1]] * 2 and " -0" not in text, text
