# SPDX-License-Identifier: Apache-2.0
"""The units of joulemarkd: systemd reads them, and finds little that the service could do besides its work; and the program
is handed its socket by systemd's own tool."""
import os
import shutil
import subprocess

import pytest

from daemon import PROGRAM, SOCKET, Service, needs_a_namespace
from fake_gpus import wait_for
from jm import BUILD, SOURCE

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
POLICY = "user anna package.power=100:200W\n"


@pytest.fixture
def units(tmp_path):
    """As they are installed, but with the program of the build."""
    shutil.copy(SOURCE / "daemon/joulemarkd.socket", tmp_path)
    text = (BUILD / "joulemarkd.service").read_text(encoding="ascii")
    line = next(word for word in text.splitlines() if word.startswith("ExecStart="))
    assert line.endswith("/joulemark/joulemarkd")
    (tmp_path / "joulemarkd.service").write_text(text.replace(line, f"ExecStart={PROGRAM.resolve()}"), encoding="ascii")
    return tmp_path


def analyze(*words, **more):
    return subprocess.run(["systemd-analyze", *map(str, words)], check=False, capture_output=True, text=True, timeout=240, **more)


@needs_systemd
def test_systemd_reads_the_units(units):
    done = analyze("verify", "./joulemarkd.service", "./joulemarkd.socket", cwd=units)
    assert done.returncode == 0 and not done.stderr, done.stderr


@needs_systemd
def test_the_service_may_do_little_else(units):
    done = analyze("security", "--offline=true", "--no-pager", "--threshold=20", "./joulemarkd.service", cwd=units)
    assert done.returncode == 0, done.stdout[-300:]
    assert "✓ CapabilityBoundingSet=~CAP_SYS_PTRACE" in done.stdout and "✗ CapabilityBoundingSet=~CAP_SYS_ADMIN" in done.stdout


def test_nothing_switches_it_on():
    """An administrator who writes a policy does: systemctl enable --now joulemarkd.socket."""
    text = (SOURCE / "daemon/joulemarkd.socket").read_text(encoding="ascii")
    assert "ConditionPathExists=/etc/joulemark/joulemarkd.conf" in text and "Accept=no" in text
    assert "[Install]" not in (BUILD / "joulemarkd.service").read_text(encoding="ascii")


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="systemd is not installed")
@needs_a_namespace
def test_activated_by_systemd(tmp_path):
    s = Service(tmp_path)
    s.policy(POLICY)
    with open(s.log_path, "wb") as log:
        activator = subprocess.Popen(s.inside("systemd-socket-activate", "--seqpacket", "-l", SOCKET, "-E",
                                              f"LD_PRELOAD={s.machine.env['LD_PRELOAD']}", "-E",
                                              f"ASAN_OPTIONS={s.machine.env['ASAN_OPTIONS']}", PROGRAM), stderr=log)
    try:
        assert wait_for(lambda: subprocess.run(s.inside("chmod", "666", SOCKET), check=False, capture_output=True).returncode == 0)
        file = "/sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw"
        done = s.run("anna", "set", "package.power=120W", "--", "cat", file)
        assert done.returncode == 0 and done.stdout == "120000000\n", (done.stderr, s.log())
        assert s.machine.get(file) == "150125000" and "all put back" in s.log()
    finally:
        activator.terminate()
        activator.wait(timeout=240)
        s.close()


@pytest.mark.parametrize("env, why", [({}, "systemctl enable --now joulemarkd.socket"),
                                      ({"LISTEN_PID": "1", "LISTEN_FDS": "1"}, "with one listening socket"),
                                      ({"LISTEN_PID": "SELF", "LISTEN_FDS": "2"}, "with one listening socket"),
                                      ({"LISTEN_PID": "SELF", "LISTEN_FDS": "1"}, "none that listens for packets")])
def test_without_its_socket_it_says_how_to_start_it(env, why):
    script = "".join(f"export {k}={'$$' if v == 'SELF' else v}; " for k, v in env.items()) + f"exec {PROGRAM} 3</dev/null"
    done = subprocess.run(["sh", "-c", script], check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2 and done.stderr.startswith("<3>") and why in done.stderr, done.stderr


def test_a_policy_can_be_tried(tmp_path):
    path = tmp_path / "conf"
    path.write_text("user anna package.power=100:200W\nuser nobody_of_that_name package.power=1W\n", encoding="ascii")
    if os.geteuid():
        pytest.skip("a policy belongs to root")
    done = subprocess.run([PROGRAM, "--check", path], check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout == "2 rules.\n" and "no user 'nobody_of_that_name'" in done.stderr
    path.write_text("user anna package.power=fast\nuser anna package.power=200:100W\n", encoding="ascii")
    done = subprocess.run([PROGRAM, "--check", path], check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 125 and "Line 2" in done.stderr
    example = subprocess.run([PROGRAM, "--check", SOURCE / "examples/joulemarkd.conf"], check=False, capture_output=True, text=True,
                             timeout=240)
    assert example.stdout == "0 rules.\n" or "root" in example.stderr
