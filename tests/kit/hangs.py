# SPDX-License-Identifier: Apache-2.0
"""Drivers and devices that do not return from a call, each from a moment on. What must hold: the command ends when it
would and its status is kept, the first Ctrl-C is heard, settings are as they were, and a record says what is unknown."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from fake_gpus import FakeGpus, child_of, wait_for
from gangs import children, devices
from hwmon_tree import grace
from jm import BIN, BUILD, FAILURE
from runs import records

LIMIT_S = 10  # JM_DRIVER_LIMIT_NS
FEW = 5  # readings: the machine was too busy for more, and energy may be unknown
STEP_S = 20  # of a step that does not end, after Ctrl-C
GRACE_S = 5  # from SIGTERM to SIGKILL
SLACK_S = 12  # on a machine that is busy with other tests; more where more of them wait for a processor
NVML = ["--source", "nvml"]
GPT = ["run", "gpt", "--layers", "1", "--hidden", "32", "--heads", "2", "--vocab", "256", "--context", "16", "--seq", "16",
       "--batch", "1", "--steps", "5", "--warmup", "0", "--selftest", "0", "--source", "null", "--device", "later:0"]


class Program:
    """joulemark beside a driver or a device that is stuck while `stuck` exists."""
    of = {}  # folder: the programs of the scene in it

    def __init__(self, folder, env, *words):
        self.stuck, self.json = os.path.join(folder, "stuck"), os.path.join(folder, "r.json")
        self.words = [BIN, *[word.replace("STUCK", self.stuck).replace("OUT", self.json) for word in map(str, words)]]
        self.env = {**os.environ, "COLUMNS": "400", "JM_STATE": os.path.join(folder, "state"),
                    **{key: value.replace("STUCK", self.stuck) for key, value in env.items()}}
        self.process = self.began = None
        self.of.setdefault(folder, []).append(self)

    def start(self, **more):
        self.began = time.monotonic()
        self.process = subprocess.Popen(self.words, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, **more)
        return self

    def hang(self):
        open(self.stuck, "w", encoding="ascii").close()

    def end(self, limit_s):
        """Its status, what it printed and what it said; it takes no longer than that from now on, and some slack."""
        try:
            waiting = os.getloadavg()[0] / os.cpu_count()
            out, err = self.process.communicate(timeout=limit_s + SLACK_S * max(1, waiting))
            return self.process.returncode, out, err
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.words[1:]} does not end") from None
        finally:
            self.stop()

    def stop(self):
        """With what it has started, wherever the scene stands."""
        if os.path.exists(self.stuck):
            os.remove(self.stuck)
        if self.process and self.process.poll() is None:
            for pid in [*children(self.process.pid), self.process.pid]:
                os.kill(pid, signal.SIGKILL)
            self.process.communicate()

    def record(self):
        with open(self.json, encoding="utf-8") as file:
            return json.load(file)


def play(scene, folder, rng):
    """A scene that fails leaves no program running."""
    try:
        scene(folder, rng)
    finally:
        for program in Program.of.pop(folder, []):
            program.stop()


def gpus_of(folder, config):
    return FakeGpus(folder, 2, f"{config};lagfile=STUCK")


def limits(gpus):
    """None before there is a driver."""
    return gpus.limits() if os.path.exists(gpus.state) and os.path.getsize(gpus.state) else None


def is_unknown(record, err, watts=300):
    """It says so; what is told in spite of the hang, as of a stretch that is short, has the truth within its bound."""
    assert "does not return from a reading" in err, err
    seconds = [p["end_s"] - p["start_s"] for p in record["phases"] if p["name"] == record["phase"]][0]
    reasons = " ".join(record["quality"]["reasons"])
    for meter in record["meters"]:
        if meter["joules"] is None:
            assert "is known for only" in reasons, reasons
        else:
            what = [meter[key] for key in ("joules", "error_joules", "covered_s")]
            assert abs(meter["joules"] - watts * seconds) <= meter["error_joules"], (what, seconds)


def one_is_unknown(record, err, gpu, watts=300):
    """The GPU whose driver hangs; the other is known for the whole time."""
    is_unknown(record, err, watts)
    [seconds] = [p["end_s"] - p["start_s"] for p in record["phases"] if p["name"] == record["phase"]]
    other = record["meters"][1 - gpu]
    assert f"GPU {gpu}" in err and f"GPU {1 - gpu}" not in err.split("does not return")[1].split(";")[0], err
    if other["samples"] >= FEW:
        assert abs(other["joules"] - watts * seconds) <= other["error_joules"] < 0.2 * watts * seconds, (other, seconds)


def reading(folder, rng):
    """A reading that does not return keeps neither the command's end nor its status and output."""
    program = Program(folder, gpus_of(folder, "readlag=1:1e9").env, "measure", *NVML, "--json", "OUT", "--", "sh", "-c",
                      "sleep 2; echo done; exit 3").start()
    time.sleep(rng.uniform(0.7, 1.3))
    program.hang()
    status, out, err = program.end(2 + LIMIT_S)
    assert status == 3 and out == "done\n", (status, out, err)
    one_is_unknown(program.record(), err, 1)


