# SPDX-License-Identifier: Apache-2.0
"""%%joulemark in IPython itself, on false GPUs whose power is constant."""
import json
import os

import pytest

from jm import SOURCE
from packages import packages
from python_package import no_sanitizers, python  # noqa: F401  pylint: disable=unused-import

WATTS = 2 * 300

CELLS = """
    import json
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance(colors="NoColor")
    shown = shell.display_pub = CapturingDisplayPublisher()
    shell.run_cell("%load_ext joulemark").raise_error()
    def run(*lines): return shell.run_cell("\\n".join(lines), store_history=True)
"""


def cells(script):
    paths = os.pathsep.join(map(str, [packages("notebook"), SOURCE / "python"]))
    return python(CELLS + script, env={"PYTHONPATH": paths, "JM_FAKE_NVML": f"gpus=2;wave=const;power={WATTS // 2}",
                                       "PYTHONWARNINGS": "ignore"})


def test_a_cell_is_measured_and_shown():
    done = cells("""
    done = run("%%joulemark m --source nvml", "import time, joulemark", "with joulemark.region('sleep'): time.sleep(0.4)",
               "words = !echo one two", "words[0] + '!'")
    m = shell.user_ns["m"]
    print(json.dumps([done.result, shell.user_ns["_"], [o["data"] for o in shown.outputs], m["sleep"].joules, m["sleep"].seconds,
                      m["sleep"].error]), file=__import__("sys").stderr)
    """)
    value, last, shown, joules, seconds, error = json.loads(done.stderr.splitlines()[-1])
    assert value == last == "one two!" and seconds >= 0.4 and joules == pytest.approx(WATTS * seconds, abs=error)
    assert len(shown) == 1 and "sleep" in shown[0]["text/plain"] and shown[0]["text/html"].startswith("<table>")


def test_a_cell_that_fails_is_measured_and_fails():
    done = cells("""
    done = run("%%joulemark m --source nvml", "x = 1", "raise KeyError(x)")
    assert isinstance(done.error_in_exec, KeyError) and not done.success
    assert shell.user_ns["m"].seconds > 0 and len(shown.outputs) == 1 and shell.user_ns["x"] == 1
    assert run("%%joulemark n --source nvml", "if 1").error_in_exec and "n" not in shell.user_ns and len(shown.outputs) == 1
    """)
    assert "raise KeyError(x)" in done.stdout


def test_wrong_options_are_one_sentence_and_nothing_runs():
    done = cells("""
    for line in ("--source nvlm", "--interval 0", "5", "--nothing"):
        assert not run(f"%%joulemark {line}", "ran = True").success
    assert "ran" not in shell.user_ns and not shown.outputs
    """)
    assert "did you mean 'nvml'" in done.stderr and "'5' is not the name of a variable" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
