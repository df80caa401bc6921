# SPDX-License-Identifier: Apache-2.0
"""The Python package: regions compared with the truth of the fake NVML, and events of the process around them."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree

import pytest

from jm import BUILD, SOURCE, jm
from measured import FAKE
from python_package import LIBRARY, WAVE, no_sanitizers, python, truth  # noqa: F401  pylint: disable=unused-import


def value(script, *args, **more):
    return json.loads(python(script, *args, **more).stdout)


REGIONS = """
    import json, threading, time
    import joulemark
    with joulemark.measure("nvml") as m:
        with m.region("a") as a:
            time.sleep(0.6)
            with m.region("b"):
                time.sleep(0.7)
                m.credit(3)
            m.credit(10)
            a.credit(4)
        time.sleep(0.2)
        both = threading.Barrier(2)
        def work(seconds):
            with m.region("threads"):
                both.wait()
                time.sleep(seconds)
        threads = [threading.Thread(target=work, args=(s,)) for s in (0.4, 0.8)]
        for t in threads: t.start()
        for t in threads: t.join()
        with m.region("a"):
            time.sleep(0.5)
    print(json.dumps({"start_ns": m.report["start_ns"], "whole": [m.joules, m.seconds], "text": repr(m), "html": m._repr_html_(),
        "names": list(m), "origin": m.origin,
        "regions": {n: {"joules": r.joules, "error": r.error, "watts": r.watts, "seconds": r.seconds, "items": r.items,
            "origin": r.origin, "per": r.joules_per_item,
            "stretches": [[s.start, s.start + s.seconds] for s in r.stretches]} for n, r in ((n, m[n]) for n in m)}}))
