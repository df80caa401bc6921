# SPDX-License-Identifier: Apache-2.0
import os

from fake_gpus import FakeGpus
from jm import FAILURE
from knobs import as_found, joulemark


class Suite:
    """Journals of kept settings are damaged at random, one or both copies; truth: the driver's limits."""

    def __init__(self, folder):
        self.gpus = FakeGpus(folder, 4)
        self.found = as_found(self.gpus)

    def file(self, gpu, folder):
        path = os.path.join(self.gpus.env["JM_STATE"], folder)
        return [os.path.join(path, name) for name in os.listdir(path)
                if f"GPU-{gpu}" in name and name.endswith(".journal")]

    @staticmethod
    def damage(path, rng):
        with open(path, "rb") as f:
            text = bytearray(f.read())
        how = rng.choice(("a bit", "bytes", "cut", "emptied", "noise behind", "twice"))
        if how == "a bit":
            text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)
        elif how == "bytes":
            at = rng.randrange(len(text))
            text[at:at + rng.randrange(1, 20)] = rng.randbytes(rng.randrange(1, 20))
        elif how == "cut":
            del text[rng.randrange(1, len(text)):]
        elif how == "emptied":
            text.clear()
        elif how == "noise behind":
            text += rng.randbytes(rng.randrange(1, 50)) + b"\n"
        else:
            text += text[:rng.randrange(1, len(text) - 1)] + b"\n"  # a whole line twice says the same
        with open(path, "wb") as f:
            f.write(text)
        return how

    def round(self, rng):
        gpu, watts = rng.randrange(4), rng.randrange(200, 500)
        done = joulemark(self.gpus, "set", f"gpu.power@GPU-{gpu}={watts}W")
        assert done.returncode == 0, done.stderr
        both = rng.random() < 0.5
        (record,), (copy,) = self.file(gpu, "knobs"), self.file(gpu, "held")
        with open(record, "rb") as f:
            before = f.read()
        how = self.damage(record, rng)
        if both:
            self.damage(copy, rng)
        with open(record, "rb") as f:
            harmless = f.read() == before
        done = joulemark(self.gpus, "restore")
        held = self.found[:gpu] + [float(watts)] + self.found[gpu + 1:]
        now = self.gpus.limits()
        # the right value, or a loud refusal that leaves everything as it is: never a wrong one, never in silence
        if done.returncode == 0:
            assert now == self.found, f"{how}, both {both}: {now}; {done.stdout}{done.stderr}"
            assert harmless or "damaged" in done.stderr, done.stderr
            word = "made good"
        else:
            assert both and done.returncode == FAILURE and now == held, f"{how}: {now}; {done.stderr}"
            assert self.file(gpu, "knobs"), "the damaged file is gone"
            assert joulemark(self.gpus, "status").returncode == FAILURE
            done = joulemark(self.gpus, "set", f"gpu.power@GPU-{gpu}=600W", "--", "true")
            assert done.returncode == FAILURE and self.gpus.limits() == held, done.stderr
            done = joulemark(self.gpus, "restore", "--default")
            assert done.returncode == 0, done.stderr
            assert self.gpus.limits() == held[:gpu] + [700.0] + held[gpu + 1:]
            as_found(self.gpus)
            word = "refused"
        return [f"{how}: {word}"]

    def close(self):
        joulemark(self.gpus, "restore", "--default")
