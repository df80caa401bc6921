# SPDX-License-Identifier: Apache-2.0
"""Checks the data files of the simulated GPUs and writes them as one C table.

usage: tables.py OUTPUT GPU.json...
"""
import json
import sys

# struct jm_sim_gpu's members that come from "assumed", in the order of the struct
ASSUMED = [
    "cap_default_watts", "idle_watts", "power_lag_s", "ambient_celsius", "thermal_resistance",
    "thermal_lag_s", "leakage_watts_per_kelvin", "clock_max_hz", "clock_idle_hz", "clock_exponent",
    "memory_clock_hz", "sensor_refresh_s", "sensor_window_s", "sensor_average_s", "sensor_energy_step_joules", "sensor_accuracy", "sensor_noise",
]
PARTS = ["core", "io", "memory"]  # enum jm_sim_part
POINTS_MAX = 8  # JM_SIM_POINTS_MAX
GPUS_MAX = 8  # JM_SIM_GPUS_MAX


def caps_of(gpu, response):
    return response.get("caps_watts", gpu["caps_watts"])


def shares(assumed, otherwise=None):
    """Of the power above idle, for each part; `otherwise`: where a response has none of its own."""
    return [assumed[f"{part}_share"]["value"] if f"{part}_share" in assumed else otherwise[k] if otherwise else 0.0
            for k, part in enumerate(PARTS)]


def idle_watts(gpu):
    return [gpu["assumed"].get(f"{part}_idle_watts", {"value": 0.0})["value"] for part in PARTS]


def check(gpu):
    caps, low, high = gpu["caps_watts"], *(gpu["cap_range_watts"][k] for k in ("min", "max"))
    assert caps == sorted(set(caps)) and low <= caps[0] and caps[-1] <= high, "caps"
    assert 2 <= len(caps) <= POINTS_MAX, "number of caps"
    for name, response in gpu["responses"].items():
        rate = response["rate"]
        own = caps_of(gpu, response)
        assert own == sorted(set(own)) and low <= own[0] and own[-1] <= high and len(own) <= POINTS_MAX, name
        assert len(rate) == len(own) and rate == sorted(rate) and rate[0] > 0, name
        demand = response["assumed"]["demand_watts"]["value"]
        assert own[-2] < demand <= own[-1], f"{name}: demand outside the last step of the caps"
        assert sum(shares(response["assumed"], shares(gpu["assumed"]))) <= 1, f"{name}: parts of more than the whole"
    assert sum(idle_watts(gpu)) <= gpu["assumed"]["idle_watts"]["value"], "idle parts of more than the whole"
    assert all((name in gpu["part_labels"]) == (watts > 0) for name, watts in zip(PARTS, idle_watts(gpu))), "part_labels"
    everything = list(gpu["assumed"].values())
    for response in gpu["responses"].values():
        everything += response["assumed"].values()
    assert all(a["why"] and a["unit"] for a in everything), "an assumption without its reason"


def quote(text):
    return json.dumps(text, ensure_ascii=True)


def exchange(response):
    """Seconds that an item takes longer on n GPUs, for n from 0 to 8; between those that are known on a straight line."""
    known = {1: 0.0} | {int(n): s for n, s in response.get("exchange_s_per_item", {}).get("value", {}).items()}
    points = sorted(known.items())
    out = [0.0]
    for n in range(1, GPUS_MAX + 1):
        below = max(p for p in points if p[0] <= n)
        above = min((p for p in points if p[0] >= n), default=below)
        share = (n - below[0]) / (above[0] - below[0]) if above != below else 0
        out.append(below[1] + share * (above[1] - below[1]))
    return out


def row(values):
    return "{" + ", ".join(map(repr, values)) + "}"


def response_rows(gpu):
    for name, r in gpu["responses"].items():
        yield (f'\t{{.name = {quote(name)}, .label = {quote(r["label"])}, .unit = {quote(r["unit"])},\n'
               f'\t .source = {quote(r["source"])}, .note = {quote(r.get("note", ""))},\n'
               f'\t .step_items = {r["assumed"]["step_items"]["value"]!r},'
               f' .demand_watts = {r["assumed"]["demand_watts"]["value"]!r},\n'
               f'\t .part_share = {row(shares(r["assumed"], shares(gpu["assumed"])))},\n'
               f'\t .exchange_s = {row(exchange(r))},\n'
               f'\t .n = {len(r["rate"])}, .cap = {row(caps_of(gpu, r))},\n'
               f'\t .rate = {row(r["rate"])}}},\n')


def gpu_row(gpu):
    cap, name = gpu["cap_range_watts"], gpu["gpu"]
    honoured = gpu.get("honoured_from_watts", {"value": 0})["value"]
    violated = gpu["assumed"].get("violated_share", {"value": 0})["value"]
    lines = [f'\t{{.name = {quote(name)}, .label = {quote(gpu["label"])},\n',
             f'\t .source = {quote(gpu["source"]["id"])},\n',
             f'\t .cap_min_watts = {cap["min"]!r}, .cap_max_watts = {cap["max"]!r},'
             f' .cap_step_watts = {cap["step"]!r},\n',
             f'\t .honoured_from_watts = {honoured!r}, .violated_share = {violated!r},\n']
    lines.append(f'\t .memory_bytes = {gpu["memory_gb"]["value"]} * 1e9,\n')
    lines += [f'\t .{key} = {gpu["assumed"][key]["value"]!r},\n' for key in ASSUMED]
    labels = [quote(gpu["part_labels"][part]) if part in gpu["part_labels"] else "NULL" for part in PARTS]
    lines += [f'\t .part_label = {{{", ".join(labels)}}}, .part_idle_watts = {row(idle_watts(gpu))},\n',
              f'\t .part_share = {row(shares(gpu["assumed"]))},\n']
    lines.append(f'\t .response = {name}_responses, .n_responses = {len(gpu["responses"])}}},\n')
    return "".join(lines)


def main():
    output, paths = sys.argv[1], sys.argv[2:]
    gpus = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            gpus.append(json.load(file))
        try:
            check(gpus[-1])
        except (AssertionError, KeyError) as error:
            sys.exit(f"{path}: {error}")
    with open(output, "w", encoding="utf-8") as file:
        file.write('/* Generated from sim/data by sim/tables.py. */\n#include "sim/sim_model.h"\n\n')
        for gpu in gpus:
            file.write(f'static const struct jm_sim_response {gpu["gpu"]}_responses[] = {{\n')
            file.writelines(response_rows(gpu))
            file.write("};\n\n")
        file.write("const struct jm_sim_gpu jm_sim_gpus[] = {\n")
        file.writelines(map(gpu_row, gpus))
        file.write("\t{.name = NULL},\n};\n")


main()
