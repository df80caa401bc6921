# SPDX-License-Identifier: Apache-2.0
"""run: single cases, and failures that stay visible."""
import json
import os
import random
import re
import resource
import subprocess

import pytest

from jm import BIN, FAILURE, NOT_FOUND, SOURCE, jm, sentence
from runs import COMMAND, FAILED, NULL, SIM, one, query, records


# ---- single cases


@pytest.fixture(name="null_run", scope="module")
def record_of_null():
    return one(*NULL)


def test_a_run_that_succeeds_is_ok_without_a_reason(null_run):
    assert null_run["schema"] == "joulemark.run/1"
    assert (null_run["status"], null_run["reason"], null_run["verified"]) == ("ok", None, True)


def test_items_are_those_of_the_steps(null_run):
    assert (null_run["workload"], null_run["steps"], null_run["items"], null_run["unit"]) == ("null", 3, 3, "wait")
    assert null_run["warmup_steps"] == 0


def test_throughput_is_in_real_time(null_run):
    """Each of the steps waits 5 ms."""
    assert null_run["clock"] == "real" and 3 / null_run["throughput"] >= 3 * 0.005


def test_the_steady_phase_is_the_one_that_counts(null_run):
    assert null_run["phase"] == "steady"
    assert [p["name"] for p in null_run["phases"]] == ["setup", "warmup", "steady", "verify"]


def test_unknown_joules_are_null(null_run):
    assert null_run["total"]["joules_measured"] is None


def test_a_record_has_the_id_of_its_case(null_run):
    assert len(null_run["case"]["id"]) == 32 and null_run["id"] == null_run["case"]["id"]


def test_provenance_names_the_kernel_and_no_user(null_run):
    assert null_run["provenance"]["kernel"] == os.uname().release
    assert "user" not in json.dumps(null_run["provenance"]).lower()


def test_record_follows_the_schema():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((SOURCE / "docs" / "record.schema.json").read_text())
    for args in (NULL, SIM, [*COMMAND, "--", "true"]):
        jsonschema.validate(one(*args), schema)
    jsonschema.validate(one(*COMMAND, "--", "false", status=FAILED), schema)


def test_id_depends_on_parameters_alone():
    a, b = one(*NULL), one(*NULL, "--seed", "5", "--interval", "30ms")
    assert a["id"] == b["id"]
    assert one("run", "null", "--source", "null", "--step-time", "6ms", "--warmup", "0", "--steps",
               "3")["id"] != a["id"]
    assert one("run", "null", "--source", "null", "--step-time", "0.005s", "--warmup", "0", "--steps",
               "3")["id"] == a["id"]


def test_options_keep_their_digits():
    r = one("run", "null", "--source", "null", "--step-time", "1.23456789ms", "--warmup", "0", "--steps", "1")
    assert r["case"]["parameters"]["options"]["step-time"] == "0.00123456789s"


@pytest.mark.parametrize("ms", [100, 250, 500])
def test_interval(ms):
    """A reading each interval, in simulated time, in which nothing is late; and some at the edges of phases."""
    r = one("run", "sim", "--device", "sim:h100x1", "--seconds", "60", "--interval", f"{ms}ms")
    readings = 1000 * r["wall_s"] / ms
    for meter in r["meters"]:
        assert readings * 0.98 - 2 <= meter["samples"] <= readings + 6


def test_interval_in_real_time():
    """A busy machine reads late, but never more often."""
    r = one("run", "null", "--source", "estimate:5,20", "--interval", "100ms", "--step-time", "500ms", "--warmup", "0",
            "--steps", "1")
    assert 2 <= r["meters"][0]["samples"] <= 10 * r["wall_s"] + 12  # two readings at each edge of four phases


def test_what_commands_print_is_shown_on_request():
    script = "for n in 4 7; do echo $((n * 1111)); echo $((n * 1111)) >&2; done"
    for words, shown in (([], 0), (["--show-output"], 4)):
        done = jm(*COMMAND, "--repeat", "2", *words, "--", "sh", "-c", script)
        assert done.returncode == 0 and "4444" not in done.stdout
        assert done.stderr.count("4444") == done.stderr.count("7777") == shown


