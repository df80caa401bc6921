# SPDX-License-Identifier: Apache-2.0
"""run --launcher started: which calls on two hosts become one gang, and what is said to others. Hosts are network namespaces; skipped where
none can be made."""
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from data_sets import noise
from fake_gpus import wait_for
from gangs import GPT
from host_gangs import PORTS, SOON, STARTED, Gang
from jm import BIN, USAGE, catches, jm, sentence
from netns import two_hosts  # noqa: F401  the fixture "hosts"
from runs import FAILED

RESNET = ["run", "resnet", "--layers", "10", "--hidden", "4", "--image", "32", "--warmup", "0", "--source", "null", "--selftest", "0"]


def other_program(folder, differs):
    """This program, but for the number of its version or that of its source code."""
    version = subprocess.run([BIN, "--version"], capture_output=True, check=True).stdout.split()[1]
    with open(BIN, "rb") as f:
        program = f.read()
    old = version if differs == "version" else re.search(rb"frames [0-9a-f]{16}", program)[0]
    other = folder / "joulemark"
    other.write_bytes(program.replace(old, old[:-1] + b"x"))
    other.chmod(0o755)
    return other


def write_data(folder, differs):
    """A text and pictures of two classes."""
    folder.mkdir()
    (folder / "text").write_text("watt" * (301 if differs == "text" else 300))
    for name in ("ant", "bee"):
        (folder / "pictures" / name).mkdir(parents=True)
        noise(32, 32).save(folder / "pictures" / name / "1.png")
    if differs == "number":
        noise(32, 32).save(folder / "pictures/bee/2.png")
    elif differs == "names":
        (folder / "pictures/bee/1.png").rename(folder / "pictures/bee/2.png")
    elif differs == "sizes":
        noise(33, 32).save(folder / "pictures/ant/1.png")


@pytest.mark.parametrize("differs", ["text", "number", "names", "sizes"])
def test_hosts_with_other_data_are_refused(hosts, differs, tmp_path):
    """Each call has a folder of its own, and the name of the data is relative to it."""
    for host, how in (("a", None), ("b", differs), ("c", None)):
        write_data(tmp_path / host, how)
    words = [*(GPT if differs == "text" else RESNET), *(("--text", "text") if differs == "text" else ("--data", "pictures")),
             "--device", "ref", "--batch", "2", "--steps", "2", *STARTED, "--json", "-"]
    status, texts = Gang(hosts, words, next(PORTS), more=(("--wd", tmp_path / "a"), ("--wd", tmp_path / "b"))).ended()
    assert status[0] == FAILED and "The data of rank 1 are not those of rank 0" in json.loads(texts[0][0])["reason"], texts
    status, texts = Gang(hosts, words, next(PORTS), more=(("--wd", tmp_path / "a"), ("--wd", tmp_path / "c"))).ended()
    assert status == [0, 0], texts


@pytest.mark.parametrize("differs, status, says", [("secret", 125, "has another secret"),
                                                   ("version", USAGE, "source code, of joulemark of rank 1 is not that of rank 0;"),
                                                   ("source", USAGE, "source code, of joulemark of rank 1 is not that of rank 0;")])
def test_another_secret_or_program_is_refused_and_harms_nobody(hosts, differs, status, says, tmp_path):
    port = next(PORTS)
    words = [*GPT, "--device", "ref", "--batch", "1", "--steps", "2", *STARTED, "--json", "-"]
    head = hosts.start(0, words, hosts.environment(0, port=port))
    program = other_program(tmp_path, differs) if differs != "secret" else BIN
    stranger = subprocess.Popen(hosts.command(1, [program, *words]), stderr=subprocess.PIPE, text=True,
                                env=hosts.environment(1, port=port, **({"JM_GANG_SECRET": "f" * 16} if differs == "secret" else {})))
    told = stranger.communicate(timeout=240)[1]
    assert says in told and stranger.returncode == status, told
    right = hosts.start(1, words, hosts.environment(1, port=port))
    assert right.wait(timeout=240) == 0
    out, err = head.communicate(timeout=240)
    assert head.returncode == 0 and json.loads(out)["status"] == "ok", err


STRANGERS = """
import collections, resource, socket, sys
address, port, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (n + 100, n + 100))
words, visits, tried = (b"", bytes(range(256)) * 16, b"J"), collections.deque(), 0
while True:
    one = socket.socket()
    one.settimeout(1)
    try:
        one.connect((address, port))
        one.sendall(words[tried % 3])
        visits[-500].sendall(b"M") if len(visits) >= 500 else None
    except OSError:
        pass
    visits.append(one)  # and stays
    tried += 1
    if tried == n:
        print(tried, flush=True)
    if len(visits) == n:
        visits.popleft().close()
"""


