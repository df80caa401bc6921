# SPDX-License-Identifier: Apache-2.0
"""Work whose speed follows the power limit of a GPU of the fake NVML, as ViT-L/16 does on an H100 (sim/data/h100.json; straight
lines between the published caps), for bench/tuning.py: capped_work.py LIBRARY STEPS RESULT [--zeus OBJECTIVE --steps N].

Each step writes a line. With --zeus its limit is searched and held by Zeus' GlobalPowerLimitOptimizer, of whose steps N are measured at
each limit. RESULT: seconds, true joules, seconds until the last search ended, the limit in the end.
"""
import argparse
import bisect
import ctypes
import json
import pathlib
import time

CURVE = json.loads((pathlib.Path(__file__).resolve().parent.parent / "sim/data/h100.json").read_text(encoding="utf-8"))
CAPS, WORK = CURVE["caps_watts"], CURVE["responses"]["vit-l16"]
GRAIN_S = 0.02  # between two looks at the limit


def rate(cap):
    """Steps per second."""
    k = min(max(bisect.bisect(CAPS, cap), 1), len(CAPS) - 1)
    slope = (WORK["rate"][k] - WORK["rate"][k - 1]) / (CAPS[k] - CAPS[k - 1])
    return (WORK["rate"][k] + slope * (cap - CAPS[k])) / WORK["assumed"]["step_items"]["value"]


class Gpu:
    """The first one, by the library that all programs of a run share."""
    def __init__(self, library):
        self.nvml = ctypes.CDLL(library)
        self.nvml.jm_fake_joules.restype, self.nvml.jm_fake_joules.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_double]
        self.device, self.milliwatts = ctypes.c_void_p(), ctypes.c_uint()
        assert not self.nvml.nvmlInit_v2() and not self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))

    def cap(self):
        assert not self.nvml.nvmlDeviceGetPowerManagementLimit(self.device, ctypes.byref(self.milliwatts))
        return self.milliwatts.value / 1000

    def joules(self):
        return self.nvml.jm_fake_joules(0, time.monotonic())


class Alone:
    def begin(self):
        pass

    def searches(self):
        return False


class Zeus:
    def __init__(self, objective, steps):
        from zeus.monitor import ZeusMonitor  # pylint: disable=import-outside-toplevel
        from zeus.optimizer import power_limit as zeus  # pylint: disable=import-outside-toplevel

        class Monitor(ZeusMonitor):  # the work runs on no GPU that PyTorch could wait for
            def begin_window(self, key, sync_execution=False):
                super().begin_window(key, sync_execution=False)

            def end_window(self, key, sync_execution=False, cancel=False):
                return super().end_window(key, sync_execution=False, cancel=cancel)

        selector = {"energy": zeus.Energy, "zeus:0.5": lambda: zeus.ZeusCost(0.5), "slowdown:5%": lambda: zeus.MaxSlowdownConstraint(1.05)}
        self.done = zeus.Done
        self.optimizer = zeus.GlobalPowerLimitOptimizer(Monitor(gpu_indices=[0]), selector[objective](), warmup_steps=max(1, steps // 4), profile_steps=steps)

    def begin(self):
        self.optimizer.on_step_begin()

    def searches(self):
        return not isinstance(self.optimizer.state, self.done)


def step(gpu):
    """Ends when the work of one step is done, under whatever limits it had meanwhile."""
    left, now = 1.0, time.monotonic()
    while left > 0:
        pace = rate(gpu.cap())
        time.sleep(min(GRAIN_S, left / pace))
        before, now = now, time.monotonic()
        left -= pace * (now - before)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("library")
    p.add_argument("n", type=int)
    p.add_argument("result", type=pathlib.Path)
    p.add_argument("--zeus")
    p.add_argument("--steps", type=int, default=40)
    args = p.parse_args()
    gpu = Gpu(args.library)
    tuner = Zeus(args.zeus, args.steps) if args.zeus else Alone()
    begin, joules, searched = time.monotonic(), gpu.joules(), 0.0
    for _ in range(args.n):
        tuner.begin()
        if tuner.searches():
            searched = time.monotonic() - begin
        step(gpu)
        print("step", flush=True)
    result = {"seconds": time.monotonic() - begin, "joules": gpu.joules() - joules, "search_s": searched, "cap": gpu.cap()}
    args.result.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