"""


@pytest.fixture(name="measured", scope="module")
def measured_once(no_sanitizers):
    return value(REGIONS)


def test_energies_are_the_truth_within_their_error(measured):
    for name, region in measured["regions"].items():
        true = truth(measured["start_ns"], region["stretches"])
        assert abs(region["joules"] - true) <= region["error"], name
        assert region["error"] < 0.35 * true, name
        assert region["origin"] == "measured"
        assert region["watts"] == pytest.approx(region["joules"] / region["seconds"])
        assert region["seconds"] == pytest.approx(sum(end - start for start, end in region["stretches"]))


def test_regions_nest_repeat_and_are_shared_by_threads(measured):
    regions = measured["regions"]
    assert measured["names"] == ["a", "b", "threads"]
    (a0, a1), again = regions["a"]["stretches"]
    b0, b1 = regions["b"]["stretches"][0]
    assert a0 < b0 < b1 < a1 < again[0]
    # two threads of 0.4 s and 0.8 s at the same time are one stretch, whose energy counts once
    assert len(regions["threads"]["stretches"]) == 1 and regions["threads"]["seconds"] >= 0.8
    assert a1 <= regions["threads"]["stretches"][0][0] and regions["threads"]["stretches"][0][1] <= again[0]
    assert regions["threads"]["joules"] < measured["whole"][0]


def test_items_go_to_the_innermost_region(measured):
    regions = measured["regions"]
    assert (regions["a"]["items"], regions["b"]["items"], regions["threads"]["items"]) == (14, 3, None)
    assert regions["threads"]["per"] is None
    assert regions["b"]["per"] == pytest.approx(regions["b"]["joules"] / 3)


def test_looks_well_in_a_terminal_and_in_a_notebook(measured):
    text, html = measured["text"], measured["html"]
    assert re.search(r"^b +\d[\d.,e+]* ± \S+ J measured +\d[\d.,]* s +\d", text, re.M), text
    svg = xml.etree.ElementTree.fromstring(html[html.index("<svg"):])
    bars = [e for e in svg.iter() if e.tag.endswith("rect")]
    assert len(bars) == 4  # a twice
    b = next(e for e in bars if e[0].text.startswith("b: "))
    share = float(b.get("width")) / (640 - 64)
    assert share == pytest.approx(measured["regions"]["b"]["seconds"] / measured["whole"][1], rel=0.01)


def test_digits_are_those_of_the_program():
    """Four, or those that the uncertainty supports; no exponent. The rows with an uncertainty are those of test_text.c."""
    rows = re.findall(r'\{([\d.]+), ([\d.]+), "([^"]+)"\}', (SOURCE / "tests/unit/report/test_text.c").read_text(encoding="utf-8"))
    found = value("""
        import json, sys
        from joulemark._result import plain, with_error
        print(json.dumps([[plain(x) for x in (0, 3.5, 75, 0.67114, 1234.4, 12345.6, 1234567.8, 9999.96, 1e-7)],
                          [with_error(*x) for x in ((2.5, 0), (2.5, None))],
                          [with_error(float(x), float(error)) for x, error, _ in json.loads(sys.argv[1])]]))
    """, json.dumps(rows))
    assert found[0] == ["0", "3.500", "75.00", "0.6711", "1234", "12,346", "1,234,568", "10,000", "1e-07"]
    assert found[1] == ["2.500", "2.500"]
    assert len(rows) >= 8 and found[2] == [text for _, _, text in rows]


def test_unknown_is_none_and_never_0():
    """Both GPUs are lost before the second region begins; a region without a length has no energy either."""
    found = value("""
        import json, time, joulemark
        with joulemark.measure("nvml") as m:
            begun = time.monotonic()
            with m.region("known"): time.sleep(0.7)
            time.sleep(max(0, begun + 2.3 - time.monotonic()))
            with m.region("lost"): time.sleep(0.5); m.credit(5)
        r = m["lost"]
        print(json.dumps([m["known"].joules, r.joules, r.error, r.watts, r.joules_per_item, r.origin, r.seconds, repr(r),
                          m._repr_html_()]))
    """, env={"JM_FAKE_NVML": WAVE + ";lost=0@2,1@2"})
    assert found[0] > 0 and found[1:6] == [None, None, None, None, "measured"] and found[6] > 0.4
    assert "unknown" in found[7] and "power unknown" in found[8]


def test_an_estimate_is_named_and_has_no_error():
    found = value("""
        import json, time, joulemark
        with joulemark.measure("estimate:idle=20,core=0") as m:
            with m.region("<i>&amp;"): time.sleep(0.3)
        r = m["<i>&amp;"]
        print(json.dumps([r.joules / r.seconds, r.error, r.origin, m._repr_html_()]))
    """)
    assert found[:3] == [pytest.approx(20, rel=0.1), None, "estimated"]
    assert "<i>" not in found[3] and "&lt;i&gt;&amp;amp;" in found[3]


def test_the_more_significant_origin_speaks_as_in_the_program(tmp_path):
    """A recording and a simulated GPU: the report of the same readings by the program says which of them counts."""
    assert jm("measure", "--source", "nvml", "--csv", tmp_path / "rec", "--", "sleep", "1",
              env={"JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": WAVE}).returncode == 0
    sources = f"sim:h100x1,replay:{tmp_path / 'rec'}"
    assert jm("measure", "--source", sources, "--json", tmp_path / "r.json", "--", "sleep", "0.5").returncode == 0
    system, = json.loads(jm("report", "--format", "json", tmp_path / "r.json").stdout)["series"]
    origin, both = value("""
        import json, sys, time, joulemark
        with joulemark.measure(sys.argv[1]) as m: time.sleep(0.5)
        print(json.dumps([m.origin, sorted({meter["origin"] for meter in m.report["meters"]})]))
    """, sources)
    assert both == ["replayed", "simulated"] and origin == system["origin"] == "replayed"


def test_decorators_cover_bodies_of_generators_and_coroutines():
    found = value("""
        import asyncio, json, time, joulemark
        seen = []
        @joulemark.region("outside")
        def nobody_measures(): return 7
        assert nobody_measures() == 7
        @joulemark.region("plain")
        def plain(depth=2): time.sleep(0.05); return plain(depth - 1) if depth else 1
        @joulemark.region("generator")
        def numbers():
            for i in range(3): time.sleep(0.05); yield i
        @joulemark.region("coroutine")
        async def wait(): await asyncio.sleep(0.15)
        @joulemark.measured(report=seen.append, sources="sim:h100x1")
        def main():
            plain(); list(numbers()); asyncio.run(wait()); nobody_measures()
            return "value"
        assert main() == "value" and main.__name__ == "main"
        m, = seen
        print(json.dumps({n: [m[n].seconds, len(m[n].stretches)] for n in m}))
    """)
    assert list(found) == ["plain", "generator", "coroutine", "outside"]
    for name in ("plain", "generator", "coroutine"):
        assert found[name][0] >= 0.15 and found[name][1] == 1


def test_an_exception_ends_the_region_and_the_threads():
    done = python("""
        import os, joulemark
        threads = lambda: len(os.listdir("/proc/self/task"))
        try:
            with joulemark.measure("nvml") as m:
                with m.region("a"):
                    assert threads() > 1
                    raise KeyError("mine")
        except KeyError as error:
            assert error.args == ("mine",)
        assert threads() == 1 and m.unclosed == [] and m["a"].closed and m["a"].seconds > 0
        del m
        m = joulemark.measure("nvml").start()
        assert threads() > 1
        del m    # nobody stops it
        assert threads() == 1
    """)
    assert done.stderr == ""


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise SystemExit(3)", "os._exit(3)"])
@pytest.mark.parametrize("place", ["", "thread"])
def test_an_interpreter_that_exits_inside_a_region(end, place):
    if place and "_exit" not in end:
        end = "threading.main_thread().join(); os._exit(3)"  # the main thread ends while this one is inside
    done = python(f"""
        import os, sys, threading, time, joulemark
        m = joulemark.measure("nvml").start()
        def inside():
            r = m.region("never closed")
            r.__enter__()
            {end}
        if {place!r}:
            threading.Thread(target=inside, daemon=True).start()
            time.sleep(0.3)
            sys.exit(3)
        inside()
    """, status=3)
    if "_exit" not in end:
        assert "never closed" in done.stderr and "Traceback" not in done.stderr


def test_a_region_that_is_never_closed_ends_with_the_measurement_and_is_named():
    done = python("""
        import json, time, joulemark
        with joulemark.measure("nvml") as m:
            m.region("left open").__enter__()
            with m.region("closed"): time.sleep(0.3)
        r = m["left open"]
        with m.region("late"): pass
        print(json.dumps([m.unclosed, r.closed, m["closed"].closed, r.seconds, m["closed"].seconds, repr(m), "late" in m]))
    """)
    unclosed, left, closed, seconds, least, text, late = json.loads(done.stdout)
    assert unclosed == ["left open"] and not left and closed and seconds >= least
    assert "left open (not closed)" in text and not late and "'late' is not measured: the measurement has ended" in done.stderr
    assert "JoulemarkWarning" in done.stderr and "left open" in done.stderr


def test_results_survive_where_warnings_are_errors_and_numbers_may_be_of_numpy():
    found = value("""
        import json, time, joulemark
        try: from numpy import int64
        except ImportError: int64 = int
        m = joulemark.measure("sim:h100x1").start()
        m.region("open").__enter__()
        m.credit(int64(7))
        time.sleep(0.3)
        try: m.stop()
        except joulemark.JoulemarkWarning as warning: assert "open" in str(warning)
        else: raise SystemExit(1)
        print(json.dumps([m["open"].joules, m["open"].items]))
    """, env={"PYTHONWARNINGS": "error"})
    assert found[0] > 0 and found[1] == 7


def test_measurements_beside_each_other_know_only_their_own_regions():
    found = value("""
        import json, time, joulemark
        with joulemark.measure("sim:h100x1") as outer:
            with outer.region("outer"), joulemark.region("newest is outer"):
                with joulemark.measure("sim:h100x2") as inner:
                    with joulemark.region("newest is inner"): time.sleep(0.3)
            with joulemark.region("outer again"): pass
        print(json.dumps([list(outer), list(inner), outer["outer"].watts, inner.watts]))
    """)
    assert found[:2] == [["outer", "newest is outer", "outer again"], ["newest is inner"]]
    assert found[2:] == [pytest.approx(75, rel=0.05), pytest.approx(150, rel=0.05)]


def test_ctrl_c_at_any_time_ends_the_process_by_it():
    script = textwrap.dedent("""
        import joulemark, time
        print("ready", flush=True)
        with joulemark.measure("nvml") as m:
            while True:
                with m.region("a"), m.region("b"): time.sleep(0.001)
    """)
    env = {**os.environ, "PYTHONPATH": str(SOURCE / "python"), "JM_LIBRARY": str(LIBRARY), "JM_NVML_LIB": str(FAKE),
           "JM_FAKE_NVML": WAVE}
    for delay in (0, 0.01, 0.05, 0.1, 0.3):
        with subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            text = process.communicate(timeout=240)[1]
            assert process.returncode == -signal.SIGINT, text
            assert "KeyboardInterrupt" in text and "Fatal" not in text


def test_a_locale_with_a_comma_changes_no_number(tmp_path):
    """A program with windows sets the user's locale, in which numbers may have a comma."""
    if not shutil.which("localedef"):
        pytest.skip("localedef is not installed")
    source = tmp_path / "comma.src"
    source.write_text('LC_NUMERIC\ndecimal_point ","\nthousands_sep "."\ngrouping 3;3\nEND LC_NUMERIC\n')
    subprocess.run(["localedef", "-c", "-i", source, tmp_path / "comma"], check=False, capture_output=True)
    if not (tmp_path / "comma" / "LC_NUMERIC").exists():
        pytest.skip("localedef makes no locale here")
    script = """
        import ctypes, json, locale, time
        import joulemark
        libc = ctypes.CDLL(None)
        libc.setlocale.restype = ctypes.c_char_p
        assert libc.setlocale(locale.LC_NUMERIC, b"comma")
        text = ctypes.create_string_buffer(20)
        libc.snprintf(text, 20, b"%.1f", ctypes.c_double(1.5))
        assert text.value == b"1,5"
        with joulemark.measure("estimate:idle=20.5W,core=0W") as m:
            with m.region("a"):
                time.sleep(0.3)
        libc.snprintf(text, 20, b"%.1f", ctypes.c_double(1.5))
        print(json.dumps([m["a"].joules / m["a"].seconds, text.value.decode()]))
    """
    watts, text = value(script, env={"LOCPATH": str(tmp_path)})
    assert watts == pytest.approx(20.5, rel=0.01) and text == "1,5"  # and the program keeps its locale


