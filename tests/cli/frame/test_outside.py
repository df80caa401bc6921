# SPDX-License-Identifier: Apache-2.0
"""Unusual input from outside: bytes that are no text, links, names with special meaning, the processor list of a machine
that has just started."""
import json
import os
import subprocess

import pytest

from jm import BIN, jm

SEND = """
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for name in (b"\\xff\\xfe", b"\\x1b[31mred", "Übung".encode()):
    s.sendto(b"jm1 %d mark %s 5" % (time.monotonic_ns(), name), os.environ["JM_PROGRESS"])
"""


def test_marks_that_are_no_text(tmp_path):
    done = jm("measure", "--source", "estimate", "--json", tmp_path / "r.json", "--", "/usr/bin/python3",
              "-c", SEND)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "r.json").read_text())
    assert [p["name"] for p in record["phases"][1:4]] == ["??", "?[31mred", "Übung"]
    assert record["items"] == 15


def test_recording_that_is_no_text(tmp_path):
    jm("measure", "--source", "sim:h100x1", "--csv", tmp_path / "t", "--", "sleep", "0.2")
    path = tmp_path / "t" / "meters.csv"
    text = path.read_bytes()
    path.write_bytes(text.replace(b"GPU 0", b"\xff\xff 0"))
    assert path.read_bytes() != text
    done = jm("measure", "--source", f"replay:{tmp_path}/t", "--", "sleep", "0.1")
    assert done.returncode == 0 and "?? 0" in done.stderr, done.stderr


def test_json_through_links(tmp_path):
    """A link keeps standing; the file it names is replaced."""
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("real.json")
    jm("measure", "--source", "estimate", "--json", tmp_path / "link.json", "--", "true")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["wall_s"] > 0


@pytest.mark.parametrize("fd", [1, 2])
def test_json_to_where_output_goes(tmp_path, fd):
    """--json /dev/stdout > FILE: /dev/stdout is a link to a regular file and must stay one."""
    link = tmp_path / "stdout"
    link.symlink_to(f"/proc/self/fd/{fd}")
    with open(tmp_path / "out", "w") as out:
        done = jm("measure", "--source", "estimate", "--json", link, "--", "sh", "-c", f"echo hello >&{fd}",
                  **{"stdout" if fd == 1 else "stderr": out})
    assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    text = (tmp_path / "out").read_text()
    assert text.startswith("hello\n")
    assert json.loads(text[text.index("\n{\n"):])["exit_status"] == 0


@pytest.mark.parametrize("to", [">", ">>", "2>"])
def test_json_to_where_the_shell_goes_on_writing(tmp_path, to):
    """{ measure --json FILE; echo done; } > FILE: what the shell writes next stands behind the record."""
    out = tmp_path / "out.txt"
    say = ">&2" if to == "2>" else ""
    done = subprocess.run(["sh", "-c", f"{{ echo first {say}; '{BIN}' measure --source estimate --json '{out}' -- true;"
                           f" echo done {say}; }} {to} '{out}'"], check=False, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert text.startswith("first\n")
    record, end = json.JSONDecoder().raw_decode(text, text.index("\n{\n") + 1)
    assert record["exit_status"] == 0 and text[end:] == "\ndone\n"


@pytest.mark.parametrize("name", [":memory:", "file:a.db?mode=ro"])
def test_store_with_a_name_that_means_something_to_sqlite(tmp_path, name):
    for _ in range(2):
        done = subprocess.run([os.path.abspath(BIN), "run", "--source", "null", "--store", name, "--",
                               "true"], cwd=tmp_path, check=False, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / name).stat().st_size > 0
    assert "[1/1]" not in done.stderr  # it was there


def test_estimate_of_a_machine_that_has_just_started(tmp_path):
    """The line of all processors is not one of its own, however small its numbers are."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(
        "cpu  100 0 100 5000 0 0 0 0 0 0\n" +
        "".join(f"cpu{i} 50 0 50 2500 0 0 0 0 0 0\n" for i in range(2)) + "intr 0\n")
    done = jm("measure", "--source", "estimate:2,1", "--", "true", env={"JM_ROOT": str(tmp_path)})
    assert "1 W + 2 W per busy core" in done.stderr
    done = jm("measure", "--source", "estimate", "--", "true", env={"JM_ROOT": str(tmp_path)})
    assert "1.48 W + 2.76 W per busy core" in done.stderr


@pytest.mark.parametrize("printed", ["tokens 1,234", "tokens many", "tokens 0x10", "tokens inf"])
def test_items_that_are_no_numbers(printed):
    done = jm("measure", "--source", "estimate", "--items-regex", "tokens ([^ ]+)", "--", "echo",
              f"tokens 7\n{printed}")
    assert "Items" in done.stderr and " 7 items" in done.stderr
    assert printed.split()[1] in done.stderr and "were ignored" in done.stderr


def test_progress_bar_without_ends_of_lines():
    done = jm("measure", "--source", "estimate", "--items-regex", "n ([0-9]+) done", "--", "sh", "-c",
              "i=0; while [ $i -lt 9000 ]; do printf 'n 1 done\\r'; i=$((i + 1)); done")
    assert " 9000 items" in done.stderr, done.stderr


OLD_FILES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
int open(const char *path, int flags, ...)
{
	int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = va_arg(ap, int);
	va_end(ap);
	if ((flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return real(path, flags, mode);
}
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
"""


@pytest.mark.skipif("asan" in os.environ.get("JM_BUILD", "") or "tsan" in os.environ.get("JM_BUILD", ""),
                    reason="a sanitizer wants to be loaded first")
def test_long_trace_where_files_need_names(tmp_path):
    """Containers on older kernels, network file systems: no O_TMPFILE. The trace is kept all the same."""
    (tmp_path / "old.c").write_text(OLD_FILES)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "old.so", tmp_path / "old.c", "-ldl"], check=True)
    (tmp_path / "tmp").mkdir()
    done = jm("measure", "--source", "estimate", "--interval", "0.2ms", "--csv", tmp_path / "t", "--", "sleep", "3",
              env={"LD_PRELOAD": str(tmp_path / "old.so"), "TMPDIR": str(tmp_path / "tmp")})
    assert done.returncode == 0 and "unknown" not in done.stderr, done.stderr
    assert (tmp_path / "t" / "readings.csv").stat().st_size > 16384  # more than memory keeps of it
    assert not list((tmp_path / "tmp").iterdir())
