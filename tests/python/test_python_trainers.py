# SPDX-License-Identifier: Apache-2.0
"""The callbacks for Lightning and Hugging Face, called as their documentation says, by small substitutes of the trainers."""
import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from jm import SOURCE
from measured import FAKE
from python_package import LIBRARY, no_sanitizers, python, truth  # noqa: F401  pylint: disable=unused-import

LIGHTNING = """
    import json, sys, time, types
    BASE
    from joulemark.callbacks import LightningCallback

    class Trainer:
        # order and arguments of the hooks as in Lightning 2
        sanity_checking, local_rank = False, RANK
        def __init__(self, callbacks): self.callbacks = callbacks
        def call(self, hook, *args):
            for c in self.callbacks:
                fn = getattr(c, hook)
                if callable(fn): fn(self, None, *args)
        def validate(self):
            self.call("on_validation_start"); self.call("on_validation_epoch_start")
            self.call("on_validation_batch_start", [0], 0, 0); time.sleep(0.2)
            self.call("on_validation_batch_end", None, [0], 0, 0)
            self.call("on_validation_epoch_end"); self.call("on_validation_end")
        def fit(self, fails=False):
            self.call("setup", "fit"); self.call("on_fit_start")
            self.sanity_checking = True
            self.call("on_sanity_check_start"); self.validate(); self.call("on_sanity_check_end")
            self.sanity_checking = False
            self.call("on_train_start")
            for epoch in range(2):
                self.call("on_train_epoch_start")
                for i in range(3):
                    batch = ([0] * 8, [1] * 8)
                    self.call("on_train_batch_start", batch, i)
                    self.call("on_before_a_hook_of_the_future")
                    time.sleep(0.1)
                    if fails:
                        error = RuntimeError("diverged"); self.call("on_exception", error); raise error
                    self.call("on_train_batch_end", {"loss": 1.0}, batch, i)
                self.validate()
                self.call("on_train_epoch_end")
            self.call("on_train_end"); self.call("on_fit_end"); self.call("teardown", "fit")
"""


def lightning(rest, rank=0, base=""):
    done = python(LIGHTNING.replace("RANK", str(rank)).replace("BASE", base) + rest)
    return json.loads(done.stdout), done.stderr


def test_lightning_trains_and_validates_in_regions_of_their_own():
    found, stderr = lightning("""
    seen = []
    energy = LightningCallback(items=lambda batch: len(batch[0]), report=seen.append, sources="sim:h100x1")
    Trainer([energy]).fit()
    m = energy.measurement
    assert seen == [m]
    print(json.dumps({n: [m[n].seconds, m[n].items, len(m[n].stretches), m[n].joules] for n in m}))
    """)
    assert stderr == "" and list(found) == ["sanity check", "train", "validate"]
    assert [found[n][1] for n in ("train", "validate", "sanity check")] == [48, None, None]
    assert [found[n][2] for n in ("train", "validate", "sanity check")] == [2, 2, 1]
    assert found["train"][0] >= 0.6 and found["validate"][0] >= 0.4
    assert found["train"][3] / found["train"][0] == pytest.approx(75, rel=0.05)  # the simulated GPU at rest


def test_lightning_that_fails_leaves_no_thread_and_may_fit_again():
    found, _ = lightning("""
    import os
    energy = LightningCallback(items=8, sources="sim:h100x1")
    try: Trainer([energy]).fit(fails=True)
    except RuntimeError as error: assert str(error) == "diverged"
    assert len(os.listdir("/proc/self/task")) == 1
    first = energy.measurement
    Trainer([energy]).fit()
    print(json.dumps([first["train"].items, energy.measurement["train"].items, len(os.listdir("/proc/self/task"))]))
    """)
    assert found == [None, 48, 1]


def test_the_second_process_of_a_machine_does_not_measure():
    found, _ = lightning("""
    energy = LightningCallback(items=8, sources="sim:h100x1")
    Trainer([energy]).fit()
    print(json.dumps(energy.measurement))
    """, rank=1)
    assert found is None


