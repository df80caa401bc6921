# SPDX-License-Identifier: Apache-2.0
"""Help, man page and wrong command lines, of every command there is."""
import json
import os
import re
import shutil
import subprocess

import pytest

from fake_gpus import FakeGpus
from jm import BIN, FAILURE, SOURCE, USAGE, jm, sentence


def commands():
    listed = jm("--help").stdout.split("Commands\n")[1]
    return re.findall(r"^  ([a-z]+) ", listed, re.M)


def options(command):
    return re.findall(r"^  --([a-z][a-z0-9-]*)", jm("help", command, "--all").stdout, re.M)


def test_version():
    done = jm("--version")
    assert done.returncode == 0 and re.fullmatch(r"joulemark \d+\.\d+\.\d+\n", done.stdout)


def test_nothing_at_all_is_usage():
    done = jm()
    assert done.returncode == USAGE and "Commands" in done.stdout


@pytest.mark.parametrize("command", commands())
def test_help_of(command):
    done = jm(command, "--help")
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.startswith(f"joulemark {command}")
    assert jm("help", command).stdout == done.stdout
    prose = [line for line in done.stdout.splitlines()[1:] if not line.startswith("joulemark ")]
    assert all(len(line) <= 100 for line in prose)
    assert "(null)" not in done.stdout and ".." not in done.stdout.replace("...", "")


@pytest.mark.parametrize("command", ["run", "measure", "report"])
def test_short_help_describes_ten_options_and_names_the_others(command):
    short = jm("help", command).stdout
    usual, others = short.split("Usual options\n")[1].split("Other options, which")
    described = re.findall(r"^  --([a-z0-9-]+)", usual, re.M)
    named = re.findall(r"--([a-z0-9-]+)", others.split("describes\n")[1].split("\nExample")[0])
    assert len(described) == 10 and not set(described) & set(named)
    assert {*described, *named} == set(options(command))
    assert f"joulemark help {command} --all" in short and len(jm("help", command, "--width", "80").stdout.splitlines()) < 70
    assert jm(command, "--help", "--all").stdout == jm("help", "--all", command).stdout


def test_commands_are_grouped():
    groups = [g.splitlines() for g in jm("--help").stdout.split("Commands\n\n")[1].split("\n\n")[:-1]]
    assert [g[0] for g in groups] == ["Run and measure", "Read results", "Models and data", "Settings",
                                      "This machine and joulemark"]
    members = {g[0]: [line.split()[0] for line in g[1:] if line.startswith("  ") and line[2] != " "] for g in groups}
    assert "measure" in members["Run and measure"] and "restore" in members["Settings"]
    assert sum(len(m) for m in members.values()) == len(commands())


def test_headings_of_groups():
    whole = jm("help", "run", "--all").stdout
    heads = ["What runs", "Settings", "Repeats", "Sensors", "Items of a command", "The store", "Output", "Plan files"]
    places = [whole.index(f"\n{head}\n") for head in heads]
    assert places == sorted(places)
    assert places[1] < whole.index("  --set ") < places[2] < whole.index("  --repeat ") < places[3]
    assert "\n.B Plan files\n" in jm("help", "--man").stdout


@pytest.mark.parametrize("command", [c for c in commands() if options(c)])
def test_unknown_option_of(command):
    known = options(command)
    longest = max(known, key=len)
    wrong = longest[:-2] + longest[-1] + longest[-2] if longest[-1] != longest[-2] else longest + "x"
    if wrong in known:
        pytest.skip("no near word to try")
    text = sentence(jm(command, f"--{wrong}=1"), USAGE)
    assert f"--{wrong}" in text or wrong in text
    assert longest in text, text


def test_unknown_command():
    assert "did you mean" in sentence(jm("hlep"), USAGE)
    assert "--help" in sentence(jm("frobnicate"), USAGE)
    assert "did you mean 'run'" in sentence(jm("help", "runn"), USAGE)
    assert "did you mean 'train'" in sentence(jm("help", "trian"), USAGE)
    assert "joulemark list" in sentence(jm("help", "frobnicate"), USAGE)


def test_units_of_bare_numbers():
    """`--seconds 1` is a second; the help says so."""
    assert re.search(r"--seconds TIME((?!--).)*a\s+number\s+alone\s+is\s+in\s+s\.", jm("help", "run").stdout, re.S)


def test_short_help_without_headings_names_options_with_their_dashes():
    others = jm("help", "submit").stdout.split("describes\n")[1].split("\nExample")[0]
    assert re.findall(r"^  (\S.*?): (--[a-z-]+)", others, re.M) == [("This command", "--time-limit"), ("Every command", "--output")]


