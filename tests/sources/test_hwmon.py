# SPDX-License-Identifier: Apache-2.0
"""Hardware monitors on trees like those of Grace and other machines: three layouts, containment, damage."""
import json
import threading

import pytest

from hwmon_tree import grace, monitor, put
from jm import BUILD, USAGE, jm, sentence

FAKE = BUILD / "tests" / "peers" / "libnvidia-ml-fake.so"


def measure(root, *args, env=None):
    done = jm("measure", "--json", "-", *args, "--", "sleep", "0.3", env={"JM_ROOT": str(root), **(env or {})})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("layout", ["own", "values", "old"])
def test_grace_in_each_layout(tmp_path, layout):
    """Order of the folders is not the order of the parts; the label decides."""
    for number, what, watts in ((3, "Module", 500), (0, "Grace", 200), (2, "CPU", 120), (1, "SysIO", 30)):
        grace(tmp_path, layout, number, what, watts)
    record = measure(tmp_path, "--source", "hwmon")
    watts = {m["label"]: m["joules"] / record["wall_s"] for m in record["meters"]}
    assert watts == {f"{what} Power Socket 0": pytest.approx(w, rel=0.1)
                     for what, w in (("Module", 500), ("Grace", 200), ("CPU", 120), ("SysIO", 30))}
    scopes = {m["label"].split()[0]: m["scope"] for m in record["meters"]}
    assert scopes == {"Module": "module", "Grace": "package", "CPU": "core", "SysIO": "uncore"}
    by_id = {m["id"]: m["label"].split()[0] for m in record["meters"]}
    inside = {m["label"].split()[0]: by_id.get(m["covered_by"]) for m in record["meters"]}
    assert inside == {"Module": None, "Grace": "Module", "CPU": "Grace", "SysIO": "Grace"}


def test_the_module_includes_its_gpu_once(tmp_path):
    """The GPU of the socket, by its NUMA node, is part of the module and is not added to it."""
    grace(tmp_path, "own", 0, "Module", 500)
    grace(tmp_path, "own", 1, "Module", 600, socket=1)
    gpus = tmp_path / "proc/driver/nvidia/gpus"
    done = jm("measure", "--json", "-", "--source", "nvml", "--", "true",
              env={"JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": "gpus=1;power=300"})
    (uuid,) = {m["device"] for m in json.loads(done.stdout)["meters"] if m["scope"] == "gpu"}
    put(gpus / "0009:01:00.0" / "information", f"Model: \t\t NVIDIA GH200\nGPU UUID: \t {uuid}\nBus: 9")
    put(tmp_path / "sys/bus/pci/devices/0009:01:00.0/numa_node", 1)
    put(tmp_path / "sys/devices/system/node/node1/cpulist", "72-143")
    put(tmp_path / "sys/devices/system/cpu/cpu72/topology/physical_package_id", 1)
    record = measure(tmp_path, "--source", "hwmon,nvml",
                     env={"JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": "gpus=1;power=300"})
    meters = {m["label"]: m for m in record["meters"]}
    (gpu,) = [m for m in record["meters"] if m["scope"] == "gpu"]
    assert gpu["covered_by"] == meters["Module Power Socket 1"]["id"]
    assert record["total"]["joules_measured"] == pytest.approx(1100 * record["wall_s"], rel=0.1)


def test_any_channel_that_is_named(tmp_path):
    monitor(tmp_path, 0, "power_meter", {"power1_average": 400000000})
    monitor(tmp_path, 1, "ina3221", {"power1_input": 5000000, "power1_label": "VDD_IN", "energy2_input": 7})
    env = {"JM_ROOT": str(tmp_path)}
    text = sentence(jm("measure", "--source", "hwmon", "--", "true", env=env))
    assert "channel=NAME,covers=PATHS" in text
    text = sentence(jm("measure", "--source", "hwmon:channel=VDD_IN", "--", "true", env=env), USAGE)
    assert "covers" in text
    text = sentence(jm("measure", "--source", "hwmon:channel=other,covers=/", "--", "true", env=env))
    assert "'other'" in text and "doctor" in text
    record = measure(tmp_path, "--source", "hwmon:channel=power_meter-ACPI000D:00/power1,covers=/")
    (meter,) = record["meters"]
    assert meter["scope"] == "node" and meter["joules"] == pytest.approx(400 * record["wall_s"], rel=0.1)
    doctor = jm("doctor", env=env).stdout
    assert "hwmon:channel=ina3221-ACPI000D:01/energy2,covers=PATHS" in doctor


@pytest.mark.parametrize("text", ["-5", "", "N/A", "0", "1e9", "12 W", "65535000000", "99999999999999999999999"])
def test_what_is_no_reading_is_unknown(tmp_path, text):
    grace(tmp_path, "own", 0, "Module", 500)
    put(tmp_path / "sys/class/hwmon/hwmon0/power1_average", text)
    (meter,) = measure(tmp_path, "--source", "hwmon")["meters"]
    assert meter["joules"] is None


def test_a_reading_that_nothing_draws_is_none(tmp_path):
    """All bits set for a moment, as of a sensor that does not answer, changes no joule."""
    grace(tmp_path, "own", 0, "Module", 500)
    file = tmp_path / "sys/class/hwmon/hwmon0/power1_average"
    for delay, watts in ((0.5, 65535), (0.6, 500)):
        threading.Timer(delay, put, (file, watts * 1000000)).start()
    done = jm("measure", "--json", "-", "--source", "hwmon", "--", "sleep", "1.2", env={"JM_ROOT": str(tmp_path)})
    record = json.loads(done.stdout)
    (meter,) = record["meters"]
    assert meter["watts_max"] == pytest.approx(500)
    assert meter["joules"] in (None, pytest.approx(500 * record["wall_s"], rel=0.1))  # None: it lasted on a busy machine