def test_json_of_several_is_an_array(tmp_path):
    path = tmp_path / "r.json"
    done = jm(*NULL, "--repeat", "2", "--json", path)
    assert [r["case"]["repeat"] for r in json.loads(path.read_text())] == [1, 2]
    assert "--store FILE stores" in done.stderr  # and of one, whoever wants it has it:
    assert "Nothing was kept" not in jm(*NULL).stderr


def test_simulated_device_in_simulated_time():
    r = one("run", "sim", "--device", "sim:h100x4", "--seconds", "2000")
    assert r["clock"] == "simulated" and r["wall_s"] > 2000  # in real time it would hang
    assert r["devices"] == 4 and len(r["meters"]) >= 4
    assert r["total"]["joules_measured"] is None and r["total"]["joules_simulated"] > 0
    assert abs(r["throughput"] / 4 - r["throughput_per_device"]) < 1e-6 * r["throughput"]


def test_sources_with_numbers_in_a_list():
    for how in (["--source", "null,estimate:5,20"], ["--source", "null", "--source", "estimate:5,20"]):
        r = one("run", "null", *how, "--step-time", "5ms", "--warmup", "0", "--steps", "1")
        assert {m["source"] for m in r["meters"]} == {"null", "estimate"}


def test_outside_command_passes_its_output_on():
    done = jm(*COMMAND, "--items-regex", "items ([0-9]+)", "--", "sh", "-c",
              "echo items 3; sleep 0.05; echo items 4; echo talk >&2")
    assert done.returncode == 0 and done.stdout.startswith("items 3\nitems 4\n")
    assert "talk" in done.stderr


def test_broken_pipe_inside_a_command():
    done = jm(*COMMAND, "--", "sh", "-c", "yes | head -n 1; echo end")
    assert done.returncode == 0 and done.stdout.startswith("y\nend\n")
    assert "roken pipe" not in done.stderr


def test_throughput_of_a_command():
    r = one(*COMMAND, "--items-json", "done.tokens", "--unit", "token", "--", "sh", "-c",
            "sleep 0.1; echo '{\"done\": {\"tokens\": 40}}'")
    assert r["items"] == 40 and r["unit"] == "token" and r["exit_status"] == 0
    assert 0 < r["throughput"] < 400 and r["command"][0] == "sh" and r["phase"] == "command"


def test_mark(tmp_path):
    r = one(*COMMAND, "--", "sh", "-c",
            f"'{BIN}' mark load; '{BIN}' mark work --items 0; sleep 0.1; '{BIN}' mark end --items 12")
    assert r["items"] == 12 and {"load", "work"} <= {p["name"] for p in r["phases"]}


def test_marks_bound_the_rate_of_a_command_that_was_not_seen_to_end():
    """The command ends while its worker is stopped; the marks bear the times of their sender."""
    script = (f"'{BIN}' mark work; sleep 0.3; '{BIN}' mark end --items 12; "
              "(sleep 0.8; kill -CONT $PPID) & kill -STOP $PPID")
    r = one("run", "--source", "estimate:5,20", "--unit", "image", "--", "sh", "-c", script)
    work = next(p for p in r["phases"] if p["name"] == "work")
    assert r["wall_s"] > 1
    assert r["throughput"] == pytest.approx(12 / (work["end_s"] - work["start_s"]), rel=1e-6)


def test_energy_speaks_of_the_same_stretch_as_throughput(tmp_path):
    """What comes before the first mark and after the last has neither items nor a part in their energy."""
    work = "for i in 1 2 3 4 5 6; do timeout 0.1 sh -c 'while :; do :; done'; done"
    words = ("run", "--source", "estimate:5,20", "--unit", "image", "--", "sh", "-c")
    one_phase = f"sleep 0.6; '{BIN}' mark work; {work}; '{BIN}' mark end --items 12; sleep 0.6"
    two_phases = f"sleep 0.6; '{BIN}' mark a; {work}; '{BIN}' mark b --items 6; {work}; '{BIN}' mark end --items 6"
    for script, phase, names in ((one_phase, "work", {"work"}), (two_phases, "marked", {"a", "b"})):
        r = one(*words, script)
        phases = {p["name"]: p for p in r["phases"]}
        assert r["phase"] == phase and names <= phases.keys()
        p = phases[phase]
        assert p["start_s"] == min(phases[n]["start_s"] for n in names)
        assert p["end_s"] == max(phases[n]["end_s"] for n in names) and p["items"] == 12
        assert r["throughput"] == pytest.approx(12 / (p["end_s"] - p["start_s"]), rel=1e-6)
        joules = r["total"]["joules_estimated"]
        assert joules == pytest.approx(sum(phases[n]["total"]["joules_estimated"] for n in names), rel=0.02)
        assert joules < 0.9 * phases["command"]["total"]["joules_estimated"]