def test_a_child_of_fork_neither_waits_nor_measures():
    done = python("""
        import os, sys, time, joulemark
        with joulemark.measure("nvml") as m:
            with m.region("a"):
                child = os.fork()
                if not child:
                    with m.region("in the child"): m.credit(1)
                    try: m["a"]
                    except joulemark.Error as error: assert str(os.getppid()) in str(error), error
                    else: os._exit(9)
                    with joulemark.measure("nvml") as own:      # one of its own works
                        with own.region("c"): time.sleep(0.2)
                    assert own["c"].seconds > 0.1
                    sys.exit(4)        # through the with blocks of its parent
                assert os.waitpid(child, 0)[1] == 4 << 8
                time.sleep(0.4)
        assert list(m) == ["a"] and m["a"].joules > 0 and m["a"].items is None
    """)
    assert done.stderr == ""


def test_a_child_that_drops_the_measurement_leaves_the_sensors_to_its_parent():
    """Closing them in the child could speak to instruments that the parent reads."""
    python("""
        import os, time, joulemark
        m = joulemark.measure("nvml").start()
        child = os.fork()
        if not child:
            m._handle.lib.jm_measurement_free = lambda *_: os._exit(9)
            del m
            os._exit(5)
        assert os.waitpid(child, 0)[1] == 5 << 8
        time.sleep(0.3)
        m.stop()
        assert m.joules > 0
    """)


