# SPDX-License-Identifier: Apache-2.0
"""Context of the meters: pressure, inlet temperature, fans, utilisation; on trees like those of Linux."""
import json
import os

import pytest

from jm import FAILURE, jm, sentence

PRESSURE = "{} avg10=1.22 avg60=0.51 avg300=0.10 total={}\n"


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def record_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def signals(record):
    return {about["label"]: {s["quantity"]: s for s in about["signals"]} for about in record["context"]}


def test_pressure_of_the_command_alone(tmp_path):
    """The counters advance while it runs: what they had before is not counted."""
    folder = tmp_path / "proc/pressure"
    put(folder / "cpu", PRESSURE.format("some", 14086104029) + PRESSURE.format("full", 0))
    put(folder / "memory", PRESSURE.format("some", 39939) + PRESSURE.format("full", 5948))
    (folder / "io").mkdir()  # no such file, as far as reading goes
    # the command itself is what advances them, after the sampler has read them once
    script = f"sleep 0.5; printf '{PRESSURE.format('some', 39939 + 250000)}{PRESSURE.format('full', 5948 + 125000)}' > {folder}/memory; sleep 0.7"
    done = jm("measure", "--json", "-", "--source", "psi", "--", "sh", "-c", script, env={"JM_ROOT": str(tmp_path)})
    record = record_of(done)
    found = signals(record)
    assert found["pressure on processors"]["stall-time"]["increase"] == 0
    assert found["pressure on memory"]["stall-time"]["increase"] == pytest.approx(0.25)
    assert found["pressure on memory"]["full-stall-time"]["increase"] == pytest.approx(0.125)
    assert "full-stall-time" not in found["pressure on processors"]
    # it is no meter: nothing of it is unknown energy
    assert record["meters"] == [] and record["phases"][0]["meters"] == []


def test_what_no_reading_tells_is_unknown(tmp_path):
    """A command that is over before the next reading: nothing is known of what the counter counted meanwhile."""
    put(tmp_path / "proc/pressure/cpu", PRESSURE.format("some", 5000))
    record = record_of(jm("measure", "--json", "-", "--csv", tmp_path / "csv", "--source", "psi", "--", "true",
                          env={"JM_ROOT": str(tmp_path)}))
    rows = (tmp_path / "csv/readings.csv").read_text(encoding="utf-8").split()[1:]
    read_since = any(float(row.split(",")[1]) >= record["phases"][0]["start_s"] for row in rows)
    assert signals(record)["pressure on processors"]["stall-time"]["increase"] == (0 if read_since else None)


def test_pressure_that_cannot_be_read(tmp_path):
    for name in ("cpu", "memory", "io"):
        (tmp_path / "proc/pressure" / name).mkdir(parents=True)
    done = jm("measure", "--source", "psi", "--", "true", env={"JM_ROOT": str(tmp_path)})
    assert done.returncode == FAILURE and "Is a directory" in sentence(done) and "psi=1" in sentence(done)


def test_a_kernel_without_pressure(tmp_path):
    done = jm("measure", "--source", "psi", "--", "true", env={"JM_ROOT": str(tmp_path)})
    assert done.returncode == FAILURE and "CONFIG_PSI" in sentence(done)


@pytest.fixture(name="node")
def captured_node(tmp_path):
    board = tmp_path / "sys/devices/platform/nct6775.656"
    for chip, values in (("hwmon0", {"name": "coretemp", "temp1_input": "60000", "temp1_label": "Package id 0"}),
                         ("hwmon1", {"name": "nct6798", "temp1_input": "24500", "temp1_label": "Inlet Temp",
                                     "temp2_input": "33000", "temp2_label": "CPUTIN", "fan1_input": "8400",
                                     "fan2_input": "damaged"})):
        for name, text in values.items():
            put(tmp_path / "sys/class/hwmon" / chip / name, f"{text}\n")
    board.mkdir(parents=True)
    os.symlink(board, tmp_path / "sys/class/hwmon/hwmon1/device")
    for card, slot, busy in (("card0", "0000:03:00.0", "87\n"), ("card1", "0000:83:00.0", "12\n")):
        put(tmp_path / "sys/devices/pci0000:00" / slot / "gpu_busy_percent", busy)
        put(tmp_path / "sys/devices/pci0000:00" / slot / "device", "0x740f\n")
        (tmp_path / "sys/class/drm" / card).mkdir(parents=True)
        os.symlink(tmp_path / "sys/devices/pci0000:00" / slot, tmp_path / "sys/class/drm" / card / "device")
    put(tmp_path / "sys/class/hwmon/hwmon2/name", "power_meter\n")
    put(tmp_path / "sys/class/hwmon/hwmon2/power1_average", "900000000\n")
    return tmp_path


