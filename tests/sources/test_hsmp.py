# SPDX-License-Identifier: Apache-2.0
"""The metrics table of AMD MI300A sockets, as bytes in the layout of the driver's header."""
import json
import threading

import pytest

from hsmp_firmware import Firmware, PARTS, TABLE, WATTS, path, table, write
from jm import jm, sentence


def measure(root, seconds=1):
    done = jm("measure", "--json", "-", "--interval", "20ms", "--source", "hsmp", "--", "sleep", seconds,
              env={"JM_ROOT": str(root)})
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    return record, {m["id"].removeprefix("hsmp:"): m for m in record["meters"]}


@pytest.mark.parametrize("acpi", [False, True])
def test_parts_of_each_socket(tmp_path, acpi):
    firmware = Firmware(tmp_path, acpi)
    firmware.start()
    record, meters = measure(tmp_path)
    firmware.over.set()
    firmware.join()
    for socket, watts in WATTS.items():
        for part, expected in zip(PARTS, (sum(watts), *watts)):
            meter = meters[f"socket{socket}/{part}"]
            assert meter["joules"] == pytest.approx(expected * record["wall_s"], rel=0.06), (socket, part)
            assert meter["covered_by"] == (None if part == "socket" else f"hsmp:socket{socket}/socket")
    total = sum(meters[f"socket{s}/socket"]["joules"] for s in WATTS)
    assert record["total"]["joules_measured"] == pytest.approx(total)


@pytest.mark.parametrize("size", [0, 51, 100, TABLE.size - 1, TABLE.size + 1])
def test_a_table_of_another_size_is_refused(tmp_path, size):
    path(tmp_path, 0).write_bytes((table([1, 2, 3, 4], 500, 1) + b"\0")[:size])
    assert "another layout" in sentence(jm("measure", "--source", "hsmp", "--", "true", env={"JM_ROOT": str(tmp_path)}))


def test_all_bits_set_is_refused(tmp_path):
    """What a device says that has fallen off its bus."""
    path(tmp_path, 0).write_bytes(b"\xff" * TABLE.size)
    assert "another layout" in sentence(jm("measure", "--source", "hsmp", "--", "true", env={"JM_ROOT": str(tmp_path)}))


def test_a_table_that_stays_the_same_is_a_stuck_counter(tmp_path):
    write(path(tmp_path, 0), table([1000, 2000, 3000, 4000], 500, 9))
    _, meters = measure(tmp_path, 1.5)
    socket = meters["socket0/socket"]
    assert socket["joules"] is None or socket["fault"] == "counter-stuck"


def test_a_table_that_breaks_in_mid_run_is_a_gap(tmp_path):
    firmware = Firmware(tmp_path)
    firmware.start()

    def damage():
        firmware.over.set()
        firmware.join()
        for socket in WATTS:
            write(path(tmp_path, socket), b"\xff" * TABLE.size)
    threading.Timer(0.6, damage).start()
    _, meters = measure(tmp_path, 2.5)
    assert meters["socket0/socket"]["joules"] is None


def test_no_such_processor(tmp_path):
    said = sentence(jm("measure", "--source", "hsmp", "--", "true", env={"JM_ROOT": str(tmp_path)}))
    assert "MI300A" in said and "amd_hsmp" in said
