# SPDX-License-Identifier: Apache-2.0
"""The installed library exports what its header declares, and a program can use it."""
import ctypes
import json
import re
import subprocess

import pytest

from jm import BUILD, SOURCE, skip_with_sanitizers

HEADER = (SOURCE / "include/joulemark.h").read_text()


def test_exports_exactly_the_header():
    declared = set(re.findall(r"JM_API[^;(]*?\b(jm_\w+)\(", HEADER))
    out = subprocess.run(["nm", "-D", "--defined-only", BUILD / "libjoulemark.so"], check=True,
                         capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in out.splitlines()}
    assert {name for name in exported if not name.startswith(("__", "_init", "_fini"))} == declared


@pytest.mark.parametrize("compiler", ["cc", "c++"])
def test_header_stands_alone(compiler, tmp_path):
    unit = tmp_path / ("alone." + ("c" if compiler == "cc" else "cc"))
    unit.write_text('#include <joulemark.h>\nint main(void) { return 0; }\n')
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", SOURCE / "include", unit],
                   check=True)


def test_regions_example(tmp_path):
    skip_with_sanitizers()
    program = tmp_path / "regions"
    subprocess.run(["cc", "-O1", "-I", SOURCE / "include", SOURCE / "examples/regions.c", "-L", BUILD,
                    "-ljoulemark", f"-Wl,-rpath,{BUILD.resolve()}", "-o", program], check=True)
    out = subprocess.run([program, "sim:h100x1"], check=True, capture_output=True, text=True).stdout
    report = json.loads(out)
    gpu = next(m for m in report["meters"] if m["scope"] == "gpu")
    phase = next(p for p in report["phases"] if p["name"] == "work")
    seconds = phase["end_s"] - phase["start_s"]
    assert phase["items"] == 200e6
    assert gpu["origin"] == "simulated"
    # an idle simulated H100: joules are its mean power over the stretch
    assert gpu["joules"] == pytest.approx(gpu["watts_mean"] * seconds, rel=1e-3)
    failed = subprocess.run([program, "nvlm"], capture_output=True, text=True)
    assert failed.returncode == 1 and "did you mean 'nvml'" in failed.stderr


def test_a_context_is_opaque(tmp_path):
    """A program knows neither its size nor its members, and gets its log by a function."""
    skip_with_sanitizers()
    unit = tmp_path / "peek.c"
    unit.write_text('#include <joulemark.h>\nint main(void) { struct jm_ctx ctx; return sizeof(ctx) != 0; }\n')
    done = subprocess.run(["cc", "-fsyntax-only", "-I", SOURCE / "include", unit], capture_output=True, text=True)
    assert done.returncode and "storage size" in done.stderr
    library, lines = ctypes.CDLL(BUILD / "libjoulemark.so"), []
    err = ctypes.create_string_buffer(4 + 512)
    ctx = ctypes.c_void_p()
    log = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(lambda arg, level, line: lines.append(line))
    assert library.jm_ctx_new(ctypes.byref(ctx), err) == 0, err.raw
    library.jm_ctx_set_log(ctx, log, None)
    library.jm_log(ctx, 2, b"%s and %d", b"text", 7)
    library.jm_ctx_set_log(ctx, None, None)
    library.jm_log(ctx, 2, b"unheard")
    library.jm_ctx_free(ctx)
    assert lines == [b"text and 7"]
    own = ctypes.create_string_buffer(library.jm_ctx_bytes())
    assert library.jm_ctx_init(own, err) == 0 and library.jm_ctx_now(own) != 0
