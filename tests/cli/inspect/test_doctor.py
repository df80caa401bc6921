# SPDX-License-Identifier: Apache-2.0
"""doctor and list: every member has a line, and a missing one has its reason and remedy."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from fake_gpus import FakeGpus
from jm import BIN, HANGS_S, USAGE, jm, needs_another_user


def findings(env=None, member=None):
    done = jm("doctor", "--json", env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for f in found:
        assert f["what"] and f["why"] and set(f) == {"section", "member", "ok", "needs_argument", "what", "why", "mend"}
        assert (f["ok"] is None) == f["needs_argument"]
    return [f for f in found if member in (None, f["member"])]


def test_gpus_are_named(tmp_path):
    gpus = FakeGpus(tmp_path, 2)
    found = findings(gpus.env, "nvml")
    assert all(f["ok"] or (f["section"] == "Set" and os.geteuid() and "root" in f["why"]) for f in found)
    text = json.dumps(found)
    for words in ("GPU 1 NVIDIA H100", "GPU-10000001", "energy", "100 ms", "driver 580.00.fake", "200 to 700 W"):
        assert words in text, words
    assert gpus.limits() == [700, 700]


def test_sources_that_have_to_be_named_need_an_argument():
    """Whether the power meter answers is not known; those that measure by themselves are told as they are."""
    found = findings()
    assert {f["member"] for f in found if f["needs_argument"]} >= {"replay"}
    for f in found:
        if f["needs_argument"]:
            assert f["section"] == "Measure" or f["member"] == "redfish"
            assert f["member"] in f["why"] and f["member"] not in ("sim", "estimate")
    built = {f["member"] for f in found if f["section"] == "Measure"}
    assert {"modbus", "snmp", "redfish"} & built <= {f["member"] for f in found if f["needs_argument"]}
    text = jm("doctor", "--all").stdout
    assert "  needs an argument replay: " in text and "yes replay" not in text and "yes sim: " in text


def test_gpus_of_others(tmp_path):
    gpus = FakeGpus(tmp_path, 2)
    gpus.env["CUDA_VISIBLE_DEVICES"] = "1"
    other = [f for f in findings(gpus.env, "nvml") if not f["ok"] and f["section"] == "Measure"]
    assert len(other) == 1 and "CUDA_VISIBLE_DEVICES=1" in other[0]["why"] and "nvml:all" in other[0]["mend"]


@pytest.mark.parametrize("config, words", [
    ("init=9", "modprobe nvidia"),
    ("init=18", "different driver versions"),
    ("init=4", "/dev/nvidia"),
    ("gpus=0", "no GPU"),
])
def test_driver_troubles(tmp_path, config, words):
    gpus = FakeGpus(tmp_path, 2)
    gpus.env["JM_FAKE_NVML"] = config
    found = findings(gpus.env, "nvml")
    assert any(not f["ok"] and words in f["why"] for f in found), found


def test_forgetful_driver(tmp_path):
    gpus = FakeGpus(tmp_path, 1, "persistence=0")
    assert any("nvidia-smi -pm 1" in f["why"] for f in findings(gpus.env, "nvml"))


def test_no_library():
    found = findings({"JM_NVML_LIB": "/nowhere/libnvidia-ml.so.1"}, "nvml")
    assert found and all(not f["ok"] and "/nowhere/libnvidia-ml.so.1" in f["why"] for f in found)


def test_not_a_library(tmp_path):
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_text("no library")
    assert all(str(path) in f["why"] for f in findings({"JM_NVML_LIB": str(path)}, "nvml"))


def test_another_library():
    libc = "libc.so.6"
    assert all("nvmlInit" in f["why"] for f in findings({"JM_NVML_LIB": libc}, "nvml"))


def test_text_says_the_same(tmp_path):
    gpus = FakeGpus(tmp_path, 2)
    text = jm("doctor", "--all", env=gpus.env).stdout
    for f in findings(gpus.env):
        assert f["what"] in text and f["why"] in text


def verdict(env):
    return jm("doctor", env=env).stdout.split("\nVerdict\n")[1]


def test_what_is_absent_is_one_line(tmp_path):
    (tmp_path / "root").mkdir()
    env = {"JM_ROOT": str(tmp_path / "root"), "JM_NVML_LIB": "/no/such.so"}
    text, whole = jm("doctor", env=env).stdout, jm("doctor", "--all", env=env).stdout
    measure = text.split("\nSet\n")[0].splitlines()
    (absent,) = [line for line in measure if line.startswith("  not here: ")]
    (unnamed,) = [line for line in measure if line.startswith("  need an argument: ")]
    assert {"nvml", "amdsmi", "rapl", "hwmon"} <= set(absent.split(": ")[1].split(", "))
    (absent,) = [line for line in text.split("\nSet\n")[1].splitlines() if line.startswith("  not here: ")][:1]
    assert {"nvml", "amdsmi", "rapl", "hwmon", "cpufreq", "cgroup", "dcmi"} == set(absent.split(": ")[1].split(", ")) - {"hsmp"}
    assert {"modbus", "replay"} <= set(unnamed.split(": ")[1].split(", "))
    for f in findings(env):
        if f["section"] == "Measure" and f["member"] in ("nvml", "rapl", "modbus"):
            assert f["why"] not in text and f["why"] in whole


def test_verdict_where_nothing_can_be_read(tmp_path):
    (tmp_path / "root").mkdir()
    text = verdict({"JM_ROOT": str(tmp_path / "root"), "JM_NVML_LIB": "/no/such.so"})
    assert "no sensor of this machine can be read" in text and "remedies above" not in text
    assert "No setting of this machine can be changed" in text


def test_verdict_with_gpus_and_with_a_meter_of_the_node(tmp_path):
    gpus = FakeGpus(tmp_path, 2)
    text = verdict(gpus.env)
    assert "measured here by nvml" in text and "do not cover" in text and "gpu.power" in text
    node = tmp_path / "root/sys/cray/pm_counters"
    node.mkdir(parents=True)
    for name, value in (("power", "400 W 1 us"), ("energy", "1000 J 1 us"), ("freshness", "1"), ("generation", "1"),
                        ("version", "2"), ("startup", "1"), ("raw_scan_hz", "10")):
        (node / name).write_text(f"{value}\n")
    assert "nvml, cray, of the whole machine" in verdict({**gpus.env, "JM_ROOT": str(tmp_path / "root")})


def test_nothing_is_made_or_changed(tmp_path):
    state = tmp_path / "state"
    jm("doctor", env={"JM_STATE": str(state)})
    assert not os.path.exists(state)


def test_list():
    listed = json.loads(jm("list", "--json").stdout)
    names = {(m["kind"], m["name"]) for m in listed}
    assert {("source", "nvml"), ("source", "rapl"), ("control", "nvml"), ("control", "sim"), ("workload", "null"),
            ("preset", "gpt-117m"), ("backend", "ref")} <= names
    text = jm("list", "--all").stdout
    assert all(m["name"] in text and m["summary"] in text for m in listed)
    short = jm("list", "--width", 80).stdout
    assert all(re.search(rf"[ ,]{m['name']}[,\n]", short) for m in listed if m["kind"] in ("source", "preset", "workload")
               and not m["summary"].startswith("not built in"))
    assert len(short.splitlines()) <= 24 and all(len(line) <= 80 for line in short.splitlines())


@pytest.mark.parametrize("kind", ["source", "control", "workload", "backend", "transport"])
def test_list_of_one_kind(kind):
    rows = json.loads(jm("list", f"{kind}s", "--json").stdout)
    assert {m["kind"] for m in rows} <= {kind, "option"}
    text = jm("list", f"{kind}s").stdout
    assert all(m["name"] in text and m["summary"] in text for m in rows)


def test_list_of_what_serves_a_device():
    rows = json.loads(jm("list", "--device", "sim:h100x4", "--json").stdout)
    names = {kind: {m["name"] for m in rows if m["kind"] == kind} for kind in ("source", "control", "workload", "model")}
    assert names == {"source": {"sim"}, "control": {"sim"}, "workload": {"sim"}, "model": set()}
    rows = json.loads(jm("list", "--device", "cpu", "--json").stdout)
    assert {m["name"] for m in rows} >= {"rapl", "gemm", "gpt-117m"} and "sim" not in {m["name"] for m in rows}
    assert "did you mean 'models'" in jm("list", "modles").stderr
    rows = json.loads(jm("list", "backends", "--device", "cpu,cuda:0", "--json").stdout)
    assert {"cpu", "cuda"} <= {m["name"] for m in rows} <= {"cpu", "cuda", *(m["name"] for m in rows if "not built" in m["summary"])}
    done = jm("list", "--published", "models")
    assert done.returncode == USAGE and "give it without a kind" in done.stderr


@needs_another_user
@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="needs systemd-tmpfiles")
def test_the_lines_that_make_rapl_readable(tmp_path):
    """Run as they are printed, they let the group of that user read the counters."""
    root = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    real = root / "sys/devices/virtual/powercap/intel-rapl/intel-rapl:0"
    real.mkdir(parents=True)
    (root / "sys/class/powercap").mkdir(parents=True)
    (root / "sys/class/powercap/intel-rapl:0").symlink_to("../../devices/virtual/powercap/intel-rapl/intel-rapl:0")
    root.chmod(0o755)
    (real / "name").write_text("package-0\n")
    (real / "max_energy_range_uj").write_text("262143328850\n")
    (real / "energy_uj").write_text("1000000\n")
    (real / "energy_uj").chmod(0o400)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    env = {**os.environ, "JM_ROOT": str(root), "JM_STATE": str(tmp_path), "COLUMNS": "80"}

    def doctor():
        done = subprocess.run([*user, BIN, "doctor"], env=env, text=True, check=False, stdout=subprocess.PIPE)
        lines = done.stdout.splitlines()
        return next(i for i, line in enumerate(lines) if " rapl: " in line), lines
    try:
        at, lines = doctor()
        assert lines[at].startswith("  no  rapl: ")
        first = next(i for i in range(at, len(lines)) if lines[i].startswith("echo "))
        text = "\n".join(lines[first:first + 3]).replace("sudo ", "")
        assert max(map(len, lines[first + 1:first + 3])) <= 80
        conf = tmp_path / "rapl.conf"
        text = text.replace("/etc/tmpfiles.d/rapl.conf", str(conf)).replace("--create rapl.conf", f"--create {conf}")
        subprocess.run(["sh", "-ec", text], check=True, stdout=subprocess.DEVNULL)
        assert lines[0] == "Measure" and doctor()[1][doctor()[0]].startswith("  yes rapl: ")
    finally:
        shutil.rmtree(root)


@needs_another_user
def test_who_may_set_caps():
    folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))  # where any user may write
    folder.chmod(0o777)
    gpus = FakeGpus(folder, 1)
    user = ["setpriv", "--reuid=65534", "--clear-groups"]
    for who, words in (([], "this user may set it"), (user, "only root may set it")):
        env = {**os.environ, **gpus.env, "COLUMNS": "400", "JM_FAKE_NVML_STATE": str(folder / f"driver{len(who)}"),
               "JM_STATE": str(folder / f"state{len(who)}")}
        done = subprocess.run([*who, BIN, "doctor"], env=env, text=True, check=False, stdout=subprocess.PIPE)
        assert words in done.stdout, done.stdout
    shutil.rmtree(folder)


@pytest.fixture(name="copy")
def copy_of_the_program(tmp_path):
    """It lies in a folder beside the plug-in's, whose file cannot be loaded. What doctor says of the plug-in."""
    program, plugin = tmp_path / "joulemark", tmp_path / "comm/mpi.so"
    shutil.copy(BIN, program)
    plugin.parent.mkdir()
    plugin.touch()
    program.chmod(0o755)
    plugin.parent.chmod(0o755)

    def says(**env):
        done = subprocess.run([program, "doctor", "--json"], env={**os.environ, **env}, capture_output=True, text=True, check=True, timeout=HANGS_S)
        row, = [f for f in json.loads(done.stdout) if f["member"] == "mpi"]
        assert row["ok"] is False and row["mend"] == "only ranks with --transport mpi need it"
        return row["why"]
    return program, plugin, says


def test_a_plug_in_that_is_no_regular_file_is_not_opened(copy):
    _, plugin, says = copy
    assert "cannot be loaded" in says()
    plugin.unlink()
    os.mkfifo(plugin)
    assert "not a regular file" in says() and "not a regular file" in says(JM_TRANSPORTS=str(plugin.parent))


@pytest.mark.parametrize("which", ["file", "folder"])
def test_a_plug_in_that_others_may_write_is_not_loaded_unless_it_is_named(copy, which):
    program, plugin, says = copy
    (plugin if which == "file" else plugin.parent).chmod(0o1777)
    assert "another user could have put it there" in says()
    assert "cannot be loaded" in says(JM_TRANSPORTS=str(plugin.parent))
    program.chmod(0o777)  # all of a build with umask 0
    assert "cannot be loaded" in says()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("which", ["file", "folder"])
def test_a_plug_in_of_another_user_than_the_program_is_not_loaded(copy, which):
    program, plugin, says = copy
    os.chown(plugin if which == "file" else plugin.parent, 12345, 12345)
    assert "another user could have put it there" in says()
    os.chown(program, 12345, 12345)
    assert "cannot be loaded" in says()
