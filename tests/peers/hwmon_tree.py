# SPDX-License-Identifier: Apache-2.0
"""Hardware monitors in a tree of sysfs, in three layouts."""
import os


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def monitor(root, number, chip, values, layout="own"):
    """One hwmon folder. layout: where name and values lie: both in device/, values in device/, or neither."""
    folder = root / "sys/class/hwmon" / f"hwmon{number}"
    device = root / "sys/devices/acpi" / f"ACPI000D:{number:02}"
    device.mkdir(parents=True)
    folder.mkdir(parents=True)
    os.symlink(device, folder / "device")
    put((device if layout == "old" else folder) / "name", chip)
    for name, value in values.items():
        put((folder if layout == "own" else device) / name, value)


def grace(root, layout, number, what, watts, socket=0):
    monitor(root, number, "power_meter", {"power1_average": watts * 1000000,
                                          "power1_oem_info": f"{what} Power Socket {socket}",
                                          "power1_average_interval": 20}, layout)
