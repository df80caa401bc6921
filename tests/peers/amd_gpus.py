# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs behind fake libraries (amd_fake.c): the tree of their driver, and the variables that name the libraries."""
from jm import BUILD

FAKE = {name: str(BUILD / "tests" / "peers" / f"lib{name}.so") for name in
        ("amd-smi-fake", "amd-smi-fake-half", "rocm-smi-fake")}
DEVICE = {"x": 0x74a1, "y": 0x74a1, "b": 0x74a1, "l": 0x74a1, "v": 0x74b5, "a": 0x740f, "d": 0x7408, "s": 0x7408, "A": 0x74a0, "t": 0x740f}


def surroundings(root, version, gpus, smi="amd-smi-fake", rocm=None):
    for i, kind in enumerate(gpus):
        folder = root / f"sys/bus/pci/devices/0000:{0x10 + i:02x}:00.0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "device").write_text(f"0x{DEVICE[kind]:04x}\n", encoding="utf-8")
        (folder / "numa_node").write_text(f"{i}\n", encoding="utf-8")
    return {"JM_ROOT": str(root), "JM_FAKE_AMD": f"{version} {gpus}", "JM_AMDSMI_LIB": FAKE.get(smi, "/nowhere"),
            "JM_ROCMSMI_LIB": FAKE.get(rocm, "/nowhere")}
