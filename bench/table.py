# SPDX-License-Identifier: Apache-2.0
"""The table of docs/speed.md: networks with the speed, memory and errors of joulemark and PyTorch, from one run.

    make table          or, of a part:  /usr/bin/python3 bench/table.py --models resnet18 --rounds 1 \\
                                            --output part.md --json part.json

Speed and memory come from bench/step.py, sizes and FLOPs from `joulemark describe`, errors from the parity
tests (tests/parity/test_parity*.py), which run here. --json stores all raw figures, --from FILE writes the
Markdown from stored figures. --gpu-errors REPORT keeps the errors that the same tests found on a GPU, from pytest's report
(docs/gpu.md, Correctness, has the command). --gpu-rows FILE keeps the rows that bench/gpu/rows.py measured on a GPU.
Measuring needs a machine without other load for half an hour.
"""
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import step
import table_gpu
import table_md

ROOT = step.HERE.parent
BIN = pathlib.Path(os.environ.get("JM_BIN", step.BUILD / "joulemark"))
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
PACKAGES = ("python3-torch", "python3-torchvision", "libopenblas0-pthread", "libdnnl2")
# the parity test that has a network of the kind
SMALL = {"resnet18": "basic", "resnet50": "bottleneck", "vit-l16": "vit", "gpt-117m": "gpt learned",
         "gpt-tiny": "gpt learned", "llama-small": "llama", "alexnet": "alexnet", "vgg16": "vgg11",
         "inception3": "inception", "xception": "xception", "resnet152-cifar": "cifar", "unet": "unet", "fno-rbc2d": "fno", "fno-rbc3d": "fno"}


def output_of(*command, **more):
    return subprocess.run([str(c) for c in command], check=True, text=True, stdout=subprocess.PIPE,
                          **more).stdout


def first(pattern, file, otherwise="unknown"):
    found = re.search(pattern, pathlib.Path(file).read_text(encoding="utf-8"), re.M)
    return found.group(1).strip() if found else otherwise


def machine():
    flags = first(r"^flags\s*:(.*)$", "/proc/cpuinfo", "").split()
    return {
        "processor": first(r"^model name\s*:(.*)$", "/proc/cpuinfo"),
        "cores": len(os.sched_getaffinity(0)), "threads": step.THREADS,
        "instructions": [flag for flag in FLAGS if flag in flags],
        "virtual": "hypervisor" in flags,
        "memory_bytes": int(first(r"^MemTotal:\s*(\d+)", "/proc/meminfo", "0")) * 1024,
        "os": first(r'^PRETTY_NAME="?([^"\n]*)', "/etc/os-release"),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "load": os.getloadavg()[0],
    }


def version_of(package):
    """Of an installed Debian package."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout if done.returncode == 0 else None


def versions():
    found = {"joulemark": output_of(BIN, "--version").split()[-1]}
    try:
        found["commit"] = output_of("git", "-C", ROOT, "describe", "--always", "--dirty",
                                    stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):  # a tarball
        pass
    found["compiler"] = first(r"^C compiler for the host machine: \S+ \((\S+ \S+)",
                              step.BUILD / "meson-logs" / "meson-log.txt")
    return found | {name: version_of(name) for name in PACKAGES if version_of(name)}


def describe(found):
    """Parameters and FLOPs per item as the plan has them."""
    words = [word for dim in found["dims"].split() for word in ("--" + dim).split("=")]
    if found["seq"]:
        words += ["--seq", found["seq"]]
    plan = json.loads(output_of(BIN, "describe", found["model"], "--device", "cpu", "--batch", found["batch"],
                                "--precision", found["precision"], *words, "--json", "-",
                                env={**os.environ, "JM_BACKENDS": str(step.BUILD / "backends")}))
    return {key: plan[key] for key in ("parameters", "parameters_frozen", "flops_model_per_item", "flops_executed_per_item")}


def rows_of(report):
    """The figures that the parity tests left in pytest's report."""
    kept = xml.etree.ElementTree.parse(report).iter("property")
    return [json.loads(p.get("value")) for p in kept if p.get("name") == "parity"]


def parity():
    """(a row per network and precision, did all tests pass), by running the parity tests."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}",
             "-o", "junit_family=xunit1", "-k", "error_to_f64",
             *sorted((ROOT / "tests" / "parity").glob("test_parity*.py"))],
            check=False, stdout=sys.stderr,
            env={**os.environ, "JM_BUILD": str(step.BUILD.resolve()), "JM_BIN": str(BIN.resolve()),
                 "JM_BACKENDS": str(step.BUILD.resolve() / "backends")})
        return rows_of(report), done.returncode == 0


def collect(given):
    # the date first: a run that ends after midnight began the day before
    data = {"schema": "joulemark.speed/1", "date": given.date or datetime.date.today().isoformat(),
            "note": given.note, "machine": machine(), "versions": versions(), "cases": []}
    data["parity"], data["parity_passed"] = parity() if given.parity else ([], None)
    for found in step.measure_all(given):
        data["cases"].append({**found, **describe(found), "small": SMALL.get(found["name"])})
        given.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return data


def keep_gpu_errors(report, note):
    path = ROOT / "docs" / table_gpu.ERRORS_FILE
    data = {"schema": "joulemark.speed-gpu-errors/1", "about": note, "rows": rows_of(report)}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def main():
    parser = step.arguments(__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--no-parity", dest="parity", action="store_false")
    parser.add_argument("--date", help="of the run, as 2026-11-20; else the system's")
    parser.add_argument("--note", help="a sentence about this run, for the page")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "speed.md")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "docs" / "speed.json")
    parser.add_argument("--from", dest="kept", type=pathlib.Path, metavar="JSON",
                        help="measure nothing, write the page of these figures")
    parser.add_argument("--gpu-errors", type=pathlib.Path, metavar="REPORT",
                        help="pytest's report of the parity tests on a GPU, kept with --note; use it with --from")
    parser.add_argument("--gpu-rows", type=pathlib.Path, metavar="JSON",
                        help="rows.json of bench/gpu/rows.py, kept with the letter of --card; use it with --from")
    parser.add_argument("--card", default="-", help="the letter that names the card of --gpu-rows")
    given = parser.parse_args()
    if given.gpu_rows:
        table_gpu.keep(ROOT / "docs" / "speed_gpu.json", json.loads(given.gpu_rows.read_text(encoding="utf-8")), given.card)
    if given.gpu_errors:
        keep_gpu_errors(given.gpu_errors, given.note)
    if given.kept:
        data = json.loads(given.kept.read_text(encoding="utf-8"))
    else:
        data = collect(given)
    gpus = table_gpu.section(ROOT / "docs" / "speed_gpu.json")
    given.output.write_text(table_md.page(data, gpus), encoding="utf-8")
    print(f"{given.output} is written", file=sys.stderr)
    if data["parity_passed"] is False:
        sys.exit("A parity test failed or could not run: the errors in the table are not to be relied upon.")


if __name__ == "__main__":
    main()
