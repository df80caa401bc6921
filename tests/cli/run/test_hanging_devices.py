# SPDX-License-Identifier: Apache-2.0
"""Drivers and devices that do not return from a call; tests/attack/suite_hangs.py has them at random moments."""
import concurrent.futures
import os
import random

import pytest

from fake_gpus import child_of, wait_for
from hangs import SCENES, Program, play


@pytest.fixture(name="scenes", scope="module")
def all_at_once(tmp_path_factory):
    """Each waits for the limits of a driver, and not for the others."""
    with concurrent.futures.ThreadPoolExecutor(len(SCENES)) as pool:
        return {scene: pool.submit(play, scene, str(tmp_path_factory.mktemp(scene.__name__)), random.Random(scene.__name__))
                for scene in SCENES}


def test_a_scene_that_fails_leaves_nothing_running(tmp_path):
    def failing(folder, _):
        Program(folder, {}, "measure", "--source", "null", "--", "sleep", "60").start().hang()
        assert wait_for(lambda: child_of(Program.of[folder][0].process.pid, b"sleep\0" b"60\0"))
        started.extend([Program.of[folder][0].process.pid, child_of(Program.of[folder][0].process.pid, b"sleep\0" b"60\0")])
        raise AssertionError("as a scene does")

    started = []
    with pytest.raises(AssertionError, match="as a scene does"):
        play(failing, str(tmp_path), None)
    assert wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in started)) and len(started) == 2


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_what_hangs_keeps_nothing(scenes, scene):
    scenes[scene].result()