def test_items_before_the_first_mark_are_in_no_figure():
    """3 items are reported with the first mark: their time and energy are unknown, so the other 5 count."""
    done = jm("run", "--source", "sim:h100x1", "--items-regex", r"n=(\d+)", "--items-kind", "amount", "--json", "-", "--",
              "sh", "-c", "echo n=3; sleep 0.3; echo n=5")
    r = json.loads(done.stdout)
    p, = (p for p in r["phases"] if p["name"] == r["phase"] == "marked")
    assert r["items"] == p["items"] == 5
    assert r["throughput"] == pytest.approx(5 / (p["end_s"] - p["start_s"]), rel=1e-6)
    shown = float(re.search(r"item/s +([\d.]+) J/item", done.stderr).group(1))
    assert shown == pytest.approx(r["total"]["joules_simulated"] / 5, rel=1e-3)


@pytest.mark.parametrize("name, phase", [("settle", "mark.settle"), ("command", "mark.command"),
                                         ("marked", "marked")])
def test_marks_named_like_phases_of_ours(name, phase):
    between = f"'{BIN}' mark b --items 6; sleep 0.2; " if name == "marked" else ""
    script = f"sleep 0.2; '{BIN}' mark {name}; sleep 0.2; {between}'{BIN}' mark end --items 6; sleep 0.2"
    r = one("run", "--source", "estimate:5,20", "--", "sh", "-c", script)
    names = [p["name"] for p in r["phases"]]
    assert r["phase"] == phase and names.count(phase) == 1 and f"mark.{name}" in names
    p = r["phases"][names.index(phase)]
    assert r["throughput"] == pytest.approx(r["items"] / (p["end_s"] - p["start_s"]), rel=1e-6)


@pytest.mark.skipif(os.geteuid() != 0, reason="rights can be given up by root only")
def test_under_sudo_the_work_is_the_user_s(tmp_path):
    os.chmod(tmp_path, 0o777)
    env = {"SUDO_UID": "65534", "SUDO_GID": "65534", "JM_STATE": str(tmp_path / "state")}
    store, json_file = tmp_path / "s.db", tmp_path / "r.json"
    done = jm(*COMMAND, "--store", store, "--json", json_file, "--", "sh", "-c",
              "id -u; id -g; id -G; echo $HOME", env=env)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split("\n")
    assert words[:3] == ["65534", "65534", "65534"] and words[3] != os.environ["HOME"]
    assert store.stat().st_uid == 65534 and json_file.stat().st_uid == 65534
    done = jm(*COMMAND, "--", "id", "-u", env={**env, "SUDO_GID": "0"})  # root's group is one like others
    assert done.stdout.startswith("65534\n")
    done = jm(*COMMAND, "--", "id", "-u", env={**env, "SUDO_UID": "3000000000"})  # a directory's users
    assert done.stdout.startswith("3000000000\n")


def test_notes_and_warnings_are_told_once():
    done = jm(*SIM, "--repeat", "3")
    assert done.returncode == 0 and done.stderr.count("note: ") == 1


# ---- failures stay visible


@pytest.mark.parametrize("script, words, exit_status", [
    ("echo early >&2; echo oops >&2; exit 3", ["status 3", "oops"], 3),
    ("kill -SEGV $$", ["signal 11"], 139),
    ("kill -KILL $PPID; sleep 5", ["worker", "signal 9"], None),
])
def test_failing_command(tmp_path, script, words, exit_status):
    store = tmp_path / "s.db"
    args = [*COMMAND, "--repeat", "2", "--store", store, "--", "sh", "-c", script]
    done = jm(*args)
    assert done.returncode == FAILED and done.stderr.count("FAILED") >= 2
    kept = records(store)
    assert [r["status"] for r in kept] == ["failed"] * 2
    for r in kept:
        assert all(word in r["reason"] for word in words), r["reason"]
        assert r["exit_status"] == exit_status
        assert r["total"]["joules_measured"] is None
    assert "FAILED" not in jm(*args).stderr  # not again by itself, but still:
    assert jm(*args).returncode == FAILED
    again = jm("run", "--store", store, "--resume", "--retry")
    assert again.returncode == FAILED and again.stderr.count("FAILED") >= 2
    assert query(store, "SELECT attempt FROM records") == [(2,), (2,)]


