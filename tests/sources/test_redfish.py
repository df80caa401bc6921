# SPDX-License-Identifier: Apache-2.0
"""The node's power over Redfish, from an HTTPS server with its own certificate."""
import itertools
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import threading
import time

import pytest

from jm import BIN, USAGE, jm, sentence
from redfish_controller import Controller, certify, supplies

pytestmark = [
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed"),
    pytest.mark.skipif("headers of libcurl" in jm("list").stdout, reason="built without libcurl")]


@pytest.fixture(scope="module", name="certificate")
def make_certificate(tmp_path_factory):
    return certify(tmp_path_factory.mktemp("tls"))


@pytest.fixture(name="bmc")
def make_controller(certificate):
    bmc = Controller(certificate)
    yield bmc
    bmc.stop()


def measure(bmc, more="", seconds="0.6"):
    done = jm("measure", "--json", "-", "--interval", "50ms", "--source", bmc.source(more), "--", "sleep", seconds)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def counting():
    """Power and a counter that belongs to it."""
    return {"PowerWatts": {"Reading": 812.5}, "EnergykWh": {"Reading": 12.5 + 812.5 * time.monotonic() / 3.6e6}}


FORMS = [("EnvironmentMetrics", counting),
         ("EnvironmentMetrics", {"PowerWatts": {"Reading": 812.5}}),
         ("Power", {"PowerControl": [{"PowerConsumedWatts": 812.5}, {"PowerConsumedWatts": 1}]})]


@pytest.mark.parametrize("link,resource", FORMS)
def test_forms(bmc, link, resource):
    bmc.chassis("empty", None, None)
    bmc.chassis("node", link, resource)
    record = measure(bmc)
    (one,) = record["meters"]
    # the counter's time is known to half an answer, some 10 ms
    assert one["joules"] == pytest.approx(812.5 * record["wall_s"], rel=0.1 if resource is counting else 0.02)
    assert one["scope"] == "node" and one["origin"] == "measured"
    assert ("energy" in {s["quantity"] for s in one["signals"]}) == (resource is counting)


@pytest.mark.parametrize("digits", [0, 3])
def test_a_counter_that_is_coarse_beside_the_energy_is_not_used(bmc, digits):
    """It rises by one of its last digit, 1 kWh or 1 Wh, while the node takes some 500 J."""
    step, asked = 10 ** -digits, itertools.count()
    bmc.chassis("node", "EnvironmentMetrics", lambda: {
        "PowerWatts": {"Reading": 812.5}, "EnergykWh": {"Reading": round((7001 + (next(asked) > 8)) * step, digits)}})
    record = measure(bmc)
    (one,) = record["meters"]
    assert next(asked) > 10 and one["joules"] == pytest.approx(812.5 * record["wall_s"], rel=0.02)
    assert one["joules_counter"] is None and one["fault"] == "none"
    # one value, of a sensor that may refresh once a minute
    assert one["error_sampling_joules"] is None and record["quality"]["grade"] == "C"
    assert [w for w in ("refreshes is unknown, and it showed 1 value", "less exact")
            if not any(w in r for r in record["quality"]["reasons"])] == []
    assert [s["step"] for s in one["signals"] if s["quantity"] == "energy"] == [pytest.approx(3.6e6 * step)]


def test_what_the_supplies_take_in_is_added(bmc):
    supplies(bmc, 500, 0, None, 300.5)
    (one,) = measure(bmc)["meters"]
    assert one["watts_mean"] == pytest.approx(800.5) and one["scope"] == "psu"
    assert measure(bmc, ",path=/redfish/v1/Chassis/node/PowerSubsystem")["meters"][0]["watts_mean"] == pytest.approx(800.5)


def test_the_sum_is_unknown_when_a_supply_stops_reporting(bmc):
    supplies(bmc, 500, 300)
    answers = iter([300, 300, 300] + [None] * 1000)
    bmc.resources["/p/1/m"] = lambda: {"InputPowerWatts": {"Reading": next(answers)}}
    (one,) = measure(bmc)["meters"]
    assert one["joules"] is None and one["gaps"] >= 1


def test_supplies_that_tell_nothing(bmc):
    supplies(bmc, -1, "5")
    assert "reports no power" in sentence(jm("measure", "--source", bmc.source(), "--", "true"))


@pytest.mark.parametrize("silent", ["no number", "no metrics", "no answer"])
def test_a_supply_that_is_there_and_tells_nothing_is_not_left_out(bmc, silent):
    """The sum of the others would be too small by what it takes in."""
    supplies(bmc, 500, None if silent == "no metrics" else 300)
    bmc.resources["/p/1"]["Status"] = {"State": "Enabled"}
    if silent == "no number":
        bmc.resources["/p/1/m"] = {"InputPowerWatts": {"Reading": None}}
    if silent == "no answer":
        del bmc.resources["/p/1"]
    for more in ("", ",path=/redfish/v1/Chassis/node/PowerSubsystem"):
        text = sentence(jm("measure", "--source", bmc.source(more), "--", "true"))
        assert "The power supply /p/1 reports no InputPowerWatts" in text


