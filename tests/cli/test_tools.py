# SPDX-License-Identifier: Apache-2.0
"""tools/: wrong words are told at once, not after minutes."""
import os
import subprocess

import pytest

from jm import BIN, SOURCE


@pytest.mark.parametrize("program, words, said", [
    ("demo.sh", [BIN, "foo"], "not 'foo'"),
    ("demo.sh", [BIN, "sim:h100x9"], "nodes of 1 to 8"),
    ("demo.sh", [BIN, "nvml"], "LOAD="),
    ("bench.sh", ["build", "nosuch"], "sim_day"),
    ("setup.sh", ["nosuch"], "build|demo|check"),
])
def test_wrong_words(tmp_path, program, words, said):
    done = subprocess.run([SOURCE / "tools" / program, *words], cwd=tmp_path, text=True, timeout=20, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={k: v for k, v in os.environ.items() if k != "LOAD"})
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not done.stdout and not os.listdir(tmp_path)
