# SPDX-License-Identifier: Apache-2.0
"""measure and mark from the command line: statuses, streams, records, marks, bad input."""
import csv
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

import jsonschema
import pytest

from jm import BIN, BUILD, FAILURE, NOT_FOUND, SOURCE, USAGE, jm, sentence

FAKE = BUILD / "tests" / "fake" / "libnvidia-ml-fake.so"
SCHEMA = json.loads((SOURCE / "docs" / "record.schema.json").read_text(encoding="utf-8"))


def check(record):
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(record, SCHEMA, jsonschema.Draft7Validator)
    return record


def record_of(*args, env=None, status=0, **more):
    """The record of `measure args`, validated; it comes by stdout."""
    done = jm("measure", "--json", "-", *args, env=env, **more)
    assert done.returncode == status, done.stderr
    return check(json.loads(done.stdout))


def fakes(text):
    return {"JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": text}


@pytest.fixture(name="rapl")
def rapl_tree():
    """A made-up /sys with one package; energy_uj is a plain file."""
    root = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))  # where any user can look
    zone = root / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    (zone / "energy_uj").write_text("1000000\n")
    yield root
    shutil.rmtree(root)


# ---- statuses and streams


@pytest.mark.parametrize("script, status", [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143),
                                            ("kill -KILL $$", 137)])
def test_status_is_the_commands(script, status):
    record = record_of("--source", "estimate", "--", "sh", "-c", script, status=status)
    assert record["exit_status"] == status
    assert record["signal"] == (status - 128 if status > 128 else None)


def test_stdout_is_left_alone():
    done = jm("measure", "--source", "estimate", "--", "printf", "a\\0b\\n")
    assert done.stdout == "a\0b\n"
    assert "Energy" in done.stderr and ", estimated" in done.stderr


def test_output_that_does_not_block_is_whole():
    """Scanned output goes through us; a slow reader of a non-blocking pipe still gets all of it."""
    out, to = os.pipe()
    os.set_blocking(to, False)
    child = subprocess.Popen([BIN, "measure", "--source", "estimate", "--items-regex", "n ([0-9]+)",
                              "--", "head", "-c", "300000", "/dev/zero"],
                             stdout=to, stderr=subprocess.DEVNULL)
    os.close(to)
    time.sleep(0.3)
    with open(out, "rb") as pipe:
        assert len(pipe.read()) == 300000
    assert child.wait(timeout=20) == 0


def test_missing_command():
    assert "no-such-command" in sentence(jm("measure", "--", "no-such-command"), NOT_FOUND)
    assert "executed" in sentence(jm("measure", "--", "/dev/null"), 126)
    assert sentence(jm("measure"), USAGE)
    assert sentence(jm("measure", "--"), USAGE)


def test_did_you_mean():
    assert "did you mean" in sentence(jm("measure", "--sorce", "rapl", "--", "true"), USAGE)
    assert "'rapl'" in sentence(jm("measure", "--source", "rappl", "--", "true"), USAGE)
    assert "range" in sentence(jm("measure", "--interval", "0s", "--", "true"), USAGE)


def test_signal_is_passed_on():
    script = "trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    child = subprocess.Popen([BIN, "measure", "--source", "estimate", "--", "sh", "-c", script],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=20)
    assert out == "got\n" and child.returncode == 9
    assert "Energy" in err


def test_a_command_of_no_length():
    record = record_of("--source", "estimate", "--", "true")
    assert record["meters"][0]["joules"] is None or record["meters"][0]["joules"] >= 0


# ---- records


def test_estimate_of_a_known_load():
    record = record_of("--source", "estimate:0,20", "--", "sleep", "0.5")
    joules = sum(m["joules"] for m in record["meters"])
    assert abs(joules - 20 * record["wall_s"]) < 0.5
    assert record["total"]["joules_estimated"] == pytest.approx(joules)
    assert record["total"]["joules_measured"] is None
    assert record["quality"]["grade"] == "none"
    assert {m["origin"] for m in record["meters"]} == {"estimated"}