def test_forks_while_threads_are_in_regions():
    python("""
        import os, threading, joulemark
        with joulemark.measure("nvml") as m:
            stop = threading.Event()
            def enter():
                while not stop.is_set():
                    with m.region("busy"): pass
            threads = [threading.Thread(target=enter) for _ in range(3)]
            for t in threads: t.start()
            for _ in range(30):
                child = os.fork()
                if not child:
                    with m.region("x"): pass
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            stop.set()
            for t in threads: t.join()
    """)


def test_no_processes_and_no_caps_are_left(tmp_path):
    """The limits that the driver holds are the same bytes afterwards."""
    state = tmp_path / "driver"
    python("""
        import os, sys, time, joulemark
        before = open(sys.argv[1], "rb").read() if os.path.exists(sys.argv[1]) else None
        with joulemark.measure("nvml") as m:
            held = open(sys.argv[1], "rb").read()
            time.sleep(0.2)
        assert open(sys.argv[1], "rb").read() == held
        assert open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read() == ""
    """, state, env={"JM_FAKE_NVML_STATE": str(state)})


def test_without_the_library_says_where_it_looked_and_what_to_do(tmp_path):
    script = """
        import sys, joulemark      # the import itself works
        try: joulemark.measure().start()
        except ImportError as error: print(error)
    """
    text = python(script, env={"JM_LIBRARY": str(tmp_path / "none.so")}).stdout
    assert str(tmp_path / "none.so") in text and "make install" in text and "JM_LIBRARY" in text
    package = tmp_path / "site"
    package.mkdir()
    subprocess.run(["cp", "-r", SOURCE / "python/joulemark", package], check=True)
    text = python(script, env={"JM_LIBRARY": None, "PYTHONPATH": str(package)}).stdout
    assert str(package / "joulemark/libjoulemark.so.0") in text and "the loader's path" in text
    found = python("import joulemark; print(joulemark.library())", env={
        "JM_LIBRARY": None, "PYTHONPATH": str(package), "LD_LIBRARY_PATH": str(BUILD.resolve())}).stdout
    assert str((BUILD / "libjoulemark.so.0").resolve()) in found


