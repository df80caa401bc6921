# SPDX-License-Identifier: Apache-2.0
"""Packs what a build folder installs as a Debian package: deb.py BUILD [OUTPUT-FOLDER]

Needs a build that is up to date, dpkg-dev and binutils, and compiles nothing. DEBFULLNAME and DEBEMAIL name the
maintainer, SOURCE_DATE_EPOCH the date. The last line on stdout is the path of the package.
"""
import email.utils
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "joulemark"
# opened at run time: no linker knows them; the second name is Ubuntu's and of later Debians
RECOMMENDS = ("libmodbus5", "libsnmp40 | libsnmp40t64", "libcurl4 | libcurl4t64", "libhdf5-103-1 | libhdf5-103-1t64",
              "libmicrohttpd12 | libmicrohttpd12t64", "libhwloc15")
PLUGINS = {"mpi.so": "libopenmpi3 | libopenmpi3t64 | libopenmpi40"}  # and what they need, without which all else works
DESCRIPTION = """\
measure what AI work costs: speed, power and energy
 joulemark measures the energy of any command with its uncertainty, repeats a
 command or a training under several power caps and names the best setting,
 and restores every setting that it has changed, even after SIGKILL.
 .
 The package has the program, which also guards settings, the library
 libjoulemark with its header, a Python module, completion for bash, zsh and
 fish, the manual, plans that repeat published experiments, and joulemarkd,
 which sets knobs for users within a policy; it is switched off."""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: joulemark

Files: *
Copyright: YEAR the authors of joulemark
License: Apache-2.0

Files: report/page/echarts.min.js
Copyright: 2017-2026 The Apache Software Foundation
License: Apache-2.0
Comment: It is part of the program, which writes it into each page. Its notices, with those of the authors of its parts, are
 in /usr/share/doc/joulemark/echarts.LICENSE.

License: Apache-2.0
 On Debian systems, the text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
"""
OVERRIDES = """\
# one package with the program, the library and its header, on purpose: they are of one version
joulemark: link-to-shared-library-in-wrong-package
joulemark: package-name-doesnt-match-sonames
# linked from the static archives of Debian's packages, which shortens each start of the program
joulemark: embedded-library
"""
NO_MAINTAINER = """\
# built without DEBEMAIL
joulemark: bogus-mail-host
joulemark: bogus-mail-host-in-debian-changelog
"""
PRERM = """\
#!/bin/sh
# the guards of joulemarkd restore what they hold; an upgrade leaves them
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl stop joulemarkd.socket || true
	systemctl kill joulemarkd.service || true
	systemctl stop joulemarkd.service || true
fi
"""
COMPLETIONS = {"bash": "bash-completion/completions/joulemark", "zsh": "zsh/vendor-completions/_joulemark",
               "fish": "fish/vendor_completions.d/joulemark.fish"}


def out(*command, **more):
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def date():
    """Seconds since 1970 of the sources: what SOURCE_DATE_EPOCH says, the last commit, or the newest of the files."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    git = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], text=True, check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return int(git.stdout) if git.returncode == 0 and git.stdout.strip() else int((ROOT / "meson.build").stat().st_mtime)


def maintainer():
    return f"{os.environ.get('DEBFULLNAME', 'unknown')} <{os.environ.get('DEBEMAIL', 'unknown@localhost.localdomain')}>"


def install(build, tree):
    """What `meson install` installs, below usr whatever prefix the build has: every path in it is relative."""
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", tree], check=True,
                   stdout=sys.stderr)
    usr, local = tree / "usr", tree / "usr/local"
    if local.is_dir():
        for path in list(local.iterdir()):
            path.rename(usr / path.name)
        local.rmdir()
    for path in usr.rglob("pkgconfig/*.pc"):  # three folders below usr: true of every place to which it is moved
        put(path, re.sub(r"^prefix=.*$", "prefix=${pcfiledir}/../../..", path.read_text(), flags=re.M))
    for path in usr.glob("lib/systemd/system/*.service"):
        put(path, path.read_text().replace("/usr/local/", "/usr/"))
    if not (usr / "bin" / NAME).exists():
        sys.exit(f"deb: {build} was configured for another prefix than /usr or /usr/local; configure it for one of them.")