def test_an_estimate_of_two_packages(tmp_path):
    """Watts at rest go by processors; busy is all but idle and waiting for input and output."""
    (tmp_path / "proc").mkdir()
    for cpu, package in enumerate([0, 0, 1]):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
    stat, later = tmp_path / "proc/stat", tmp_path / "later"
    stat.write_text("cpu  0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0\nintr 0\n")
    # user nice system idle iowait irq softirq: 1 + 2 + 3 + 6 + 7 ticks are busy
    later.write_text("cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\ncpu1 0 0 0 0 0 0 0\ncpu2 0 0 9 0 0 0 0\nintr 0\n")
    record = record_of("--source", "estimate:10,30", "--", "sh", "-c", f"sleep 0.3; cat {later} >{stat}; sleep 0.3",
                       env={"JM_ROOT": str(tmp_path)})
    tick = 1 / os.sysconf("SC_CLK_TCK")
    busy = [10 * 19 * tick, 10 * 9 * tick]
    for meter, idle, work in zip(record["meters"], [20, 10], busy):
        assert meter["joules"] == pytest.approx(idle * record["wall_s"] + work, rel=0.03), meter["id"]


def test_an_estimate_claims_no_precision():
    """Its times come in ticks: no bound below a tick, and no bound beside a model's own error."""
    record = record_of("--source", "estimate:5,20", "--", "true")
    tick = 5 / os.sysconf("SC_CLK_TCK")
    for meter in record["meters"]:
        assert meter["signals"][0]["step"] == pytest.approx(tick)
        bound = meter["error_sampling_joules"]
        assert bound is None or bound > 0.5 * tick
    assert not any("refresh" in r for r in record["quality"]["reasons"])
    done = jm("measure", "--source", "estimate", "--", "sleep", "0.1")
    assert "±" not in done.stderr


@pytest.mark.parametrize("wrong,option", [
    ("x", "core"), ("5 J,20", "core"), ("5,20x", "idle"), ("1" * 40, "core"), ("-1", "core"), ("1e308", "core"),
    ("5,1e6", "idle"), ("idle=20x", "idle"), ("5,20,30", "30"), ("watts=5", "watts"), ("cores=5", "cores")])
def test_a_wrong_estimate_is_named(wrong, option):
    text = sentence(jm("measure", "--source", f"estimate:{wrong}", "--", "true"), USAGE)
    assert "--source estimate" in text and option in text


def test_options_of_a_source_by_name():
    record = record_of("--source", "estimate:idle=20,core=0", "--", "sleep", "0.5")
    assert sum(m["joules"] for m in record["meters"]) == pytest.approx(20 * record["wall_s"], rel=0.05)
    both = record_of("--source", "estimate:idle=20,sim:node=h100x1", "--", "true")
    assert {m["id"].split(":")[0] for m in both["meters"]} == {"estimate", "sim"}
    text = sentence(jm("measure", "--source", "rapl:core=5", "--", "true"), USAGE)
    assert "rapl" in text and "takes no options" in text


def test_sources_list_their_options():
    done = jm("list")
    assert "estimate:core=WATTS" in done.stdout and "nvml:raw" in done.stdout


FAULTS = [
    ("freeze=0@0.01", "counter-stuck", "did not change"),
    ("freeze=0@1", "counter-stuck", "did not change"),
    ("freeze=0@0.5;thaw=0@1.5", "counter-stuck", "did not change"),
    ("jump=0@1", "counter-fast", "more than it can draw"),
    ("reset=0@1", "none", "was reset once; its energy comes from power readings"),
]


@pytest.mark.parametrize("config,fault,said", FAULTS)
def test_a_counter_that_cannot_be_true_is_not_used(config, fault, said):
    """The truth is 350 W; the GPU beside it has a sound counter."""
    record = record_of("--source", "nvml", "--", "sleep", "2", env=fakes(f"gpus=2;power=350;{config}"))
    faulty, sound = record["meters"]
    assert faulty["fault"] == fault and faulty["joules_counter"] is None
    assert abs(faulty["joules"] - 350 * record["wall_s"]) <= faulty["error_sampling_joules"]
    assert any(said in reason and "GPU 0" in reason for reason in record["quality"]["reasons"])
    assert sound["fault"] == "none" and sound["joules"] == sound["joules_counter"]
    assert not any("GPU 1" in reason and "counter" in reason for reason in record["quality"]["reasons"])


def test_a_package_that_stands_still_is_unknown(rapl):
    """Nothing else tells the power of a package: 0 J would be believed."""
    record = record_of("--source", "rapl", "--", "sleep", "1.5", env={"JM_ROOT": str(rapl)})
    (meter,) = record["meters"]
    assert meter["fault"] == "counter-stuck" and meter["joules"] is None and meter["joules_counter"] is None
    assert meter["error_joules"] is None and meter["watts_median"] is None and meter["watts_mean"] is None
    assert record["total"]["joules_measured"] is None
    assert any("did not change" in reason for reason in record["quality"]["reasons"])


