# SPDX-License-Identifier: Apache-2.0
"""GPUs of the fake NVML for command-line tests: their environment, the limits that the driver holds, and the end of
processes that set them."""
import os
import signal
import struct
import time

MAX_GPUS = 64
PIECES = 256
# struct gpu_state of tests/peers/nvml_fake.h: requested_mw, sets, n_pieces, padding, pieces of 3 doubles
GPU_BYTES = 16 + PIECES * 24


def wait_for(what, seconds=240):
    """False: it hangs. No claim about how soon it happens, which depends on what else the machine does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.005)
    return False


def child_of(pid, command):
    """The process id of the child that runs the command, as it stands in its cmdline, or None."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            for child in f.read().split():
                with open(f"/proc/{child}/cmdline", "rb") as c:
                    if c.read() == command:
                        return int(child)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return None


def guard_of(pid):
    """The process id of the guard that a joulemark has started, or None."""
    return child_of(pid, b"joulemark\0guard\0")


def kill(pid, sig=signal.SIGKILL):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


class DriverState:
    """What the driver of n GPUs holds, by its file."""
    def __init__(self, n, state):
        self.n, self.state = n, str(state)

    def limits(self):
        """Requested limits in watts, as the driver keeps them."""
        with open(self.state, "rb") as f:
            data = f.read()
        return [struct.unpack_from("<I", data, 8 + i * GPU_BYTES)[0] / 1000 for i in range(self.n)]

    def locked(self, memory=False):
        """The range in MHz to which each GPU's clock of the cores or the memory is locked; None = unlocked."""
        with open(self.state, "rb") as f:
            data = f.read()
        at = 8 + MAX_GPUS * (GPU_BYTES + 12 * memory)  # struct locked: min, max, sets
        ranges = [struct.unpack_from("<II", data, at + i * 12) for i in range(self.n)]
        return [r if r[1] else None for r in ranges]

    def locks(self):
        """How often the clock of each GPU's cores was locked or reset."""
        with open(self.state, "rb") as f:
            data = f.read()
        at = 8 + MAX_GPUS * GPU_BYTES
        return [struct.unpack_from("<I", data, at + i * 12 + 8)[0] for i in range(self.n)]


class FakeGpus(DriverState):
    def __init__(self, folder, n=4, config="", old=False):
        name = "libnvidia-ml-fake-old.so" if old else "libnvidia-ml-fake.so"
        super().__init__(n, os.path.join(str(folder), "driver"))
        self.env = {
            "JM_NVML_LIB": os.path.join(os.environ["JM_BUILD"], "tests", "peers", name),
            "JM_FAKE_NVML_STATE": self.state,
            "JM_STATE": os.path.join(str(folder), "state"),
            "JM_FAKE_NVML": f"gpus={n};{config}",
        }

    def config(self, text):
        self.env["JM_FAKE_NVML"] = f"gpus={self.n};{text}"

    def journals(self):
        folder = os.path.join(self.env["JM_STATE"], "knobs")
        return [f for f in os.listdir(folder) if f.endswith(".journal")] if os.path.isdir(folder) else []
