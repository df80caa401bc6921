# SPDX-License-Identifier: Apache-2.0
"""A few random SIGKILLs of program, guard and both during a sweep; kill_sweep.py does many."""
import os

from kill_sweep import sweep_kills


def test_kills_during_a_sweep(tmp_path):
    count = int(os.environ.get("JM_KILLS", "8"))
    tally = sweep_kills(str(tmp_path), count, seed=3)
    assert tally["kills"] == 3 * count and tally["settings made when killed"] > 0