def test_a_package_that_jumps_is_unknown(rapl):
    """100 W, and a jump of 100 kJ."""
    counter = rapl / "sys/class/powercap/intel-rapl:0/energy_uj"
    script = (f"for i in $(seq 15); do echo $((i * 10000000 + i / 8 * 100000000000)) >{counter}; sleep 0.1; done")
    record = record_of("--source", "rapl", "--", "sh", "-c", script, env={"JM_ROOT": str(rapl)})
    (meter,) = record["meters"]
    assert meter["fault"] == "counter-fast" and meter["joules"] is None and meter["watts_median"] is None
    assert meter["watts_max"] is None
    assert any("more than it can draw" in reason for reason in record["quality"]["reasons"])


def test_sampling_tells_its_own_cost():
    """A reading of the counter that computes for 3 ms: the record says so, and the readings are few."""
    config = "gpus=1;power=300;energycost=3000"
    raw = record_of("--source", "nvml:raw", "--interval", "1ms", "--", "sleep", "1.5", env=fakes(config))
    few = record_of("--source", "nvml", "--interval", "1ms", "--", "sleep", "1.5", env=fakes(config))
    assert raw["sampler_cpu_s"] > 0.2 and few["sampler_cpu_s"] < 0.6 * raw["sampler_cpu_s"]
    for record in (raw, few):
        (meter,) = [m for m in record["meters"] if m["scope"] == "gpu"]
        assert meter["joules"] == pytest.approx(300 * record["wall_s"], rel=0.05)  # a busy machine
        assert record["sampler_cpu_s"] < record["wall_s"] + 0.5


def test_sources_with_numbers_in_a_list():
    done = jm("measure", "--source", "estimate:1,20,sim:h100x1", "--json", "-", "--", "true")
    ids = [m["id"] for m in json.loads(done.stdout)["meters"]]
    assert any(i.startswith("estimate:") for i in ids) and any(i.startswith("sim:") for i in ids)


@pytest.mark.parametrize("sources", ["nvml,nvml:all", "estimate,estimate:5,20"])
def test_no_meter_comes_twice(sources):
    text = sentence(jm("measure", "--source", sources, "--", "true", env=fakes("gpus=2")), USAGE)
    assert "is opened twice" in text and sources.split(",", maxsplit=1)[0] in text


def test_a_driver_that_fails_is_no_silence():
    """Without --source: what is not there is not spoken of, what is there and does not work is."""
    done = jm("measure", "--", "true", env=fakes("init=18"))
    assert done.returncode == 0 and "warning: nvml:" in done.stderr and "reboot" in done.stderr
    done = jm("measure", "--", "true", env=fakes("init=9"))
    assert done.returncode == 0 and "nvml" not in done.stderr


def test_a_counter_that_stands_at_0_is_no_news(rapl):
    """A virtual machine's; measuring goes on as where there is none."""
    (rapl / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("0\n")
    (rapl / "proc").mkdir()
    (rapl / "proc/stat").write_text("cpu  1 1 1 1 1 1 1\ncpu0 1 1 1 1 1 1 1\nintr 0\n")
    done = jm("measure", "--", "true", env={"JM_ROOT": str(rapl)})
    assert done.returncode == 0 and "'estimate' estimates it" in done.stderr and "rapl" not in done.stderr


@pytest.mark.parametrize("option", ["--json", "--csv", "--source", "--items-regex", "--items-json"])
def test_an_option_without_a_value(option):
    assert option in sentence(jm("measure", f"{option}=", "--", "true"), USAGE)


def test_rapl_counts(rapl):
    counter = rapl / "sys/class/powercap/intel-rapl:0/energy_uj"
    script = f"sleep 0.3; echo 4500000 1<> {counter}; sleep 0.3"
    record = record_of("--source", "rapl", "--", "sh", "-c", script, env={"JM_ROOT": str(rapl)})
    meter = record["meters"][0]
    assert meter["joules"] == pytest.approx(3.5, abs=1e-6)
    assert meter["joules_integrated"] is None
    assert meter["id"] == "rapl:/sys/class/powercap/intel-rapl:0"
    assert record["total"]["joules_measured"] == pytest.approx(3.5, abs=1e-6)


def test_rapl_unreadable(rapl):
    counter = rapl / "sys/class/powercap/intel-rapl:0/energy_uj"
    counter.unlink()
    counter.mkdir()
    done = jm("measure", "--source", "rapl", "--", "true", env={"JM_ROOT": str(rapl)})
    assert str(counter) in sentence(done, FAILURE)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs another user")
def test_rapl_right_needed(rapl):
    rapl.chmod(0o755)
    (rapl / "sys/class/powercap/intel-rapl:0/energy_uj").chmod(0o400)
    done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "cat", BIN],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if done.returncode:
        pytest.skip("the program cannot be read by another user")
    done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", BIN, "measure",
                           "--source", "rapl", "--", "true"], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**os.environ, "JM_ROOT": str(rapl)})
    text = sentence(done, FAILURE)
    assert "energy_uj" in text and "root" in text and "CVE-2020-8694" in text


