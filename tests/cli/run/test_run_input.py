# SPDX-License-Identifier: Apache-2.0
"""run: wrong command lines are reported before anything is measured."""
import pytest

from jm import USAGE, jm, sentence

SIM = ["run", "sim", "--device", "sim:h100x4", "--seconds", "2"]


@pytest.mark.parametrize("args, words", [
    (["run"], "No work is named"),
    (["run", "null", "--columns", "throughput,throughputs"], "There is no column 'throughputs'; did you mean"),
    (["run", "nul"], "did you mean 'null'"),
    (["run", "gpt-117"], "did you mean 'gpt-117m'"),
    (["run", "resnet18", "--precision", "bf61"], "did you mean 'bf16'"),
    (["run", "resnet18", "--precision", "f32,f99", "--device", "ref"], "no precision 'f99'; use f32, tf32"),
    (["run", "resnet18", "--device", "gpu"], "did you mean 'cpu'"),
    (["run", "resnet18", "--device", "cpu:x"], "cuda:0"),
    (["run", "resnet18", "--heads", "8", "--device", "ref"], "Model resnet18 has no option --heads"),
    (["run", "train", "--model", "gpt-117m,resnet18", "--heads", "8"], "Model resnet18 has no option --heads"),
    (["run", "resnet18", "--imge", "64"], "did you mean --image"),
    (["run", "resnet18", "--image", "64,zero"], "zero"),
    (["run", "train", "--model", "gpt-117n"], "did you mean 'gpt-117m'"),
    (["run", "train", "--model", "gpt-117m,"], "There is no model ''"),
    (["run", "null", "--heads", "8"], "Neither 'run' nor workload 'null' has an option --heads"),
    (["run", "sim"], "--device sim:h100x4"),
    (["run", "sim", "--device", "sim:h100x4,sim:h10x4"], "h100, h200, mi300x"),
    (["run", "sim", "--device", "sim:h100x4", "--precision", "f32"], "omit --precision"),
    (["run", "--control", "sim:h100x4,sim:h100x4", "--set", "gpu.power=300W", "--", "true"], "twice"),
    (["run", "gpt-117m", "--model", "gpt-800m"], "exclude each other"),
    (["run", "null", "--step-tim", "1s"], "did you mean --step-time"),
    (["run", "null", "--repeet", "2"], "did you mean --repeat"),
    (["run", "null", "--step-time", "1ms,9parsec"], "9parsec"),
    (["run", "null", "--step-time", "1ms,1ms"], "given twice"),
    (["run", "null", "--warmup", "5parsec"], "5parsec"),
    (["run", "null", "--warmup", ""], "--warmup"),
    (["run", "null", "--warmup", "1000000000"], "range 0 to 999999999"),
    (["run", "null", "--env", "NOEQUALS"], "write it as NAME=VALUE"),
    (["run", "null", "--env", "RIGHT=1", "--env", "=1"], "write it as NAME=VALUE"),
    (["run", "null", "--repeat", "0"], "range"),
    (["run", "null", "--repeat", "x"], "--repeat: 'x'"),
    (["run", "null", "--source", "rapll"], "did you mean 'rapl'"),
    (["run", "null", "--", "true"], "exclude each other"),
    (["run", "--steps", "3", "--", "true"], "--steps"),
    (["run", "--batch", "3", "--", "true"], "--batch"),
    (["run", "--items-regex", "(", "--", "true"], "not a regular expression"),
    (["run", "--fast", "--", "true"], "--fast is for joulemark's own workloads"),
    (["run", "--device", "no-such", "--", "true"], "no device 'no-such'"),
    (["run", "--device", "sim:h100x1", "--source", "estimate", "--", "true"], "give one of them"),
    (["run", "--device", "sim:h100x1", "--control", "nvml", "--", "true"], "give one of them"),
    (["run", "--precision", "f32", "--", "true"], "omit --precision"),
    (["run", "--control", "no-such", "--", "true"], "no-such"),
    (["run", "--control", "sim:h100x4,nvmll", "--", "true"], "did you mean 'nvml'"),
    (["run", "null", "--control", "no-such"], "no-such"),
    (["report", "--k", "0x2", "one.json"], "'0x2'"),
    (["report", "--k", "1.5,inf", "one.json"], "inf"),
    (["run", "--items-regex", "a", "--items-json", "b", "--", "true"], "exclude each other"),
    (["run", "null", "--store", "one.db", "--json", "one.db"], "the same file"),
    (["run", "--resume"], "--store"),
    ([*SIM, "--set", "gpu.powr=300W"], "gpu.power"),
    ([*SIM, "--set", "gpu.power=300"], "300W"),
    ([*SIM, "--set", "gpu.power=100W"], "200"),
    ([*SIM, "--set", "gpu.power=300W", "--set", "gpu.power=400W"], "twice"),
    (["run", "sim", "--device", "sim:h100x4", "--response", "lama3-8b-train"], "llama3-8b-train"),
])
def test_bad_input(args, words):
    assert words in sentence(jm(*args), USAGE)