def test_an_absent_supply_takes_nothing(bmc):
    supplies(bmc, 500, "no number")
    bmc.resources["/p/1"]["Status"] = {"State": "Absent"}
    assert measure(bmc)["meters"][0]["watts_mean"] == pytest.approx(500)


@pytest.mark.parametrize("before, after, last", [
    ({"State": "Absent"}, {"State": "Enabled"}, 800), ({"State": "Enabled"}, {"State": "Absent"}, 500)])
def test_a_supply_that_comes_or_goes_during_a_run_counts_from_then_on(bmc, before, after, last):
    """The places are looked at again every 5 s."""
    begin = time.monotonic()
    supplies(bmc, 500, 300)
    place = bmc.resources["/p/1"]
    bmc.resources["/p/1"] = lambda: {**place, "Status": before if time.monotonic() < begin + 2 else after}
    (one,) = measure(bmc, seconds="8")["meters"]
    power = next(s for s in one["signals"] if s["quantity"] == "power")
    assert (power["min"], power["max"], power["last"]) == (500, 800, last)


def test_a_supply_that_is_pulled_out_takes_nothing(bmc):
    """Its metrics are gone: the sum is unknown until the places are looked at again, in the next reading."""
    begin = time.monotonic()
    supplies(bmc, 500, 300)
    metrics = bmc.resources["/p/1/m"]
    bmc.resources["/p/1/m"] = lambda: metrics if time.monotonic() < begin + 1 else {}
    place = bmc.resources["/p/1"]
    bmc.resources["/p/1"] = lambda: {**place, "Status": {"State": "Enabled" if time.monotonic() < begin + 1 else "Absent"}}
    (one,) = measure(bmc, seconds="2")["meters"]
    power = next(s for s in one["signals"] if s["quantity"] == "power")
    assert (power["max"], power["last"]) == (800, 500)


def test_more_supplies_than_are_kept_are_no_sum(bmc):
    """Sixteen are: a sum without the others would be too small."""
    supplies(bmc, *[10] * 17)
    text = sentence(jm("measure", "--source", bmc.source(), "--", "true"))
    assert "reports no power" in text and "more than 16 power supplies" in text


def test_the_last_supply_that_is_kept_is_named_when_it_tells_nothing(bmc):
    supplies(bmc, *[10] * 15, "no number")
    text = sentence(jm("measure", "--source", bmc.source(), "--", "true"))
    assert "The power supply /p/15 reports no InputPowerWatts" in text and "more than" not in text


def test_a_chassis_or_a_resource_by_name(bmc):
    bmc.chassis("first", *FORMS[1])
    bmc.chassis("second", "Power", {"PowerControl": [{"PowerConsumedWatts": 300}]})
    assert measure(bmc, ",chassis=second")["meters"][0]["watts_mean"] == pytest.approx(300)
    assert measure(bmc, ",path=/redfish/v1/Chassis/second/Power")["meters"][0]["watts_mean"] == pytest.approx(300)
    text = sentence(jm("measure", "--source", bmc.source(",chassis=third"), "--", "true"))
    assert "third" in text
    text = sentence(jm("measure", "--source", bmc.source(",path=/redfish/v1/Chassis/first"), "--", "true"))
    assert "PowerWatts" in text


def test_a_path_to_another_host_is_not_followed(bmc, certificate):
    """It would get the password."""
    thief = Controller(certificate)
    away = f"@localhost:{thief.port}/x"
    bmc.chassis("node", "EnvironmentMetrics", FORMS[1][1])
    bmc.resources["/redfish/v1/Chassis/node"]["EnvironmentMetrics"]["@odata.id"] = away
    bmc.resources["/redfish/v1/Chassis"]["Members"] += [{"@odata.id": away}, {"@odata.id": "/" * 600}]
    for more in ("", f",path={away}"):
        sentence(jm("measure", "--source", bmc.source(more), "--", "true"))
    assert not thief.connections
    thief.stop()


def test_at_most_64_chassis_are_looked_at(bmc):
    """A list may have any length."""
    for i in range(64):
        bmc.chassis(f"empty{i}", None, None)
    bmc.chassis("node", *FORMS[1])
    assert "reports no power" in sentence(jm("measure", "--source", bmc.source(), "--", "true"))
    assert len(bmc.asked) == 65
    assert measure(bmc, ",chassis=node")["meters"][0]["watts_mean"] == pytest.approx(812.5)