def test_ten_thousand_strangers_hold_up_nobody(hosts):
    """They are silent, send garbage or single bytes, stay, and go on coming when a rank joins and the work is done."""
    port = next(PORTS)
    words = [*GPT, "--device", "ref", "--batch", "1", "--steps", "2", *STARTED, "--json", "-"]
    head = hosts.start(0, words, hosts.environment(0, port=port))
    assert wait_for(lambda: f":{port:04X} 00000000:0000 0A" in tcp_of(head.pid))
    crowd = subprocess.Popen(hosts.command(1, [sys.executable, "-c", STRANGERS, hosts.address[0], port, 10000]),
                             stdout=subprocess.PIPE, text=True)
    try:
        assert crowd.stdout.readline() == "10000\n"
        began = time.monotonic()
        right = hosts.start(1, words, hosts.environment(1, port=port))
        out, err = head.communicate(timeout=240)
        took = time.monotonic() - began
        assert right.communicate(timeout=240)[1] is not None and right.returncode == 0
        assert head.returncode == 0 and json.loads(out)["status"] == "ok", err
        assert took < 2 * SOON, took
        assert crowd.poll() is None
    finally:
        crowd.kill()
        crowd.wait()


def tcp_of(pid):
    """The connections of the network in which the process runs."""
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as f:
        return f.read()


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_comes_late_is_waited_for(hosts, late):
    port, calls = next(PORTS), [None, None]
    words = [*GPT, "--device", "ref", "--batch", "1", "--steps", "2", *STARTED, "--json", "-"]
    calls[1 - late] = hosts.start(1 - late, words, hosts.environment(1 - late, port=port))
    time.sleep(3)
    assert calls[1 - late].poll() is None
    calls[late] = hosts.start(late, words, hosts.environment(late, port=port))
    texts = [call.communicate(timeout=240) for call in calls]
    assert [call.returncode for call in calls] == [0, 0] and json.loads(texts[0][0])["status"] == "ok", texts


@pytest.mark.parametrize("there", [0, 1])
def test_a_rank_that_never_comes_to_the_other_host_is_named(hosts, there):
    call = hosts.start(there, [*GPT, "--device", "ref", "--batch", "1", "--steps", "1", *STARTED],
                       hosts.environment(there, port=next(PORTS), JM_GANG_SECONDS=2))
    began = time.monotonic()
    err = call.communicate(timeout=240)[1]
    assert time.monotonic() - began < SOON and call.returncode == 125, err
    assert f"Rank {1 - there} has not joined the other ranks within 2 s" in err, err


PLACE = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29499", "JM_GANG_SECRET": "0123456789abcdef"}


@pytest.mark.parametrize("change, says", [
    ({"RANK": None}, "set RANK and WORLD_SIZE"),
    ({"RANK": "x"}, "RANK is 'x'"),
    ({"RANK": "2"}, "RANK=2 and WORLD_SIZE=2: there can be 2 to 512 ranks, counted from 0"),
    ({"WORLD_SIZE": "1"}, "WORLD_SIZE=1"),
    ({"OMPI_COMM_WORLD_RANK": "1"}, "RANK=0 contradicts OMPI_COMM_WORLD_RANK=1"),
    ({"SLURM_NTASKS": "4"}, "WORLD_SIZE=2 contradicts SLURM_NTASKS=4"),
    ({"PMIX_RANK": "1"}, "RANK=0 contradicts PMIX_RANK=1"),
    ({"MASTER_ADDR": None}, "Set MASTER_ADDR"),
    ({"MASTER_PORT": "0"}, "is no address"),
    ({"JM_GANG_SECRET": None}, "Set JM_GANG_SECRET"),
    ({"JM_GANG_SECRET": "short"}, "at least 16 characters"),
], ids=str)
def test_contradictions_are_named(change, says):
    env = {k: v for k, v in {**PLACE, **change}.items() if v is not None}
    assert says in sentence(jm("run", "null", *STARTED, env=env), USAGE)


def test_other_numbers_of_ranks_are_refused():
    """A gang of two, and a case of three."""
    words = ["run", "allreduce", "--device", "ref", "--size", "0.001", "--ranks", "3", "--launcher", "started", "--source", "null"]
    env = {**os.environ, **PLACE, "MASTER_PORT": "29498"}
    calls = [subprocess.Popen([BIN, *words], env={**env, "RANK": str(r)}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
             for r in range(2)]
    texts = [call.communicate(timeout=240)[1] for call in calls]
    assert "The case has 3 ranks, but 2 were started; give --ranks 2." in texts[0] and calls[1].returncode == 0, texts


def test_waiting_for_a_rank_can_be_interrupted():
    call = subprocess.Popen([BIN, *GPT, "--device", "ref", *STARTED], env={**os.environ, **PLACE, "MASTER_PORT": "29496"},
                            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert wait_for(lambda: catches(call.pid, signal.SIGINT))
    time.sleep(1)
    call.send_signal(signal.SIGINT)
    assert "Interrupted while rank 0 waited for others." in call.communicate(timeout=240)[1] and call.returncode


def test_a_rank_that_never_comes_is_named():
    done = jm(*GPT, "--device", "ref", "--batch", "1", "--steps", "1", *STARTED, env={**PLACE, "MASTER_PORT": "29497", "JM_GANG_SECONDS": "1"})
    assert re.search(r"Rank 1 has not joined the other ranks within 1 s", done.stderr) and done.returncode == 125, done.stderr
