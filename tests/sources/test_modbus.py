# SPDX-License-Identifier: Apache-2.0
"""Power over Modbus/TCP, against libmodbus' own server."""
import json
import signal
import subprocess
import threading
import time

import pytest

from fake_gpus import wait_for
from jm import BIN, USAGE, jm, sentence
from modbus_server import Meter, SERVER, words

pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="the headers of libmodbus are not installed")


@pytest.fixture(name="meter")
def make_meter(tmp_path):
    meter = Meter(tmp_path)
    meter.start()
    yield meter
    meter.stop()


def measure(meter, text, command):
    done = jm("measure", "--json", "-", "--interval", "20ms", "--source", meter.source(text), "--", *command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name,kind,power,others", [("wt310", "input", 2004, (2000, 2002, 2010)),
                                                    ("xerus", "holding", 12306, (12296, 12298, 12310))])
def test_maps(meter, name, kind, power, others):
    text = words(kind, power, 437.5)
    for address, value in zip(others, (230.5, 2.0, 0.95)):
        text += words(kind, address, value)
    meter.file.write_text(text, encoding="utf-8")
    record = measure(meter, f"map={name}", ["sleep", "0.5"])
    (one,) = record["meters"]
    assert one["joules"] == pytest.approx(437.5 * record["wall_s"], rel=0.02)
    assert one["scope"] == "node" and one["origin"] == "measured"
    assert {s["quantity"] for s in one["signals"]} == {"power", "voltage", "current", "power-factor"}


@pytest.mark.parametrize("covers", ["/", "psu/0"])
def test_the_node_that_measures_draws_power(meter, covers):
    """0 W of the node, as where a clamp is open, is unknown; one of two supplies may stand by."""
    meter.file.write_text(words("input", 2004, 0), encoding="utf-8")
    (one,) = measure(meter, f"map=wt310,covers={covers}", ["sleep", "1.2"])["meters"]
    assert (one["joules"], one["fault"]) == ((None, "power-zero") if covers == "/" else (0, "none"))


def test_a_node_draws_power_all_the_time(meter):
    """A clamp that is opened for two seconds makes the energy unknown, not small."""
    meter.file.write_text(words("input", 2004, 200), encoding="utf-8")
    for delay, watts in ((1, 0), (3, 200)):
        threading.Timer(delay, meter.file.write_text, (words("input", 2004, watts),)).start()
    (one,) = measure(meter, "map=wt310", ["sleep", "4"])["meters"]
    assert (one["joules"], one["fault"]) == (None, "power-zero")


@pytest.mark.parametrize("options,registers,watts", [
    ("power=100,type=u16,scale=0.1", "holding 100 4321\n", 432.1),
    ("power=100,type=u32", "holding 100 1\nholding 101 2\n", 65538),
    ("power=100,type=u32,low-first=yes", "holding 100 1\nholding 101 2\n", 131073),
    ("power=7,type=s32,table=input", "input 7 0\ninput 8 500\n", 500),
    ("power=65535,type=s16", "holding 65535 12\n", 12)])
def test_any_register(meter, options, registers, watts):
    meter.file.write_text(registers, encoding="utf-8")
    record = measure(meter, options + ",covers=psu/0", ["sleep", "0.3"])
    (one,) = record["meters"]
    assert one["joules"] == pytest.approx(watts * record["wall_s"], rel=0.05) and one["scope"] == "outlet"


@pytest.mark.parametrize("registers", [words("input", 2004, float("nan")), words("input", 2004, float("inf")),
                                       words("input", 2004, -1.0), words("input", 2004, 1e30), "refuse\n"])
def test_what_is_no_power_is_refused(meter, registers):
    meter.file.write_text(registers, encoding="utf-8")
    text = sentence(jm("measure", "--source", meter.source("map=wt310"), "--", "true"))
    assert "returns no power" in text and "2004" in text


