# SPDX-License-Identifier: Apache-2.0
"""What two hosts measure becomes one record: meters, totals, one time axis. Hosts are network namespaces, each with a
fake GPU of known power, a boot id of its own, and a clock of its own."""
import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import struct
import subprocess

import jsonschema
import pytest

import page_data
from fake_gpus import FakeGpus
from jm import BIN, SOURCE, is_sanitized, jm
from mpirun import PLUGIN, need_plugin
from netns import two_hosts  # noqa: F401  the fixture "hosts"
from trace_codec import readings

WORK = ["run", "allreduce", "--device", "ref", "--size", "0.0001", "--warmup", "0", "--ranks", "2",
        "--launcher", "started", "--json", "-"]
WATTS = 100, 200
EVERY = 25 if is_sanitized() else 100  # steps, each of which takes longer under a sanitizer
HOUR = ["--time", "--monotonic", "3600", "--fork"]


def boot(folder, name):
    """The root of a machine that was started once more."""
    place = folder / name / "proc/sys/kernel/random"
    place.mkdir(parents=True)
    (place / "boot_id").write_text(f"{name}\n")
    return {"JM_ROOT": str(folder / name)}


def gpu(folder, watts):
    gpus = FakeGpus(folder, 1, f"wave=square;low={watts};high={watts};response=1")
    os.makedirs(os.path.dirname(gpus.state), exist_ok=True)
    return gpus.env


def run(hosts, env, port, *words, more=((), ()), seconds=2):
    calls = [hosts.start(i, [*WORK, "--seconds", seconds, *words], hosts.environment(i, port=port, **env[i]), more[i]) for i in range(2)]
    texts = [call.communicate(timeout=240) for call in calls]
    assert [call.returncode for call in calls] == [0, 0], texts
    return json.loads(texts[0][0]), texts[0][1]


@pytest.fixture(name="two_machines", scope="module")
def record_of_two_machines(hosts, tmp_path_factory):
    """The clock of the second one is an hour ahead."""
    folder = tmp_path_factory.mktemp("two")
    env = [{**gpu(folder / letter, watts), **boot(folder, f"boot-{letter}")} for letter, watts in zip("ab", WATTS)]
    return run(hosts, env, 29910, "--source", "nvml", "--control", "nvml", "--set", "gpu.power=650W", "--order", "given", more=((), HOUR))


def steady(phases):
    found, = (p for p in phases if p["name"] == "steady")
    return found


@pytest.fixture(name="record", scope="module")
def one_record(two_machines):
    found, = (r for r in two_machines[0] if not r["case"]["reference"])
    return found


def test_the_energy_is_that_of_both(record):
    seconds = steady(record["phases"])["end_s"] - steady(record["phases"])["start_s"]
    assert record["total"]["joules_measured"] == pytest.approx(sum(WATTS) * seconds, rel=0.03)
    assert steady(record["phases"])["total"]["joules_measured"] == pytest.approx(record["total"]["joules_measured"])
    assert record["total"]["error_measured_joules"] == pytest.approx(sum(m["error_joules"] for m in record["meters"]))


def test_each_meter_has_its_host(record):
    assert [(m["host"], m["covered_by"]) for m in record["meters"]] == [("host-a", None), ("host-b", None)]
    assert [m["watts_mean"] for m in record["meters"]] == pytest.approx(WATTS, rel=0.03)
    assert record["meters"][1]["id"] == "host-b/" + record["meters"][0]["id"]


def test_both_lie_on_one_axis(record):
    """Ranks begin and end the measured phase together, on a busy machine one of them late; the clocks differ by an hour."""
    a, b = record["hosts"]
    assert a["start_s"] == 0 and 0 < b["start_doubt_s"] < 1  # half of a round trip
    for end in "start_s", "end_s":
        assert abs(steady(a["phases"])[end] - steady(b["phases"])[end]) < 1


def test_hosts_have_their_ranks_and_settings(record):
    assert [(h["name"], h["machine"], h["ranks"]) for h in record["hosts"]] == [("host-a", "boot-a", [0]), ("host-b", "boot-b", [1])]
    assert [[s["requested"] for s in h["settings"]] for h in record["hosts"]] == [[650], [650]]
    assert [r["host"] for r in record["gang"]["ranks"]] == ["host-a", "host-b"] and record["devices"] == 2


def test_the_reference_is_that_of_each_host(two_machines):
    reference, = (r for r in two_machines[0] if r["case"]["reference"])
    assert [[s["requested"] for s in h["settings"]] for h in reference["hosts"]] == [[700], [700]]


