# SPDX-License-Identifier: Apache-2.0
"""Meters over a network that misbehave: none holds a run, and what it did not give is unknown. All runs of this file are
made side by side when the first test asks for one, because they wait more than they compute."""
import concurrent.futures
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

import redfish_controller
from fake_gpus import FakeGpus, kill, wait_for
from jm import BIN, BUILD, FAILURE, jm
from network_peers import PEERS

LISTED = jm("list").stdout
LIBRARY = {"snmp": "net-snmp", "redfish": "libcurl", "modbus": "libmodbus"}
SANITIZED = "asan" in str(BUILD) or "tsan" in str(BUILD)
WATTS, LATER = 200, 250
SLACK = 20 if SANITIZED else 6  # s, of a loaded machine
DEADLINE = 1
MAX_RSS = 300 << 10  # kB
SOURCES = [name for name in PEERS if f"headers of {LIBRARY.get(name, name)}" not in LISTED and
           (name != "redfish" or shutil.which("openssl"))]
MODES = ["silent", "drip", "huge", "half"]
BESIDE = 6  # runs at a time


class Run:
    """measure with one peer: its status, its messages, its record, its memory and its times."""

    def __init__(self, folder, source, watts=WATTS, timeout=DEADLINE):
        folder.mkdir(parents=True)
        self.folder, self.begun, self.ended = folder, folder / "begun", folder / "ended"
        self.peer = PEERS[source](folder, watts)
        self.timeout, self.record, self.child, self.over = timeout, None, None, None

    def start(self, command, *more):
        env = {**os.environ, "COLUMNS": "400", **getattr(getattr(self.peer, "controller", None), "env", {})}
        with open(self.folder / "stderr", "wb") as err:
            self.child = subprocess.Popen(
                [BIN, "measure", "--json", self.folder / "record", "--interval", "20ms", "--source",
                 self.peer.source(f"{self.timeout}s"), *more, "--", "sh", "-c",
                 f"touch {self.begun}; {command}; touch {self.ended}"],
                env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
        self.at = time.monotonic()

    def finish(self):
        """Waits; `late_s` counts from the end of the command, or from the start where there was none."""
        end = time.monotonic() + 120
        pid, status, usage = 0, 0, None
        while not pid and time.monotonic() < end:
            if self.ended.exists() and not self.over:
                self.over = time.monotonic()
            pid, status, usage = os.wait4(self.child.pid, os.WNOHANG)
            time.sleep(0.01)
        if not pid:
            self.child.kill()
            pid, status, usage = os.wait4(self.child.pid, 0)
        self.child.returncode = self.status = os.waitstatus_to_exitcode(status)
        self.late_s = time.monotonic() - (self.over or self.at)
        self.rss_kb = usage.ru_maxrss
        self.stderr = (self.folder / "stderr").read_text(encoding="utf-8")
        if (self.folder / "record").exists():
            self.record = json.loads((self.folder / "record").read_text(encoding="utf-8"))
        self.peer.stop()
        return self

    def meter(self):
        assert self.status == 0 and self.record, (self.status, self.stderr)
        (one,) = self.record["meters"]
        return one


def during(folder, source, mode):
    """The peer changes its manner while the command runs."""
    run = Run(folder, source)
    run.start("sleep 1.3")
    if wait_for(run.begun.exists):
        time.sleep(0.5)
        run.peer.manner.mode = mode
    return run.finish()


def opening(folder, source, mode):
    run = Run(folder, source)
    run.peer.manner.mode = mode
    run.start("sleep 1")
    return run.finish()


def away(folder, source, change):
    """It goes away and comes back, with another power."""
    run = Run(folder, source)
    run.start("sleep 4.5")
    if wait_for(run.begun.exists):
        time.sleep(0.7)
        run.peer.unplug()
        time.sleep(0.8)
        run.peer.watts = LATER
        change(run.peer)
        run.peer.plug()
    return run.finish()


def back(folder, source):
    return away(folder, source, lambda peer: None)


def other(folder, source):
    """Another instrument comes back at its address."""
    def change(peer):
        peer.identity = "YOKOGAWA,WT333E,C3VG99999V,F1.03"
    return away(folder, source, change)


def interrupted(folder, source):
    """Silent from before the end of the command on; then the first Ctrl-C."""
    run = Run(folder, source, timeout=LONG)
    run.start("while ! test -e silent; do sleep 0.1; done; sleep 0.5".replace("silent", str(folder / "silent")))
    if wait_for(run.begun.exists):
        time.sleep(0.5)
        run.peer.manner.mode = "silent"
        (folder / "silent").touch()
        wait_for(run.ended.exists)
        time.sleep(0.3)
        run.child.send_signal(signal.SIGINT)
    return run.finish()


def slow(folder, source):
    """Each part of an answer comes within the deadline, the whole does not: samples of ptd, power supplies of redfish."""
    run = Run(folder, source)
    if source == "redfish":
        run.peer.resources.clear()
        redfish_controller.supplies(run.peer, *[WATTS / 10] * 10)
    run.start("sleep 1.3")
    if wait_for(run.begun.exists):
        time.sleep(0.5)
        run.peer.manner.mode = "parts"
        run.peer.delay = 0.7 * DEADLINE
    return run.finish()


LONG = 5  # s: more than the slack, so that a second deadline would be seen
CASES = {**{("interrupted", s, None): interrupted for s in SOURCES},
         **{("back", s, None): back for s in SOURCES},
         ("other", "scpi", None): other,
         **{("slow", s, None): slow for s in SOURCES if s in ("ptd", "redfish")},
         **{("during", s, m): during for s in SOURCES for m in MODES},
         **{("opening", s, m): opening for s in SOURCES for m in MODES}}


@pytest.fixture(scope="module", name="runs")
def make_runs(tmp_path_factory, request):
    """Those that the chosen tests ask for."""
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    wanted = [params["case"] for params in chosen if "case" in params]
    root = tmp_path_factory.mktemp("runs")
    with concurrent.futures.ThreadPoolExecutor(BESIDE) as pool:
        started = {case: pool.submit(make, root / "-".join(map(str, case)), case[1], *filter(None, case[2:]))
                   for case, make in CASES.items() if case in wanted}
    return {case: future.result() for case, future in started.items()}


def cases(kind):
    chosen = [case for case in CASES if case[0] == kind]
    return pytest.mark.parametrize("case", chosen, ids=["-".join(filter(None, case[1:])) for case in chosen])


def is_unknown(meter, *watts):
    """Energy is null, the gap is counted, and no reading is one that the peer did not give."""
    assert meter["joules"] is None and meter["gaps"] >= 1, meter
    assert min(watts) * 0.999 <= meter["watts_mean"] <= max(watts) * 1.001, meter
    assert meter["watts_max"] == pytest.approx(watts[-1])


@cases("during")
def test_a_peer_that_goes_wrong_holds_no_run(runs, case):
    run = runs[case]
    is_unknown(run.meter(), WATTS)
    assert run.meter()["covered_s"] < run.record["wall_s"]
    assert run.late_s < 3 * DEADLINE + SLACK
    assert SANITIZED or run.rss_kb < MAX_RSS


@cases("slow")
def test_one_deadline_is_for_all_parts_of_an_answer(runs, case):
    run = runs[case]
    is_unknown(run.meter(), WATTS)
    assert run.late_s < DEADLINE + 0.6 * SLACK


@cases("opening")
def test_a_peer_that_is_wrong_from_the_start_is_refused(runs, case):
    run = runs[case]
    sentences = [line for line in run.stderr.splitlines() if line.startswith("joulemark: ")]
    assert run.status == FAILURE and len(sentences) == 1 and sentences[0][-1] in ".?", run.stderr
    assert not run.begun.exists() and run.record is None
    assert run.late_s < 3 * DEADLINE + SLACK
    assert SANITIZED or run.rss_kb < MAX_RSS


@cases("back")
def test_readings_go_on_when_it_is_back(runs, case):
    one = runs[case].meter()
    is_unknown(one, WATTS, LATER)
    assert 1 < one["covered_s"] < runs[case].record["wall_s"] - 0.5


@cases("other")
def test_another_instrument_is_not_taken_for_it(runs, case):
    is_unknown(runs[case].meter(), WATTS)


@cases("interrupted")
def test_the_first_signal_keeps_the_record_and_waits_for_one_deadline(runs, case):
    run = runs[case]
    is_unknown(run.meter(), WATTS)
    assert run.late_s < LONG + 0.8 * min(SLACK, LONG)


@pytest.mark.parametrize("source", [s for s in SOURCES if s != "ipmi"])
def test_a_port_that_accepts_and_says_nothing(source):
    """Not even a greeting of TLS; of snmp a port that takes datagrams."""
    kind = socket.SOCK_DGRAM if source == "snmp" else socket.SOCK_STREAM
    options = {"modbus": ",map=wt310", "snmp": ",kind=apc"}.get(source, "")
    with socket.socket(socket.AF_INET, kind) as silent:
        silent.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            silent.listen()
        began = time.monotonic()
        done = jm("measure", "--source", f"{source}:127.0.0.1,port={silent.getsockname()[1]},timeout=500ms{options}", "--",
                  "true")
    assert done.returncode == FAILURE and done.stderr.count("joulemark: ") == 1
    assert time.monotonic() - began < 3 * 0.5 + SLACK


@pytest.fixture(name="dripping")
def make_dripping(tmp_path):
    """run that holds a limit of power, and all meters, which drip from the middle of the command on."""
    gpus, peers, children = FakeGpus(tmp_path, 1), [], []
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    for name in SOURCES:
        if name != "ipmi":
            (tmp_path / name).mkdir()
            peers.append(PEERS[name](tmp_path / name, WATTS))
    assert jm("set", "gpu.power=555W", env=gpus.env).returncode == 0
    for name in gpus.journals():  # somebody else has set it
        os.remove(os.path.join(gpus.env["JM_STATE"], "knobs", name))

    def start(seconds):
        child = subprocess.Popen(
            [BIN, "run", "--store", tmp_path / "s.db", "--source", ",".join(p.source(f"{DEADLINE}s") for p in peers),
             "--set", "gpu.power=300W", "--", "sh", "-c",  # a case of the plan is the reference, with the limit found
             f"{BIN} get | grep -q 300 || exit 0; touch {begun}; sleep {seconds}; touch {ended}"],
            env={**os.environ, **gpus.env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
        children.append(child)
        assert wait_for(begun.exists) and gpus.limits() == [300]
        for peer in peers:
            peer.manner.mode = "drip"
        time.sleep(0.5)
        return child, ended, gpus
    yield start
    for child in children:
        kill(child.pid)
        child.wait()
    for peer in peers:
        peer.manner.mode = "silent"
        peer.stop()


def is_restored(child, gpus):
    assert wait_for(lambda: gpus.limits() == [555], 3 * DEADLINE + SLACK)
    assert child.wait(timeout=240) is not None and not gpus.journals()


def test_a_dripping_meter_does_not_hold_the_limit_of_power(dripping):
    child, ended, gpus = dripping(1)
    assert wait_for(ended.exists)
    is_restored(child, gpus)


def test_a_dripping_meter_does_not_hold_the_limit_after_ctrl_c(dripping):
    child, _, gpus = dripping(60)
    child.send_signal(signal.SIGINT)
    is_restored(child, gpus)
    assert child.returncode == 130