def binaries(tree):
    return sorted(p for p in tree.rglob("*") if p.is_file() and not p.is_symlink() and p.read_bytes()[:4] == b"\x7fELF")


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def add_documents(tree, version):
    doc = tree / "usr/share/doc" / NAME
    for path in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.json"), *ROOT.glob("docs/*.svg"),
                 *ROOT.glob("docs/*.png")]:
        put(doc / path.relative_to(ROOT), path.read_bytes())
    for path in [*(p for p in ROOT.glob("examples/**/*") if p.is_file()), *ROOT.glob("suites/**/*.yaml")]:
        put(doc / "examples" / path.relative_to(ROOT / "examples" if "examples" in path.parts else ROOT), path.read_bytes())
    put(doc / "echarts.LICENSE", (ROOT / "report/page/echarts.LICENSE").read_bytes())
    put(doc / "copyright", COPYRIGHT.replace("YEAR", time.strftime("%Y", time.gmtime(date()))))
    put(tree / "usr/share/lintian/overrides" / NAME, OVERRIDES + ("" if "DEBEMAIL" in os.environ else NO_MAINTAINER))
    put(doc / "changelog.gz", gzip.compress(
        f"{NAME} ({version}) unstable; urgency=medium\n\n  * Built from the sources of version {version}.\n\n"
        f" -- {maintainer()}  {email.utils.formatdate(date())}\n".encode(), 9, mtime=0))


def add_python(tree, version):
    packages = tree / "usr/lib/python3/dist-packages"
    for path in sorted((ROOT / "python/joulemark").glob("*.py")):
        put(packages / NAME / path.name, path.read_bytes())
    put(packages / f"{NAME}-{version}.dist-info/METADATA",
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nRequires-Python: >=3.9\n")


def depends(tree, folder):
    """The packages that the binaries need, as dpkg-shlibdeps has them."""
    put(folder / "debian/control", f"Source: {NAME}\n\nPackage: {NAME}\nArchitecture: any\n")
    words = [f"-e{path}" for path in binaries(tree) if path.name not in PLUGINS]
    found = out("dpkg-shlibdeps", "-O", "--ignore-missing-info", f"-l{tree}/usr/lib", f"-x{NAME}", *words, cwd=folder,
                stderr=subprocess.DEVNULL)
    return re.search(r"^shlibs:Depends=(.*)$", found, re.M)[1]


def control_file(version, needs, tree):
    size = sum(p.lstat().st_size for p in tree.rglob("*")) // 1024
    arch = out("dpkg", "--print-architecture").strip()
    return arch, (f"Package: {NAME}\nVersion: {version}\nArchitecture: {arch}\nMaintainer: {maintainer()}\n"
                  f"Installed-Size: {size}\nDepends: {needs}\nRecommends: {', '.join(RECOMMENDS)}\nSuggests: {', '.join(('python3', *PLUGINS.values()))}\n"
                  f"Section: science\nPriority: optional\nDescription: {DESCRIPTION}\n")


def add_control(tree, version, needs):
    arch, control = control_file(version, needs, tree)
    files = sorted(p for p in tree.rglob("*") if p.is_file() and not p.is_symlink())
    sums = "".join(f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.relative_to(tree)}\n" for p in files)
    for name, text in {"control": control, "md5sums": sums, "shlibs": f"lib{NAME} 0 {NAME} (>= {version})\n",
                       "triggers": "activate-noawait ldconfig\n", "prerm": PRERM}.items():
        put(tree / "DEBIAN" / name, text)
    return arch


def set_modes(tree):
    for path in [tree, *tree.rglob("*")]:
        if path.is_symlink():
            continue
        runs = path.is_dir() or {"bin", "libexec"} & set(path.parts) or path.suffix == ".sh" or path.name == "prerm"
        path.chmod(0o755 if runs else 0o644)


def pack(build, folder, output):
    tree = folder / "tree"
    install(build, tree)
    version = re.search(r"\d[\w.]*", out(build / NAME, "--version"))[0]
    for path in binaries(tree):
        subprocess.run(["strip", "--strip-unneeded", "--remove-section=.comment", "--remove-section=.note", path], check=True)
    for path in tree.glob("usr/share/man/man1/*.1"):
        put(path.with_name(path.name + ".gz"), gzip.compress(path.read_bytes(), 9, mtime=0))
        path.unlink()
    for shell, place in COMPLETIONS.items():
        put(tree / "usr/share" / place, out(build / NAME, "help", "--completion", shell))
    add_documents(tree, version)
    add_python(tree, version)
    arch = add_control(tree, version, depends(tree, folder))
    set_modes(tree)
    package = output / f"{NAME}_{version}_{arch}.deb"
    out("dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", tree, package,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(date())})
    return package


def main(args):
    if len(args) not in (1, 2):
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    missing = [tool for tool in ("dpkg-deb", "dpkg-shlibdeps", "strip", "meson") if not shutil.which(tool)]
    if missing:
        print(f"deb: {' and '.join(missing)} missing; 'apt-get install dpkg-dev binutils meson' installs them.", file=sys.stderr)
        return 1
    output = pathlib.Path(args[1] if len(args) == 2 else args[0]).resolve()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="joulemark-deb.") as folder:
        print(pack(pathlib.Path(args[0]).resolve(), pathlib.Path(folder), output))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
