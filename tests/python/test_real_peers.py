# SPDX-License-Identifier: Apache-2.0
"""jpwr, Zeus and CodeCarbon themselves, and joulemark, around the same work on the same false NVML, whose energy is known. Takes
minutes the first time, to install 230 MB: in `make check STEPS=long`."""
import json
import os
import subprocess
import sys

import pytest

from jm import SOURCE
from measured import FAKE
from packages import packages
from python_package import joules_until, no_sanitizers, python  # noqa: F401  pylint: disable=unused-import

pytest.importorskip("pandas")

SECONDS = 3
COUNTER_JOULES = 2 * 2 * 0.1 * 600  # what a counter may lag at two edges of two GPUs
TOOLS = """
    import json, sys, time
    from codecarbon import OfflineEmissionsTracker
    from jpwr.ctxmgr import get_power
    from jpwr.gpu.pynvml import power
    from zeus.monitor import ZeusMonitor
    import joulemark

    class Zeus:
        def __init__(self): self.monitor = ZeusMonitor(gpu_indices=[0, 1])
        def __enter__(self): self.monitor.begin_window("work", sync_execution=False)
        def __exit__(self, *_): self.joules = self.monitor.end_window("work", sync_execution=False).total_energy
    class CodeCarbon:
        def __init__(self):
            self.tracker = OfflineEmissionsTracker(country_iso_code="DEU", measure_power_secs=1, save_to_file=False, log_level="error")
        def __enter__(self): self.tracker.start()
        def __exit__(self, *_):
            self.tracker.stop()
            self.joules = self.tracker.final_emissions_data.gpu_energy * 3.6e6
    class Jpwr(get_power):
        joules = property(lambda self: sum(self.energy()[0]) * 3600)
    class Joulemark(joulemark.get_power):
        joules = property(Jpwr.joules.fget)
    found = {}
    for name, tool in (("joulemark", Joulemark(["pynvml"], 100)), ("jpwr", Jpwr([power()], 100)), ("Zeus", Zeus()), ("CodeCarbon", CodeCarbon())):
        times = [time.monotonic()]
        with tool:
            times.append(time.monotonic())
            time.sleep(float(sys.argv[1]))
            times.append(time.monotonic())
        times.append(time.monotonic())
        found[name] = tool.joules, times, tool.measurement.error if name == "joulemark" else None
    print("FOUND " + json.dumps(found))
"""


def joules(start, end):
    return sum(joules_until(end, gpu) - joules_until(start, gpu) for gpu in range(2))


@pytest.fixture(scope="module", name="found")
def fixture_found(tmp_path_factory):
    """{tool: (its joules, the joules inside its block, those with its own beginning and end, its error)}"""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "libnvidia-ml.so.1").symlink_to(FAKE)  # pynvml loads it by this name
    paths = os.pathsep.join(map(str, [packages("peers"), SOURCE / "python"]))
    out = python(TOOLS, SECONDS, env={"PYTHONPATH": paths, "LD_LIBRARY_PATH": str(folder), "PYTHONWARNINGS": "ignore"}).stdout
    found = json.loads(next(line for line in out.splitlines() if line.startswith("FOUND ")).removeprefix("FOUND "))
    for name, (own, (before, begun, ends, ended), error) in found.items():
        found[name] = own, joules(begun, ends), joules(before, ended), error
        print(f"{name}: {own:.0f} J of {found[name][1]:.0f} to {found[name][2]:.0f} J, {100 * (own / found[name][1] - 1):+.1f} %")
    return found


def test_joulemark_agrees_with_the_truth_within_its_error(found):
    own, least, most, error = found["joulemark"]
    assert least - error <= own <= most + error and error < 0.2 * own


@pytest.mark.parametrize("tool", ["Zeus", "CodeCarbon"])
def test_tools_that_read_the_counter_agree_with_the_truth(found, tool):
    own, least, most, _ = found[tool]
    assert least - COUNTER_JOULES <= own <= most + COUNTER_JOULES


def test_zeus_finds_the_limit_of_least_energy_on_the_same_false_nvml(tmp_path):
    """The work of bench/tuning.py --zeus, by the curve that it follows."""
    sys.path[:0] = [str(SOURCE / "bench")]
    import capped_work  # pylint: disable=import-outside-toplevel
    (tmp_path / "libnvidia-ml.so.1").symlink_to(FAKE)
    out = tmp_path / "result.json"
    env = {"PYTHONPATH": str(packages("peers")), "LD_LIBRARY_PATH": str(tmp_path), "JM_FAKE_NVML": "gpus=1;wave=const;power=700;response=1",
           "JM_FAKE_NVML_STATE": str(tmp_path / "driver")}
    subprocess.run([sys.executable, SOURCE / "bench/capped_work.py", tmp_path / "libnvidia-ml.so.1", "120", out, "--zeus", "energy", "--steps", "4"],
                   env={**os.environ, **env}, check=True, stdout=subprocess.DEVNULL, timeout=240)
    found = json.loads(out.read_text())
    joules = {cap: cap / capped_work.rate(cap) for cap in range(200, 701, 25)}  # of a step
    assert joules[found["cap"]] < 1.1 * min(joules.values()) and 0 < found["search_s"] < found["seconds"]


def test_jpwr_adds_up_what_it_read(found):
    own, least, most, _ = found["jpwr"]
    assert 0.5 * least <= own <= 1.2 * most  # without its edges, from an average of one second