def test_a_rear_door_is_outside_of_the_node(node):
    """Its energy is known, and in no total."""
    record = record_of(jm("measure", "--json", "-", "--source", "hwmon:channel=power_meter/power1,covers=outside/door", "--", "sleep", "1",
                          env={"JM_ROOT": str(node)}))
    (door,) = record["meters"]
    assert door["elsewhere"] is True and door["covered_by"] is None and door["joules"] == pytest.approx(900 * record["wall_s"], rel=0.05)
    assert record["total"]["joules_measured"] is None


def test_inlet_fans_and_utilisation_beside_node_power(node):
    done = jm("measure", "--json", "-", "--source", "context:cooling=rear door,hwmon:channel=power_meter/power1,covers=/",
              "--", "sleep", "1", env={"JM_ROOT": str(node)})
    record = record_of(done)
    found = signals(record)
    assert found["Inlet Temp"]["temperature"]["mean"] == 24.5
    assert found["nct6798 fan1"]["fan"]["max"] == 8400
    assert found["nct6798 fan2"]["fan"]["mean"] is None
    busy = {about["id"]: about["signals"][0]["mean"] for about in record["context"] if about["label"] == "GPU gpu"}
    assert busy == {"context:GPU-0000:03:00.0/gpu": 0.87, "context:GPU-0000:83:00.0/gpu": 0.12}
    assert found["cooling: rear door"] == {}
    assert not any("CPUTIN" in label or "Package" in label for label in found)
    assert len({about["id"] for about in record["context"]}) == 6
    # the node's power and its total are what they are without it
    (meter,) = record["meters"]
    assert record["total"]["joules_measured"] == pytest.approx(900 * record["wall_s"], rel=0.05)
    assert not any("known for only" in reason for reason in record["quality"]["reasons"])
    assert meter["scope"] == "node"
    text = jm("measure", "--source", "context", "--", "sleep", "0.3", env={"JM_ROOT": str(node)}).stderr
    assert "Context" in text and "temperature 24.5" in text


def test_an_inlet_that_is_named(node):
    env = {"JM_ROOT": str(node)}
    record = record_of(jm("measure", "--json", "-", "--source", "context:inlet=nct6798/temp2", "--", "true", env=env))
    assert "CPUTIN" in signals(record) and "Inlet Temp" not in signals(record)
    done = jm("measure", "--source", "context:inlet=nct6798/temp9", "--", "true", env=env)
    assert done.returncode == FAILURE and "nct6798/temp9" in sentence(done)


def test_context_is_kept_in_a_trace_and_no_line_of_watch(node, tmp_path):
    env = {"JM_ROOT": str(node)}
    trace = tmp_path / "trace"
    record_of(jm("measure", "--json", "-", "--csv", trace, "--source", "context", "--", "sleep", "1.5", env=env))
    again = record_of(jm("measure", "--json", "-", "--source", f"replay:{trace}", "--", "sleep", "0.3"))
    assert signals(again)["Inlet Temp"]["temperature"]["last"] == 24.5
    line = jm("watch", "--source", "context,hwmon:channel=power_meter/power1,covers=/", "--format", "json", "--interval", "100ms",
              "--for", "0.3s", env=env).stdout.splitlines()[0]
    assert [m["scope"] for m in json.loads(line)["meters"]] == ["node"]
