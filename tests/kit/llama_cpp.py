# SPDX-License-Identifier: Apache-2.0
"""llama.cpp, whose source is in the package llama-cpp-python of PyPI, built in a folder of the build; not a test."""
import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

from jm import BUILD, SOURCE

WANTED = SOURCE / "tools/requirements-llama-cpp.txt"
HOW = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF",
       "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_APP=OFF"]


def run(*command):
    done = subprocess.run([*map(str, command)], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        pytest.skip(f"llama.cpp cannot be built here: {done.stdout[-300:]}")


@functools.lru_cache
def folder():
    """The folder of llama.cpp with its programs in build/bin. JM_LLAMA_CPP names one that is there already; else it is built if
    JM_LONG is set, and the test is skipped without."""
    if "JM_LLAMA_CPP" in os.environ:
        return pathlib.Path(os.environ["JM_LLAMA_CPP"])
    if "JM_LONG" not in os.environ:
        pytest.skip("llama.cpp takes long to build: set JM_LONG, or JM_LLAMA_CPP to its folder")
    if not shutil.which("cmake") or not shutil.which("ninja"):
        pytest.skip("llama.cpp is built by cmake and ninja")
    place = BUILD / f"llama-cpp-{hashlib.sha256(WANTED.read_bytes()).hexdigest()[:12]}"  # one folder for each version
    with open(BUILD / "llama-cpp.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = [*place.glob("*/vendor/llama.cpp/build/bin/llama-server")]
        if not found:
            run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", "--require-hashes",
                "--retries", "0", "-d", place, "-r", WANTED)
            with tarfile.open(next(place.glob("*.tar.gz"))) as package:
                package.extractall(place)  # its hash was checked
            source = next(place.glob("*/vendor/llama.cpp"))
            run("cmake", "-S", source, "-B", source / "build", "-G", "Ninja", *HOW)
            run("ninja", "-C", source / "build", "llama-server", "llama-bench")
            return source
    return found[0].parents[2]


def server():
    """The command of the server."""
    return [str(folder() / "build/bin/llama-server")]


def convert(net, file):
    done = subprocess.run([sys.executable, SOURCE / "tests/kit/llama_files.py", net, file], check=False, text=True, capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(folder() / "gguf-py")})
    assert done.returncode == 0, done.stderr