def first_reading(folder, _):
    """A GPU whose driver hangs before the command starts."""
    program = Program(folder, gpus_of(folder, "readlag=0:1e9").env, "measure", *NVML, "--json", "OUT", "--", "sleep", "2")
    program.hang()
    status, _, err = program.start().end(2 + LIMIT_S)
    assert status == 0 and "does not return from the first call for GPU 0" in err, (status, err)
    hung, other = program.record()["meters"]
    assert hung["joules"] is None, hung
    assert other["samples"] < FEW or abs(other["joules"] - 300 * 2) < 0.2 * 300 * 2, other


def returning(folder, _):
    """A driver that answers late: the GPU is read again, and its counter tells what it used meanwhile."""
    done = os.path.join(folder, "done")
    program = Program(folder, gpus_of(folder, "readlag=1:1e9").env, "measure", *NVML, "--json", "OUT", "--", "sh", "-c",
                      f"sleep 1; touch {done}.begun; until [ -e {done} ]; do sleep 0.05; done; sleep 1").start()
    assert wait_for(lambda: os.path.exists(done + ".begun"))
    program.hang()
    assert "does not return from a reading of GPU 1" in program.process.stderr.readline()
    os.remove(program.stuck)
    assert "answers for GPU 1 NVIDIA H100 80GB HBM3 again" in program.process.stderr.readline()
    open(done, "w", encoding="ascii").close()
    status, _, err = program.end(LIMIT_S)
    assert status == 0, err
    for meter, gaps in zip(program.record()["meters"], (0, 1)):
        assert abs(meter["joules"] - 300 * meter["covered_s"]) <= meter["error_joules"] and meter["gaps"] == gaps, meter