def test_square_wave_through_nvml():
    low, high, period, shift = 100.0, 600.0, 2.0, 0.25

    def until(t, gpu):
        t += gpu * shift
        whole = t // period
        rest = t - whole * period
        return (whole * (low + high) * period / 2 + min(rest, period / 2) * high
                + max(0.0, rest - period / 2) * low)

    wave = f"gpus=4;wave=square;low={low};high={high};period={period};shift={shift}"
    record = record_of("--source", "nvml", "--", "sleep", "2.3", env=fakes(wave))
    phase = record["phases"][0]
    begin, end = (record["start_ns"] * 1e-9 + phase[k] for k in ("start_s", "end_s"))
    meters = [m for m in record["meters"] if m["scope"] == "gpu"]
    assert len(meters) == 4
    for gpu, meter in enumerate(meters):
        truth = until(end, gpu) - until(begin, gpu)
        assert meter["joules"] == pytest.approx(truth, rel=0.03)
        assert meter["joules_integrated"] == pytest.approx(truth, rel=0.12)
    assert record["total"]["joules_measured"] == pytest.approx(sum(m["joules"] for m in meters))


def test_an_unknown_total_is_said_beside_a_known_one():
    done = jm("measure", "--source", "nvml,estimate", "--", "sleep", "0.8",
              env=fakes("gpus=2;power=300;lost=1@0.4"))
    lines = done.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  Energy"))
    assert "unknown, measured" in lines[at] and lines[at + 1].endswith(" estimated")


def test_text_of_a_measurement(tmp_path):
    """Totals with uncertainty, Wh and mean power; phases as a table; all against the record's figures."""
    path = tmp_path / "r.json"
    script = f"sleep 0.4; '{BIN}' mark train; sleep 0.4; '{BIN}' mark save --items 100; sleep 0.2"
    done = jm("measure", "--source", "nvml", "--unit", "token", "--json", path, "sh", "-c", script,
              env=fakes("gpus=2;power=300"))
    record = check(json.loads(path.read_text()))
    joules, error = record["total"]["joules_measured"], record["total"]["error_measured_joules"]
    gpus = [m for m in record["meters"] if m["covered_by"] is None]
    parts = [sum(m["error_sampling_joules"] ** 2 for m in gpus) ** 0.5,
             sum(m["error_calibration_joules"] for m in gpus)]
    assert record["unit"] == "token" and error == pytest.approx((parts[0] ** 2 + parts[1] ** 2) ** 0.5)
    for meter in record["meters"]:
        assert meter["error_joules"] == pytest.approx(
            (meter["error_sampling_joules"] ** 2 + meter["error_calibration_joules"] ** 2) ** 0.5)
    energy, = re.findall(r"^  Energy +([0-9.]+) J ± ([0-9.]+) J \(([0-9.]+) Wh\), mean ([0-9.]+) W, measured",
                         done.stderr, re.M)
    assert list(map(float, energy)) == pytest.approx(
        [joules, error, joules / 3600, joules / record["wall_s"]], rel=0.05)
    phases = {p["name"]: p for p in record["phases"]}
    for name in ("command", "train", "save"):
        cells, p = re.search(rf"^  {name} +(.*)$", done.stderr, re.M).group(1).split(), phases[name]
        seconds, total = p["end_s"] - p["start_s"], p["total"]
        assert float(cells[0]) == pytest.approx(seconds, rel=1e-3)
        assert float(cells[1]) == pytest.approx(total["joules_measured"], rel=0.05)
        assert float(cells[3]) == pytest.approx(total["error_measured_joules"], rel=0.4)
        assert float(cells[4]) == pytest.approx(total["joules_measured"] / seconds, rel=1e-3)
        if p["items"]:
            assert cells[5] == "100"
            assert float(cells[6]) == pytest.approx(total["joules_measured"] / 100, rel=0.05)
    assert re.search(r"phase +s +J +mean W +tokens +J/token", done.stderr)


