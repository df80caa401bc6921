# SPDX-License-Identifier: Apache-2.0
"""--affinity: on nodes that hwloc reads from a file, what each rank gets; on this machine, which its file splits in two halves,
what the kernel says of the threads."""
import ctypes
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import time

import pytest

from fake_gpus import FakeGpus
from gangs import GPT, children
from jm import BIN, BUILD, USAGE, jm, sentence
from node_topology import Node, numbered

# H100: a NUMA node for each package of 48 cores, four GPUs each. A100 of EPYC: eight NUMA nodes of 8 cores, and the GPUs in the
# order in which such nodes have them. Sub-NUMA clusters of 12 cores, two GPUs each.
NODES = {
    "eight": Node(numbered(2, 48), [0, 0, 0, 0, 1, 1, 1, 1]),
    "four": Node(numbered(8, 8), [3, 1, 7, 5], per_package=4),
    "clusters": Node(numbered(4, 12), [0, 0, 1, 1, 2, 2, 3, 3], per_package=2),
    "odd": Node(numbered(2, 7), [0, 0, 0, 1]),
    "small": Node(numbered(1, 2), [0, 0, 0, 0]),
}


def cpus(text):
    """"0-2,8" as {0, 1, 2, 8}."""
    ends = (part.split("-") for part in text.split(",") if part)
    return {c for first, *last in ends for c in range(int(first), int(last[0] if last else first) + 1)}


def machine(tmp_path, node, n):
    fake = FakeGpus(tmp_path, n)
    backends = tmp_path / "backends"
    backends.mkdir()
    (backends / "cuda.so").symlink_to(BUILD / "tests/peers/later.so")
    return {**fake.env, "JM_BACKENDS": str(backends), "HWLOC_XMLFILE": str(node.write(tmp_path / "node.xml")),
            "JM_NCCL_LIB": str(BUILD / "tests/peers/libnccl-fake.so"), "JM_FAKE_LATER_IDS": ",".join(f"GPU-{i}" for i in range(n))}


def listed(env, n, *more, ranks=True):
    devices = ",".join(f"cuda:{i}" for i in range(n))
    done = jm(*GPT, "--batch", n, "--device", devices, *(["--ranks", n] if ranks else []), "--width", 1000, "--dry-run", *more,
              env=env)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^    rank (\d+) on cuda:\d+ at (\S+): CPUs ([\d,-]+), memory of NUMA nodes (\S+)$", done.stdout, re.M)
    sampler = re.search(r"^    sampler: CPUs ([\d,-]+)$", done.stdout, re.M)
    return [(bus, cpus(own), cpus(nodes)) for _, bus, own, nodes in rows], cpus(sampler[1] if sampler else ""), done.stdout


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("libxml", ["0", "1"])
def test_ranks_divide_the_cores_next_to_their_gpus(name, libxml, tmp_path):
    node = NODES[name]
    n = len(node.gpus)
    ranks, sampler, _ = listed({**machine(tmp_path, node, n), "HWLOC_LIBXML": libxml}, n)
    assert [bus for bus, _, _ in ranks] == [f"00000000:{0x1a + g:02X}:00.0" for g in range(n)]
    for gpu, (_, own, nodes) in enumerate(ranks):
        at = node.gpus[gpu]
        sharing = [r for r in range(n) if node.gpus[r] == at]
        cores = [core for core in node.numa[at] if own & set(core)]
        assert own == {t for core in cores for t in core} and nodes == {at}  # whole cores, all of that node
        kept = sampler & node.cpus(at) if len(node.numa[at]) >= len(sharing) else set()
        assert len(own) == (len(node.cpus(at)) - len(kept)) // (len(sharing) if len(node.numa[at]) >= len(sharing) else 1)
        assert len(node.numa[at]) < len(sharing) or all(not own & ranks[r][1] for r in sharing if r != gpu)
    everything = set().union(*map(node.cpus, range(len(node.numa))))
    assert sampler == everything - set().union(*(own for _, own, _ in ranks))
    assert bool(sampler) == (name != "small")