def reading_of_a_file(folder, rng):
    """The same of a file of sysfs."""
    root = os.path.join(folder, "root")
    grace(pathlib.Path(root), "own", 3, "Module", 400)
    env = {"JM_ROOT": root, "LD_PRELOAD": str(BUILD / "tests/peers/libsysfs-kernel.so"),
           "JM_FAKE_KERNEL_HANGS": "power1_average=STUCK",
           "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}
    program = Program(folder, env, "measure", "--source", "hwmon", "--json", "OUT", "--", "sleep", "2").start()
    time.sleep(rng.uniform(0.7, 1.3))
    program.hang()
    status, _, err = program.end(2 + LIMIT_S)
    assert status == 0, err
    is_unknown(program.record(), err, 400)


def interrupted(folder, rng):
    """The first Ctrl-C ends the command, and its record is written."""
    program = Program(folder, gpus_of(folder, "readlag=0:1e9").env, "measure", *NVML, "--json", "OUT", "--", "sleep",
                      "60").start(start_new_session=True)
    time.sleep(rng.uniform(0.7, 1.3))
    program.hang()
    time.sleep(rng.uniform(0, 0.5))
    os.killpg(program.process.pid, signal.SIGINT)  # as a terminal does
    status, _, err = program.end(LIMIT_S)
    assert status == 130, (status, err)
    one_is_unknown(program.record(), err, 0)


def setting(folder, rng):
    """A case whose sensor hangs: its settings are put back, and its record is stored."""
    gpus, store = gpus_of(folder, "readlag=1:1e9"), os.path.join(folder, "s.db")
    program = Program(folder, gpus.env, "run", "null", *NVML, "--step-time", "50ms", "--steps", "40", "--warmup", "0",
                      "--set", "gpu.power@GPU-0=300W", "--store", store).start()
    assert wait_for(lambda: limits(gpus) == [300, 700])
    time.sleep(rng.uniform(0.7, 1.3))
    program.hang()
    status, _, err = program.end(2 + LIMIT_S)
    assert status == 0 and gpus.limits() == [700, 700], (status, gpus.limits(), err)
    unchanged, record = sorted(records(store), key=lambda r: r["meters"][1]["joules"] is None)
    assert unchanged["status"] == record["status"] == "ok" and record["steps"] == 40
    assert all(meter["joules"] > 0 for meter in unchanged["meters"]), unchanged["meters"]
    one_is_unknown(record, err, 1)


def opening(folder, _):
    """A named source whose driver does not answer is refused with a sentence."""
    program = Program(folder, gpus_of(folder, "initlag=1e9").env, "measure", *NVML, "--", "true")
    program.hang()
    status, _, err = program.start().end(LIMIT_S)
    assert status == FAILURE and "has not returned for 10 s" in err, (status, err)


def opening_of_one(folder, _):
    """Without a name the others measure, and it is reported."""
    root = os.path.join(folder, "root")
    grace(pathlib.Path(root), "own", 3, "Module", 400)
    program = Program(folder, {**gpus_of(folder, "initlag=1e9").env, "JM_ROOT": root}, "measure", "--json", "OUT", "--",
                      "sleep", "1")
    program.hang()
    status, _, err = program.start().end(1 + LIMIT_S)
    assert status == 0 and "nvml: The driver has not returned for 10 s" in err, (status, err)
    [meter] = [m for m in program.record()["meters"] if m["source"] == "hwmon"]
    assert meter["joules"] > 300, meter


def asked(folder, _):
    """doctor names the source whose driver does not answer, asks the control of the same driver no more, and goes on."""
    program = Program(folder, gpus_of(folder, "initlag=1e9").env, "doctor", "--json")
    program.hang()
    status, out, err = program.start().end(LIMIT_S)
    assert status == 0, err
    found = [f for f in json.loads(out) if f["member"] == "nvml"]
    assert [f["section"] for f in found] == ["Measure", "Set"] and not any(f["ok"] for f in found), found
    assert all("has not returned" in f["why"] and "dmesg" in f["mend"] for f in found), found
    assert any(f["member"] == "state" for f in json.loads(out))


def planned(folder, _):
    """plan says that the driver of a source does not answer, and lists what else is needed."""
    path = os.path.join(folder, "plan.yaml")
    with open(path, "w", encoding="ascii") as file:
        file.write("source: nvml\nruns:\n  - command: [sh, -c, sleep 1]\n")
    program = Program(folder, gpus_of(folder, "initlag=1e9").env, "plan", path)
    program.hang()
    status, out, err = program.start().end(LIMIT_S)
    assert status == 1 and re.search(r"source nvml +missing: Its driver has not returned", out), (status, out, err)
    assert re.search(r"program sh +here", out), out


def attached(folder, rng):
    """A call for the users of a GPU that does not return: the GPU's energy is known, its share is not."""
    users = os.path.join(folder, "users")
    with open(users, "w", encoding="ascii") as file:
        file.write(f"0 {os.getpid()} 50 1000 test\n")
    env = gpus_of(folder, f"uselag=0:1e9;usersfile={users}").env
    program = Program(folder, env, "measure", *NVML, "--pid", os.getpid(), "--for", "4s", "--json", "OUT").start()
    time.sleep(rng.uniform(0.5, 1.3))
    program.hang()
    status, _, err = program.end(4 + 2)
    assert status == 0, (status, err)
    assert all(meter["joules"] > 0 for meter in program.record()["meters"]), program.record()["meters"]
    rows = program.record()["attached"]["gpus"]
    assert rows and all(row["share"] is None and "does not return" in row["reason"] for row in rows), rows


def watched(folder, rng):
    """A command that runs until Ctrl-C ends by the first one."""
    program = Program(folder, gpus_of(folder, "readlag=1:1e9").env, "watch", *NVML).start()
    time.sleep(rng.uniform(0.7, 1.3))
    program.hang()
    time.sleep(0.3)
    program.process.send_signal(signal.SIGINT)
    status, _, err = program.end(LIMIT_S)
    assert status in (0, 130), (status, err)


def step(folder, rng):
    """A worker that stands still in a step: the first Ctrl-C ends it when that takes longer than any before; settings are
    put back, and the case before it is in the store."""
    gpus, store = gpus_of(folder, ""), os.path.join(folder, "s.db")
    program = Program(folder, gpus.env, "run", "null", "--source", "null", "--step-time", "50ms", "--steps", "40", "--warmup",
                      "0", "--set", "gpu.power=300W", "--store", store).start()
    assert wait_for(lambda: limits(gpus) == [300, 300])
    time.sleep(rng.uniform(0.5, 1.3))
    os.kill(child_of(program.process.pid, b"joulemark\0worker\0"), signal.SIGSTOP)
    program.process.send_signal(signal.SIGINT)
    status, _, err = program.end(STEP_S + GRACE_S)
    assert status == 130 and "as when a device hangs" in err, (status, err)
    assert gpus.limits() == [700, 700] and len(records(store)) == 1


def device_opening(folder, _):
    """A device that never opens: the first Ctrl-C ends the case."""
    program = Program(folder, {**devices(1), "JM_FAKE_LATER_HANGS": "open/0"}, *GPT).start()
    time.sleep(2)
    program.process.send_signal(signal.SIGINT)
    status, _, err = program.end(STEP_S)
    assert status == 130 and "as when a device hangs" in err, (status, err)


def device_closing(folder, _):
    """A device that never closes: the result was there before."""
    program = Program(folder, {**devices(1), "JM_FAKE_LATER_HANGS": "close/0"}, *GPT, "--json", "OUT").start()
    status, _, err = program.end(5 + LIMIT_S)
    assert status == 0 and "its device had not closed" in err, (status, err)
    assert program.record()["status"] == "ok" and program.record()["steps"] == 5


SCENES = (reading, first_reading, returning, reading_of_a_file, interrupted, setting, opening, opening_of_one, asked,
          planned, attached, watched, step, device_opening, device_closing)