@pytest.mark.parametrize("name, item", [("resnet18", "an image"), ("gpt-117m", "a token"), ("serve", "a token")])
def test_help_names_the_item(name, item):
    assert f"; an item is {item}." in " ".join(jm("help", name).stdout.split())


@pytest.mark.parametrize("name, option", [("train", "batch"), ("gpt-117m", "batch"), ("gpt-117m", "positions"),
                                          ("resnet", "classes"), ("sim", "response")])
def test_help_of_workload(name, option):
    done = jm("help", name)
    assert done.returncode == 0 and f"--{option}" in done.stdout
    assert jm("run", name, "--help").stdout == done.stdout
    assert jm("run", "--help", name).stdout == done.stdout


@pytest.mark.parametrize("model, own, others", [("resnet18", "image", "heads"), ("llama", "kv-heads", "image")])
def test_help_of_a_model_has_its_options_alone(model, own, others):
    for text in (jm("help", model).stdout, jm("describe", model, "--help").stdout):
        assert f"--{own} N" in text and f"--{others} N" not in text
    assert f"--{own} N" not in jm("help", "train").stdout


@pytest.mark.parametrize("model", ["convnet", "diffusion", "fno", "gpt", "inception", "llama", "llava", "mlp", "resnet", "separable", "towers", "unet", "vit"])
def test_no_option_of_a_model_is_one_of_a_command(model):
    own = set(re.findall(r"^  --([a-z-]+)", jm("help", model).stdout.split("Options of model")[1], re.M))
    assert own and not own & {*options("run"), *options("describe")}


def test_man_page_has_everything():
    page = jm("help", "--man").stdout.replace("\\-", "-")
    for command in commands():
        assert f"joulemark {command} " in page or f"joulemark {command}\"" in page, command
        for option in options(command):
            assert f"--{option}" in page, (command, option)
    assert "--response" in page and "WORKLOADS" in page
    models = page.split(".SH MODELS")[1]
    assert "--kv-heads" in models.split(".SS llama")[1] and "--kv-heads" not in models.split(".SS llama")[0]


def test_man_page_has_every_variable_that_the_program_reads():
    code = "".join(file.read_text() for room in ("lib", "cli", "engine", "backends", "comm", "vendor", "sources", "controls", "report",
                                                     "workloads")
                   for file in (SOURCE / room).rglob("*.c"))
    read = set(re.findall(r'(?:getenv\(|\.variable = )"(JM_[A-Z_]+)"', code))
    environment = jm("help", "--man").stdout.split(".SH ENVIRONMENT")[1]
    assert len(read) > 10 and read == set(re.findall(r"^\.B (JM_[A-Z_]+)$", environment, re.M))


def test_full_disk_is_no_success():
    with open("/dev/full", "w", encoding="ascii") as full:
        done = jm("--help", stdout=full)
    assert done.returncode == FAILURE
    sentence(done)


@pytest.mark.parametrize("words", [["check", "--at-least", "A"], ["check", "--json", "--at-least", "A"]])
@pytest.mark.parametrize("where", ["stdout", "--output"])
def test_verdict_that_was_not_written_is_a_failure(words, where):
    """1 would mean that the verdict was written."""
    words = [*words, *(["--output", "/dev/full"] if where == "--output" else []), SOURCE / "tests/data/report/h200x4.json"]
    with open("/dev/full" if where == "stdout" else os.devnull, "w", encoding="ascii") as out:
        done = jm(*words, stdout=out)
    assert done.returncode == FAILURE and done.stderr


def completions(words, cwd=".", env=None):
    """What bash offers for the last of these words, by the script that the program prints."""
    line = " ".join(f"'{word}'" for word in ["joulemark", *words])
    script = "\n".join([jm("help", "--completion", "bash").stdout, f"COMP_WORDS=({line})", f"COMP_CWORD={len(words)}",
                        f"_joulemark '{BIN}'", "printf '%s\\n' \"${COMPREPLY[@]}\""])
    done = subprocess.run(["bash", "-c", script], cwd=cwd, text=True, capture_output=True, check=True,
                          env={**os.environ, **(env or {})})
    return set(done.stdout.split())


def test_completion_of_bash(tmp_path):
    (tmp_path / "mine.db").write_text("")
    assert completions(["mea"]) == {"measure"} and {*commands(), "--help"} <= completions([""])
    for command in ("measure", "report"):
        assert {f"--{o}" for o in options(command)} == completions([command, "--"])
    models = {"--layers", "--kv-heads", "--image", "--positions"}
    assert {f"--{o}" for o in options("describe")} | models <= completions(["describe", "--"])
    for command in ("report", "compare", "check", "merge", "query"):
        assert completions([command, "mi"], tmp_path) == {"mine.db"}
    assert completions(["run", "gpt-11"]) == {"gpt-117m"} and completions(["describe", "resnet15"]) == {"resnet152"}
    assert "printf" in completions(["measure", "print"])


