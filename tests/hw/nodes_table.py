#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints as Markdown what the folder of tests/hw/nodes.sh has: nodes_table.py FOLDER"""
import json
import pathlib
import sqlite3
import sys


def records(path):
    """The newest record of each case and repeat."""
    if not path.exists():
        return []
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        rows = db.execute("SELECT case_id, repeat, record FROM records ORDER BY started").fetchall()
    finally:
        db.close()
    return list({(case, repeat): json.loads(text) for case, repeat, text in rows}.values())


def last_line(path):
    """The JSON in the last line of a file; None: there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8").strip().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return None


def show(value, digits=0):
    return "" if value is None else f"{value:,.{digits}f}"


def print_table(title, head, rows):
    if not rows:
        return
    print(f"\n**{title}**\n\n| " + " | ".join(map(str, head)) + " |")
    print("|---|" + "--:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def ranks_of(record):
    return int(record["options"].get("ranks") or 1)


def gpus(record, idle):
    """Meters of the GPUs that compute, or of the others."""
    return [m for m in record["meters"] if m["scope"] == "gpu" and m.get("elsewhere", False) == idle]


def watts(record, idle):
    return " ".join(show(m["watts_mean"]) or "?" for m in gpus(record, idle))


def per_item(record):
    """Joules for each item of the GPUs that compute, and of these and the idle ones. None: unknown."""
    own = record["total"]["joules_measured"]
    idle = [m["joules"] for m in gpus(record, True)]
    if own is None or not record["items"]:
        return None, None
    return own / record["items"], None if None in idle else (own + sum(idle)) / record["items"]


def network_of(record):
    options = record["options"]
    return f"{options['model']}, batch {options['batch']}, {record['precision']}"


def why(record):
    return "OOM" if record.get("failure") == "memory" else "failed: " + (record["reason"] or record["status"])


def alone_rates(folder):
    """Items/s of each device alone, while the others did the same, by network."""
    found = {}
    for path in sorted(folder.glob("alone.*.db"), key=lambda p: int(p.suffixes[0][1:])):
        for r in records(path):
            if r["status"] == "ok":
                found.setdefault(network_of(r), []).append(r["throughput"])
    return found


def training_row(record, alone):
    ranks, rate = ranks_of(record), record["throughput"]
    if record["status"] != "ok":
        return [network_of(record), ranks, why(record), *[""] * 7]
    first = alone.get(network_of(record), [])[:ranks]
    own, whole = per_item(record)
    sums = record.get("communication") or {}
    exposed = " ".join(show(rank["exposed_s"] and 1e3 * rank["exposed_s"], 2) or "?" for rank in sums.get("ranks", []))
    return [network_of(record), ranks, f"{show(rate)} {record['unit']}/s",
            show(rate / sum(first), 3) if len(first) == ranks else "", watts(record, False), watts(record, True),
            show(own and 1e3 * own, 2), show(whole and 1e3 * whole, 2), exposed,
            sums.get("transport", "")]


def ddp_row(told):
    alone, together = (told["items_s"].get(k, []) for k in ("alone", "together"))
    joules = sum(r[3] * r[0] for r in together) / sum(r[0] for r in together) if together else None
    seq = f" x {told['seq']}" if told["seq"] else ""
    return [f"{told['model']}, batch {told['batch']}{seq}, {told['program']}", len(together or alone),
            show(sum(r[0] for r in together)) + "/s", show(told["ratio"], 3), "", "", show(joules and 1e3 * joules, 2), "", "", "DDP"]


def trainings(folder):
    alone = alone_rates(folder)
    rows = [training_row(r, alone) for r in sorted(records(folder / "train.db"), key=lambda r: (network_of(r), ranks_of(r)))]
    rows += [ddp_row(told) for told in map(last_line, sorted(folder.glob("ddp-*.json"))) if told]
    print_table("Trainings: rate, of the sum of the GPUs alone at the same time, watts of each GPU, mJ per item",
                ["network", "GPUs", "rate", "of alone", "W", "W of idle ones", "mJ", "mJ with idle ones", "exposed on each rank, ms",
                 "by"], rows)


def divided(folder):
    alone, rows = alone_rates(folder), []
    for r in records(folder / "divided.db"):
        options, ranks, sums = r["options"], ranks_of(r), r.get("communication") or {}
        row = [network_of(r), ranks, f"{options['tp']} x {options['pp']}"]
        if r["status"] != "ok":
            rows.append([*row, why(r), *[""] * 5])
            continue
        first, own = alone.get(network_of(r), [])[:ranks], per_item(r)[0]
        exposed, bubble = (sums.get(key) for key in ("tp_exposed_s_per_step", "bubble_measured"))
        rows.append([*row, f"{show(r['throughput'])} {r['unit']}/s", show(r["throughput"] / sum(first), 3) if len(first) == ranks else "",
                     watts(r, False), show(own and 1e3 * own, 2), show(exposed and 1e3 * exposed, 2), show(bubble, 3)])
    print_table("A model divided into tensors and stages", ["network", "GPUs", "tensors x stages", "rate", "of alone", "W", "mJ",
                                                            "exchanges of tensors exposed, ms", "idle share of stages"], rows)


def transfers(folder):
    peers = {(t["name"], t["size"], t["ranks"]): t["seconds"]
             for t in (last_line(folder / "nccl.json") or {}).get("transfers", [])}
    rows = []
    for r in sorted(records(folder / "transfers.db"), key=lambda r: (r["workload"], float(r["options"]["size"]))):
        size, own = float(r["options"]["size"]), r.get("transfer")
        row = [r["workload"], f"{size:g}", ranks_of(r)]
        if r["status"] != "ok" or not own:
            rows.append([*row, why(r), "", "", ""])
            continue
        peer = peers.get((r["workload"], size, ranks_of(r)))
        factor = own["bus_bytes_per_s"] / own["bytes_per_s"]
        bus = peer and factor * own["bytes"] / peer
        rows.append([*row, show(own["bus_bytes_per_s"] / 1e9, 2), show(bus and bus / 1e9, 2),
                     show(peer and peer / own["seconds"], 3), own["transport"]])
    print_table("Transfers: bus bandwidth, beside PyTorch's call of NCCL",
                ["workload", "GB", "GPUs", "GB/s", "alone, GB/s", "of alone", "by"], rows)


def bounded(part):
    return "unknown" if part["watts"] is None else f"{show(part['watts'])} ± {show(part['error_watts'])}"


def overlaps(folder):
    rows = []
    for r in sorted(records(folder / "overlap.db"), key=lambda r: float(r["options"]["size"])):
        o = r.get("overlap")
        if r["status"] != "ok" or not o:
            continue
        product, collective, both = (o[name] for name in ("product", "collective", "both"))
        rows.append([o["kind"], r["options"]["size"], ranks_of(r), show(1e3 * product["seconds"], 3), show(1e3 * collective["seconds"], 3),
                     show(product["slowdown"], 3), show(collective["slowdown"], 3), show(1e3 * both["exposed_s"], 3),
                     show(both["of_longer"], 3), *(bounded(part) for part in (product, collective, both)), o["transport"]])
    print_table("Products beside transfers: each alone, slow-down beside the other, and both",
                ["transfer", "GB", "GPUs", "products, ms", "transfer, ms", "products slower", "transfer slower", "exposed, ms",
                 "both / the longer", "W of products", "of transfer", "of both", "by"], rows)


def batch_map(folder):
    found = records(folder / "map.db")
    for name in sorted({r["options"]["model"] for r in found}):
        own = [r for r in found if r["options"]["model"] == name]
        counts = sorted({ranks_of(r) for r in own})
        cells = {(int(r["options"]["batch"]), ranks_of(r)): show(r["throughput"]) if r["status"] == "ok" else why(r) for r in own}
        unit = next((r["unit"] for r in own if r["unit"]), "items")  # a run that failed has none
        print_table(f"{name}: {unit}/s by the batch of a GPU and the number of GPUs", ["batch", *counts],
                    [[batch, *(cells.get((batch, c), "") for c in counts)] for batch in sorted({b for b, _ in cells})])


def burns(folder):
    rows = []
    for r in records(folder / "burn.db"):
        ok = r["status"] == "ok"
        rows.append([r["device"], f"{show(r['throughput'])} {r['unit']}/s" if ok else why(r), show(r["items"]) if ok else "",
                     "yes" if r["verified"] else "no", watts(r, False)])
    print_table("All GPUs at once, with processors and memory of the host", ["devices", "rate", "results", "all right", "W"], rows)


def harms(folder):
    told = [t for how in ("killed", "stopped") for t in map(last_line, folder.glob(f"{how}-*.json")) if t]
    print_table("A rank that is killed or stopped", ["harm", "ranks", "s until all have ended", "ranks left", "reason"],
                [[t["how"], t["ranks"], "not ended" if t["seconds"] is None else show(t["seconds"], 2), len(t["left"]), t["reason"]]
                 for t in sorted(told, key=lambda t: (t["how"], t["ranks"]))])


def failures(folder):
    rows = [[path.name, text] for path in sorted((folder / "steps").glob("*"))
            for text in [path.read_text(encoding="utf-8").strip()] if not text.startswith("ok")]
    print_table("Steps that failed", ["step", "how"], rows)


def main():
    folder = pathlib.Path(sys.argv[1])
    for part in (trainings, divided, transfers, overlaps, batch_map, burns, harms, failures):
        part(folder)


if __name__ == "__main__":
    main()