@pytest.mark.parametrize("code,words", [
    ('const char *jm_version(void);\nconst char *jm_version(void) { return "9.7.1"; }', ["9.7.1", "Install both"]),
    ("int nothing;", ["jm_version", "older"])])
def test_another_version_is_named(tmp_path, code, words):
    (tmp_path / "other.c").write_text(code)
    other = tmp_path / "libjoulemark.so.0"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, tmp_path / "other.c"], check=True)
    text = python("""
        import joulemark
        try: joulemark.mark("a")
        except joulemark.LibraryError as error: print(error)
    """, env={"JM_LIBRARY": str(other)}).stdout
    assert all(word in text for word in [*words, str(other), "0.1.0"])


def test_versions_of_package_program_and_library_are_one():
    version = value("import json, joulemark; print(json.dumps([joulemark.__version__, joulemark.library()[1]]))")
    assert len(set(version)) == 1 and jm("--version").stdout.split()[1] == version[0]


def test_a_wrong_source_is_a_sentence_and_leaves_no_thread():
    python("""
        import os, joulemark
        try: joulemark.measure("nvlm").start()
        except joulemark.Error as error: assert "did you mean 'nvml'" in str(error) and error.code < 0
        else: raise SystemExit(1)
        assert len(os.listdir("/proc/self/task")) == 1 and not joulemark._measurement._running
    """)


