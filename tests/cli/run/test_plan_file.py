# SPDX-License-Identifier: Apache-2.0
"""Plan files: the cases of a plan, compared with itertools and with equal command lines; refusals."""
import itertools
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

from jm import BIN, USAGE, FAILURE, jm, sentence
from runs import query, records

NULL = {"work": "null", "source": "null", "step-time": "1ms", "warmup": 0, "steps": 1}
QUOTED = """\
work: "null"
source: "null"
step-time: 1ms
warmup: 0
steps: 1
"""


def plan(tmp_path, text, name="plan.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def cases(path, *more):
    """Parameters of all cases of the plan, from the store of a real run."""
    store = path.parent / f"{path.stem}.db"
    done = jm("run", path, "--store", store, *more)
    assert done.returncode == 0, done.stderr
    return [r["case"]["parameters"] for r in records(store)]


def listed(path, *more):
    done = jm("run", path, "--dry-run", *more)
    assert done.returncode == 0, done.stderr
    return [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  ")]


def options(parameters, *names):
    return sorted(tuple(p["options"][n] for n in names) for p in parameters)


# ---- which cases ----

def test_a_plan_and_its_command_line_are_the_same_cases(tmp_path):
    """The same keys in the store: either continues what the other began."""
    path = plan(tmp_path, "work: sim\ndevice: sim:h100x4\nresponse: [resnet50, vit-l16]\nseconds: 2\n"
                          "set:\n  gpu.power: 300:700+200W\nrepeat: 2\n")
    store = tmp_path / "s.db"
    assert jm("run", path, "--store", store).returncode == 0
    before = query(store, "SELECT case_id, repeat, attempt FROM records")
    assert len(before) == 2 * 3 * 2
    done = jm("run", "sim", "--device", "sim:h100x4", "--response", "resnet50,vit-l16", "--seconds", "2",
              "--set", "gpu.power=300:700+200W", "--repeat", "2", "--store", store)
    assert done.returncode == 0 and query(store, "SELECT case_id, repeat, attempt FROM records") == before


def test_commas_may_be_part_of_a_value_of_freeze(tmp_path):
    path = plan(tmp_path, "work: resnet\nlayers: 10\nhidden: 8\nimage: 32\nclasses: 3\ndevice: ref\nbatch: 2\n"
                          "freeze: ['conv1*,bn1*', 'layer*']\nwarmup: 0\nsteps: 1\nsource: 'null'\n")
    assert options(cases(path), "freeze") == [("conv1*,bn1*",), ("layer*",)]


def test_a_list_and_a_range_are_their_product(tmp_path):
    path = plan(tmp_path, QUOTED.replace("1ms", "[1ms, 2ms, 4ms]") + "seed: 3\n")
    assert options(cases(path), "step-time") == [("0.001s",), ("0.002s",), ("0.004s",)]
    path = plan(tmp_path, "work: gemm\ndevice: ref\nm: 16:64*2\nn: 8:24+8\nk: [8, 16]\nwarmup: 0\nsteps: 1\n", "g.yaml")
    want = sorted(itertools.product(["16", "32", "64"], ["8", "16", "24"], ["8", "16"]))
    assert options(cases(path), "m", "n", "k") == want


def test_ranges_on_the_command_line(tmp_path):
    store = tmp_path / "s.db"
    done = jm("run", "gemm", "--device", "ref", "--m", "16:64*2", "--n", "8:24+8", "--k", "8", "--warmup", "0",
              "--steps", "1", "--store", store)
    assert done.returncode == 0, done.stderr
    got = options([r["case"]["parameters"] for r in records(store)], "m", "n")
    assert got == sorted(itertools.product(["16", "32", "64"], ["8", "16", "24"]))


def test_zip_and_exclude_against_itertools(tmp_path):
    path = plan(tmp_path, """
work: gemm
device: ref
m: [8, 16, 24]
n: [32, 40, 48]
k: 8:32*2
products: [1, 2]
zip: [m, n]
exclude:
  - {m: 16, k: [8, 32]}
  - {products: 2, n: 48}
warmup: 0
steps: 1
""")
    want = [(str(m), str(n), str(k), str(b))
            for (m, n), k, b in itertools.product(zip([8, 16, 24], [32, 40, 48]), [8, 16, 32], [1, 2])
            if not (m == 16 and k in (8, 32)) and not (b == 2 and n == 48)]
    assert options(cases(path), "m", "n", "k", "products") == sorted(want)


def test_settings_are_excluded_and_the_reference_stays(tmp_path):
    path = plan(tmp_path, """
work: sim
device: sim:h100x4
response: [resnet50, vit-l16]
seconds: 1
set: {gpu.power: "300:700+100W"}
exclude: {response: vit-l16, gpu.power: [300, 0.4kW]}
""".replace("[300, 0.4kW]", "[300W, 0.4kW]"))
    got = sorted((p["options"]["response"], p["settings"]["gpu.power"]) for p in cases(path))
    want = [(r, f"{w}W") for r, w in itertools.product(["resnet50", "vit-l16"], range(300, 701, 100))
            if not (r == "vit-l16" and w in (300, 400))]
    assert got == sorted(want)


def test_derived_values_reach_commands_and_options(tmp_path):
    path = plan(tmp_path, """
runs:
  - name: own
    command: ["sh", "-c", "echo $GLOBAL {batch}x{micro} {{batch}} '{\\"a\\": {\\"b\\": 1}}'"]
    variables: {batch: [4, 8], micro: 1:4*2, world: 2}
    derive:
      global: "{batch} * {micro} * {world}"
      half: "({global} - 2) / 4 % 5"
    env: {GLOBAL: "g{global}"}
    exclude: {global: 64}
    source: "null"
""")
    got = sorted((p["command"][2], p["environment"]["GLOBAL"], p["options"]["half"]) for p in cases(path))
    want = []
    for batch, micro in itertools.product([4, 8], [1, 2, 4]):
        if batch * micro * 2 != 64:
            half = (batch * micro * 2 - 2) / 4 % 5
            want.append((f"echo $GLOBAL {batch}x{micro} {{batch}} '" + '{"a": {"b": 1}}' + "'",
                         f"g{batch * micro * 2}", f"{half:.12g}"))
    assert got == sorted(want)


def test_a_swept_command_is_one_work_in_tables(tmp_path):
    path = plan(tmp_path, """
command: sh -c 'sleep 0.0{pause}' {pause}
variables: {pause: [1, 3]}
repeat: 3
source: "null"
""")
    store = tmp_path / "s.db"
    done = jm("run", path, "--store", store)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sh -c") == 1 and "sh -c sleep 0.0{pause} {pause}" in done.stdout
    assert re.search(r"^pause +run/s", done.stdout, re.M) and re.search(r"^1 +\d", done.stdout, re.M)
    assert {r["command"][2] for r in records(store)} == {"sleep 0.01", "sleep 0.03"}  # as it was run
    assert {tuple(r["case"]["template"]) for r in records(store)} == {("sh", "-c", "sleep 0.0{pause}", "{pause}")}
    found = json.loads(jm("compare", f"{store}:pause=1", f"{store}:pause=3", "--json", "-").stdout)
    assert "time" in json.dumps(found)


def test_environment_reaches_the_command(tmp_path):
    path = plan(tmp_path, f"""
command: sh -c 'printf %s "$ONE-$TWO" > {tmp_path}/said.{{n}}'
variables: {{n: [1, 2]}}
env: {{ONE: "a b", TWO: "{{n}}"}}
source: "null"
""")
    cases(path)
    assert [(tmp_path / f"said.{n}").read_text() for n in (1, 2)] == ["a b-1", "a b-2"]


def test_environment_reaches_a_workload(tmp_path):
    """Before its libraries are loaded: OpenMP prints its version and what it reads then."""
    path = plan(tmp_path, """
work: gemm
device: cpu
m: 64
n: 64
k: 64
warmup: 0
steps: 1
source: "null"
selftest: 0
variables: {threads: [1, 2]}
env: {OMP_NUM_THREADS: "{threads}", OMP_DISPLAY_ENV: "true"}
order: given
""")
    done = jm("run", path, "--show-output", "--store", tmp_path / "s.db")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"OMP_NUM_THREADS ?= ?'(\d+)'", done.stderr) == ["1", "2"]
    assert [r["case"]["parameters"]["environment"]["OMP_NUM_THREADS"] for r in records(tmp_path / "s.db")] == ["1", "2"]
    assert re.search(r"^OMP_NUM_THREADS", done.stdout, re.M), "the variable is a column of the table"


def test_several_works_and_their_own_defaults(tmp_path):
    """What holds for all runs holds for those whose work has it."""
    path = plan(tmp_path, """
warmup: 0
steps: 1
step-time: 1ms
device: ref
source: "null"
runs:
  - {work: "null"}
  - {work: gemm, m: 8, n: 8, k: 8}
  - {command: "true"}
""")
    got = cases(path)
    assert [p.get("workload") for p in got] == ["null", "gemm", None]
    assert got[0]["options"]["step-time"] == "0.001s" and "step-time" not in got[1]["options"]
    assert got[2]["command"] == ["true"] and "device" not in got[2]


def test_a_command_beside_a_simulated_device_says_what_it_sets(tmp_path):
    plan(tmp_path, "device: sim:h100x4\nset: {gpu.power: 300W}\n", "node.yaml")
    for words in "device: sim:h100x4", "control: sim:h100x4":
        got = cases(plan(tmp_path, "platform: node.yaml\nruns:\n  - {work: sim, seconds: 1}\n  - {command: ls, %s}\n" % words,
                         words.split(":")[0] + ".yaml"))
        assert sorted(p["settings"]["gpu.power"] for p in got) == ["300W"] * 2 + ["as found"] * 2, got


@pytest.mark.parametrize("text, want", [("no", "0"), ("yes", "1"), ("true", "1")])
def test_the_row_types_a_flag(tmp_path, text, want):
    path = plan(tmp_path, f"work: sim\ndevice: sim:h100x1\nseconds: 1\nreal-time: {text}\n")
    request = json.loads(query_plan(path))
    assert request["how"]["real_time"] == (want == "1")


def query_plan(path):
    store = path.parent / f"{path.stem}.db"
    done = jm("run", path, "--store", store)
    assert done.returncode == 0, done.stderr
    return query(store, "SELECT plan FROM plan_t")[0][0]


@pytest.mark.parametrize("text, want", [("1e1", "10"), ("012", "12"), ("'8'", "8"), ("+8", "8")])
def test_the_row_types_a_number(tmp_path, text, want):
    """YAML 1.1 would read 012 as 10 and 1e1 as a text."""
    path = plan(tmp_path, f"work: gemm\ndevice: ref\nm: {text}\nn: 8\nk: 8\nwarmup: 0\nsteps: 1\n")
    if text == "+8":
        assert "8" in cases(path)[0]["options"]["m"]
    else:
        assert cases(path)[0]["options"]["m"] == want


def test_anchors_aliases_and_merge_keys(tmp_path):
    path = plan(tmp_path, """
runs:
  - &base {name: a, work: gemm, device: ref, m: &sizes [8, 16], n: 8, k: 8, warmup: 0, steps: 1}
  - {<<: *base, name: b, n: *sizes, m: 24}
""")
    assert options(cases(path), "m", "n") == sorted([("8", "8"), ("16", "8"), ("24", "8"), ("24", "16")])


# ---- files ----

def test_a_platform_names_no_platform(tmp_path):
    """It would be ignored, whether the file names itself or another one."""
    (tmp_path / "node.yaml").write_text("k: 3\nplatform: node.yaml\n")
    path = plan(tmp_path, "work: gemm\nplatform: node.yaml\n")
    text = sentence(jm("plan", path), USAGE)
    assert "node.yaml:2" in text and "A platform file names no platform" in text


def test_includes_platforms_and_the_command_line(tmp_path):
    """Strongest first: command line, the run, the file, what it includes, the platform."""
    plan(tmp_path, "device: ref\nn: 8\nk: 8\nm: 8\nsteps: 1\nwarmup: 0\n", "node.yaml")
    plan(tmp_path, "n: 16\nk: 16\nruns:\n  - {name: first, work: gemm}\n", "common.yaml")
    path = plan(tmp_path, "include: common.yaml\nplatform: node.yaml\nk: 24\nruns:\n"
                          "  - {name: second, work: gemm, k: 32}\n")
    assert options(cases(path), "m", "n", "k") == [("8", "16", "24"), ("8", "16", "32")]
    other = plan(tmp_path, "device: ref\nm: 40\nn: 8\nsteps: 1\nwarmup: 0\n", "other.yaml")
    path.rename(tmp_path / "again.yaml")
    got = cases(tmp_path / "again.yaml", "--platform", other, "--n", "48")
    assert options(got, "m", "n", "k") == [("40", "48", "24"), ("40", "48", "32")]


def test_an_included_file_is_found_beside_the_one_that_names_it(tmp_path):
    (tmp_path / "sub").mkdir()
    plan(tmp_path / "sub", "include: deep.yaml\n", "a.yaml")
    plan(tmp_path / "sub", QUOTED.replace('work: "null"\n', ""), "deep.yaml")
    path = plan(tmp_path, 'include: sub/a.yaml\nruns: [{work: "null"}]\n')
    assert len(cases(path)) == 1


# ---- order ----

def test_runs_come_after_those_they_name(tmp_path):
    path = plan(tmp_path, f"""
source: "null"
runs:
  - {{name: last, command: sh -c 'echo last >> {tmp_path}/log', after: [middle, first]}}
  - {{name: middle, command: sh -c 'echo middle >> {tmp_path}/log', after: first}}
  - {{name: first, command: sh -c 'echo first >> {tmp_path}/log'}}
""")
    cases(path)
    assert (tmp_path / "log").read_text().split() == ["first", "middle", "last"]


def test_no_run_is_given_the_name_of_another(tmp_path):
    path = plan(tmp_path, """
runs:
  - {work: gemm, device: ref, name: gemm-3}
  - {work: gemm, device: ref, m: 8}
  - {work: gemm, device: ref, m: 16}
  - {work: sim, device: "sim:h100x1", after: gemm-3}
""")
    names = re.findall(r"^  (\S+): 1 case", jm("plan", path).stdout, re.M)
    assert len(names) == len(set(names)) == 4, names


def test_what_follows_a_failed_run_is_left_out(tmp_path):
    path = plan(tmp_path, f"""
source: "null"
runs:
  - {{name: prepare, command: "false"}}
  - {{name: sweep, command: touch {tmp_path}/sweep, after: prepare}}
  - {{name: report, command: touch {tmp_path}/report, after: sweep}}
  - {{name: other, command: touch {tmp_path}/other}}
""")
    done = jm("run", path, "--store", tmp_path / "s.db")
    assert done.returncode == 1
    assert "'sweep' is omitted, because the run 'prepare'" in done.stderr
    assert "'report' is omitted, because the run 'sweep'" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["other", "plan.yaml", "s.db"]
    (tmp_path / "sweep").unlink(missing_ok=True)


def test_tags_select_runs(tmp_path):
    path = plan(tmp_path, QUOTED.replace('work: "null"\n', "") + """
runs:
  - {name: a, work: "null", tags: [quick, cpu]}
  - {name: b, work: "null", tags: slow, steps: 2}
""")
    assert jm("run", path, "--tag", "slow,quick", "--dry-run").stdout.count("case") == 2
    store = tmp_path / "s.db"
    assert jm("run", path, "--store", store).returncode == 0
    assert [(r["case"]["run"], r["case"]["tags"]) for r in records(store)] == [("a", ["quick", "cpu"]), ("b", ["slow"])]
    only = jm("run", path, "--tag", "cpu", "--dry-run").stdout
    assert only.startswith("a: 1 case") and "b:" not in only
    assert "No run of" in sentence(jm("run", path, "--tag", "none"), USAGE)


# ---- the same command continues ----

def test_a_plan_continues_where_it_was_stopped(tmp_path):
    path = plan(tmp_path, f"""
source: "null"
repeat: 2
runs:
  - {{name: a, command: "sh -c 'echo a{{n}} >> {tmp_path}/log; test ! -e {tmp_path}/stop'", variables: {{n: [1, 2]}}}}
  - {{name: b, command: "sh -c 'echo b >> {tmp_path}/log'"}}
""")
    store = tmp_path / "s.db"
    (tmp_path / "stop").touch()
    assert jm("run", path, "--store", store, "--fail-fast").returncode == 1
    (tmp_path / "stop").unlink()
    done = jm("run", path, "--store", store, "--retry")
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "log").read_text().split()
    assert len(log) == 7 and log.count("b") == 2
    assert jm("run", path, "--store", store).returncode == 0
    assert (tmp_path / "log").read_text().split() == log
    assert query(store, "SELECT count(*) FROM records WHERE status = 'ok'") == [(6,)]


