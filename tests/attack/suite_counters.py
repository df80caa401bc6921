# SPDX-License-Identifier: Apache-2.0
import ctypes
import json
import math
import os

from jm import jm

LIBRARY = os.path.join(os.environ["JM_BUILD"], "tests", "peers", "libnvidia-ml-fake.so")
SLACK = 0.02  # of the truth: a busy machine reads late
ENOUGH = 50  # rounds that tell a share
STEP = 0.1  # seconds between two steps of the fake's counter; one that freezes loses what followed its last step, too


class Suite:
    """Energy counters that freeze, jump or are reset, beside any load; the truth is the fake driver's joules."""

    def __init__(self, folder):
        self.folder, self.inside, self.known = folder, 0, 0
        self.fake = ctypes.CDLL(LIBRARY)
        self.fake.jm_fake_joules.restype = ctypes.c_double
        self.fake.jm_fake_joules.argtypes = [ctypes.c_int, ctypes.c_double]

    def truth(self, config, begin, end):
        os.environ["JM_FAKE_NVML"] = config
        assert self.fake.nvmlInit_v2() == 0  # the first opening reads the settings
        try:
            return self.fake.jm_fake_joules(0, end) - self.fake.jm_fake_joules(0, begin)
        finally:
            self.fake.nvmlShutdown()

    def round(self, rng):
        seconds = math.exp(rng.uniform(math.log(0.3), math.log(4)))
        fault = rng.choice(["sound", "freeze", "pause", "jump", "reset"])
        config = f"gpus=1;{load(rng, fault)};{sensor(rng)};{fault_words(rng, fault, seconds)}"
        done = jm("measure", "--source", "nvml", "--json", "-", "--", "sleep", f"{seconds:.3f}",
                  env={"JM_NVML_LIB": LIBRARY, "JM_FAKE_NVML": config})
        assert done.returncode == 0, done.stderr
        record = json.loads(done.stdout)
        (phase,) = [p for p in record["phases"] if p["name"] == "command"]
        (meter,) = record["meters"]
        begin = record["start_ns"] * 1e-9
        joules = self.truth(config, begin + phase["start_s"], begin + phase["end_s"])
        return [fault, self.judge(meter, record, joules, fault, config)]

    def judge(self, meter, record, joules, fault, config):
        """What is told is near the truth, or unknown and named; and one word for it."""
        told, bound = meter["joules"], meter["error_sampling_joules"]
        what = f"{told} J told, {joules:.2f} J true, ± {bound}, fault {meter['fault']}: JM_FAKE_NVML='{config}'"
        if told is None:
            assert meter["fault"] != "none", f"unknown without a reason: {what}"
            return "unknown"
        hidden = what_may_hide(config)
        # by power alone, few readings may miss every spike; error_locked_joules says how much the sensor does not see
        most = max(3 * bound, meter.get("error_locked_joules") or 0)
        assert abs(told - joules) <= most + SLACK * joules + hidden, what
        if fault == "sound":
            assert meter["fault"] in ("none", "differ"), f"a sound counter was blamed: {what}"
        if not hidden:
            self.known += 1
            self.inside += abs(told - joules) <= bound
        return f"fault:{meter['fault']}"

    def close(self):
        assert self.known < ENOUGH or self.inside >= 0.9 * self.known, (
            f"only {self.inside} of {self.known} energies lie inside their bounds")


def what_may_hide(config):
    """Joules that a pause or a jump may hide: a short one is within what the load itself may do unseen."""
    word = dict(w.split("=", 1) for w in config.split(";") if "=" in w)
    if "jump" in word:
        return 0 if float(word["jumpj"]) >= 5000 else float(word["jumpj"])
    if "thaw" not in word:
        return 0
    pause = float(word["thaw"][2:]) - float(word["freeze"][2:])
    seen = pause > 0.6 and word["wave"] == "const" and "energycost" not in word
    return 0 if seen else (pause + STEP) * float(word["high"])


def load(rng, fault):
    """A wave form. One in step with the power sensor looks constant, so that power alone cannot tell its energy."""
    low, high = rng.uniform(60, 200), rng.uniform(300, 900)
    shortest = 0.02 if fault == "sound" else 0.35
    period = math.exp(rng.uniform(math.log(shortest), math.log(5)))
    form = rng.choice(["const", "square", "saw", "random", "spikes"])
    return (f"wave={form};power={high:.1f};low={low:.1f};high={high:.1f};period={period:.5f};phase={rng.uniform(0, 9):.4f};"
            f"seed={rng.randrange(1, 10**6)}")


def sensor(rng):
    words = [f"stamp={rng.choice(['query', 'sensor'])}"]
    if rng.random() < 0.3:
        words.append(f"latency={rng.choice([200, 1000, 4000])}")
    if rng.random() < 0.3:
        words.append(f"energycost={rng.choice([500, 3000])}")
    return ";".join(words)


def fault_words(rng, fault, seconds):
    at = rng.uniform(0.01, 0.8 * seconds)
    if fault == "freeze":
        return f"freeze=0@{at:.3f}"
    if fault == "pause":
        return f"freeze=0@{at:.3f};thaw=0@{at + rng.uniform(0.1, seconds):.3f}"
    if fault == "jump":
        return f"jump=0@{at:.3f};jumpj={rng.choice([50, 500, 5000, 1e6])}"
    return f"reset=0@{at:.3f}" if fault == "reset" else ""
