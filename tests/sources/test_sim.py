# SPDX-License-Identifier: Apache-2.0
"""The simulated node from the command line: results equal the published ones and are marked as simulated."""
import json

import pytest
from jm import USAGE, jm, sentence

# arXiv 2603.16164, Tables 3 and 4, per GPU, at 200, 300 ... W
PUBLISHED = {
    ("h100", "resnet50"): [842.78, 1312.8, 1426.0, 1463.2, 1475.0, 1479.3],
    ("h200", "llama3-8b-train"): [8914.9, 14244.7, 22285.7, 28338.8, 31586.8, 34107.2],
    ("mi300x", "vit-l16"): [76.64, 89.53, 126.51, 159.30, 177.01, 198.05],
}


def run_all(*args):
    """The records of a run, the reference's too."""
    done = jm("run", "sim", *args, "--json", "-")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    return records if isinstance(records, list) else [records]


def run_json(*args):
    record, = [r for r in run_all(*args) if not r["case"]["reference"] or "--set" not in args]
    return record


def held_watts(gpu, response, cap):
    """What a GPU draws under a cap, by docs/simulation.md."""
    if gpu == "mi300x" and cap < 400:
        return (cap + 400) / 2
    return 650 if (gpu, response, cap) == ("h100", "resnet50", 700) else cap


@pytest.mark.parametrize("gpu, response", PUBLISHED)
def test_published_throughput_comes_out(gpu, response):
    records = run_all("--device", f"sim:{gpu}x4", "--response", response, "--set",
                      "gpu.power=200:700+100W", "--steps", "30")
    by_cap = {r["settings"][0]["accepted"]: r for r in records}
    for i, rate in enumerate(PUBLISHED[gpu, response]):
        cap = 200 + 100 * i
        record, held = by_cap[cap], held_watts(gpu, response, cap)
        # 0.5 % per step of 30, 0.2 % per run: four standard deviations
        assert record["throughput_per_device"] == pytest.approx(rate, rel=0.009)
        assert record["throughput"] == pytest.approx(4 * record["throughput_per_device"])
        state = "binding" if held == cap else "violated" if held > cap else "not reached"
        assert {s["state"] for s in record["settings"]} == {state}
        steady, = [p for p in record["phases"] if p["name"] == "steady"]
        watts = steady["total"]["joules_simulated"] / (steady["end_s"] - steady["start_s"])
        assert watts == pytest.approx(4 * held, rel=0.01)


def test_everything_is_marked_simulated():
    record = run_json("--device", "sim:h200x2", "--steps", "5")
    assert record["clock"] == "simulated" and record["quality"]["grade"] == "none"
    assert {m["origin"] for m in record["meters"]} == {"simulated"}
    assert record["total"]["joules_measured"] is None
    assert record["loss_last"] is None and record["flops_model_per_item"] is None
    scopes = [m["scope"] for m in record["meters"]]
    assert scopes.count("gpu") == scopes.count("gpu-memory") == 2


def without_times(record):
    for key in ("started", "provenance"):
        record.pop(key, None)
    return record


def test_a_seed_repeats_to_the_bit():
    args = ("--device", "sim:mi300xx3", "--response", "sd-v2", "--set", "gpu.power=450W", "--seed")
    first, again, other = (without_times(run_json(*args, seed)) for seed in ("7", "7", "8"))
    assert first == again
    assert first["throughput"] != other["throughput"]


def test_warm_up_and_steady_count_alike():
    """Nothing warms up in simulated time: the rates of the two phases agree, but for the noise of 0.5 % a step."""
    done = jm("run", "sim", "--device", "sim:h100x4", "--json", "-")
    found = {p["name"]: p["items"] / (p["end_s"] - p["start_s"])
             for p in json.loads(done.stdout)["phases"] if p["items"]}
    assert found["warmup"] == pytest.approx(found["steady"], rel=0.01)


def test_a_cap_is_put_back():
    run_json("--device", "sim:h200x3", "--set", "gpu.power=300W", "--steps", "3")
    done = jm("get", "--control", "sim:h200x3", "--json", "gpu.power")
    assert [knob["accepted"] for knob in json.loads(done.stdout)] == [700] * 3


def test_a_violated_cap_is_told():
    done = jm("set", "--control", "sim:mi300xx1", "gpu.power=200W", "--", "true")
    assert done.returncode == 0 and "300 W" in done.stderr, done.stderr


def test_real_time():
    record = run_json("--device", "sim:h100x1", "--response", "resnet50", "--step-items", "100",
                      "--steps", "8", "--warmup", "2", "--real-time")
    assert record["clock"] == "real"
    assert record["throughput"] == pytest.approx(1479.3, rel=0.15)
    assert record["total"]["joules_simulated"] > 0


@pytest.mark.parametrize("args, hint", [
    (("run", "sim", "--device", "sim:h100x1", "--response", "resnet-50"), "'resnet50'"),
    (("run", "sim", "--device", "sim:h100x1", "--noise", "2"), "0 to 0.2"),
    (("run", "sim", "--device", "sim:h100x1", "--set", "gpu.power=800W"), "700"),
    (("measure", "--source", "sim:v100x4", "--", "true"), "mi300x"),
    (("get", "--control", "sim:h100"), "h100x4"),
])
def test_wrong_words_get_help(args, hint):
    done = jm(*args)
    assert hint in sentence(done, USAGE)


@pytest.mark.parametrize("args, words", [
    (("--layers", "2"), "--layers belongs to --response transformer"),
    (("--response", "resnet50", "--seq", "8192"), "--seq belongs to --response transformer"),
    (("--response", "transformer", "--step-items", "100"), "omit --step-items"),
])
def test_options_of_another_response_are_refused(args, words):
    done = jm("run", "sim", "--device", "sim:h100x2", "--steps", "2", *args)
    assert done.returncode != 0 and words in done.stderr, done.stderr


def test_defaults_of_another_response_are_none():
    assert run_json("--device", "sim:h100x2", "--response", "resnet50", "--layers", "32", "--steps", "2")["status"] == "ok"


@pytest.mark.parametrize("device", ["sim:h100x9", "cpu"])
def test_wrong_device_fails_with_its_reason(device):
    done = jm("run", "sim", "--device", device, "--steps", "1")
    assert done.returncode != 0 and "sim:h100x4" in done.stderr, done.stderr


def test_damaged_registers(tmp_path):
    state = {"JM_STATE": str(tmp_path)}
    assert jm("get", "--control", "sim:h100x2", env=state).returncode == 0
    file = tmp_path / "sim" / "h100x2.knobs"
    file.write_bytes(b"x" * file.stat().st_size)
    assert str(file) in sentence(jm("get", "--control", "sim:h100x2", env=state))
    file.unlink()
    assert jm("get", "--control", "sim:h100x2", env=state).returncode == 0
