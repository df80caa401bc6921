# SPDX-License-Identifier: Apache-2.0
"""measure CMD: what the command has of the processors, and what the meters measured when it began."""
import json
import subprocess
import sys
import time

import pytest

from daemon import can_unshare
from fake_gpus import FakeGpus
from jm import BIN, jm

BURN = "import time; end = time.process_time() + 0.6\nwhile time.process_time() < end: pass"


def measured(*words, env=None):
    done = jm("measure", "--json", *words, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout[done.stdout.index("{"):]), done.stderr


def test_share_of_the_processors():
    """Of the command and its child; the machine ran at least that, and the joules are the meters' share."""
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '''{BURN}''']); exec('''{BURN}''')"
    begin = time.monotonic()
    record, text = measured("--source", "estimate:1,20", "--", sys.executable, "-c", script)
    wall = time.monotonic() - begin
    own = record["own_share"]
    assert 1.15 < own["cpu_s"] < 1.5 and own["cpu_s"] == pytest.approx(record["user_s"] + record["system_s"])
    assert own["cpu_s"] <= own["machine_cpu_s"] + 0.1 and own["machine_cpu_s"] < 300 * wall
    assert own["share"] == pytest.approx(min(own["cpu_s"] / own["machine_cpu_s"], 1))
    joules = sum(m["joules"] for m in record["meters"] if m["id"] in own["meters"])
    assert own["joules_estimated"] == pytest.approx(own["share"] * joules) and joules > 0
    assert f"{100 * own['share']:.3g} % of all processor time is the command's; the meters include what else ran" in text


@pytest.mark.skipif(not can_unshare(), reason="needs root and a mount namespace")
@pytest.mark.parametrize("command", [["--", sys.executable, "-c", BURN], ["--for", "1s", "--pid", "1"]])
def test_a_containers_own_time_is_not_that_of_the_machine(tmp_path, command):
    """As lxcfs mounts it over /proc/stat: the meters see what else runs on the machine, and this time does not."""
    (tmp_path / "stat").write_text("cpu  1000 0 0 0 0 0 0 0 0 0\ncpu0 1000 0 0 0 0 0 0 0 0 0\nintr 0\n")
    script = f"mount --bind {tmp_path}/stat /proc/stat || exit 99; (sleep 0.2; echo 'cpu  9000 0 0 0 0 0 0 0 0 0' >{tmp_path}/stat) & exec \"$@\""
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", BIN, "measure", "--json", "-", "--source", "sim:h100x2", *command],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout[done.stdout.index("{"):])
    share = record.get("own_share") or record["attached"]
    assert share["machine_cpu_s"] is None and share["share"] is None and share["joules_estimated"] is None


def test_power_before_the_command(tmp_path):
    """The command does not wait for it: on a busy machine it is unknown now and then, and never another figure."""
    gpus = FakeGpus(tmp_path, 2, "wave=square;low=130;high=130;mem=0")
    for _ in range(40):
        record, text = measured("--source", "nvml", "sleep", "0.05", env=gpus.env)
        own = record["own_share"]
        assert own["joules_estimated"] is None and own["meters"] == [] and "  Share " not in text
        if own["watts_before"] is not None:
            break
        assert "  Before " not in text
    assert own["watts_before"] == pytest.approx(260) and "Before   260.0 W when the command began" in text


def test_what_is_not_known_then_is_unknown():
    """A counter alone has no power yet; a short command has no share."""
    record, text = measured("--source", "estimate:1,20", "true")
    own = record["own_share"]
    assert own["watts_before"] is None and "  Before " not in text
    assert (own["share"] is None) == (own["machine_cpu_s"] < 0.1) == ("  Share " not in text)


def test_it_does_not_delay_the_command():
    """The start is as long as without a share: nothing is waited for."""
    assert any(measured("--source", "estimate", "true")[0]["wall_s"] < 0.5 for _ in range(8))  # a busy machine is late now and then


def test_share_of_repeated_runs(tmp_path):
    """Of the counted runs alone, without the warm-up: each run writes down its own time."""
    times = tmp_path / "times"
    script = BURN + f"\nprint(time.process_time(), file=open({str(times)!r}, 'a'))"
    record, text = measured("--source", "estimate:1,20", "--repeat", "2", "--warmup", "1", "--", sys.executable, "-c", script)
    own = record["own_share"]
    warmup, *counted = map(float, times.read_text().split())
    assert len(counted) == 2 and -0.02 < own["cpu_s"] - sum(counted) < warmup / 2
    assert own["cpu_s"] == pytest.approx(record["user_s"] + record["system_s"])
    assert own["joules_estimated"] is None and own["watts_before"] is None
    assert f"{100 * own['share']:.3g} % of all processor time is the command's; the meters include what else ran" in " ".join(text.split())


def test_commands_that_are_compared_have_no_share():
    """The record is that of the first command, and the machine's time is that of all."""
    record, text = measured("--source", "estimate:1,20", "--repeat", "2", "--compare", "sleep 0.2", "--", "sleep", "0.1")
    assert "own_share" not in record and "  Share " not in text
