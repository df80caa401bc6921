# SPDX-License-Identifier: Apache-2.0
"""joulemarkd in a mount namespace, where a machine of files (sysfs_machine.py) lies at the real paths: /sys, /etc, /run and
/var/lib. It is handed its socket as systemd does it, and started again when it is killed (activator.py)."""
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fake_gpus import wait_for
from jm import BIN, BUILD, SOURCE, is_open_to_all
from sysfs_machine import Machine

PROGRAM = BUILD / "joulemarkd"
SOCKET = "/run/joulemark/joulemarkd.sock"
USERS = {"anna": 2001, "berta": 2002, "carla": 2003}
POLICY = "/etc/joulemark/joulemarkd.conf"


def can_unshare():
    return os.geteuid() == 0 and shutil.which("unshare") and shutil.which("nsenter") and shutil.which("setpriv") and \
        subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0


needs_a_namespace = pytest.mark.skipif(not can_unshare() or not is_open_to_all(BIN),
                                       reason="needs root, a mount namespace and programs that other users can reach")


class Service:
    """The machine, the namespace and the daemon."""

    def __init__(self, folder, gpus=""):
        """gpus: configuration of a fake NVML (nvml_fake.c), which the loader then finds as the driver's; "" = none."""
        self.folder = Path(folder)
        for path in [self.folder, *self.folder.parents[:2]]:  # pytest's own folders keep other users out
            path.chmod(0o755)
        self.machine = Machine(folder)
        self.etc, self.homes = self.folder / "etc", self.folder / "homes"
        (self.etc / "joulemark").mkdir(parents=True)
        self.homes.mkdir(mode=0o777)
        self.homes.chmod(0o777)
        (self.etc / "passwd").write_text("root:x:0:0::/root:/bin/sh\n" + "".join(
            f"{name}:x:{uid}:{uid}::/:/bin/sh\n" for name, uid in USERS.items()), encoding="ascii")
        (self.etc / "group").write_text("root:x:0:\nml:x:3000:anna\n", encoding="ascii")
        shutil.copy("/etc/ld.so.cache", self.etc)
        load = self.add_driver(gpus) if gpus else "true"
        self.log_path = self.folder / "log"
        mounts = (f"mount --bind {self.machine.root}/sys /sys && mount --bind {self.etc} /etc && mount -t tmpfs none /run && "
                  f"mount -t tmpfs none /var/lib && mkdir /run/joulemark && {load} && echo ready && exec sleep 1000")
        self.holder = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", mounts],
                                       stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"
        self.activator = None

    def add_driver(self, config):
        """The fake NVML in a folder of its own, of which ld.so.conf and the loader's cache tell; returns what makes the cache."""
        self.driver = self.folder / "driver"
        self.driver.mkdir()
        shutil.copy(BUILD / "tests/peers/libnvidia-ml-fake.so", self.driver / "libnvidia-ml.so.1")
        (self.driver / "nvml-fake.conf").write_text(config, encoding="ascii")
        (self.driver / "nvml-fake.state").touch()
        shutil.copytree("/etc/ld.so.conf.d", self.etc / "ld.so.conf.d")
        (self.etc / "ld.so.conf").write_text(f"{self.driver}\ninclude /etc/ld.so.conf.d/*.conf\n", encoding="ascii")
        return "ldconfig -i -X"

    # ---- root's side

    def inside(self, *words):
        return ["nsenter", "-t", str(self.holder.pid), "-m", *map(str, words)]

    def policy(self, text, mode=0o644):
        path = self.etc / "joulemark/joulemarkd.conf"
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    def start(self, **env):
        """env: what the daemon finds in its environment, besides the fake kernel."""
        with open(self.log_path, "ab") as log:
            self.activator = subprocess.Popen(
                self.inside(sys.executable, SOURCE / "tests/peers/activator.py", SOCKET, PROGRAM), stderr=log,
                stdout=subprocess.PIPE, text=True, env={**os.environ, "PRELOAD": self.machine.env["LD_PRELOAD"],
                                                        "ASAN_OPTIONS": self.machine.env["ASAN_OPTIONS"], **env})
        assert wait_for(lambda: "serves;" in self.log()), self.log()

    def log(self):
        return self.log_path.read_text(encoding="utf-8") if self.log_path.exists() else ""

    def daemon(self):
        """Its process."""
        return int([line for line in self.log().splitlines() if line.startswith("activator: ")][-1].split()[1])

    def guards(self):
        """The processes that serve leases."""
        out = subprocess.run(self.inside("sh", "-c", "cat /run/joulemark/leases/* 2>/dev/null"), check=False, text=True,
                             stdout=subprocess.PIPE).stdout
        return [int(line.split()[0]) for line in out.splitlines()]

    def journals(self):
        return subprocess.run(self.inside("sh", "-c", "ls /var/lib/joulemark/knobs 2>/dev/null | grep journal"), check=False,
                              text=True, stdout=subprocess.PIPE).stdout.split()

    def leases(self):
        return subprocess.run(self.inside("ls", "/run/joulemark/leases"), check=False, text=True,
                              stdout=subprocess.PIPE).stdout.split()

    # ---- the side of users

    def as_user(self, user, *words):
        uid = USERS.get(user, 0)
        groups = ["--groups", "3000"] if user == "anna" else ["--clear-groups"]
        return self.inside("setpriv", "--reuid", uid, "--regid", uid, *groups, *words)

    def env(self, user):
        home = self.homes / user
        home.mkdir(exist_ok=True)
        os.chown(home, USERS.get(user, 0), USERS.get(user, 0))
        env = {k: v for k, v in os.environ.items() if not k.startswith("JM_")}
        return {**env, "HOME": str(home), "COLUMNS": "400"}

    def run(self, user, *args, **env):
        return subprocess.run(self.as_user(user, BIN, *args), env={**self.env(user), **env}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=240, check=False)

    def popen(self, user, *args):
        return subprocess.Popen(self.as_user(user, BIN, *args), env=self.env(user), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def close(self):
        guards = self.guards()
        for process in (self.activator, self.holder):
            if process:
                process.terminate()
                process.wait(timeout=240)
        for guard in guards:
            with contextlib.suppress(ProcessLookupError):
                os.kill(guard, signal.SIGTERM)


# ---- the protocol, as lib/guard/guard_wire.h has it

MAGIC, VERSION = 0x57474d4a, 3
OPS = ["open", "absent", "get", "state", "hold", "set", "restore", "keep", "stop"]


def request(op, payload=b"", n=0):
    return struct.pack("<6I", MAGIC, VERSION, OPS.index(op), n, len(payload) // n if n else 0, 0) + payload


def setting(knob, low, high=None, word="", selector=""):
    return knob.encode().ljust(32, b"\0") + selector.encode().ljust(128, b"\0") + \
        struct.pack("<dd", low, low if high is None else high) + word.encode().ljust(24, b"\0")


def reply(message):
    """The code of a reply, and its sentence."""
    _, _, rc = struct.unpack_from("<IIi", message)
    return rc, message[12:524].split(b"\0")[0].decode()