def test_parts_and_devices_on_demand():
    plain, more = (jm("measure", "--source", "nvml", *args, "sleep", "0.3", env=fakes("gpus=2;power=300")).stderr
                   for args in ([], ["--bounds", "--devices"]))
    assert "calibration J" not in plain and not re.search(r"^  command .*GPU 1", plain, re.M)
    assert "calibration J" in more and "sampling J" in more and re.search(r"^  command +GPU 1", more, re.M)


def test_the_first_word_begins_the_command(tmp_path):
    """As with time and perf stat: what follows it is the command's own."""
    path = tmp_path / "r.json"
    done = jm("measure", "--source", "estimate", "--json", path, "echo", "--json", "-", "--", "x")
    assert done.stdout == "--json - -- x\n"
    assert check(json.loads(path.read_text()))["command"] == ["echo", "--json", "-", "--", "x"]
    assert sentence(jm("measure", "--source", "estimate", "no-such-command", "--epochs", "3"), NOT_FOUND)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_command_is_named_by_its_signal(number):
    command = ["sh", "-c", f"kill -{int(number)} $$"]
    done = jm("measure", "--source", "estimate", *command)
    assert f"killed by {number.name} (signal {int(number)}, exit status {128 + number})" in done.stderr
    assert f"was killed by {number.name}" in jm("run", "--source", "null", "--", *command).stderr


def test_a_gpu_disappears():
    done = jm("measure", "--source", "nvml", "--json", "-", "--", "sleep", "1.2",
              env=fakes("gpus=3;power=300;lost=1@0.6"))
    record = check(json.loads(done.stdout))
    gpus = [m for m in record["meters"] if m["scope"] == "gpu"]
    assert gpus[1]["joules"] is None and gpus[1]["gaps"] >= 1
    assert 0.2 < gpus[1]["covered_s"] < 1.0
    for i in (0, 2):
        assert gpus[i]["joules"] == pytest.approx(300 * record["wall_s"], rel=0.03)
    assert record["total"]["joules_measured"] is None
    assert "unknown" in done.stderr and " 0 W" not in done.stderr
    assert any("known for" in r for r in record["quality"]["reasons"])


def test_gpus_lost_between_steps():
    """Whatever the moment, what is known has the GPU's power: no second is counted without its joules."""
    lost = ",".join(f"{i}@{0.7 + 0.0137 * i:.4f}" for i in range(8))
    record = record_of("--source", "nvml", "--", "sleep", "1.2", env=fakes(f"gpus=8;power=300;lost={lost}"))
    for meter in record["meters"]:
        assert meter["joules"] is None and meter["covered_s"] > 0.4
        # polls are 50 ms apart, so the time of the last step is known to 25
        assert meter["watts_mean"] == pytest.approx(300, abs=300 * 0.026 / meter["covered_s"])


# ---- marks and items


def test_marks_become_phases():
    script = (f"sleep 0.2; '{BIN}' mark train; sleep 0.5; '{BIN}' mark save --items 100; sleep 0.2")
    record = record_of("--source", "estimate:0,20", "--", "sh", "-c", script)
    phases = {p["name"]: p for p in record["phases"]}
    assert set(phases) == {"command", "train", "save"}
    train = phases["train"]
    length = train["end_s"] - train["start_s"]
    assert 0.45 < length < 1.5 and train["items"] == 100
    assert train["total"]["joules_estimated"] == pytest.approx(20 * length, rel=0.1)
    assert record["items"] == 100
    assert record["throughput"] == pytest.approx(100 / length, rel=0.01)
    assert phases["save"]["items"] is None


def test_a_phase_that_counts_itself_ends_with_its_last_count():
    script = f"'{BIN}' mark settle; sleep 0.2; '{BIN}' mark settle --items 5; sleep 0.8; '{BIN}' mark end"
    record = record_of("--source", "estimate:0,20", "--", "sh", "-c", script)
    names = [p["name"] for p in record["phases"]]
    assert names[:3] == ["command", "mark.settle", "end"]  # "settle" is a phase of joulemark's own
    phase = record["phases"][1]
    assert phase["items"] == 5 and phase["end_s"] - phase["start_s"] < record["wall_s"] - 0.7


