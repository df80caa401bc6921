# SPDX-License-Identifier: Apache-2.0
"""describe --power: the power of a training from runs of known power, and when it says nothing."""
import json

import pytest

from jm import USAGE, jm, sentence

MODEL = "gpt --hidden 64 --heads 4 --ffn 256 --vocab 256 --positions learned --device cpu".split()
SHAPES = [(layers, batch, context) for layers in (1, 2, 4) for batch in (1, 2, 8) for context in (16, 64)]
IDLE, PER_FLOP, PER_BYTE = 40.0, 3e-10, 2e-9  # W, J, J: the truth
PEAK_FLOPS, PEAK_BYTES = 2e11, 2e10


def describe(shape, *words):
    layers, batch, context = shape
    done = jm("describe", *MODEL, "--layers", layers, "--batch", batch, "--context", context, "--json", "-", *words)
    return done if done.returncode else json.loads(done.stdout)


def truth(plan):
    """Seconds of a step and watts: cores and memory work one after the other."""
    items = plan["batch"] * plan["seq"]
    flops, moved = plan["flops_executed_per_item"] * items, plan["bytes_per_item"] * items
    seconds = 2e-5 + flops / PEAK_FLOPS + moved / PEAK_BYTES
    return seconds, IDLE + (PER_FLOP * flops + PER_BYTE * moved) / seconds


def measured(template, plan, number):
    record = json.loads(template)
    seconds, watts = truth(plan)
    record["case"]["id"] = record["id"] = f"{number:032x}"
    record.update({key: plan[key] for key in ("flops_executed_per_item", "bytes_per_item")})
    record.update(items=float(plan["batch"] * plan["seq"] * record["steps"]),
                  throughput=plan["batch"] * plan["seq"] / seconds)
    meter = next(m for m in record["meters"] if m["scope"] == "package")
    meter.update(id="rapl:package", origin="measured", watts_mean=watts)
    record["meters"] = [meter]
    return record


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    if jm("describe", "gpt-117m", "--device", "cpu").returncode:
        pytest.skip("the backend cpu is not built")
    path = tmp_path_factory.mktemp("template") / "run.json"
    done = jm("run", *MODEL, "--context", 16, "--layers", 1, "--steps", 2, "--warmup", 0, "--json", path)
    assert done.returncode == 0, done.stderr
    return path.read_text()


@pytest.fixture(scope="module")
def runs(template):
    """Of each shape the plan, and a record with the true power."""
    plans = [describe(shape) for shape in SHAPES]
    return [(shape, plan, measured(template, plan, i)) for i, (shape, plan) in enumerate(zip(SHAPES, plans))]


def store(tmp_path, records):
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(records))
    return path


def test_left_out_work_has_its_true_power(runs, tmp_path):
    for left in range(4, len(runs), 5):
        records = [record for _, _, record in runs[:left] + runs[left + 1:]]
        power = describe(runs[left][0], "--power", store(tmp_path, records))["power"]
        seconds, watts = truth(runs[left][1])
        assert power["watts"] == pytest.approx(watts, rel=1e-3)
        assert power["step_s"] == pytest.approx(seconds, rel=1e-3)
        assert power["low_watts"] <= power["watts"] <= power["high_watts"]
        assert (power["origin"], power["from"], power["works"]) == ("estimated", "measured", len(runs) - 1)


def test_recorded_bytes_are_those_of_the_plan(template):
    record = json.loads(template)
    plan = describe((1, record["plan"]["batch"], 16))
    assert record["bytes_per_item"] == pytest.approx(plan["bytes_per_item"], rel=1e-9)


def test_repeats_are_one_work(runs, tmp_path):
    records = [record for _, _, record in runs]
    once = describe(SHAPES[3], "--power", store(tmp_path, records))["power"]
    thrice = describe(SHAPES[3], "--power", store(tmp_path, [
        {**record, "started": f"2026-01-0{day}T00:00:00.000Z"} for record in records for day in (1, 2, 3)]))["power"]
    assert thrice.pop("runs") == 3 * once.pop("runs")
    assert thrice == pytest.approx(once, rel=1e-9)


def other(record, **more):
    return {**json.loads(json.dumps(record)), **more}


@pytest.mark.parametrize("change, said", [
    ({"device": "cuda:0"}, "18 ran on another device"),
    ({"precision": "bf16"}, "18 computed in another precision"),
    ({"status": "failed", "reason": "no"}, "18 failed"),
    ({"devices": 2}, "18 ran on several devices"),
    ({"options": {"threads": "1"}}, "18 had a number of threads or ranks of their own"),
    ({"ran_on": {"uuid": "GPU-1", "bus": None, "name": "NVIDIA H200 GPU-1", "meter": None, "slice": False}}, "18 ran on another device"),
    ({"settings": [{"knob": "package.power", "device": None, "unit": "W", "requested": 50, "accepted": 50,
                    "enforced": 50, "state": "binding"}]}, "18 had settings of their own"),
    ({"meters": []}, "18 lack FLOPs, bytes or power that was measured"),
    ({"bytes_per_item": 0}, "18 lack FLOPs, bytes or power that was measured"),
])
def test_runs_that_tell_nothing_are_counted(runs, tmp_path, change, said):
    done = describe(SHAPES[3], "--power", store(tmp_path, [other(record, **change) for _, _, record in runs]))
    assert done.returncode == USAGE
    assert "0 different works were measured" in sentence(done) and f"Of 18 runs 0 count; {said}." in done.stderr


def test_estimated_power_is_not_measured(runs, tmp_path):
    records = [other(record) for _, _, record in runs]
    for record in records[7:]:
        record["meters"][0]["origin"] = "estimated"
    done = describe(SHAPES[3], "--power", store(tmp_path, records))
    assert done.returncode == USAGE
    assert "7 different works" in sentence(done) and "needs 8 or more" in done.stderr


def test_unlike_work_is_refused(runs, tmp_path):
    path = store(tmp_path, [record for _, _, record in runs])
    done = describe((4, 64, 64), "--power", path)
    assert done.returncode == USAGE and "would be a guess" in sentence(done)


def test_one_training_at_a_time(runs, tmp_path):
    path = store(tmp_path, [record for _, _, record in runs])
    for words in (["resnet18", "resnet50"], ["llama3-8b", "--serve"]):
        done = jm("describe", *words, "--power", path)
        assert done.returncode == USAGE and "--power shows" in sentence(done)


def test_text_says_estimated(runs, tmp_path):
    path = store(tmp_path, [record for _, _, record in runs])
    done = jm("describe", *MODEL, "--layers", 2, "--batch", 2, "--context", 64, "--power", path)
    watts = truth(next(plan for shape, plan, _ in runs if shape == (2, 2, 64)))[1]
    assert "power, estimated from 18 works in 18 measured runs:" in done.stdout
    assert f"  mean                         {watts:8.4g}  W\n" in done.stdout


def test_a_package_without_power_makes_the_sum_unknown(runs, tmp_path):
    records = [other(record) for _, _, record in runs]
    for record in records:
        record["meters"] = [{**record["meters"][0], "id": "rapl:0", "watts_mean": None}, *record["meters"]]
    done = describe(SHAPES[3], "--power", store(tmp_path, records))
    assert done.returncode == USAGE and "18 lack FLOPs" in sentence(done)
