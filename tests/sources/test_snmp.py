# SPDX-License-Identifier: Apache-2.0
"""PDUs over SNMP, against Debian's snmpd with a table of values that the test may change."""
import json
import subprocess
import time

import pytest

from jm import BIN, USAGE, jm, sentence
from snmp_pdu import APC, Pdu, RARITAN, SNMPD

pytestmark = [
    pytest.mark.skipif(not SNMPD, reason="snmpd is not installed"),
    pytest.mark.skipif('"name": "snmp"' not in jm("list", "--json").stdout or
                       "headers of net-snmp" in jm("list").stdout, reason="built without net-snmp")]


@pytest.fixture(name="pdu")
def make_pdu(tmp_path):
    one = Pdu(tmp_path)
    one.set([])
    one.start()
    yield one
    one.stop()


def measure(pdu, text, *command):
    done = jm("measure", "--json", "-", "--interval", "50ms", "--source", pdu.source(text), "--",
              *(command or ("sleep", "0.6")))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


KINDS = [
    ("kind=apc", [(f"{APC}.4.3.1.5.1", "integer", 43), (f"{APC}.4.3.1.9.1", "integer", 100)], 430),
    ("kind=apc-outlet,index=7", [(f"{APC}.9.4.3.1.7.7", "gauge", 431)], 431),
    ("kind=raritan", [(f"{RARITAN}.5.2.3.1.4.1.1.5", "gauge", 4312), (f"{RARITAN}.3.3.4.1.7.1.1.5", "gauge", 1)],
     431.2),
    ("kind=raritan-outlet,index=1.3", [(f"{RARITAN}.5.4.3.1.4.1.3.5", "gauge", 433),
                                       (f"{RARITAN}.3.5.4.1.7.1.3.5", "gauge", 0)], 433),
    ("kind=sentry4", [("1.3.6.1.4.1.1718.4.1.3.3.1.3.1.1", "integer", 434)], 434),
    ("kind=geist-outlet,index=2", [("1.3.6.1.4.1.21239.5.2.3.6.1.12.2", "gauge", 435)], 435),
    (f"oid=.{APC}.99.1,scale=0.5", [(f"{APC}.99.1", "string", "872")], 436)]


@pytest.mark.parametrize("source,rows,watts", KINDS, ids=[k[0].split(",", maxsplit=1)[0] for k in KINDS])
def test_kinds(pdu, source, rows, watts):
    pdu.set(rows)
    record = measure(pdu, source)
    (one,) = record["meters"]
    assert one["joules"] == pytest.approx(watts * record["wall_s"], rel=0.02)
    assert one["scope"] == "node" and one["origin"] == "measured"


def test_outlets_of_a_node_are_added(pdu):
    """Two supplies of one node: each is shown, their sum is the node and is counted once."""
    pdu.set([(f"{APC}.9.4.3.1.7.3", "gauge", 200), (f"{APC}.9.4.3.1.7.4", "gauge", 250)])
    record = measure(pdu, "kind=apc-outlet,index=3+4")
    watts = {m["id"].rsplit("/", 1)[1]: m["watts_mean"] for m in record["meters"]}
    assert watts == {"3": pytest.approx(200), "4": pytest.approx(250), "apc-outlet+": pytest.approx(450)}
    assert record["total"]["joules_measured"] == pytest.approx(450 * record["wall_s"], rel=0.02)