def test_resume_knows_that_a_file_had_several_runs(tmp_path):
    path = plan(tmp_path, QUOTED.replace('work: "null"\n', "") + 'runs: [{work: "null"}, {work: "null", steps: 2}]\n')
    store = tmp_path / "s.db"
    assert jm("run", path, "--store", store).returncode == 0
    got = sentence(jm("run", "--store", store, "--resume"), USAGE)
    assert f"joulemark run {path} --store {store}" in got
    path = plan(tmp_path, QUOTED, "one.yaml")
    assert jm("run", path, "--store", tmp_path / "one.db").returncode == 0
    assert jm("run", "--store", tmp_path / "one.db", "--resume").returncode == 0


# ---- what is refused ----

REFUSED = [
    ("work: gemm\nm: 8\nm: 16\n", "3:", "given twice"),
    ("work: gemm\nm: [8\n", "", "not YAML"),
    ("work: gemm\nm: *a\n", "2:", "no anchor"),
    ("work: gemm\nm: &a [*a]\n", "2:", "no anchor"),
    ("work: !!str gemm\n", "1:", "tag"),
    ("work: gemm\n---\nwork: gemm\n", "2:", "second document"),
    ("- work: gemm\n", "1:", "mapping"),
    ("{}\n", "1:", "either 'work'"),
    ("work: gemm\ncommand: ls\n", "2:", "exclude each other"),
    ("work: gemm\nm:\n", "2:", "has no value"),
    ("work: gemm\nm: null\n", "2:", "has no value"),
    ("work: gemm\nm: []\n", "2:", "empty"),
    ("work: gemm\nm: {a: 1}\n", "2:", "mapping"),
    ("work: gemm\nm: [[8]]\n", "2:", "list"),
    ("work: gemm\nm: eight\n", "2:", "not a number"),
    ("work: gemm\nm: 8.5\n", "2:", "whole number"),
    ("work: gpt-117m\ntransport: host\n", "2:", "no effect without --ranks"),
    ("work: gemm\nmm: 8\n", "2:", "did you mean"),
    ("work: gem\n", "1:", "did you mean 'gemm'"),
    ("work: gemm\nrepaet: 2\n", "2:", "did you mean 'repeat'"),
    ("work: gemm\nexcludes: {m: 3}\n", "2:", "did you mean 'exclude'"),
    ("work: gemm\nresume: yes\n", "2:", "--resume"),
    ("work: gemm\nrepeat: [1, 2]\n", "2:", "cannot be swept"),
    ("work: gemm\nm: 64:8+8\n", "2:", "must go up"),
    ("work: gemm\nm: 8:64*1\n", "2:", "must go up"),
    ("work: gemm\nm: [8, 16]\nzip: [m, n]\n", "3:", "'n', which is not a list"),
    ("work: gemm\nm: [8, 16]\nn: [8, 16, 24]\nzip: [m, n]\n", "4:", "equal numbers of values"),
    ("work: gemm\nm: [8, 16]\nzip: [m, m]\n", "3:", "twice"),
    ("work: gemm\nm: [8, 16]\nexclude: {m: 24}\n", "3:", "not a value of that list"),
    ("work: gemm\nm: [8, 16]\nexclude: {q: 24}\n", "3:", "not a list"),
    ("work: gemm\nm: [8, 16]\nexclude: {m: [8, 16]}\n", "1:", "no case"),
    ("work: gemm\nm: \"{q}\"\n", "2:", "no value with the name 'q'"),
    ("work: gemm\nvariables: {size: 8}\nm: \"{sise}\"\n", "3:", "did you mean {size}"),
    ("work: gemm\nvariables: {a: \"{b}\", b: \"{a}\"}\nm: \"{a}\"\n", "2:", "depend on one another"),
    ("work: gemm\nderive: {a: \"{b} + 1\", b: \"{a}\"}\nm: \"{a}\"\n", "2:", "depend on one another"),
    ("work: gemm\nderive: {a: \"1 + )\"}\nm: \"{a}\"\n", "2:", "is not valid from ')' on"),
    ("work: gemm\nderive: {a: \"1 +\"}\nm: \"{a}\"\n", "2:", "ends where a number or a parenthesis is missing"),
    ("work: gemm\nderive: {a: \"2 * (1 + 1\"}\nm: \"{a}\"\n", "2:", "'2 * (1 + 1' ends where"),
    ("work: gemm\nderive: {a: \"1 / (2 - 2)\"}\nm: \"{a}\"\n", "2:", "divides by 0"),
    ("work: gemm\nvariables: {a: x}\nderive: {b: \"{a} * 2\"}\nm: \"{b}\"\n", "3:", "'x' is not one"),
    ("work: gemm\nvariables: {q: [1, 2]}\n", "1:", "no key uses a variable that has several"),
    ("work: gemm\nvariables: {2a: x}\n", "2:", "cannot be the name"),
    ("work: gemm\nvariables: {after: x}\n", "2:", "is a key of plans"),
    ("command: \"ls 'a\"\n", "1:", "quote"),
    ("command: [ls]\nbatch: 3\n", "2:", "put it under 'variables'"),
    ("device: sim:h100x4\nset: {gpu.power: 300W}\nruns:\n  - {work: sim}\n  - {command: ls}\n", "5:", "of this machine would be set"),
    ("runs: []\n", "1:", "list"),
    ("runs: [{work: gemm}]\nname: a\n", "2:", "belongs to one run"),
    ("runs:\n  - work: gemm\n    title: x\n", "3:", "belongs to the file"),
    ("runs:\n  - {work: gemm, name: a}\n  - {work: gemm, name: a}\n", "3:", "two runs have the name"),
    ("runs:\n  - {work: gemm, name: alpha}\n  - {work: gemm, after: alpa}\n", "3:", "did you mean 'alpha'"),
    ("runs:\n  - {work: gemm, name: a, after: a}\n", "2:", "wait for one another: 'a' after 'a'"),
    ("runs:\n  - {work: gemm, name: a, after: b}\n  - {work: gemm, name: b, after: a}\n", "", "wait for one another"),
    ("include: plan.yaml\nwork: gemm\n", "1:", "include one another"),
    ("work: gemm\nplatform: plan.yaml\n", "2:", "cannot be its own platform"),
    ("wrok: gemm\nbatch: 3\n", "1:", "did you mean 'work'"),
    ("include: nowhere.yaml\nwork: gemm\n", "1:", "no file"),
    ("frobnicate: 3\nruns: [{work: gemm}]\n", "1:", "No run of the plan"),
    ("work: gemm\nm: \"a\\0b\"\n", "2:", "NUL"),
]


