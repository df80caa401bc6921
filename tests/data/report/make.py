#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the records beside it: sweeps of a power cap, simulated.

Throughput per GPU: Tables 3 and 4 of arXiv 2603.16164 (H100, H200, MI300X). The paper has no table of
power: a GPU is ASSUMED to draw its cap where that binds, less where the work never needs so much, and
390 W and 395 W under MI300X's caps of 200 W and 300 W, which that device does not keep to. A block's
temperature and every case have small factors (assumed, fixed below), so that intervals are not empty.
"""
import hashlib
import json
import pathlib

CAPS = [200, 300, 400, 500, 600, 700]
SWEEPS = {  # device: (workload, unit, throughput per GPU at CAPS, watts per GPU at CAPS)
    "h100x4": ("llm-pretraining", "token", [9699.3, 17982.3, 24853.4, 27705.3, 29250.0, 30271.0],
               [199, 299, 398, 497, 592, 655]),
    "h200x4": ("resnet50", "image", [650.93, 1115.7, 1619.2, 1915.1, 2061.4, 2148.6],
               [199, 299, 399, 498, 596, 668]),
    "mi300x4": ("llm-inference", "token", [960.6, 1145.4, 1400.1, 1616.6, 1758.7, 1824.3],
                [390, 395, 399, 497, 590, 640]),
}
WOBBLE = [0.0031, -0.0022, 0.0012, -0.0041, 0.0027, -0.0009, 0.0018]
SECONDS = 30.0


def meter(device, i, joules):
    return {"id": f"sim:{device}/{i}", "label": f"GPU {i} simulated", "device": f"sim:{device}/{i}",
            "source": "sim", "scope": "gpu", "covered_by": None, "overlaps": None,
            "origin": "simulated", "joules": joules, "joules_counter": joules,
            "joules_integrated": joules * 1.0007, "error_sampling_joules": joules * 4e-4,
            "error_calibration_joules": joules * 0.02, "covered_s": SECONDS,
            "watts_mean": joules / SECONDS, "watts_max": joules / SECONDS * 1.03,
            "samples": int(SECONDS * 10), "gaps": 0, "signals": []}


def setting(device, i, cap, watts):
    state = "violated" if watts > cap * 1.02 else "binding" if watts > cap * 0.98 else "not reached"
    return {"knob": "gpu.power", "device": f"sim:{device}/{i}", "unit": "W", "requested": cap,
            "accepted": cap, "enforced": cap, "state": state}


def record(device, cap, block, position, reference):
    workload, unit, speeds, watts = SWEEPS[device]
    at = CAPS.index(cap)
    wobble = WOBBLE[(at + 3 * block) % len(WOBBLE)] + 0.002 * (block - 1)
    per_device = speeds[at] * (1 + wobble)
    draw = watts[at] * (1 + 0.3 * wobble)
    parameters = {"workload": workload, "device": f"sim:{device}", "precision": "bf16",
                  "gpu.power": "default" if reference else f"{cap}W"}
    items = per_device * 4 * SECONDS
    case_id = hashlib.blake2b(json.dumps(parameters).encode(), digest_size=16).hexdigest()
    joules = draw * SECONDS
    return {
        "schema": "joulemark.run/1", "id": case_id, "started": "2025-01-01T00:00:00Z",
        "wall_s": SECONDS + 10, "exit_status": 0, "signal": None, "command": [],
        "clock": "simulated", "phase": "steady",
        "meters": [meter(device, i, joules) for i in range(4)],
        "total": {"joules_measured": None, "joules_estimated": None, "joules_simulated": 4 * joules,
                  "joules_replayed": None},
        "quality": {"grade": "D", "reasons": ["the power is simulated, not measured",
                                              "no meter covers the whole node"]},
        "phases": [{"name": "warmup", "start_s": 2.0, "end_s": 10.0, "items": items / 4},
                   {"name": "steady", "start_s": 10.0, "end_s": 10.0 + SECONDS, "items": items}],
        "provenance": {"joulemark": "0.1.0", "host": "example", "kernel": "6.1", "cpu": "example",
                       "cores": 2, "memory_bytes": 8 << 30, "os": "Debian GNU/Linux 12",
                       "boot_id": None, "devices": [], "libraries": {}},
        "workload": workload, "options": {}, "device": f"sim:{device}", "precision": "bf16",
        "unit": unit, "items": items, "throughput": per_device * 4,
        "throughput_per_device": per_device, "devices": 4, "steps": 100, "warmup_steps": 10,
        "loss_first": None, "loss_last": None, "verified": None, "verify_reason": None,
        "case": {"id": case_id, "parameters": parameters, "repeat": block, "block": block,
                 "position": position, "reference": reference, "seed": 7},
        "settings": [setting(device, i, cap, watts[at]) for i in range(4)],
        "status": "ok", "reason": None,
    }


def fail(r, reason):
    r.update(status="failed", reason=reason, throughput=None, throughput_per_device=None, items=None,
             exit_status=None, signal=9)
    r["meters"], r["phases"] = [], []
    r["total"] = dict.fromkeys(r["total"])
    return r


def sweep(device):
    out = []
    for block in range(3):
        cases = [(700, True)] + [(cap, False) for cap in CAPS]
        out += [record(device, cap, block, i, ref) for i, (cap, ref) in enumerate(cases)]
    return out


def main():
    here = pathlib.Path(__file__).parent
    for device in SWEEPS:
        records = sweep(device)
        if device == "h100x4":
            fail(records[8], "The worker was killed by SIGKILL, so the case has no result; run the "
                             "same command again to repeat it.")
        (here / f"{device}.json").write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
