# SPDX-License-Identifier: Apache-2.0
"""--found gpu.clock=probe: a GPU whose clock is the lowest when idle and the highest under a load is unlocked, and nothing
else is. The driver's own state is what is compared with."""
import json
import os

import pytest

from fake_gpus import FakeGpus
from jm import FAILURE, USAGE, jm, sentence

# Makes the GPU busy that it is told, until it is ended or the seconds are over.
LOAD = """\
trap 'kill $!' TERM
echo "$CUDA_VISIBLE_DEVICES" >>{used}
sleep {seconds} &
touch {busy}
wait
rm {busy}
"""


@pytest.fixture
def gpus(tmp_path):
    gpus = FakeGpus(tmp_path, 2, f"clocks=1;busyfile={tmp_path}/busy")
    gpus.tmp, gpus.used = tmp_path, tmp_path / "used"
    for name, seconds in ("load", 60), ("short", 2):
        (tmp_path / name).write_text(LOAD.format(busy=tmp_path / "busy", used=gpus.used, seconds=seconds))
    assert run(gpus, "get").returncode == 0  # the driver is loaded
    return gpus


def run(gpus, *args):
    return jm(*args, env=gpus.env)


def probe(gpus, command, *words, load="load"):
    return run(gpus, command, "--found", "gpu.clock=probe", "--probe-load", f"sh {gpus.tmp}/{load}", *words)


def lock_by_another_tool(gpus, setting):
    assert run(gpus, "set", "--found", "gpu.clock=unlocked", setting).returncode == 0
    for name in gpus.journals():
        os.remove(os.path.join(gpus.env["JM_STATE"], "knobs", name))


def test_unlocked_clocks_are_found_set_and_reset(gpus):
    done = probe(gpus, "set", "gpu.clock=1200:1500MHz", "--", "cp", gpus.state, gpus.tmp / "during")
    assert done.returncode == 0 and gpus.locked() == [None, None] and not gpus.journals(), done.stderr
    gpus.state = gpus.tmp / "during"
    assert gpus.locked() == [(1200, 1500)] * 2
    used = gpus.used.read_text().split()
    assert len(used) == 2 and used[0].startswith("GPU-0") and used[1].startswith("GPU-1") and not (gpus.tmp / "busy").exists()


def test_the_record_says_that_it_was_probed(gpus):
    done = probe(gpus, "measure", "--source", "nvml", "--json", "--set", "gpu.clock@GPU-1=1200MHz", "--found",
                 "gpu.memory_clock=unlocked", "--set", "gpu.memory_clock@GPU-1=1593MHz", "--", "true")
    assert done.returncode == 0, done.stderr
    assert {s["knob"]: s["found"] for s in json.loads(done.stdout)["settings"]} == \
        {"gpu.clock": "probed", "gpu.memory_clock": "stated"}


def test_what_is_stated_after_a_probe_was_not_probed(gpus):
    done = probe(gpus, "measure", "--source", "nvml", "--json", "--found", "gpu.clock@GPU-1=345:1500MHz", "--set",
                 "gpu.clock=1200MHz", "--", "true")
    assert done.returncode == 0 and gpus.locked() == [None, (345, 1500)], done.stderr
    assert [s["found"] for s in json.loads(done.stdout)["settings"]] == ["probed", "stated"]


def test_a_sweep_probes_once_and_its_records_say_so(gpus):
    done = probe(gpus, "run", "--source", "nvml", "--json", "--repeat", "1", "--set", "gpu.clock@GPU-1=1200,1500MHz", "--", "true")
    assert done.returncode == 0, done.stderr
    found = [s["found"] for record in json.loads(done.stdout) for s in record["settings"]]
    assert len(found) >= 2 and set(found) == {"probed"}
    assert len(gpus.used.read_text().split()) == 2 and gpus.locked() == [None, None] and not gpus.journals()


@pytest.mark.parametrize("words", [["run", "--dry-run", "--set"], ["set", "--dry-run"]], ids=lambda words: words[0])
def test_a_dry_run_needs_no_load(gpus, words):
    done = probe(gpus, *words, "gpu.clock@GPU-1=1200MHz", "--", "true")
    assert done.returncode == 0 and "1200" in done.stdout and not gpus.used.exists(), done.stderr


def test_a_tuner_probes_before_the_command(gpus):
    clocks = ["--knob", "gpu.clock@GPU-1=900:1980+60MHz", "--source", "nvml"]
    done = probe(gpus, "tune", *clocks, "--", "sh", "-c", f"! test -e {gpus.tmp}/busy && cp {gpus.used} {gpus.tmp}/before")
    assert done.returncode == 0, done.stderr
    assert (gpus.tmp / "before").read_text() == gpus.used.read_text() and gpus.locked() == [None, None] and not gpus.journals()
    lock_by_another_tool(gpus, "gpu.clock=345:1500MHz")
    done = probe(gpus, "tune", *clocks, "--", "touch", gpus.tmp / "ran", load="short")
    assert "does not show" in sentence(done, FAILURE) and not (gpus.tmp / "ran").exists() and gpus.locked() == [(345, 1500)] * 2


def test_other_hosts_are_not_probed(gpus):
    done = probe(gpus, "run", "--launcher", "started", "--set", "gpu.clock=1200MHz", "--", "true")
    assert done.returncode == USAGE and "GPUs of this host alone" in " ".join(done.stderr.split())


@pytest.mark.parametrize("locked, why", [
    ("gpu.clock@GPU-1=345:1500MHz", "GPU 1 NVIDIA H100 80GB HBM3 is unlocked: under the load of --probe-load its clock is "
     "1500 MHz, and not 1980 MHz"),
    ("gpu.clock@GPU-0=900:1980MHz", "GPU 0 NVIDIA H100 80GB HBM3 is unlocked: idle its clock is 900 MHz, and not 345 MHz"),
])
def test_a_locked_clock_is_not_taken_for_unlocked(gpus, locked, why):
    """The load ends by itself here, so that nothing is waited for."""
    lock_by_another_tool(gpus, locked)
    before = gpus.locked()
    done = probe(gpus, "set", "gpu.clock=1200MHz", "--", "true", load="short")
    assert why in sentence(done, FAILURE) and gpus.locked() == before and not gpus.journals()


def test_a_load_that_fails_shows_nothing(gpus):
    done = probe(gpus, "set", "gpu.clock=1200MHz", "--", "true", load="missing")
    assert "does not show that gpu.clock of GPU 0" in sentence(done, FAILURE)
    assert gpus.locked() == [None, None] and not gpus.journals()