COUNT_INTERRUPTS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
signal.sigwaitinfo([signal.SIGINT])
print("first", flush=True)
print("again" if signal.sigtimedwait([signal.SIGINT], 0.7) else "no more", flush=True)
"""


def test_the_terminals_interrupt_comes_once():
    """Ctrl-C reaches the command from its terminal; joulemark, which hears it later, does not pass it on too."""
    pid, terminal = pty.fork()
    if not pid:
        os.execv(BIN, [BIN, "measure", "--source", "estimate", "--", sys.executable, "-c", COUNT_INTERRUPTS])
    said = b""
    while b"no more" not in said and b"again" not in said:
        more = os.read(terminal, 4096)
        said += more
        if b"ready" in more:
            os.kill(pid, signal.SIGSTOP)
            os.write(terminal, b"\x03")
        if b"first" in more:
            os.kill(pid, signal.SIGCONT)
    os.close(terminal)
    os.waitpid(pid, 0)
    assert b"no more" in said, said


def test_report_of_marks_speaks_of_one_stretch(tmp_path):
    """Items, seconds and joules of the report are all those of the whole command, of which marks tell a part."""
    path = tmp_path / "r.json"
    script = f"sleep 0.3; '{BIN}' mark train; sleep 0.3; '{BIN}' mark save --items 100; sleep 0.3"
    done = jm("measure", "--source", "estimate:0,20", "--json", path, "--", "sh", "-c", script)
    assert "100 items" in done.stderr and "/s between the first mark and the last" in done.stderr
    record = check(json.loads(path.read_text()))
    assert record["phase"] == "command" and record["throughput"] > 1.5 * 100 / record["wall_s"]
    whole = record["phases"][0]
    seconds, joules = whole["end_s"] - whole["start_s"], whole["total"]["joules_estimated"]
    assert whole["items"] == 100 and record["total"]["joules_estimated"] == joules
    (case,) = json.loads(jm("report", "--format", "json", path).stdout)["cases"]
    values = case["values"]
    assert values["items_per_joule"] == pytest.approx(100 / joules)
    assert values["throughput"] == pytest.approx(100 / seconds)
    assert values["watts_mean"] == pytest.approx(joules / seconds)
    assert values["edp"] == pytest.approx(joules / 100 * seconds / 100)


def test_mark_outside():
    env = {k: v for k, v in os.environ.items() if k != "JM_PROGRESS"}
    done = subprocess.run([BIN, "mark", "x"], env=env, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "measure" in sentence(done, FAILURE)


def test_marks_out_of_order():
    """Of several senders the later one may come first; phases still follow each other."""
    script = """
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
t = time.monotonic_ns()
time.sleep(0.15)
for after, name in ((120, "a"), (60, "b"), (140, "c")):
    s.sendto(f"jm1 {t + after * 1000000} mark {name} 5".encode(), os.environ["JM_PROGRESS"])
"""
    record = record_of("--source", "estimate", "--", "/usr/bin/python3", "-c", script)
    assert all(p["end_s"] >= p["start_s"] for p in record["phases"])


def test_nobody_listens(tmp_path):
    """measure ... 2>&1 | head: the record is there, the status is the command's, which itself may be killed so."""
    path = tmp_path / "r.json"
    read, write = os.pipe()
    os.close(read)
    done = jm("measure", "--source", "estimate", "--json", path, "--", "sh", "-c", "exit 3", stderr=write)
    os.close(write)
    assert done.returncode == 3 and check(json.loads(path.read_text()))["exit_status"] == 3
    record = record_of("--source", "estimate", "--", "sh", "-c", "kill -PIPE $$", status=141)
    assert record["signal"] == 13


def test_items_from_output():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "r.json"
        done = jm("measure", "--source", "estimate", "--json", path, "--items-regex",
                  "([0-9]+) tokens", "--", "sh", "-c", "sleep 0.3; echo 40 tokens; echo 20 tokens")
        assert done.stdout == "40 tokens\n20 tokens\n"
        record = check(json.loads(path.read_text()))
        assert record["items"] == 60
        assert record["throughput"] == pytest.approx(60 / record["wall_s"], rel=0.01)
        done = jm("measure", "--source", "estimate", "--json", path, "--items-json",
                  "result.tokens", "--", "echo", '{"result": {"tokens": 7}}')
        assert check(json.loads(path.read_text()))["items"] == 7