def test_is_what_an_imported_lightning_asks_for():
    """Lightning refuses what is not derived from its Callback; the one here is made up."""
    found, _ = lightning("""
    energy = LightningCallback(items=8, sources="sim:h100x1")
    assert isinstance(energy, Callback) and isinstance(energy, LightningCallback)
    Trainer([energy]).fit()
    print(json.dumps([energy.measurement["train"].items, energy.state_key, energy.state_dict()]))
    """, base="""class Callback:
        def on_train_start(self, *args): pass
        def on_fit_end(self, *args): raise AssertionError("the base's hook was called")
        @property
        def state_key(self): return "base"
    sys.modules["lightning.pytorch"] = types.SimpleNamespace(Callback=Callback)""")
    assert found == [48, "joulemark", {}]


HUGGING_FACE = """
    import json, time, types
    from joulemark.callbacks import TrainerCallback
    energy = TrainerCallback(items=lambda args, state: args.train_batch_size, sources="sim:h100x1")
    args = types.SimpleNamespace(train_batch_size=16)
    state = types.SimpleNamespace(is_local_process_zero=True, global_step=0)
    def call(event, **more): return getattr(energy, event)(args, state, "control", model=None, **more)
    call("on_init_end"); call("on_train_begin")
    for epoch in range(2):
        call("on_epoch_begin")
        for step in range(3):
            call("on_step_begin"); time.sleep(0.1); call("on_substep_end")
            call("on_pre_optimizer_step"); call("on_optimizer_step"); call("on_step_end")
        call("on_log", logs={})
        for batch in range(2):
            call("on_prediction_step"); time.sleep(0.1)
        call("on_evaluate", metrics={}); call("on_save"); call("on_epoch_end")
    assert call("on_train_end") is None
    call("on_prediction_step"); call("on_evaluate", metrics={})       # trainer.evaluate() afterwards
    m = energy.measurement
    print(json.dumps({n: [m[n].seconds, m[n].items, len(m[n].stretches)] for n in m}))
"""


def test_hugging_face_trains_and_evaluates_in_regions_of_their_own():
    found = json.loads(python(HUGGING_FACE).stdout)
    assert list(found) == ["train", "evaluate"]
    assert found["train"][1:] == [96, 2] and found["evaluate"][1:] == [None, 2]
    assert found["train"][0] >= 0.6 and found["evaluate"][0] >= 0.4


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="python3-torch is not installed")
def test_the_example_trains_on_text_and_its_energy_is_the_truth(tmp_path):
    """The GPUs of the fake NVML draw a known power while PyTorch trains."""
    out = tmp_path / "report.json"
    wave = "gpus=2;wave=square;low=100;high=600;period=0.5;shift=0.1"
    done = subprocess.run([sys.executable, SOURCE / "examples/train_energy.py", "--source", "nvml", "--epochs", "2", "--steps", "60",
                           "--json", out, SOURCE / "LICENSE"], capture_output=True, text=True, check=False, timeout=240,
                          env={**os.environ, "JM_LIBRARY": str(LIBRARY), "JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": wave})
    assert done.returncode == 0, done.stderr
    losses = [float(x) for x in re.findall(r"loss (\S+)", done.stdout)]
    assert len(losses) == 2 and losses[1] < losses[0] < 5
    report = json.loads(out.read_text())
    stretches = {}
    for phase in report["phases"]:
        stretches.setdefault(phase["name"], []).append(phase)
    assert sum(p["items"] for p in stretches["train"]) == 2 * 60 * 16 * 64
    for name in ("train", "validate"):
        joules = sum(p["total"]["joules_measured"] for p in stretches[name])
        error = sum(p["total"]["error_measured_joules"] for p in stretches[name])
        assert abs(joules - truth(report["start_ns"], [(p["start_s"], p["end_s"]) for p in stretches[name]])) <= error
    assert re.search(r"\d J per token, measured", done.stdout)
