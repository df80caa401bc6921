# SPDX-License-Identifier: Apache-2.0
"""tools/deb.py: the package of this build works in the folder into which it is unpacked, and lintian finds no fault."""
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

from jm import BUILD, SOURCE

pytestmark = [
    pytest.mark.skipif(not shutil.which("dpkg-shlibdeps"), reason="dpkg-dev is not installed"),
    pytest.mark.skipif(not (BUILD / "joulemark").exists(), reason="no build folder"),
]


def call(*words, status=0, **more):
    # as an installed program is called, but not in the state folder of the user, in which other versions may be at work
    more["env"] = {k: v for k, v in os.environ.items() if not k.startswith("JM_") or k == "JM_STATE"} | more.get("env", {})
    done = subprocess.run([str(w) for w in words], text=True, check=False, capture_output=True, timeout=240, **more)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    library = (BUILD / "libjoulemark.so").read_bytes()
    if b"__asan_init" in library or b"__tsan_init" in library:
        pytest.skip("the package is made of the plain build")
    folder = tmp_path_factory.mktemp("deb")
    made = call(sys.executable, SOURCE / "tools/deb.py", BUILD, folder).split()[-1]
    root = folder / "root"
    call("dpkg-deb", "-x", made, root)
    return made, root


@pytest.fixture
def unpacked(package):
    return package[1]


def library_folder(root):
    return next(root.glob("usr/lib/**/libjoulemark.so.0")).parent


def test_the_program_runs_where_it_was_unpacked(unpacked, tmp_path):
    program = unpacked / "usr/bin/joulemark"
    assert call(program, "--version") == call(BUILD / "joulemark", "--version")
    call(program, "run", "sim", "--device", "sim:h100x1", "--seconds", "1", "--set", "gpu.power=300W", "--json",
         tmp_path / "r.json", cwd=tmp_path, env={"COLUMNS": "200"})
    rows = json.loads((tmp_path / "r.json").read_text())
    assert {r["status"] for r in rows} == {"ok"}
    # a control sets it: the program of the package has started its own guard
    assert any(s["enforced"] == 300 for r in rows for s in r["settings"])


def test_plug_ins_are_found_in_the_package(unpacked, tmp_path):
    if not (BUILD / "backends/cpu.so").exists():
        pytest.skip("this build has no cpu backend")
    out = call(unpacked / "usr/bin/joulemark", "run", "gpt-117m", "--device", "cpu", "--layers", "1", "--width", "64",
               "--heads", "2", "--seq", "16", "--vocab", "256", "--batch", "1", "--steps", "1", "--warmup", "0",
               "--json", tmp_path / "r.json", cwd=tmp_path)
    assert out and json.loads((tmp_path / "r.json").read_text())["status"] == "ok"


def test_c_and_python_find_the_library(unpacked, tmp_path):
    """By pkg-config, in the folder to which the package was moved."""
    source = tmp_path / "a.c"
    source.write_text('#include <joulemark.h>\n#include <stdio.h>\n'
                      'int main(void) { return puts(jm_version()) < 0; }\n')
    pc = library_folder(unpacked) / "pkgconfig"
    flags = call("pkg-config", "--cflags", "--libs", "joulemark", env={"PKG_CONFIG_PATH": str(pc)}).split()
    assert [os.path.normpath(f[2:]) for f in flags] == [
        str(unpacked / "usr/include"), str(library_folder(unpacked)), "joulemark"]
    call("gcc", source, "-o", tmp_path / "a", *flags)
    path = {"LD_LIBRARY_PATH": str(library_folder(unpacked))}
    assert call(tmp_path / "a", env=path).strip() in call(unpacked / "usr/bin/joulemark", "--version")
    text = ("import joulemark\n"
            "print(joulemark.__file__)\n"
            "with joulemark.measure('estimate:idle=20,core=0') as m:\n"
            "    with m.region('a'): pass\n"
            "print(m)\n")
    out = call(sys.executable, "-c", text,
               env=path | {"PYTHONPATH": str(unpacked / "usr/lib/python3/dist-packages")})
    assert out.startswith(str(unpacked)) and "estimated" in out


def type_until(fd, text, wanted):
    """Types into a terminal and reads until it shows that; false after 20 s."""
    shown, end = b"", time.monotonic() + 20
    os.write(fd, text.encode())
    while wanted not in shown and time.monotonic() < end:
        if select.select([fd], [], [], 0.5)[0]:
            shown += os.read(fd, 65536)
    return wanted in shown


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_the_first_tab_completes_in_zsh(unpacked, tmp_path):
    """The package's file is a function of fpath: zsh loads it when it is first called."""
    pid, fd = pty.fork()
    if not pid:
        os.execvpe("zsh", ["zsh", "-f"], {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(tmp_path)})
    try:
        typed = (f"fpath=({unpacked}/usr/share/zsh/vendor-completions $fpath); autoload -U compinit; compinit -u -D; "
                 f"PATH={unpacked}/usr/bin:$PATH; echo rea''dy\n")
        type_until(fd, typed, b"ready")
        assert type_until(fd, "joulemark mea\t", b"measure")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)


def test_manual_completion_and_documents_are_there(unpacked):
    share = unpacked / "usr/share"
    call("bash", "-n", share / "bash-completion/completions/joulemark")
    assert (share / "zsh/vendor-completions/_joulemark").read_text().startswith("#compdef joulemark")
    assert "complete -c joulemark" in (share / "fish/vendor_completions.d/joulemark.fish").read_text()
    assert ".TH" in call("zcat", share / "man/man1/joulemark.1.gz")
    doc = share / "doc/joulemark"
    assert (doc / "README.md").exists() and (doc / "docs/measuring.md").exists()
    assert (doc / "examples/train_energy.py").exists() and (doc / "examples/suites/capping.yaml").exists()
    assert b".debug_info" not in (unpacked / "usr/bin/joulemark").read_bytes()


def test_the_package_names_what_it_needs(package):
    made, _ = package
    fields = call("dpkg-deb", "--field", made)
    needs = next(line for line in fields.splitlines() if line.startswith("Depends: "))
    assert "libc6" in needs and "libjansson4" in needs and "libsqlite3-0" in needs and "libxxhash0" in needs
    assert "root/root" in call("dpkg-deb", "--contents", made)


def test_joulemarkd_is_there_and_switched_off(package):
    made, root = package
    service = (root / "usr/lib/systemd/system/joulemarkd.service").read_text()
    program = next(line for line in service.splitlines() if line.startswith("ExecStart=")).removeprefix("ExecStart=")
    assert program.startswith("/usr/lib") and "joulemarkd" in call(root / program[1:], "--version")
    assert (root / "usr/lib/systemd/system/joulemarkd.socket").exists()
    scripts = root.parent / "scripts"
    call("dpkg-deb", "--control", made, scripts)
    assert {p.name for p in scripts.iterdir()} == {"control", "md5sums", "shlibs", "triggers", "prerm"}  # no postinst
    assert "enable" not in (scripts / "prerm").read_text() and not list(root.rglob("*.wants")) and not (root / "etc").exists()


def test_lintian_finds_no_error(package):
    if not shutil.which("lintian"):
        pytest.skip("lintian is not installed")
    call("lintian", "--fail-on", "error", "--allow-root", package[0])