def test_items_of_the_output_reach_phases():
    """Those printed during a phase are its own; what marks tell of the same work is not added."""
    script = (f"echo 5 tokens; sleep 0.3; '{BIN}' mark train; sleep 0.3; echo 40 tokens; sleep 0.2; echo 20 tokens; sleep 0.3; "
              f"'{BIN}' mark save --items 1000; sleep 0.2")
    done = jm("measure", "--source", "estimate", "--json", "/dev/stderr", "--items-regex", "([0-9]+) tokens",
              "--output", os.devnull, "sh", "-c", script)
    record = check(json.loads(done.stderr[done.stderr.index("{"):]))
    items = {p["name"]: p["items"] for p in record["phases"]}
    assert items["command"] == 65 and items["train"] == 60 and items["save"] is None


@pytest.mark.parametrize("args, words", [
    (["--items-json", "tokns"], "did you mean 'tokens'?"),
    (["--items-json", "result.token"], "did you mean 'tokens'?"),
    (["--items-json", "speed"], "found no items"),
    (["--items-regex", "([0-9]+) steps"], "found no items"),
])
def test_items_that_are_not_there(args, words):
    for command in (["measure", "--source", "estimate"], ["run", "--source", "null"]):
        done = jm(*command, *args, "--", "echo", '{"tokens": 7, "result": {"tokens": 7}}')
        assert done.returncode == 0 and words in done.stderr, done.stderr
        assert args[1] in done.stderr


def test_lost_output_is_told():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = jm("measure", "--source", "estimate", "--items-regex", "x", "--", "echo", "x", stdout=full)
    assert "standard output" in sentence(done, FAILURE)