def test_the_grade_names_the_host(record):
    assert any(reason.startswith("host-b: ") for reason in record["quality"]["reasons"])


def test_the_record_keeps_its_schema(record):
    schema = json.loads((SOURCE / "docs/record.schema.json").read_text())
    jsonschema.validate(record, schema)


def test_the_report_names_the_hosts(two_machines):
    text = " ".join(two_machines[1].split())
    assert "hosts host-a, host-b, 2 x NVIDIA H100" in text and "sum over 2 GPUs, each counted once, measured" in text, text


def test_sensors_of_one_machine_count_once(hosts, tmp_path):
    """Two hosts that are names of one machine read the same GPU."""
    env = {**gpu(tmp_path, 100), **boot(tmp_path, "boot")}
    record, _ = run(hosts, [env, {**env, "JM_STATE": str(tmp_path / "other")}], 29911, "--source", "nvml")
    assert [m["covered_by"] for m in record["meters"]] == [None, record["meters"][0]["id"]]
    assert record["total"]["joules_measured"] == pytest.approx(record["meters"][0]["joules"])


def test_the_energy_until_a_figure_is_that_of_both(hosts, tmp_path):
    (tmp_path / "text").write_bytes(b"The quick brown fox jumps over the lazy dog. " * 40)
    env = [{**gpu(tmp_path / letter, watts), **boot(tmp_path, f"boot-{letter}")} for letter, watts in zip("ab", WATTS)]
    words = ["run", "gpt", "--layers", 1, "--hidden", 16, "--heads", 2, "--vocab", 256, "--context", 64, "--seq", 64, "--batch", 16,
             "--device", "ref", "--text", tmp_path / "text", "--lr", "0.001", "--eval-every", EVERY, "--steps", 1000, "--until", "loss=6",
             "--ranks", 2, "--launcher", "started", "--json", "-", "--source", "nvml"]
    calls = [hosts.start(i, words, hosts.environment(i, port=29914, **env[i]), ()) for i in range(2)]
    texts = [call.communicate(timeout=240) for call in calls]
    assert [call.returncode for call in calls] == [0, 0], texts
    until = json.loads(texts[0][0])["until"]
    assert until["reached"] and until["steps"] == EVERY
    assert until["joules"] == pytest.approx(sum(WATTS) * until["seconds"], rel=0.05)


def sent(hosts):
    """Bytes that the first host has sent over the cable between both."""
    shown = subprocess.run(["ip", "-n", hosts.names[0], "-s", "-j", "link", "show", "dev", hosts.ends[0]], check=True, capture_output=True)
    return json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"]


@pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun (openmpi-bin) is not installed")
@pytest.mark.parametrize("transport, port", [("net", 29912), ("mpi", 29921)])
def test_mpirun_starts_the_ranks(hosts, tmp_path, transport, port):
    """Open MPI says which rank each is; its agent script takes the place of ssh. The data goes over the cable between both hosts."""
    env = {**hosts.environment(0, port=port), "JM_TRANSPORTS": str(PLUGIN.parent.resolve())}
    if transport == "mpi":
        need_plugin()
        if "ASAN_OPTIONS" in env:  # libraries that Open MPI has closed leave memory behind
            env["ASAN_OPTIONS"] += ":detect_leaks=0"
    del env["RANK"], env["WORLD_SIZE"]
    subnet = f"{hosts.address[0].rsplit('.', 1)[0]}.0/24"
    words = ["mpirun", "--allow-run-as-root", "-np", 2, "--host", ",".join(f"{a}:1" for a in hosts.address),
             "--mca", "plm_rsh_agent", hosts.agent(tmp_path / "agent"),
             "--mca", "oob_tcp_if_include", subnet, "--mca", "btl_tcp_if_include", subnet]
    for name in "MASTER_ADDR", "MASTER_PORT", "JM_GANG_SECRET", "JM_TRANSPORTS", "JM_STATE", "ASAN_OPTIONS", "LSAN_OPTIONS":
        words += ["-x", name] if name in env else []
    large = [word if word != "0.0001" else "0.004" for word in WORK]
    before = sent(hosts)
    done = subprocess.run(hosts.command(0, [*words, BIN, *large, "--steps", "5", "--transport", transport, "--source", "null"]),
                          env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["status"] == "ok" and record["verified"] and [h["name"] for h in record["hosts"]] == ["host-a", "host-b"]
    assert record["transfer"]["transport"] == transport
    # a ring of two: each sends half of the sums and half of the results
    assert sent(hosts) - before > 5 * record["transfer"]["bytes"] > 5 * 3.9e6


def test_the_store_has_the_traces_of_both_on_one_axis(hosts, tmp_path):
    """The second clock is an hour ahead."""
    env = [{**gpu(tmp_path / letter, watts), **boot(tmp_path, f"boot-{letter}")} for letter, watts in zip("ab", WATTS)]
    record, _ = run(hosts, env, 29913, "--source", "nvml", "--store", tmp_path / "s.db", more=((), HOUR))
    text = " ".join(jm("report", tmp_path / "s.db").stdout.split())
    assert "hosts host-a, host-b" in text and "W, 2 GPUs" in text, text
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as db:
        meters = json.loads(db.execute("select meters from trace_t").fetchone()[0])
        chunks = db.execute("select signal, t0_ns, t1_ns, data from chunk_t").fetchall()
    assert sorted(m["id"] for m in meters) == sorted(m["id"] for m in record["meters"])
    owner = [m["id"].startswith("host-b/") for m in meters for _ in m["signals"]]
    assert {owner[c[0]] for c in chunks} == {False, True}
    for signal, t0, t1, data in chunks:
        assert struct.unpack_from("<qq", data, 16) == (t0, t1)
        begin = (t0 - record["start_ns"]) / 1e9, record["hosts"][owner[signal]]["start_s"]
        assert begin[1] - 0.5 < begin[0] <= (t1 - record["start_ns"]) / 1e9 < record["wall_s"] + 1, (signal, begin)
    assert jm("report", tmp_path / "s.db", "--format", "html", "--output", tmp_path / "page.html").returncode == 0
    trace, = page_data.of((tmp_path / "page.html").read_text())["traces"]
    assert sorted(m["id"] for m in trace["meters"]) == sorted(m["id"] for m in meters) and trace["end_s"] < record["wall_s"] + 1
    for m in trace["meters"]:
        assert page_data.points(m)[-1] == (pytest.approx(trace["end_s"], abs=0.7), WATTS[m["id"].startswith("host-b/")])


# ---- pulses: the counter of a GPU that goes from LOW to HIGH and back tells when, to some microseconds ----

LOW, HIGH, HALF_S = 100, 600, 0.5


def turns(counter):
    """When the power changed, in ns: where lines through the counter before and after meet. [(ns, J)] of one GPU."""
    found = []
    for (t0, e0), (t1, e1), (t2, e2), (t3, e3) in zip(counter, counter[1:], counter[2:], counter[3:]):
        before, after = (e1 - e0) / (t1 - t0) * 1e9, (e3 - e2) / (t3 - t2) * 1e9
        if abs(after - before) > 0.9 * (HIGH - LOW):
            found.append(t1 + 1e9 * (e2 - e1 - after * (t2 - t1) / 1e9) / (before - after))
    return found


def test_a_pulse_on_both_hosts_has_one_time(hosts, tmp_path):
    """Both GPUs change their power at the same moments; the second clock is an hour ahead."""
    fake = f"wave=square;low={LOW};high={HIGH};period={2 * HALF_S};step=0.02;stamp=sensor"
    env = []
    for letter in "ab":
        gpus = FakeGpus(tmp_path / letter, 1, fake)
        os.makedirs(os.path.dirname(gpus.state), exist_ok=True)
        env.append({**gpus.env, **boot(tmp_path, f"boot-{letter}")})
    record, _ = run(hosts, env, 29915, "--source", "nvml", "--interval", "10ms", "--store", tmp_path / "s.db", more=((), HOUR),
                    seconds=16 * HALF_S)  # many more turns than needed: a busy machine reads seldom
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as db:
        meters = json.loads(db.execute("select meters from trace_t").fetchone()[0])
        chunks = db.execute("select signal, data from chunk_t order by signal, t0_ns").fetchall()
    signals = [(m["id"].startswith("host-b/"), s["quantity"]) for m in meters for s in m["signals"]]
    late = []
    for host in False, True:
        counter = [r for signal, data in chunks if signals[signal] == (host, "energy") for r in readings(data)]
        late.append([(t / 1e9 + HALF_S / 2) % HALF_S - HALF_S / 2 for t in turns(counter)])
        assert len(late[-1]) >= 4, late
    medians = [statistics.median(x) for x in late]
    apart = abs(medians[1] - medians[0])
    assert apart < 1e-3 and apart < record["hosts"][1]["start_doubt_s"] + 2e-6, (late, record["hosts"][1])
