# SPDX-License-Identifier: Apache-2.0
"""--batch max inside a control group: the run keeps to the limit and the kernel kills nothing."""
import json
import os
import pathlib
import subprocess

import pytest

from jm import BIN, jm

TREES = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
         ("/sys/fs/cgroup", "memory.max", "memory.events"))
NET = ("resnet18", "--image", 64, "--steps", 1, "--warmup", 0)


# AddressSanitizer's own memory is no plan's and stands in no reserve.
pytestmark = pytest.mark.skipif("asan" in os.environ.get("JM_BUILD", ""), reason="built with AddressSanitizer")


@pytest.fixture
def group():
    """A control group with a limit that this user may set."""
    for tree, limit, events in TREES:
        at = pathlib.Path(tree) / f"joulemark-test-{os.getpid()}"
        try:
            at.mkdir()
        except OSError:
            continue
        if (at / limit).exists():
            yield at, at / limit, at / events
            at.rmdir()
            return
        at.rmdir()
    pytest.skip("this user may make no control group of memory")


def run_inside(group, words, file):
    at = group[0]
    script = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
    words = [str(w) for w in (BIN, *words, "--json", file)]
    done = subprocess.run(["sh", "-c", script, str(at), *words], capture_output=True, text=True,
                          timeout=1000, check=False)
    return done, json.loads(file.read_text())


def killed(group):
    return [line for line in group[2].read_text().splitlines()
            if line.startswith("oom_kill ") and line != "oom_kill 0"]


@pytest.mark.parametrize("limit", [256 << 20, 320 << 20])
def test_largest_batch_leaves_a_reserve(group, tmp_path, limit):
    device = "ref" if jm("describe", "resnet18", "--device", "cpu", "--batch", 2).returncode else "cpu"
    if device == "ref":
        pytest.skip("the backend cpu is not built")
    group[1].write_text(str(limit))
    done, record = run_inside(group, ("run", *NET, "--device", device, "--batch", "max"),
                              tmp_path / "r.json")
    record = record[0] if isinstance(record, list) else record
    assert not killed(group)
    if done.returncode:
        assert "Not even a batch" in record["reason"]
        return
    plan = record["plan"]
    assert plan["peak_bytes"] <= plan["memory_bytes"] <= limit - 64e6
    assert limit == 320 << 20, "a plan of 191 MB that stay and some images fits into the larger limit only"