def test_a_part_that_is_missing_makes_the_sum_unknown(pdu):
    rows = [(f"{APC}.9.4.3.1.7.3", "gauge", 200), (f"{APC}.9.4.3.1.7.4", "gauge", 250)]
    pdu.set(rows)
    command = [BIN, "measure", "--json", "-", "--interval", "50ms", "--source",
               pdu.source("kind=apc-outlet,index=3+4"), "--", "sleep", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        time.sleep(1)
        pdu.set([rows[0], (f"{APC}.9.4.3.1.7.4", "integer", -1)])
        out, _ = run.communicate(timeout=240)
    joules = {m["id"].rsplit("/", 1)[1]: m["joules"] for m in json.loads(out)["meters"]}
    assert joules["4"] is None and joules["apc-outlet+"] is None and joules["3"] == pytest.approx(400, rel=0.1)


@pytest.mark.parametrize("kind,value", [("integer", -1), ("string", "off"), ("string", "-5"), ("string", ""),
                                        ("string", "1e3")])
def test_what_is_no_power(pdu, kind, value):
    pdu.set([(f"{APC}.4.3.1.5.1", kind, value)])
    assert "reports no power" in sentence(jm("measure", "--source", pdu.source("kind=apc"), "--", "true"))


def test_digits_whose_decimals_are_unknown_are_no_value(pdu):
    """4312 may be 4312 W or 431.2 W; of the energy alone, the power remains."""
    power, decimals = (f"{RARITAN}.5.2.3.1.4.1.1.5", "gauge", 4312), f"{RARITAN}.3.3.4.1.7.1.1"
    pdu.set([power])
    text = sentence(jm("measure", "--source", pdu.source("kind=raritan"), "--", "true"))
    assert "decimals" in text and "oid=OID" in text
    pdu.set([power, (f"{decimals}.5", "gauge", 1), (f"{RARITAN}.5.2.3.1.4.1.1.8", "gauge", 5000)])
    (one,) = measure(pdu, "kind=raritan")["meters"]
    assert one["watts_mean"] == pytest.approx(431.2) and {s["quantity"] for s in one["signals"]} == {"power"}


def test_version_3_with_passwords_from_files(pdu, tmp_path):
    (tmp_path / "auth").write_text("correct-horse\n", encoding="utf-8")
    (tmp_path / "priv").write_text("battery-staple\n", encoding="utf-8")
    (tmp_path / "wrong").write_text("incorrect-horse\n", encoding="utf-8")
    pdu.set(KINDS[0][1])
    record = measure(pdu, f"kind=apc,user=meter,auth-file={tmp_path}/auth,priv-file={tmp_path}/priv")
    assert record["meters"][0]["watts_mean"] == pytest.approx(430)
    assert "battery-staple" not in json.dumps(record)
    text = sentence(jm("measure", "--source", pdu.source(f"kind=apc,user=meter,auth-file={tmp_path}/wrong,"
                                                         f"priv-file={tmp_path}/priv", "500ms"), "--", "true"))
    assert "does not answer" in text and "user" in text


def test_the_community_comes_from_a_file(pdu, tmp_path):
    pdu.set(KINDS[0][1])
    (tmp_path / "secret").write_text("hidden\n", encoding="utf-8")
    assert measure(pdu, f"kind=apc,community-file={tmp_path}/secret")["meters"][0]["watts_mean"] == pytest.approx(430)
    (tmp_path / "secret").write_text("unknown\n", encoding="utf-8")
    text = sentence(jm("measure", "--source", pdu.source(f"kind=apc,community-file={tmp_path}/secret", "500ms"),
                       "--", "true"))
    assert "community" in text and "unknown" not in text


@pytest.mark.parametrize("options,word", [("kind=apc-outlet", "index=3+4"), ("kind=none", "apc"), ("", "kind=NAME"),
                                          ("oid=1.2.x", "1.2.x"), ("kind=apc,port=0", "port"),
                                          ("kind=apc,auth-file=/x,user=a", "/x")])
def test_wrong_options(options, word):
    done = jm("measure", "--source", f"snmp:127.0.0.1,{options}".rstrip(","), "--", "true")
    assert word in sentence(done) and done.returncode in (USAGE, 125)


@pytest.mark.parametrize("later, words", [(12, "reset"), (4294967295, "more than"), (1001, "")])
def test_an_energy_counter_that_jumps(pdu, later, words):
    """Back, or to the end of its range: the power readings carry the energy on. So they do at a step of 0.1 kWh, which
    counts the energy of many minutes."""
    def rows(counter):
        return [(f"{APC}.4.3.1.5.1", "integer", 43), (f"{APC}.4.3.1.9.1", "gauge", counter)]

    pdu.set(rows(1000))
    begun = pdu.folder / "begun"
    command = [BIN, "measure", "--json", "-", "--interval", "50ms", "--source", pdu.source("kind=apc"), "--", "sh", "-c",
               f"touch {begun}; sleep 1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        while not begun.exists() and run.poll() is None:
            time.sleep(0.01)
        time.sleep(0.3)
        pdu.set(rows(later))
        out, _ = run.communicate(timeout=240)
    record = json.loads(out)
    (one,) = record["meters"]
    assert one["joules"] == pytest.approx(430 * record["wall_s"], rel=0.05), one
    assert words in " ".join(record["quality"]["reasons"]), record["quality"]