@pytest.mark.parametrize("text, line, words", REFUSED, ids=range(len(REFUSED)))
def test_refused_with_its_line(tmp_path, text, line, words):
    path = plan(tmp_path, text)
    for command in (("run", path), ("plan", path)):
        # as a wrong option of the command line; a file that is not there is a failure
        got = sentence(jm(*command), FAILURE if words == "no file" else USAGE)
        assert words.lower() in got.lower(), got
        assert f"plan.yaml:{line}" in got, got
    assert os.listdir(tmp_path) == ["plan.yaml"]


def test_not_text(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"work: \xff\xfe gemm\n")
    assert "UTF-8" in sentence(jm("run", path))
    path.write_text("[" * 5000)
    assert "nested too deeply" in sentence(jm("run", path))
    path.write_bytes(b"a" * (5 << 20))
    assert "larger than 4 MiB" in sentence(jm("run", path))


def processor_s(begin):
    """Of the programs that have run since then."""
    end = os.times()
    return end.children_user + end.children_system - begin.children_user - begin.children_system


def test_aliases_of_aliases_take_no_memory(tmp_path):
    """Nine levels of nine: a billion when written out."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 10)]
    path = plan(tmp_path, "work: gemm\nvariables:\n" + "".join(f"  {x}\n" for x in lines))
    begin = os.times()
    sentence(jm("run", path))
    anchors = "define:\n" + "".join(f"  {x}\n" for x in lines)
    for key in ("env", "set", "exclude", "zip", "after", "tags", "command", "variables", "derive"):
        for value in ("{A: *a9}", "*a9", "[*a9]", "{A: *a2}"):
            work = "" if key == "command" else "command: ls, "
            more = "" if key == "variables" else "variables: {n: [1, 2]}, "
            path = plan(tmp_path, f"{anchors}runs:\n  - {{{work}{more}{key}: {value}}}\n")
            assert "plan.yaml:" in sentence(jm("run", path)), key
    assert processor_s(begin) < 20


def test_ten_million_cases_are_counted_and_refused(tmp_path):
    path = plan(tmp_path, "work: gemm\nm: 1:60+1\nn: 1:60+1\nk: 1:60+1\nproducts: 1:60+1\nexclude: {m: 3, n: [4, 5]}\n")
    begin = os.times()
    got = sentence(jm("plan", path))
    took = processor_s(begin)
    assert f"{60 ** 4 - 2 * 60 ** 2} cases" in got and "'zip'" in got and "m (60) x n (60)" in got
    assert took < 1
    huge = plan(tmp_path, "work: gemm\n" + "".join(f"{x}: 1:90000+1\n" for x in ("m", "n", "k")) +
                "exclude: {m: 3, n: 3, k: 3}\n")
    assert "up to 729000000000000 cases" in sentence(jm("plan", huge))


def test_cases_are_listed_in_time_that_grows_with_their_number(tmp_path):
    path = plan(tmp_path, "work: gemm\ndevice: ref\nm: 1:80+1\nn: 1:80+1\nk: 16\n")
    begin = os.times()
    lines = listed(path)
    took = processor_s(begin)
    assert sorted(rest for _, rest in lines) == sorted(f"m={m} n={n}" for m in range(1, 81) for n in range(1, 81))
    assert took < 5


def test_excludes_leave_little_of_much(tmp_path):
    """What is excluded is skipped at once, however many points follow from it."""
    begin = os.times()
    none = plan(tmp_path, "work: gemm\nm: [1, 2]\nn: 1:90000+1\nvariables: {v: 1:90000+1}\nk: \"{v}\"\n"
                          "exclude: {m: [1, 2]}\n", "none.yaml")
    assert "removes all of them" in sentence(jm("plan", none))
    few = plan(tmp_path, "work: gemm\ndevice: ref\nm: 1:3000+1\nn: 1:3000+1\nvariables: {v: [8, 16]}\nk: \"{v}\"\n"
                         "exclude: [{m: 1:2999+1}, {n: 1:2999+1}]\n", "few.yaml")
    assert "gemm: 2 cases" in jm("plan", few).stdout
    assert processor_s(begin) < 30


def test_two_runners_of_one_plan(tmp_path):
    path = plan(tmp_path, f"command: sh -c 'touch {tmp_path}/begun; sleep 20'\nsource: \"null\"\n")
    store = tmp_path / "s.db"
    first = subprocess.Popen([BIN, "run", path, "--store", store], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while not (tmp_path / "begun").exists() and time.monotonic() < end:
            time.sleep(0.02)
        assert "Another joulemark" in sentence(jm("run", path, "--store", store), FAILURE)
    finally:
        first.terminate()
        first.wait(timeout=240)
    assert query(store, "SELECT count(*) FROM record_t") == [(1,)]


# ---- plan: what it shows ----

def test_plan_shows_count_time_and_needs(tmp_path):
    path = plan(tmp_path, """