def test_one_core_is_left_to_the_sampler_where_ranks_keep_three(tmp_path):
    ranks, sampler, _ = listed(machine(tmp_path, NODES["eight"], 8), 8)
    assert [len(own) for _, own, _ in ranks] == [22] * 4 + [24] * 4 and len(sampler) == 2 * 4 and 47 in sampler
    (tmp_path / "less").mkdir()
    three = Node(numbered(2, 3), [0, 1])
    ranks, sampler, _ = listed(machine(tmp_path / "less", three, 2), 2)
    assert [len(own) for _, own, _ in ranks] == [6, 6] and not sampler


def test_a_single_rank_has_the_cores_of_its_gpu_and_is_swept(tmp_path):
    env = machine(tmp_path, NODES["four"], 4)
    ranks, sampler, text = listed(env, 1, "--affinity", "near,none,0-3+8", ranks=False)
    assert [own for _, own, _ in ranks] == [NODES["four"].cpus(3)] and len(sampler) == 128 - 16
    assert "affinity none: nothing is bound." in text and "rank 0 on cuda:0: CPUs 0-3,8\n" in text
    assert text.startswith("3 cases, 1 time\n") and "affinity=0-3+8" in text


def test_what_cannot_be_known_is_said(tmp_path):
    env = machine(tmp_path, NODES["four"], 4)
    for more, reason in (({"JM_HWLOC_LIB": "/no.so"}, "hwloc cannot be loaded"), ({"JM_NVML_LIB": "/no.so"}, "NVML"),
                         ({"HWLOC_XMLFILE": str(Node(numbered(1, 2), [0]).write(tmp_path / "one.xml"))}, "does not list the GPU")):
        ranks, _, text = listed({**env, **more}, 4)
        assert not ranks and "affinity near: nothing is bound." in text and reason in text
    assert "affinity" not in jm(*GPT, "--device", "ref", "--dry-run").stdout


@pytest.mark.parametrize("value", ["far", "0-", "3-1", "0/", "1+", "4096", "0-3 ", "-1", "0@", "@0", "0@x", "0@0@0", "0@1/1@"])
def test_wrong_lists_are_refused(value):
    assert "--affinity takes near, none" in sentence(jm(*GPT, "--device", "ref", "--affinity", value), USAGE)


def test_lists_for_other_ranks_than_there_are():
    for value in ("0/0/0", "0/0"):
        done = jm(*GPT, "--device", "ref", "--batch", 3, "--ranks", 3 if value == "0/0" else 2, "--affinity", value, "--dry-run")
        assert "one for each, or one for all" in sentence(done, USAGE)
    assert "joulemark's own workloads" in sentence(jm("run", "--affinity", "none", "--", "true"), USAGE)


# ---- on this machine

OWN = sorted(os.sched_getaffinity(0))
HALVES = [OWN[:len(OWN) // 2], OWN[len(OWN) // 2:]]


def masks(pid):
    """{allowed CPUs} of the threads of a process; the main thread's first."""
    found = []
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir(), key=lambda t: int(t.name)):
        try:
            found.append(frozenset(cpus(re.search(r"^Cpus_allowed_list:\s*(\S+)", (task / "status").read_text(), re.M)[1])))
        except (OSError, TypeError):
            pass
    return found


def workers(pid):
    found = []
    for child in children(pid):
        try:
            if pathlib.Path(f"/proc/{child}/cmdline").read_bytes() == b"joulemark\0worker\0":
                found.append(child)
        except OSError:
            pass
    return found


def observed(env, tmp_path, n, wanted, *more):
    """Runs n ranks until wanted(threads' CPUs of each worker) holds; the record."""
    words = [BIN, *GPT, "--batch", n, "--ranks", n, "--device", ",".join(f"cuda:{i}" for i in range(n)), "--selftest", 0,
             "--source", "nvml", "--seconds", 2, "--json", tmp_path / "record.json", *more]
    with subprocess.Popen([str(w) for w in words], env={**os.environ, **env}, stderr=subprocess.PIPE, text=True) as run:
        end = time.monotonic() + 60
        seen = []
        while run.poll() is None and time.monotonic() < end:
            seen = [masks(pid) for pid in workers(run.pid)]
            if len(seen) == n and wanted(seen):
                break
            time.sleep(0.02)
        else:
            run.kill()
            raise AssertionError((seen, run.stderr.read()))
        run.communicate(timeout=240)
    return json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))


