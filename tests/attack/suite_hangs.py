# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import os
import random
import shutil

from hangs import SCENES, play

AT_ONCE = 3  # each waits most of its time


class Suite:
    """Sensors, files of sysfs and devices that do not return from a call, from a random moment on; truth: limits in the
    driver, the status of commands, and what records say is known."""

    def __init__(self, folder):
        self.folder = folder

    def round(self, rng):
        scenes = rng.sample(SCENES, AT_ONCE)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self.one, scenes, [random.Random(rng.getrandbits(64)) for _ in scenes]))
        return [scene.__name__.replace("_", " ") for scene in scenes]

    def one(self, scene, rng):
        folder = os.path.join(self.folder, scene.__name__)
        os.mkdir(folder)
        try:
            play(scene, folder, rng)
        except AssertionError as problem:
            raise AssertionError(f"{scene.__name__}: {problem}") from None
        finally:
            shutil.rmtree(folder)

    def close(self):
        pass