@pytest.mark.parametrize("odd", ["", "a"])
def test_a_reason_is_cut_between_letters(odd):
    """400 bytes of standard error are shown, which begin within a letter of two bytes for one of these."""
    script = f"import sys; sys.stderr.buffer.write({odd!r}.encode() + 'é'.encode() * 700); sys.exit(3)"
    reason = one(*COMMAND, "--", "python3", "-c", script, status=FAILED)["reason"]
    assert "status 3" in reason and set(reason.split(": ")[-1]) == {"é"} and len(reason.split(": ")[-1]) >= 199


def test_one_failure_among_others(tmp_path):
    """The sweep goes on; the good ones count."""
    store, flag = tmp_path / "s.db", tmp_path / "flag"
    script = f"[ -e '{flag}' ] || {{ touch '{flag}'; exit 9; }}"
    done = jm(*COMMAND, "--repeat", "3", "--store", store, "--", "sh", "-c", script)
    assert done.returncode == FAILED
    assert [r["status"] for r in records(store)] == ["failed", "ok", "ok"]
    done = jm("run", "--store", store, "--resume", "--retry")
    assert done.returncode == 0 and [r["status"] for r in records(store)] == ["ok"] * 3


def test_fail_fast(tmp_path):
    store = tmp_path / "s.db"
    done = jm(*COMMAND, "--repeat", "3", "--fail-fast", "--store", store, "--", "false")
    assert done.returncode == FAILED and len(records(store)) == 1


def test_timeout():
    r = one(*COMMAND, "--timeout", "300ms", "--", "sleep", "3600", status=FAILED)
    assert "0.3 s" in r["reason"] and "--timeout" in r["reason"]


@pytest.mark.parametrize("script", [
    "sleep {0}; true",
    # sessions of their own, whose parents have gone
    "(setsid sh -c '(setsid sleep {0} &) ; sleep {0}' &) ; sleep {0}",
    # that ignore SIGTERM
    "(setsid sh -c 'trap \"\" TERM; sleep {0}; sleep {0}' &) ; sleep {0}",
])
def test_nothing_of_a_stopped_command_is_left(script):
    name = f"3{random.randrange(10**6):06d}.25"
    one(*COMMAND, "--timeout", "500ms", "--", "sh", "-c", script.format(name), status=FAILED)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                assert name.encode() not in f.read()
        except (FileNotFoundError, ProcessLookupError):
            pass


def test_missing_command():
    assert "no-such-command" in sentence(jm(*COMMAND, "--", "no-such-command"), NOT_FOUND)
    assert "/etc/passwd" in sentence(jm(*COMMAND, "--", "/etc/passwd"), NOT_FOUND)
    assert "/usr/bin" in sentence(jm(*COMMAND, "--", "/usr/bin"), NOT_FOUND)  # a folder
    for path in ("/nowhere:/usr/bin:/bin", "/nowhere::/bin"):
        assert jm(*COMMAND, "--", "true", env={"PATH": path}).returncode == 0
    no_gpu = {"JM_NVML_LIB": "/nowhere/libnvidia-ml.so"}
    sentence(jm(*COMMAND, "--set", "gpu.power=300W", "--", "true", env=no_gpu), FAILURE)
    sentence(jm(*COMMAND, "--store", "/nowhere/s.db", "--", "true"), FAILURE)


def test_a_lack_of_descriptors_is_named(tmp_path):
    """From the fewest on, until they suffice. A worker that lacks one of those that it is given must not be started without it."""
    for most in range(10, 64):
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        ran = subprocess.run([BIN, "run", "null", "--steps", "1", "--step-time", "1ms", "--store", str(tmp_path / str(most))],
                             preexec_fn=limit, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if ran.returncode == 0:
            break
        assert "Too many open files" in ran.stderr + ran.stdout, f"{most}: {ran.stderr}{ran.stdout}"
        assert " is for " not in ran.stderr + ran.stdout
    assert 12 < most < 63