title: Two machines
repeat: 3
runs:
  - {name: here, work: gemm, device: ref, m: [8, 16], n: 8, k: 8, warmup: 2s, seconds: 60s}
  - {name: there, command: no-such-program --x, after: here}
  - {name: swept, work: sim, device: "sim:h100x4", set: {gpu.power: "300:500+100W"}}
""")
    done = jm("plan", path)
    assert done.returncode == 1, done.stderr
    text = done.stdout
    assert "Two machines" in text
    assert "here: 2 cases x 3 repeats; at least 6 min 12 s" in text  # 6 x 62 s
    assert "there: 1 case x 3 repeats; 3 of unknown length; after here" in text
    assert "swept: 4 cases x 3 repeats; 12 in simulated time" in text  # and the reference as found
    assert re.search(r"program no-such-program +missing", text) and re.search(r"device ref +here", text)
    assert re.search(r"knob gpu.power +here", text)


def test_plan_counts_pauses_and_the_least_repeats(tmp_path):
    path = plan(tmp_path, "work: gemm\ndevice: ref\nm: [8, 16]\nwarmup: 1s\nseconds: 9s\ncooldown: 30s\n"
                          "until-interval: 1%\nmax-repeat: 8\n")
    text = jm("plan", path).stdout
    assert "gemm: 2 cases x 3 to 8 repeats; at least 3 min 30 s" in text  # 6 x 10 s and 5 x 30 s
    assert "up to 16 measurements in all" in text


def test_a_device_that_cannot_be_opened_is_missing(tmp_path):
    """That a backend is built in does not mean that its device is there."""
    if pathlib.Path("/dev/nvidiactl").exists():
        pytest.skip("there is an NVIDIA GPU here")
    text = jm("plan", plan(tmp_path, "work: gemm\ndevice: [cpu, \"cuda:0\"]\nm: 8\nn: 8\nk: 8\n")).stdout
    assert re.search(r"device cpu +here", text) and re.search(r"device cuda:0 +missing: ", text), text


def test_plan_of_a_machine_that_is_not_here(tmp_path):
    path = plan(tmp_path, "work: gemm\ndevice: \"nodevice:0\"\nsource: nosuch\nset: {gpu.power: '200:700+100W'}\n"
                          "control: frob\n")
    done = jm("plan", path)
    assert done.returncode == 1, done.stderr
    assert "7 cases x 1 repeat" in done.stdout  # six caps and the reference
    cases = jm("plan", path, "--cases").stdout
    assert [w for w in range(200, 701, 100) if re.search(rf"^  [0-9a-f]+  gpu.power={w}W$", cases, re.M)] == [*range(200, 701, 100)]
    for what in ("device nodevice:0", "source nosuch", "knob gpu.power"):
        assert re.search(rf"{what} +missing: .*", done.stdout), done.stdout


def test_plan_looks_for_the_device_of_each_rank(tmp_path):
    path = plan(tmp_path, "work: allreduce\nranks: 2\ndevice: [ref, \"nodevice:1\"]\n")
    done = jm("plan", path)
    assert done.returncode == 1, done.stdout
    assert re.search(r"device ref +here", done.stdout)
    assert re.search(r"device nodevice:1 +missing: .*", done.stdout), done.stdout
