# SPDX-License-Identifier: Apache-2.0
"""calibrate: finds the parameters of the simulated node's sensors, which its data file gives, and stores them."""
import json
import pathlib
import re
import signal
import subprocess
import time

import pytest

from jm import BIN, FAILURE, SOURCE, USAGE, jm, sentence

NODE = json.loads((SOURCE / "sim" / "data" / "h100.json").read_text())


def hidden(key, data=NODE):
    """The value of a key of the data file, wherever it stands."""
    if key in data:
        return data[key]["value"]
    found = [v for v in (hidden(key, d) for d in data.values() if isinstance(d, dict)) if v is not None]
    return found[0] if found else None


@pytest.fixture(name="env")
def own_state(tmp_path):
    return {"JM_STATE": str(tmp_path / "state")}


def calibrate(*args, env, **more):
    return jm("calibrate", "--device", "sim:h100x1", "--seconds", "40s", *args, env=env, **more)


def fits(observed):
    return {(s["meter"], s["quantity"]): s["fit"] for s in observed["signals"]}


def test_the_hidden_parameters_are_found(env, tmp_path):
    done = calibrate("--json", tmp_path / "seen.json", env=env)
    assert done.returncode == 0, done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    found = fits(seen)
    windows = {"power": hidden("sensor_window_s"), "power-average": hidden("sensor_average_s")}
    assert {q for _, q in found} == {"energy", "power", "power-average"}
    for (_, quantity), fit in found.items():
        assert fit["refresh_s"] == pytest.approx(hidden("sensor_refresh_s"), rel=0.05)
        assert fit["rise_s"] == pytest.approx(hidden("power_lag_s"), rel=0.05)
        assert abs(fit["delay_s"]) < 0.002
        if quantity in windows:
            assert fit["window_s"] == pytest.approx(windows[quantity], rel=0.05)
            assert abs(fit["window_s"] - windows[quantity]) < 2 * fit["window_error_s"] + 1e-4
    assert "power-average" in done.stdout and "are stored" in done.stdout
    again = jm("calibrate", "--from", tmp_path / "seen.json", "--json", "-", env=env)
    assert again.returncode == 0
    for signal, fit in fits(json.loads(again.stdout)).items():
        assert fit == pytest.approx(found[signal], rel=1e-3, abs=1e-6)


def test_later_measurements_use_it(env):
    def signals():
        done = jm("measure", "--source", "sim:h100x1", "--json", "-", "--", "true", env=env)
        return [s for m in json.loads(done.stdout)["meters"] for s in m["signals"]]
    assert not any(s["calibrated"] for s in signals())
    assert calibrate(env=env).returncode == 0
    used = [s for s in signals() if s["calibrated"]]
    assert {s["quantity"] for s in used} == {"energy", "power", "power-average"}
    assert jm("calibrate", "--forget", env=env).returncode == 0
    assert not any(s["calibrated"] for s in signals())
    assert calibrate("--no-keep", env=env).returncode == 0
    assert not any(s["calibrated"] for s in signals())


def test_a_sensor_that_does_not_follow_the_load_is_named(env):
    done = calibrate("--source", "sim:h200x1", env=env)
    assert done.returncode == 0 and "does not follow the load" in done.stdout
    assert "about 0 signals are stored" in done.stdout


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "signals": 3}',
                                  '{"version": 1, "edges_s": [1, 0], "signals": []}',
                                  '{"version": 1, "edges_s": [0, 1, 2, 3], "signals": [{"changes": [[1, 2], [0, 3]]}]}',
                                  '{"version": 1, "edges_s": [1e300], "signals": []}'])
def test_what_is_no_observation_is_refused(env, tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    sentence(jm("calibrate", "--from", tmp_path / "x.json", env=env), FAILURE)
    assert "is a directory" in sentence(jm("calibrate", "--from", tmp_path, env=env), FAILURE).lower()


def test_bad_words(env):
    sentence(jm("calibrate", "--device", "cuda:99", "--source", "sim:h100x1", env=env))
    sentence(jm("calibrate", "--interval", "2", env=env), USAGE)
    sentence(jm("calibrate", "--workload", "gem", "--source", "sim:h100x1", env=env))


@pytest.mark.parametrize("card", ["h100", "h200"])
def test_what_a_card_showed(env, card):
    """Refresh and windows as Yang et al. (arXiv 2312.02741) found for Hopper, and the counter's 100 ms."""
    done = jm("calibrate", "--from", SOURCE / "tests" / "data" / card / "calibrate.json", "--json", "-", env=env)
    assert done.returncode == 0, done.stderr
    gpu = {q: fit for (meter, q), fit in fits(json.loads(done.stdout)).items() if "memory" not in meter}
    assert gpu["energy"]["refresh_s"] == pytest.approx(0.1, rel=0.02)
    assert gpu["power"]["refresh_s"] == pytest.approx(0.1, rel=0.05)
    assert 0.010 < gpu["power"]["window_s"] < 0.035
    assert gpu["power-average"]["window_s"] == pytest.approx(1.01, rel=0.02)
    for fit in gpu.values():
        assert abs(fit["delay_s"]) < fit["delay_error_s"] + 0.003
        assert 0.005 < fit["rise_s"] < 0.03


@pytest.mark.parametrize("words, option", [(["--forget", "--seconds", "40s"], "--seconds"), (["--forget", "--json=x"], "--json"),
                                           (["--from", "x.json", "--device", "sim:h100x1"], "--device")])
def test_options_of_a_load_that_is_not_run_are_refused(words, option):
    assert f"{option} has no effect with {words[0]}" in sentence(jm("calibrate", *words), USAGE)


def test_ctrl_c_ends_it_with_the_status_of_the_signal():
    words = ["calibrate", "--device", "cpu", "--workload", "null", "--source", "null", "--no-keep"]
    with subprocess.Popen([BIN, *words], stderr=subprocess.PIPE, text=True, start_new_session=True) as child:
        status = pathlib.Path(f"/proc/{child.pid}/status")
        while not int(re.search(r"^SigCgt:\s*(\S+)", status.read_text(), re.M)[1], 16) & 1 << signal.SIGINT - 1:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=30)[1]
    assert child.returncode == 128 + signal.SIGINT and "interrupted; nothing is kept" in said