def test_completion_of_devices(tmp_path):
    """Those of this machine; a word that the shell split at ':' and '=' is completed from its last part on."""
    gpus = FakeGpus(tmp_path, 2).env
    assert {"cpu", "ref", "cuda:0", "cuda:1", "sim:h100x4"} <= completions(["run", "--device", ""], env=gpus)
    assert completions(["measure", "--device", "cuda", ":", ""], env=gpus) == {"0", "1"}
    assert completions(["measure", "--device", "=", "cuda", ":", ""], env=gpus) == {"0", "1"}


def test_completion_of_knobs(tmp_path):
    gpus = FakeGpus(tmp_path, 2).env
    assert completions(["run", "--set", "gpu.p"], env=gpus) == {"gpu.power="} == completions(["set", "gpu.po"], env=gpus)


@pytest.mark.parametrize("words, found", [
    (["report", "--columns", "n,joules_"], {"n,joules_per_item"}),
    (["run", "--precision", "bf"], {"bf16", "bf16-true"}),
    (["report", "--format", "h"], {"html"}),
    (["run", "--order", "g"], {"given"}),
    (["run", "train", "--model", "gpt-11"], {"gpt-117m"}),
    (["measure", "--source", "nvm"], {"nvml"}),
])
def test_completion_of_values(words, found):
    assert completions(words) == found


def test_completion_of_the_fields_of_a_store(tmp_path):
    store = tmp_path / "s.db"
    assert jm("run", "sim", "--device", "sim:h100x1", "--seconds", "1", "--set", "gpu.power=300W", "--store", store,
              env={"JM_STATE": str(tmp_path / "state")}).returncode == 0
    assert completions(["compare", "s.db", ":", "gpu"], tmp_path) == {"gpu.power="}
    offered = completions(["compare", "s.db", ":"], tmp_path)
    assert {"reference=", "response=", "host=", "device="} <= {word.removeprefix(":") for word in offered}
    for field in ("response=llama3-8b-train", "reference=yes"):
        assert jm("compare", f"{store}:{field}", f"{store}:gpu.power=300W").returncode == 0


@pytest.mark.parametrize("device", [d for d in jm("help", "--values", "device").stdout.split() if d.startswith("sim:")])
def test_simulated_devices_that_are_offered_exist(device):
    assert jm("get", "--device", device).returncode == 0


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_other_shells(shell):
    text = jm("help", "--completion", shell).stdout
    for command in commands():
        assert command in text
        assert all(option in text for option in options(command))
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=text, text=True, check=False).returncode == 0
    assert "bash, zsh, fish" in sentence(jm("help", "--completion", "csh"), USAGE)


@pytest.mark.parametrize("option", ["--man", "--schema", "--keys"])
def test_a_text_of_all_commands_takes_no_command(option):
    assert "omit 'run'" in sentence(jm("help", option, "run"), USAGE) and jm("help", option).returncode == 0


@pytest.mark.parametrize("args, hint", [
    (["run", "null", "--device", "cpu", "--device", "ref"], "--device is given twice; give it once, with several values"),
    (["run", "gemm", "--m", "8", "--m=16"], "--m is given twice; give it once, with several values as one list: --m A,B."),
    (["run", "null", "--steps", "1", "--steps", "2"], "--steps is given twice; give it once."),
    (["measure", "--interval", "1s", "--interval", "1s", "--", "true"], "--interval is given twice"),
    (["describe", "gpt-117m", "--layers", "2", "--layers", "3"], "--layers is given twice"),
    (["jpwr", "--interval", "100", "--interval", "1000", "--", "true"], "--interval is given twice"),
    (["list", "--width", "40", "--width", "80"], "--width is given twice"),
])
def test_a_second_value_of_an_option_is_refused(args, hint):
    assert hint in sentence(jm(*args), USAGE)


@pytest.mark.parametrize("args", [["gemm", "--m", "--device", "ref"], ["gemm", "--m"], ["gpt-117m", "--layers", "--batch", "2"]])
def test_an_option_of_the_work_needs_its_value(args):
    assert "--" + args[1].lstrip("-") + " needs a value." in sentence(jm("run", *args), USAGE)


def test_options_that_may_be_repeated_and_flags_may_be():
    done = jm("measure", "--source", "null", "--source", "sim:h100x1", "--quiet", "--quiet", "--", "true")
    assert done.returncode == 0 and "H100" in done.stderr


def test_a_flag_of_a_workload_may_be_repeated():
    done = jm("run", "attention", "--backward", "--backward", "--device", "ref", "--batch", 1, "--seq", 16, "--heads", 1, "--depth", 8,
              "--source", "null", "--warmup", 0, "--steps", 1, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["case"]["parameters"]["options"]["backward"] == "1"
