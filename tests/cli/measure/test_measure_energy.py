# SPDX-License-Identifier: Apache-2.0
"""joulemark measure: joules of sensors and estimates, and sensors that fail or report impossible values."""
import csv
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from jm import BIN, FAILURE, USAGE, jm, needs_another_user, sentence
from measured import check, fakes, record_of


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
    done = jm("list", "--all")
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
    for seconds in ("1.5", "6", "24"):  # on a busy machine the sampler comes to few readings of the many that it wants
        raw, few = (record_of("--source", source, "--interval", "1ms", "--", "sleep", seconds, env=fakes(config)) for source in ("nvml:raw", "nvml"))
        if few["sampler_cpu_s"] < 0.6 * raw["sampler_cpu_s"]:
            break
    assert raw["sampler_cpu_s"] > 0.02 and few["sampler_cpu_s"] < 0.6 * raw["sampler_cpu_s"]
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


@needs_another_user
def test_rapl_right_needed(rapl):
    rapl.chmod(0o755)
    (rapl / "sys/class/powercap/intel-rapl:0/energy_uj").chmod(0o400)
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


def test_parts_and_devices_on_demand():
    plain, more = (jm("measure", "--source", "nvml", *args, "sleep", "0.3", env=fakes("gpus=2;power=300")).stderr
                   for args in ([], ["--bounds", "--meters"]))
    assert "calibration J" not in plain and not re.search(r"^  command .*GPU 1", plain, re.M)
    assert "calibration J" in more and "sampling J" in more and re.search(r"^  command +GPU 1", more, re.M)


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


def widest_step(folder, meter):
    """The longest time between two readings of the meter's energy counter between which it changed."""
    with open(folder / "meters.csv", newline="", encoding="utf-8") as f:
        signal = next(r["signal"] for r in csv.DictReader(f) if r["meter"] == meter and r["quantity"] == "energy")
    with open(folder / "readings.csv", newline="", encoding="utf-8") as f:
        readings = [(float(r["t_s"]), float(r["value"])) for r in csv.DictReader(f) if r["signal"] == signal and r["value"]]
    return max(b[0] - a[0] for a, b in itertools.pairwise(readings) if a[1] != b[1])


def test_gpus_lost_between_steps(tmp_path):
    """Whatever the moment, what is known has the GPU's power: no second is counted without its joules."""
    lost = ",".join(f"{i}@{0.7 + 0.0137 * i:.4f}" for i in range(8))
    record = record_of("--source", "nvml", "--csv", tmp_path / "csv", "--", "sleep", "1.2",
                       env=fakes(f"gpus=8;power=300;lost={lost}"))
    for meter in record["meters"]:
        assert meter["joules"] is None and meter["covered_s"] > 0.4
        # a step is known to half the time between its readings: 25 ms, or more where a busy machine read late
        known = widest_step(tmp_path / "csv", meter["id"]) / 2 + 0.001
        assert meter["watts_mean"] == pytest.approx(300, abs=300 * max(known, 0.026) / meter["covered_s"])


# ---- marks and items


def test_no_percentile_of_power_exceeds_its_maximum(tmp_path):
    """A peak that a slow sensor showed before the command, and that holds until its next reading, is no power of the command."""
    (tmp_path / "meters.csv").write_text(
        "signal,meter,label,device,scope,origin,covers,quantity,unit,step,wrap,refresh_s,window_s,accuracy,stamped\n"
        "0,m,m,,node,measured,,power,W,1,,1,0,0.01,1\n")
    (tmp_path / "readings.csv").write_text("signal,t_s,value\n" + "".join(
        f"0,{k}.000000000,{500 if k == 0 else 100 + k}\n" for k in range(8)))
    (meter,) = record_of("--source", f"replay:{tmp_path}", "--", "sleep", "2")["meters"]
    assert 101 <= meter["watts_median"] <= meter["watts_p99"] <= meter["watts_max"] < 500
