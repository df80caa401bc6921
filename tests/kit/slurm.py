# SPDX-License-Identifier: Apache-2.0
"""A cluster: Slurm of Debian with a controller and two nodes, n1 and n2, which are this machine."""
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

EPILOG = Path(__file__).resolve().parents[2] / "examples/slurm/epilog"
PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "srun", "sinfo"]

CONF = """\
ClusterName=joulemark
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={port[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=3
MinJobAge=2
SlurmdTimeout=20
Epilog={folder}/epilog
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port[1]} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={port[2]} CPUs=1 State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    """Why no cluster can be started here; None: it can."""
    if os.geteuid():
        return "slurmd needs root"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    return f"{', '.join(missing)} (slurm-wlm, munge) not installed" if missing else None


def free_ports(n):
    places = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [place.getsockname()[1] for place in places]
    for place in places:
        place.close()
    return ports


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        for name in ("state", "spool", "calls"):
            (folder / name).mkdir()
        self.epilog({})
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, host=socket.gethostname().split(".")[0], port=free_ports(3)))
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH", "SQUEUE", "MASTER_", "JM_GANG"))}
        self.env = {**clean, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}:/usr/sbin"}
        self.count_calls("squeue", "sbatch")
        self.start_daemon("munged", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket", "--force",
                          f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed")
        self.start("slurmctld")
        self.start("n1")
        self.start("n2")
        self.until(lambda: self.call("sinfo", "--noheader", "--format=%T %D").split() == ["idle", "2"], 30)

    def epilog(self, env):
        """What each node runs as root after a job: that of examples/, with these variables."""
        script = self.folder / "epilog.new"
        words = "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in env.items())
        script.write_text(f"#!/bin/sh\n{words}{f'exec {EPILOG}' if env else ''}\n")
        script.chmod(0o755)
        script.rename(self.folder / "epilog")

    def count_calls(self, *names):
        """Notes the time of each call of these commands."""
        (self.folder / "bin").mkdir()
        for name in names:
            script = self.folder / "bin" / name
            script.write_text(f'#!/bin/sh\ndate +%s.%N >>"{self.folder}/calls/{name}"\nexec {shutil.which(name)} "$@"\n')
            script.chmod(0o755)

    def calls(self, name):
        file = self.folder / "calls" / name
        return [float(line) for line in file.read_text().split()] if file.exists() else []

    def start_daemon(self, *words):
        subprocess.run(words, env=self.env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=240)

    def start(self, name):
        self.start_daemon(*(["slurmctld"] if name == "slurmctld" else ["slurmd", "-N", name]))

    def pid(self, name):
        return int((self.folder / f"{name}.pid").read_text())

    def stop(self, name, how=signal.SIGTERM):
        pid = self.pid(name)
        os.kill(pid, how)
        self.until(lambda: not runs(pid), 20)

    def call(self, *words):
        done = subprocess.run([shutil.which(words[0], path="/usr/bin:/usr/sbin"), *words[1:]], env=self.env, text=True,
                              capture_output=True, timeout=240, check=False)
        return done.stdout

    def queue(self):
        """[(number of the job, state, node)] of all jobs that wait or run."""
        return [tuple(line.split("|")) for line in self.call("squeue", "--noheader", "--array", "--format=%A|%T|%N").split()]

    @staticmethod
    def until(holds, seconds):
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.1)

    def close(self):
        self.call("scancel", "--me")
        for name in ("n1", "n2", "slurmctld", "munged"):
            try:
                self.stop(name)
            except (FileNotFoundError, ProcessLookupError, AssertionError):
                pass
        for pid in self.left():  # slurmstepd, which may wait for a controller
            os.kill(pid, signal.SIGKILL)

    def left(self):
        """Processes of this cluster: they have its SLURM_CONF."""
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and mark in Path("/proc", name, "environ").read_bytes().split(b"\0") and runs(int(name)):
                    yield int(name)
            except OSError:
                continue


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(name="cluster", scope="module")
def cluster_of_this_machine(tmp_path_factory):
    reason = why_not()
    if reason:
        pytest.skip(reason)
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    yield made
    made.close()