def test_a_meter_that_goes_away_is_a_gap(meter):
    """It is unplugged and comes back: that time is unknown, and so is the energy; the rest is measured."""
    meter.file.write_text(words("input", 2004, 200), encoding="utf-8")
    command = [BIN, "measure", "--json", "-", "--interval", "20ms", "--source",
               meter.source("map=wt310,timeout=200ms"), "--", "sleep", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        time.sleep(1)
        meter.stop()
        time.sleep(0.7)
        meter.start()
        out, _ = run.communicate(timeout=240)
    record = json.loads(out)
    (one,) = record["meters"]
    assert one["joules"] is None and one["gaps"] >= 1
    assert 1.5 < one["covered_s"] < 3.6 and one["watts_mean"] == pytest.approx(200)


def test_a_meter_whose_bytes_drip_does_not_hold_the_run(meter):
    """The time limit is one of the whole answer, which would take 6.6 s here. Who waits for it does so each time; a busy
    machine is late now and then."""
    def held():
        meter.file.write_text(words("input", 2004, 200), encoding="utf-8")
        began = time.monotonic()
        record = measure(meter, "map=wt310,timeout=300ms", ["sh", "-c", f"echo drip 200 >> {meter.file}; sleep 1"])
        (one,) = record["meters"]
        assert one["joules"] is None and one["gaps"] >= 1
        return time.monotonic() - began - record["wall_s"]
    assert any(held() < 5 for _ in range(4))


def held(meter, folder, timeout, *args):
    """measure, whose command has ended, and whose meter stopped to answer before."""
    meter.file.write_text(words("input", 2004, 200), encoding="utf-8")
    ended = folder / "ended"
    command = f"echo sleep 30000 >> {meter.file}; sleep 0.5; (sleep 0.3; touch {ended}) >/dev/null &"
    child = subprocess.Popen([BIN, *args, "--interval", "20ms", "--source", meter.source(f"map=wt310,timeout={timeout}"),
                              "--", "sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert wait_for(ended.exists) and child.poll() is None
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_command_loses_no_record(meter, tmp_path, number):
    child = held(meter, tmp_path, "1s", "measure", "--json", "-")
    child.send_signal(number)
    out, _ = child.communicate(timeout=240)
    assert child.returncode == 0
    assert json.loads(out)["wall_s"] > 0.5


def test_a_second_signal_waits_for_no_meter(meter, tmp_path):
    child = held(meter, tmp_path, "20s", "measure", "--json", "-")
    began = time.monotonic()
    while child.poll() is None and time.monotonic() - began < 10:
        child.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert child.wait(timeout=240) == -signal.SIGINT
    assert child.communicate()[0] == ""


def test_a_signal_between_two_runs_ends_the_repeats(meter, tmp_path):
    """After the first run measure waits for 0.6 of a refresh of the meter."""
    meter.file.write_text(words("input", 2004, 200), encoding="utf-8")
    ended, log = tmp_path / "ended", tmp_path / "log"
    args = ["measure", "--json", "-", "--repeat", "4", "--source", meter.source("map=wt310,refresh=4s"), "--", "sh", "-c",
            f"echo >> {log}; (sleep 0.3; touch {ended}) >/dev/null 2>&1 &"]
    child = subprocess.Popen([BIN, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert wait_for(ended.exists)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0 and "Interrupted after run 1," in err
    assert json.loads(out)["repeats"]["runs"] == len(log.read_text()) == 1


def test_a_slow_meter_delays_no_other(meter):
    meter.file.write_text(words("input", 2004, 200) + "sleep 700\n", encoding="utf-8")
    done = jm("measure", "--json", "-", "--interval", "20ms", "--source", meter.source("map=wt310") + ",sim:h100x1",
              "--", "sleep", "1.5")
    gpu = [m for m in json.loads(done.stdout)["meters"] if m["scope"] == "gpu"][0]
    assert gpu["joules"] > 0 and gpu["gaps"] == 0 and gpu["samples"] >= 10


@pytest.mark.parametrize("options,word", [("map=other", "wt310"), ("power=70000", "range"), ("type=f64", "f32"),
                                          ("", "map=NAME"), ("map=wt310,unit=900", "unit")])
def test_wrong_options(meter, options, word):
    assert word in sentence(jm("measure", "--source", meter.source(options).rstrip(","), "--", "true"))


def test_nobody_there():
    text = sentence(jm("measure", "--source", "modbus:127.0.0.1,port=1,map=wt310", "--", "true"))
    assert "does not answer" in text and "127.0.0.1" in text
    text = sentence(jm("measure", "--source", "modbus", "--", "true"), USAGE)
    assert "map=" in text