def halves(tmp_path):
    env = machine(tmp_path, Node([[(c,) for c in half] for half in HALVES], [0, 1]), 2)
    return {**env, "HWLOC_THISSYSTEM": "1"}


@pytest.mark.skipif(len(OWN) < 2, reason="one CPU")
def test_threads_of_sampler_and_work_are_bound(tmp_path):
    """One rank on the first half: the threads that read sensors have the other one."""
    first, second = map(frozenset, HALVES)
    record = observed(halves(tmp_path), tmp_path, 1,
                      lambda seen: seen[0][0] == first and set(seen[0]) == {first, second})
    (rank,) = record["affinity"]["ranks"]
    assert record["affinity"]["by"] == "near" and cpus(rank["cpus"]) == first and rank["gpu"] == "00000000:1A:00.0"
    assert cpus(record["affinity"]["sampler"]) == second and rank["nodes"] == "0" and record["affinity"]["reason"] is None


@pytest.mark.skipif(len(OWN) < 2, reason="one CPU")
def test_each_of_two_ranks_is_bound_to_its_half(tmp_path):
    record = observed(halves(tmp_path), tmp_path, 2,
                      lambda seen: sorted(map(min, (threads[0] for threads in seen))) == [half[0] for half in HALVES])
    own = [cpus(rank["cpus"]) for rank in record["affinity"]["ranks"]]
    assert all(o <= set(half) for o, half in zip(own, HALVES)) and all(own) and record["status"] == "ok"


