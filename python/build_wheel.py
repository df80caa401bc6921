# SPDX-License-Identifier: Apache-2.0
"""The build backend (PEP 517) of this package: a wheel of the files as they are. It needs the standard library only."""
import base64
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r'^__version__ = "([^"]+)"', (HERE / "joulemark/_library.py").read_text(encoding="utf-8"), re.M)[1]
NAME = f"joulemark-{VERSION}"
METADATA = f"""Metadata-Version: 2.1
Name: joulemark
Version: {VERSION}
Summary: What AI work costs: speed, power and energy of a machine
License: Apache-2.0
Requires-Python: >=3.9
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: joulemark\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
CONSTANT_TIME = (1980, 1, 1, 0, 0, 0)  # the same files give the same wheel


def package_files():
    return {f"joulemark/{path.name}": path.read_bytes() for path in sorted((HERE / "joulemark").glob("*.py"))}


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {**package_files(), f"{NAME}.dist-info/METADATA": METADATA.encode(),
             f"{NAME}.dist-info/WHEEL": WHEEL.encode()}
    own = f"{NAME}.dist-info/RECORD"
    files[own] = ("".join(record_line(*item) for item in files.items()) + f"{own},,\n").encode()
    name = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, CONSTANT_TIME)
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    files = {**package_files(), "PKG-INFO": METADATA.encode(),
             **{name: (HERE / name).read_bytes() for name in ("pyproject.toml", "build_wheel.py")}}
    name = f"{NAME}.tar.gz"
    with tarfile.open(pathlib.Path(sdist_directory) / name, "w:gz", format=tarfile.PAX_FORMAT) as sdist:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"{NAME}/{path}")
            entry.size, entry.mode = len(data), 0o644
            sdist.addfile(entry, io.BytesIO(data))
    return name
