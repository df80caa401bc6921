# SPDX-License-Identifier: Apache-2.0
"""One run with all fake devices: a power step that all of them make has the same time in every trace."""
import csv
import json
import shutil
import threading
import time

import pytest

import amd_gpus
import cray_node
import gcipu_module
import hsmp_firmware
import ipmi_controller
import modbus_server
import ptd_daemon
import redfish_controller
import scpi_meter
import snmp_pdu
from jm import BUILD, jm

LOW, HIGH = 200, 450
OFFSET = 0.005  # s
GPU = "GPU-00000000-fa4e-4000-8000-000000000000"

# What a source says by itself of time is coarser: a sample of PTDaemon is the mean of its period, and snmpd starts a program
# for each answer.
COARSE = {"ptd": 0.11, "snmp": 0.1}


class Step:
    """The common program: LOW up to a moment of CLOCK_MONOTONIC, then HIGH."""

    def __init__(self, at):
        self.at, self.writers, self.moments = at, [], {}
        self.lock = threading.Lock()

    def now(self, name):
        """The power at this moment, for one who asks; what was answered last as LOW and first as HIGH is kept."""
        t = time.monotonic()
        with self.lock:
            low, high = self.moments.get(name, (0, float("inf")))
            self.moments[name] = (max(low, t), high) if t < self.at else (low, min(high, t))
        return LOW if t < self.at else HIGH

    def written(self, name, write):
        """A device whose power is written into files: now, and again at the step."""
        write(LOW)
        self.writers.append((name, write))

    def run(self):
        time.sleep(max(0, self.at - time.monotonic()))
        for name, write in self.writers:
            begin = time.monotonic()
            write(HIGH)
            self.moments[name] = (begin, time.monotonic())


class Ptd(ptd_daemon.Daemon):
    step = None

    def sample(self, i):
        self.watts = LOW if self.begin + (i + 1) * self.period < self.step.at else HIGH
        return super().sample(i)


class Scpi(scpi_meter.Meter):
    step = None

    def value(self, item):
        return self.step.now("scpi") if item == "P" else super().value(item)


class Cray(cray_node.Node):
    def __init__(self, root, step):
        self.step = step
        super().__init__(root, {"": LOW})

    def update(self):
        self.watts[""] = self.step.now("cray")
        super().update()


def hwmon(root, step):
    folder = root / "sys/class/hwmon/hwmon0"
    folder.mkdir(parents=True)
    (folder / "name").write_text("power_meter\n")
    (folder / "power1_average_interval").write_text("1\n")
    step.written("hwmon", lambda watts: hsmp_firmware.write(folder / "power1_average", f"{watts * 1000000:010}\n".encode()))
    return "hwmon:channel=power_meter/power1,covers=/"


def hsmp(root, step):
    begin = time.monotonic()
    file = hsmp_firmware.path(root, 0)
    step.written("hsmp", lambda watts: hsmp_firmware.write(file, hsmp_firmware.table(
        [5e5, 0, 0, 0], watts, int((time.monotonic() - begin) * 1e8) + 1)))
    return "hsmp"


def ipmi(root, step, env):
    controller = ipmi_controller.Controller(root)
    env.update(controller.env)
    step.written("ipmi", lambda watts: controller.answers(ipmi_controller.message(watts)))
    return "ipmi"


def gcipuinfo(root, step, env):
    """The module asks the same clock."""
    text = gcipu_module.MODULE.format(rows=[("A", "", "N/A")], life=1e9, later=None)
    text = text.replace("row[NAMES.index(name)] for row in rows",
                        f"f'{{{LOW} if time.monotonic() < {step.at!r} else {HIGH}}} W' if name == 'ipu power' else "
                        "row[NAMES.index(name)] for row in rows")
    folder = root / "python"
    folder.mkdir()
    (folder / "gcipuinfo.py").write_text("\n".join(line[4:] for line in text.splitlines()))
    env["PYTHONPATH"] = str(folder)
    step.moments["gcipuinfo"] = (step.at, step.at)
    return "gcipuinfo:period=10ms"


def gpus(step, env):
    """Programmed before the start: a wave whose high half begins at the step, read without a window."""
    env.update({"JM_NVML_LIB": str(BUILD / "tests/peers/libnvidia-ml-fake.so"), "JM_FAKE_NVML":
                f"gpus=1;wave=square;low={LOW};high={HIGH};period=4000;refresh=0.0005;window=0.0001;average=0.0001;"
                f"phase={4000 - step.at % 4000!r}",
                "JM_FAKE_AMD_STEP": f"{step.at!r} {HIGH / LOW!r}"})
    step.moments["nvml"] = step.moments["amdsmi"] = (step.at, step.at)
    return "nvml,amdsmi"


