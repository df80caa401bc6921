# SPDX-License-Identifier: Apache-2.0
"""GPUs of the false NVML for command-line tests: their environment, and the limits that the driver holds."""
import os
import struct

MAX_GPUS = 64
PIECES = 256
# struct gpu_state of tests/fake/nvml_fake.h: requested_mw, sets, n_pieces, padding, pieces of 3 doubles
GPU_BYTES = 16 + PIECES * 24


class FakeGpus:
    def __init__(self, folder, n=4, config="", old=False):
        name = "libnvidia-ml-fake-old.so" if old else "libnvidia-ml-fake.so"
        self.n, self.state = n, os.path.join(str(folder), "driver")
        self.env = {
            "JM_NVML_LIB": os.path.join(os.environ["JM_BUILD"], "tests", "fake", name),
            "JM_FAKE_NVML_STATE": self.state,
            "JM_STATE": os.path.join(str(folder), "state"),
            "JM_FAKE_NVML": f"gpus={n};{config}",
        }

    def config(self, text):
        self.env["JM_FAKE_NVML"] = f"gpus={self.n};{text}"

    def limits(self):
        """Requested limits in watts, as the driver keeps them."""
        with open(self.state, "rb") as f:
            data = f.read()
        return [struct.unpack_from("<I", data, 8 + i * GPU_BYTES)[0] / 1000 for i in range(self.n)]

    def journals(self):
        folder = os.path.join(self.env["JM_STATE"], "knobs")
        return [f for f in os.listdir(folder) if f.endswith(".journal")] if os.path.isdir(folder) else []