def test_an_endless_command_whose_reader_goes(tmp_path):
    """measure ... -- yes | head -1"""
    path = tmp_path / "r.json"
    child = subprocess.Popen([BIN, "measure", "--source", "estimate", "--json", path, "--items-regex", "y",
                              "--", "yes"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert child.stdout.readline() == b"y\n"
        child.stdout.close()
        assert child.wait(timeout=20) == 128 + signal.SIGPIPE
    finally:
        child.kill()
    record = check(json.loads(path.read_text()))
    assert record["items"] > 0 and record["signal"] == signal.SIGPIPE


def test_scanned_items_lie_within_the_command(tmp_path):
    """What it printed last still waits for a slow reader when it has ended."""
    path, (out, to) = tmp_path / "r.json", os.pipe()
    fcntl.fcntl(to, fcntl.F_SETPIPE_SZ, 4096)
    child = subprocess.Popen([BIN, "measure", "--source", "estimate", "--json", path, "--items-regex",
                              "([0-9]+) item", "--", "sh", "-c",
                              "echo 1 item; sleep 0.3; yes '1 item' | head -n 8000"],
                             stdout=to, stderr=subprocess.DEVNULL)
    os.close(to)
    time.sleep(0.6)
    while os.read(out, 4096):
        time.sleep(0.02)
    os.close(out)
    assert child.wait(timeout=20) == 0
    record = check(json.loads(path.read_text()))
    phases = {p["name"]: p for p in record["phases"]}
    command, marked = phases["command"], phases["marked"]
    assert record["items"] == 8001
    assert command["start_s"] <= marked["start_s"] <= marked["end_s"] <= command["end_s"]


# ---- files


def test_unwritable_before_the_command_runs(tmp_path):
    flag = tmp_path / "ran"
    done = jm("measure", "--source", "estimate", "--json", "/no/such/folder/r.json", "--", "touch",
              flag)
    assert "/no/such/folder/r.json" in sentence(done, FAILURE)
    assert not flag.exists()
    done = jm("measure", "--source", "estimate", "--json", tmp_path, "--", "touch", flag)
    assert "directory" in sentence(done, FAILURE) and not flag.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk():
    done = jm("measure", "--source", "estimate", "--json", "/dev/full", "--", "true")
    assert "/dev/full" in sentence(done, FAILURE)
    assert "Energy" in done.stderr
    done = jm("measure", "--source", "estimate", "--json", "/dev/full", "--", "sh", "-c", "exit 4")
    assert done.returncode == 4 and "/dev/full" in done.stderr


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_record_for_whom_the_umask_says(tmp_path, mask):
    path = tmp_path / "r.json"
    jm("measure", "--source", "estimate", "--json", path, "--", "true", umask=mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_json_replaces_whole(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("old")
    jm("measure", "--source", "estimate", "--json", path, "--", "true")
    check(json.loads(path.read_text()))
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_recording_and_replay(tmp_path):
    wave = "gpus=2;wave=square;low=100;high=600;period=0.8;shift=0.25"
    first = record_of("--source", "nvml", "--csv", tmp_path / "rec", "--", "sleep", "1.5",
                      env=fakes(wave))
    with open(tmp_path / "rec" / "readings.csv", newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) > 20 and set(rows[0]) == {"signal", "t_s", "value"}
    again = record_of("--source", f"replay:{tmp_path / 'rec'}", "--", "sleep", "1.3")
    assert {m["origin"] for m in again["meters"]} == {"replayed"}
    for a, b in zip(first["meters"], again["meters"]):
        assert b["watts_mean"] == pytest.approx(a["watts_mean"], rel=0.3)
    assert again["total"]["joules_measured"] is None
    assert again["total"]["joules_replayed"] > 0


def test_damaged_recording(tmp_path):
    assert "replay" in sentence(jm("measure", "--source", "replay", "--", "true"), USAGE)
    done = jm("measure", "--source", f"replay:{tmp_path}/nothing", "--", "true")
    assert "meters.csv" in sentence(done, FAILURE)
    jm("measure", "--source", "sim:h100x1", "--csv", tmp_path, "--", "sleep", "0.1")
    readings = tmp_path / "readings.csv"
    whole = readings.read_text()
    for bad in ("7,what,3", "0,999.000000000,many", "0,999.000000000,inf", "0,999.000000000,-4", "0,999.000000000,0x10",
                "0,999.000000000, 5", "0x0,999.000000000,5", "0,999.000000000,1e999"):
        readings.write_text(whole + bad + "\n")
        done = jm("measure", "--source", f"replay:{tmp_path}", "--", "true")
        assert "readings.csv, line" in sentence(done, FAILURE)
    readings.write_text(whole)
    meters = tmp_path / "meters.csv"
    rows = meters.read_text().splitlines()
    for column, wrong in [(9, "-1"), (10, "0x10"), (11, "inf"), (12, "-0.1"), (13, "-0.05"), (13, "5 %")]:
        fields = next(csv.reader(rows[1:2]))
        fields[column] = wrong
        meters.write_text("\n".join([rows[0], ",".join(f'"{f}"' for f in fields), *rows[2:]]) + "\n")
        assert "meters.csv, line 2" in sentence(jm("measure", "--source", f"replay:{tmp_path}", "--", "true"), FAILURE)


def test_records_of_run_fit_the_schema():
    done = jm("run", "sim", "--device", "sim:h100x2", "--set", "gpu.power=300W,400W", "--json", "-")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    for record in records if isinstance(records, list) else [records]:
        check(record)


def test_starts_and_returns_soon():
    # the figures are in bench/sampler_cost; here only that nothing waits for long
    began = time.monotonic()
    jm("measure", "--source", "nvml", "--", "true", env=fakes("gpus=8;power=300"))
    assert time.monotonic() - began < 3


def test_measure_into_a_store(tmp_path):
    """Each call is one more repeat of the case that `run` makes of the same command; report reads both."""
    path, command = tmp_path / "s.db", ["sh", "-c", "sleep 0.2; echo 30 tokens"]
    more = ["--items-regex", "([0-9]+) tokens", "--unit", "token"]
    for _ in range(2):
        done = jm("measure", "--source", "estimate:0,20", "--store", path, *more, *command)
        assert done.returncode == 0 and done.stdout == "30 tokens\n", done.stderr
    assert os.listdir(tmp_path) == ["s.db"]
    assert jm("run", "--source", "estimate:0,20", "--repeat", "3", "--store", path, *more, "--", *command).returncode == 0
    document = json.loads(jm("report", "--format", "json", path).stdout)
    assert [(c["repeat"], c["items"]) for c in document["cases"]] == [(1, 30), (2, 30), (3, 30)]
    with sqlite3.connect(path) as db:
        for (text,) in db.execute("SELECT record FROM records"):
            record = check(json.loads(text))
            assert record["status"] == "ok" and record["unit"] == "token" and record["case"]["id"]
        assert db.execute("SELECT count(DISTINCT record_n) FROM chunk_t").fetchone() == (3,)


def test_a_failed_command_in_a_store(tmp_path):
    path = tmp_path / "s.db"
    assert jm("measure", "--source", "estimate", "--store", path, "false").returncode == 1
    assert jm("measure", "--source", "estimate", "--store", path, "sh", "-c", "kill -9 $$").returncode == 137
    text = jm("report", path).stdout
    assert "ended with status 1" in text and "killed by SIGKILL" in text
    assert jm("measure", "--store", tmp_path / "new.db", "no-such-command").returncode == NOT_FOUND
    assert os.listdir(tmp_path) == ["s.db"]
    assert jm("measure", "--store", tmp_path / "none" / "s.db", "true").returncode == FAILURE