class Devices:
    """All of them; close() ends those that run."""

    def __init__(self, root, certificate, step):
        self.env = amd_gpus.surroundings(root, 24, "y")
        self.ends = []
        self.sources = [hwmon(root, step), hsmp(root, step), ipmi(root, step, self.env),
                        gcipuinfo(root, step, self.env), gpus(step, self.env), self.cray(root, step),
                        self.instruments(step), self.modbus(root, step), self.redfish(certificate, step)]
        if snmp_pdu.SNMPD:
            self.sources.append(self.snmp(root, step))

    def cray(self, root, step):
        node = Cray(root, step)
        node.start()
        self.ends.append(node.over.set)
        return "cray"

    def instruments(self, step):
        Ptd.step = Scpi.step = step
        daemon, meter = Ptd(), Scpi()
        self.ends += [daemon.stop, meter.stop]
        step.moments["ptd"] = (step.at, step.at)
        return f"{daemon.source()},{meter.source()}"

    def modbus(self, root, step):
        meter = modbus_server.Meter(root)
        step.written("modbus", lambda watts: self.put(meter.file, modbus_server.words("input", 2004, watts)))
        meter.start()
        self.ends.append(meter.stop)
        return meter.source("map=wt310")

    @staticmethod
    def put(file, text):
        """At once: the server reads the file whenever it is asked."""
        new = file.with_suffix(".new")
        new.write_text(text)
        new.rename(file)

    def redfish(self, certificate, step):
        controller = redfish_controller.Controller(certificate)
        controller.chassis("1", "EnvironmentMetrics", lambda: {"PowerWatts": {"Reading": step.now("redfish")}})
        self.ends.append(controller.server.shutdown)
        return controller.source()

    def snmp(self, root, step):
        folder = root / "snmp"
        folder.mkdir()
        pdu = snmp_pdu.Pdu(folder)
        # of two outlets: snmpd keeps the answer of a program for 30 s if it is asked the same again
        step.written("snmp", lambda watts: pdu.set([(f"{snmp_pdu.APC}.9.4.3.1.7.{i}", "gauge", watts) for i in (3, 4)]))
        pdu.start()
        self.ends.append(pdu.stop)
        return pdu.source("kind=apc-outlet,index=3+4")

    def close(self):
        for end in self.ends:
            end()


def steps_in(trace, start_ns):
    """Of each source: the time of the last reading near LOW, and of the first near HIGH."""
    with open(trace / "meters.csv", encoding="utf-8") as file:
        power = {row["signal"]: row["meter"].split(":")[0] for row in csv.DictReader(file)
                 if row["quantity"] in ("power", "power-average")}
    found = {}
    with open(trace / "readings.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["signal"] not in power or not row["value"]:
                continue
            t, source = start_ns * 1e-9 + float(row["t_s"]), power[row["signal"]]
            low, high = found.get(source, (0, float("inf")))
            if abs(float(row["value"]) - LOW) < 1:
                low = max(low, t)
            elif abs(float(row["value"]) - HIGH) < 1:
                high = min(high, t)
            found[source] = low, high
    return found


def offset(found, moment, shift=0):
    """LOW after the device had left it, or HIGH before it had come."""
    return max(0, found[0] - moment[1] - shift, moment[0] + shift - found[1])


def offsets(folder, certificate, delay):
    """How far the step, which comes after so many seconds, lies in the trace from where the device made it; 0: no
    reading contradicts. None: the program did not read around it, as on a machine that is busy."""
    step = Step(time.monotonic() + delay)
    devices = Devices(folder, certificate, step)
    runner = threading.Thread(target=step.run)
    runner.start()
    try:
        done = jm("measure", "--json", "-", "--csv", folder / "trace", "--interval", "5ms", "--source",
                  ",".join(devices.sources), "--", "sleep", delay + 1.5, env=devices.env)
    finally:
        runner.join()
        devices.close()
    assert done.returncode == 0, done.stderr
    found = steps_in(folder / "trace", json.loads(done.stdout)["start_ns"])
    expected = {name for source in devices.sources for name in [part.split(":")[0] for part in source.split(",")]
                if name in step.moments}
    assert expected <= set(found) and len(expected) >= 11, done.stderr
    if not all(0 < found[name][0] <= found[name][1] < float("inf") for name in expected):
        return None
    # a step that was a second earlier, or later, must be seen; the file of hsmp has a new stamp at the step only
    if not all(offset(found[name], step.moments[name], shift) > 0.2 for name in expected for shift in (1, -1)
               if (name, shift) != ("hsmp", -1)):
        return None
    return {name: offset(found[name], step.moments[name]) for name in expected}


@pytest.fixture(name="certificate")
def make_certificate(tmp_path_factory):
    if not shutil.which("openssl") or not modbus_server.SERVER.exists():
        pytest.skip("openssl or libmodbus is not installed")
    return redfish_controller.certify(tmp_path_factory.mktemp("tls"))


def test_one_step_of_all_devices_stands_at_one_time(tmp_path, certificate):
    """On a busy machine an answer may be late; a clock that is wrong is wrong each time."""
    late = None  # those that were late each time
    for delay in (2.5, 5, 10, 20):
        folder = tmp_path / str(delay)
        folder.mkdir()
        found = offsets(folder, certificate, delay)
        if found:
            late = {name: s for name, s in found.items() if s > COARSE.get(name, OFFSET) and (late is None or name in late)}
        if late == {}:
            break
    assert late == {}
