# SPDX-License-Identifier: Apache-2.0
"""Drivers and devices that do not return from a call; tests/attack/suite_hangs.py has them at random moments."""
import concurrent.futures
import random

import pytest

from hangs import SCENES


@pytest.fixture(name="scenes", scope="module")
def all_at_once(tmp_path_factory):
    """Each waits for the limits of a driver, and not for the others."""
    with concurrent.futures.ThreadPoolExecutor(len(SCENES)) as pool:
        return {scene: pool.submit(scene, str(tmp_path_factory.mktemp(scene.__name__)), random.Random(scene.__name__))
                for scene in SCENES}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_what_hangs_keeps_nothing(scenes, scene):
    scenes[scene].result()