def test_a_certificate_that_is_not_trusted(bmc, tmp_path):
    """There is no way around it: nobody else may pass for the controller and take the password."""
    bmc.chassis("node", *FORMS[0])
    plain = bmc.source().replace(f",ca-file={bmc.folder}/cert", "")
    text = sentence(jm("measure", "--source", plain, "--", "true"))
    assert "not trusted" in text and "ca-file" in text
    by_address = bmc.source().replace("localhost", "127.0.0.1")
    assert "not trusted" in sentence(jm("measure", "--source", by_address, "--", "true"))
    assert not bmc.asked
    (tmp_path / "junk").write_text("junk", encoding="utf-8")
    junk = bmc.source().replace(f"{bmc.folder}/cert", f"{tmp_path}/junk")
    assert "ca-file" in sentence(jm("measure", "--source", junk, "--", "true"))


def test_the_password_is_nowhere(bmc, tmp_path):
    bmc.chassis("node", *FORMS[0])
    store = tmp_path / "a.json"
    command = [BIN, "measure", "--json", str(store), "--source", bmc.source(), "--", "sleep", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        time.sleep(0.5)
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        _, err = run.communicate(timeout=240)
    assert "open sesame" not in shown + err + store.read_text(encoding="utf-8")
    (tmp_path / "wrong").write_text("shut\n", encoding="utf-8")
    wrong = bmc.source().replace(f"{bmc.folder}/password", f"{tmp_path}/wrong")
    text = sentence(jm("measure", "--source", wrong, "--", "true"))
    assert "refuses" in text and "shut" not in text
    missing = bmc.source().replace(f"{bmc.folder}/password", f"{tmp_path}/none")
    assert f"{tmp_path}/none" in sentence(jm("measure", "--source", missing, "--", "true"))


def test_a_password_that_a_pipe_gives_in_pieces(bmc, tmp_path):
    bmc.chassis("node", *FORMS[1])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def give():
        with open(pipe, "wb", buffering=0) as end:
            end.write(b"open ")
            time.sleep(0.1)
            end.write(b"sesame\n")

    threading.Thread(target=give, daemon=True).start()
    source = bmc.source().replace(f"{bmc.folder}/password", str(pipe))
    done = jm("measure", "--source", source, "--", "true")
    assert done.returncode == 0, done.stderr


def core_after_crash(source, folder):
    """Whether the kernel writes a core file of joulemark when it crashes in the middle of a measurement."""
    def unlimited():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)

    command = [BIN, "measure", "--source", source, "--", "sh", "-c", f"touch {folder}/begun; exec sleep 20"]
    env = {**os.environ, "ASAN_OPTIONS": "handle_segv=0:" + os.environ.get("ASAN_OPTIONS", "")}  # the signal is ours
    with subprocess.Popen(command, cwd=folder, preexec_fn=unlimited, stderr=subprocess.DEVNULL, env=env) as run:
        while not (folder / "begun").exists() and run.poll() is None:
            time.sleep(0.01)
        (child,) = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text(encoding="ascii").split()[:1]
        run.send_signal(signal.SIGSEGV)
        status = os.waitpid(run.pid, 0)[1]
        os.kill(int(child), signal.SIGKILL)
        run.returncode = 0
    for file in (folder / "begun", *folder.glob("core*")):
        file.unlink()
    return os.WCOREDUMP(status)


def test_the_password_is_in_no_core_file(bmc, tmp_path):
    """Its library keeps it in memory."""
    if not core_after_crash("sim:h100x1", tmp_path):
        pytest.skip("this machine writes no core files")
    bmc.chassis("node", *FORMS[0])
    assert not core_after_crash(bmc.source(), tmp_path)


@pytest.mark.parametrize("answer", ["", "no json", "[]", '{"PowerWatts": 5}', '{"PowerWatts": {"Reading": "5"}}',
                                    '{"PowerWatts": {"Reading": null}}', '{"PowerWatts": {"Reading": -1}}',
                                    '{"PowerWatts": {"Reading": 0}}', '{"PowerWatts": {"Reading": 1e300}}',
                                    '{"PowerControl": []}', "deep", "long"])
def test_what_is_no_power(bmc, answer):
    answer = {"deep": '{"a":' * 3000, "long": "{" + '"x":1,' * 900000 + '"y":1}'}.get(answer, answer)
    bmc.chassis("node", "EnvironmentMetrics", answer)
    text = sentence(jm("measure", "--source", bmc.source(), "--", "true"))
    assert "reports no power" in text


def test_a_controller_that_stops_telling_is_a_gap(bmc):
    bmc.chassis("node", *FORMS[1])
    threading.Timer(1.0, lambda: bmc.chassis("node", "EnvironmentMetrics", {"PowerWatts": {}})).start()
    (one,) = measure(bmc, seconds="2")["meters"]
    assert one["joules"] is None and one["watts_mean"] == pytest.approx(812.5)


def test_nobody_there():
    text = sentence(jm("measure", "--source", "redfish:127.0.0.1,port=1", "--", "true"))
    assert "does not answer" in text
    assert "redfish:bmc1" in sentence(jm("measure", "--source", "redfish", "--", "true"), USAGE)