def test_pip_installs_it_without_a_network(tmp_path):
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("python3-pip is not installed")
    source = tmp_path / "python"
    subprocess.run(["cp", "-r", SOURCE / "python", source], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", tmp_path / "site", "."],
                   cwd=source, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    found = value("""
        import importlib.metadata, json, joulemark, joulemark.callbacks
        print(json.dumps([joulemark.__file__, joulemark.__version__, importlib.metadata.version("joulemark")]))
    """, env={"PYTHONPATH": str(tmp_path / "site")})
    assert found[0].startswith(str(tmp_path / "site")) and found[1] == found[2]


def test_marks_reach_the_joulemark_around():
    script = "import joulemark, time\nassert joulemark.mark('work')\ntime.sleep(0.2)\nassert joulemark.mark('end', 12)"
    done = jm("measure", "--json", "-", "--source", "sim:h100x1", "--", sys.executable, "-c", script,
              env={"PYTHONPATH": str(SOURCE / "python"), "JM_LIBRARY": str(LIBRARY)})
    assert done.returncode == 0, done.stderr
    phase = next(p for p in json.loads(done.stdout)["phases"] if p["name"] == "work")
    assert phase["items"] == 12 and phase["end_s"] - phase["start_s"] >= 0.2


def test_marks_go_on_after_the_program_closed_all_descriptors_and_in_a_child():
    script = textwrap.dedent("""
        import os, joulemark
        joulemark.mark("one", 1)
        os.closerange(3, 100)
        other = os.open("/dev/null", os.O_RDWR)
        joulemark.mark("two", 2)
        child = os.fork()
        joulemark.mark("three", 3)
        if not child: os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """)
    done = jm("measure", "--json", "-", "--source", "sim:h100x1", "--", sys.executable, "-c", script,
              env={"PYTHONPATH": str(SOURCE / "python"), "JM_LIBRARY": str(LIBRARY)})
    assert done.returncode == 0, done.stderr
    phases = {p["name"]: p["items"] for p in json.loads(done.stdout)["phases"]}
    assert {"one", "two", "three"} < set(phases) and phases["command"] == 9


def test_a_mark_outside_is_no_error_and_a_wrong_name_is():
    python("""
        import joulemark
        assert joulemark.mark("a", 5) is False
        try: joulemark.mark("two words")
        except joulemark.Error as error: assert "two words" in str(error)
        else: raise SystemExit(1)
    """)


def test_cost_and_carbon_by_the_users_figures():
    done = python("""
    import json, time, joulemark
    with joulemark.measure(sources="nvml", price=0.25, currency="EUR", carbon=380, pue=1.5, figures_from="contract of 2026-01") as m:
        with m.region("a"):
            time.sleep(0.3)
    with joulemark.measure(sources="null", carbon=1, figures_from="x") as unknown:
        pass
    with joulemark.measure(sources="nvml") as plain:
        pass
    print(json.dumps([m["a"].joules, m["a"].cost, m["a"].carbon_g, m.joules, m.cost, unknown.carbon_g, plain.cost, str(m), str(plain)]))
    for wrong in ({"price": 1}, {"carbon": 1}, {"pue": 2}, {"figures_from": "a"}, {"price": -1, "figures_from": "a"}, {"price": 1, "figures_from": "a", "pue": 0.5}):
        try:
            joulemark.measure(**wrong)
        except ValueError as error:
            assert str(error).endswith("."), error
        else:
            raise SystemExit(f"{wrong} is taken")
    """)
    joules, cost, carbon, whole, of_whole, unknown, plain, table, other = json.loads(done.stdout)
    assert joules > 0 and cost == pytest.approx(joules / 3.6e6 * 1.5 * 0.25) and carbon == pytest.approx(joules / 3.6e6 * 1.5 * 380)
    assert of_whole == pytest.approx(whole / 3.6e6 * 1.5 * 0.25) and unknown is None and plain is None
    assert table.splitlines()[0].split()[-4:] == ["cost", "EUR", "g", "CO2e"] and "cost" not in other


def test_a_measurement_never_ends_or_disturbs_the_program():
    """Wrong names, regions that are left twice, a second start, items that are no number: one warning each, and the rest is measured."""
    done = python("""
        import json, time, joulemark
        class Odd:
            def __str__(self): raise RuntimeError("no text")
        m = joulemark.measure("nvml")
        r = m.region("twice")
        with m:
            for name in (7, "", None, Odd()):
                with m.region(name): pass
            r.__enter__(); r.__exit__(None, None, None); r.__exit__(None, None, None)
            m._leave("twice"); m._leave("never")
            for items in ("x", -1, float("nan"), None): m.credit(items)
            m.credit(5, "never"); m.credit(5, "never")
            with m.region("a"):
                time.sleep(0.2); m.credit(3)
            m.start()
        m.__exit__(None, None, None)
        m.stop()
        print(json.dumps([list(m), m["a"].items, m["a"].joules, m["a"].seconds]))
    """)
    names, items, joules, seconds = json.loads(done.stdout)
    assert names == ["7", "unnamed", "None", "twice", "a"] and items == 3 and joules > 0 and 0.2 <= seconds < 20
    for words in ("A region's name is a text", "Items are a number", "No region 'never'", "is started once"):
        assert done.stderr.count(words) == 1, (words, done.stderr)


@pytest.mark.parametrize("env, sources", [({"JM_NVML_LIB": "/nowhere/libnvidia-ml.so.1"}, "nvml"), ({}, "rapl")])
def test_a_sensor_that_is_missing_leaves_the_figures_unknown(env, sources, tmp_path):
    done = python(f"""
        import json, joulemark
        with joulemark.measure({sources!r}) as m:
            with m.region("a"):
                m.credit(3)
            done = True
        print(json.dumps([done, m.joules, m["a"].joules, m["a"].seconds, m["a"].items, m.origin, m.quality[0], len(str(m)), len(m._repr_html_())]))
    """, env={**env, "JM_ROOT": str(tmp_path)})
    found = json.loads(done.stdout)
    assert found[:7] == [True, None, None, None, None, None, "none"] and found[7] and found[8]
    assert done.stderr.count("The measurement failed, so its figures are unknown") == 1


def test_measured_functions_are_one_table_at_the_end():
    done = python("""
        import time, joulemark
        @joulemark.measured(sources="nvml")
        def long(n): time.sleep(1); return short(n)
        @joulemark.measured(sources="nvml")
        def short(n): time.sleep(0.1); return n + 1
        @joulemark.measured(sources="nvml")
        def fails(): raise KeyError("mine")
        print(long(1), short(2), short(3))
        try: fails()
        except KeyError as error: print(error)
    """)
    assert done.stdout == "2 3 4\n'mine'\n"
    head, *lines = done.stderr.splitlines()
    assert head.split() == ["function", "calls", "energy", "power", "share"]
    rows = {line.split()[0]: line for line in lines}
    assert list(rows) == ["long", "short", "fails"] and [rows[n].split()[1] for n in rows] == ["1", "3", "1"]
    share = {n: float(rows[n].split()[-2]) for n in ("long", "short") if rows[n].endswith("%")}
    assert 60 < share["long"] < 95 and 10 < share["short"] < 50  # 1.1 s and 0.3 s of 1.3 s and the last edge