def policies(pid):
    """What the kernel says of the memory of each thread of a process: default, or prefer with nodes."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found.append((task / "numa_maps").read_text().split("\n", 1)[0].split(" ", 1)[1].split(" file=")[0])
        except (OSError, IndexError):
            pass
    return found


def no_policies():
    """numa_maps is there only where the kernel was built for NUMA nodes; some containers forbid to choose."""
    call = "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(238, 0, None, 0))"
    return not os.path.exists("/proc/self/numa_maps") or os.uname().machine != "x86_64" or \
        subprocess.run([sys.executable, "-c", call], check=False).returncode != 0


@pytest.mark.skipif(len(OWN) < 2 or no_policies(), reason="one CPU, or no NUMA nodes")
@pytest.mark.parametrize("value, wanted", [("near", "0"), (f"{OWN[0]}@0", "0"), (f"{OWN[0]}", None), ("none", None)])
def test_memory_comes_from_the_node_of_the_gpu(value, wanted, tmp_path):
    """The threads of the work have what their rank has; those that read sensors, and ranks without nodes, what they had."""
    seen = set()
    cuda, env = ["--device", "cuda:0", "--selftest", 0, "--source", "nvml", "--seconds", 2], halves(tmp_path)
    words = [BIN, *GPT, "--batch", 1, *cuda, "--affinity", value, "--json", tmp_path / "record.json"]
    with subprocess.Popen([str(w) for w in words], env={**os.environ, **env}, stderr=subprocess.PIPE, text=True) as run:
        while run.poll() is None:
            for pid in workers(run.pid):
                seen.update(policies(pid))
            time.sleep(0.02)
        assert run.returncode == 0, run.stderr.read()
    affinity = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["affinity"]
    assert [rank["nodes"] for rank in affinity["ranks"]] == ([] if value == "none" else [wanted])
    chosen = {policy for policy in seen if policy.startswith("prefer")}
    assert all(policy.endswith(":0") for policy in chosen) and bool(chosen) == bool(wanted) and any("default" in p for p in seen), seen


@pytest.mark.skipif(no_policies(), reason="no NUMA nodes")
def test_nodes_that_are_not_here(tmp_path):
    """Given, they fail the case; those of a GPU are only left out, with the reason."""
    done = jm(*GPT, "--device", "ref", "--affinity", f"{OWN[0]}@999", "--json", "-", "--steps", 1)
    assert done.returncode == 1 and "NUMA nodes 999" in json.loads(done.stdout)["reason"]
    cuda, env = ["--device", "cuda:1", "--selftest", 0, "--steps", 1, "--json", "-"], halves(tmp_path)
    affinity = json.loads(jm(*GPT, *cuda, env=env).stdout)["affinity"]
    there = os.path.exists("/sys/devices/system/node/node1")
    assert affinity["by"] == "near" and affinity["ranks"][0]["nodes"] == ("1" if there else None)
    assert there or "NUMA nodes 1" in affinity["reason"], affinity
    two = ["--ranks", 2, "--batch", 2, "--device", "cuda:0,cuda:1"]
    affinity = json.loads(jm(*GPT, *two, "--selftest", 0, "--steps", 1, "--json", "-", env=env).stdout)["affinity"]
    assert [rank["nodes"] for rank in affinity["ranks"]] == ["0", "1" if there else None], affinity


def forbid_policies():
    """As containers do: set_mempolicy(2) answers EPERM to this process and those that it starts."""
    rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 238), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack("HP", len(rules), ctypes.addressof(code)))
    libc = ctypes.CDLL(None)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        raise OSError("no filter of system calls")


@pytest.mark.skipif(len(OWN) < 2 or no_policies(), reason="one CPU, or no NUMA nodes")
def test_where_policies_are_forbidden_no_rank_has_nodes(tmp_path):
    two = ["--ranks", 2, "--batch", 2, "--device", "cuda:0,cuda:1", "--selftest", 0, "--steps", 1, "--json", "-"]
    affinity = json.loads(jm(*GPT, *two, env=halves(tmp_path), preexec_fn=forbid_policies).stdout)["affinity"]
    assert [rank["nodes"] for rank in affinity["ranks"]] == [None, None] and "Operation not permitted" in affinity["reason"], affinity


@pytest.mark.skipif(len(OWN) < 2, reason="one CPU")
def test_a_list_is_kept_and_one_of_absent_cpus_fails_the_case(tmp_path):
    env = halves(tmp_path)
    record = observed(env, tmp_path, 1, lambda seen: seen[0][0] == {OWN[-1]}, "--affinity", OWN[-1])
    assert record["affinity"]["by"] == "given" and record["affinity"]["ranks"][0]["cpus"] == str(OWN[-1])
    done = jm(*GPT, "--device", "ref", "--affinity", "1000", "--json", "-", "--steps", 1)
    assert done.returncode == 1 and "Give --affinity other CPUs" in json.loads(done.stdout)["reason"]


@pytest.mark.skipif(len(OWN) < 2, reason="one CPU")
def test_a_process_that_was_started_bound_is_left_so(tmp_path):
    env = {**os.environ, **halves(tmp_path)}
    done = subprocess.run(["taskset", "-c", str(OWN[0]), BIN, *GPT, "--device", "cuda:0", "--steps", "1", "--selftest", "0",
                           "--json", "-"], env=env, capture_output=True, text=True, check=True, timeout=240)
    affinity = json.loads(done.stdout)["affinity"]
    assert affinity["by"] == "none" and f"bound to CPUs {OWN[0]} " in affinity["reason"] and affinity["ranks"] == []


def test_the_topology_of_a_file_binds_nothing(tmp_path):
    env = machine(tmp_path, NODES["four"], 4)
    done = jm(*GPT, "--device", "cuda:0", "--steps", 1, "--selftest", 0, "--json", "-", env=env)
    affinity = json.loads(done.stdout)["affinity"]
    assert affinity["by"] == "none" and "HWLOC_XMLFILE" in affinity["reason"]
