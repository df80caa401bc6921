# SPDX-License-Identifier: Apache-2.0
"""describe: published counts, FLOPs computed by hand, consistent memory, helpful errors."""
import json
import re
import resource

import pytest

from described import NARROW, SMALL, describe
from jm import USAGE, FAILURE, is_sanitized, jm, sentence, terminal

# parameters and forward + backward GFLOP per token, causal attention counted half (CARAML's models;
# arXiv 2409.12994 and the arithmetic of 2 FLOPs per multiply-add, three passes)
PUBLISHED = {
    "gpt-117m": (124_439_808, 0.798),
    "gpt-800m": (908_759_040, 5.853),
    "gpt-13b": (12_843_796_480, 79.56),
    "gpt-175b": (174_590_681_088, 1062.0),
}
# parameters, forward + backward GFLOP per image (or token) and how much of it is executed: a network of
# images leaves the gradient of its first convolution away, attention computes its scores twice
PUBLISHED_MORE = {
    "resnet18": (11_689_512, 10.88, 0.978),
    "resnet34": (21_797_672, 21.98, 0.989),
    "resnet50": (25_557_032, 24.54, 0.990),
    "resnet101": (44_549_160, 46.81, 0.995),
    "resnet152": (60_192_808, 69.08, 0.997),
    "resnet152 --classes 10 --image 32": (58_164_298, 1.41, 0.996),
    "resnet152 --classes 10 --image 32 --stem cifar": (58_156_618, 22.33, 0.9998),
    "alexnet": (61_100_840, 4.285, 0.967),
    "vgg16": (138_357_544, 92.8, 0.998),
    "xception": (22_855_952, 50.14, 0.9992),
    "inception3": (27_161_264, 34.3, 0.9989),
    "inception3 --auxiliary 0": (23_834_568, 34.28, 0.9989),
    "vit-b16": (86_567_656, 105.4, 1.005),
    "vit-l16": (304_326_632, 369.3, 1.004),
    "llama3-8b --seq 512": (8_030_261_248, 45.43, 1.001),
    "llama3-8b": (8_030_261_248, 51.47, 1.021),
    "llama2-7b": (6_738_415_616, 42.86, 1.0125),
    "llama2-13b": (13_015_864_320, 82.14, 1.010),
}


@pytest.mark.parametrize("preset", PUBLISHED)
def test_published(preset):
    parameters, gflops = PUBLISHED[preset]
    d = describe(preset)
    assert d["parameters"] == parameters
    assert d["flops_model_per_item"] == pytest.approx(gflops * 1e9, rel=0.005)
    assert d["flops_model_per_item"] < d["flops_executed_per_item"] < 1.1 * d["flops_model_per_item"]
    # masters, gradients and two moments in f32 at least
    assert d["persistent_bytes"] >= 12 * parameters and d["peak_bytes"] >= 16 * parameters
    assert d["peak_bytes"] == d["persistent_bytes"] + d["arena_bytes"]


def test_the_default_batch_is_one_that_all_models_train_with():
    """A norm of inception3's auxiliary head sees one pixel of an image."""
    one = jm("describe", "inception3", "--batch", 1)
    assert one.returncode == USAGE and "no variance" in " ".join(one.stderr.split())
    assert "training in f32, batch 2," in jm("describe", "inception3").stdout
    assert "training in f32, batch 2," in jm("describe", "resnet50", "inception3").stdout
    assert "training in f32, batch 1," in jm("describe", "resnet50").stdout


@pytest.mark.parametrize("words", PUBLISHED_MORE)
def test_published_more(words):
    parameters, gflops, executed = PUBLISHED_MORE[words]
    d = describe(*words.split(), "--device", "ref", "--batch", 2)
    assert d["parameters"] == parameters
    assert d["flops_model_per_item"] == pytest.approx(gflops * 1e9, rel=0.001)
    assert d["flops_executed_per_item"] == pytest.approx(executed * d["flops_model_per_item"], rel=0.001)
    assert d["item"] == ("image" if d["seq"] == 1 else "token")


@pytest.mark.parametrize("model, before", [("alexnet", ["maxpool", "gap"]), ("vgg11", ["gap", "relu"])])
def test_dropout_is_where_torchvision_has_it(model, before):
    graph = jm("describe", model, "--batch", 2, "--device", "ref", "--dropout", 0.5, "--graph").stdout
    dropped = re.findall(r" dropout +([a-z]+)\S* f32\[.*random.now", graph)
    assert dropped[:2] == before


def processor_seconds():
    """Of the programs that have ended: what they take does not depend on others."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_175b_costs_nothing():
    before = processor_seconds()
    done = jm("describe", "gpt-175b", "--batch", 64)
    assert done.returncode == 0, done.stderr
    assert processor_seconds() - before < 5
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 ** 20  # KiB, of the largest
    assert "174.6 B" in done.stdout


@pytest.mark.parametrize("batch", [10 ** 6, 99_999_989, 10 ** 8])  # the second is a prime
def test_time_does_not_grow_with_the_batch(batch):
    before = processor_seconds()
    d = describe("resnet18", "--batch", batch)
    assert d["batch"] == batch and d["arena_bytes"] > batch * 1e6
    assert processor_seconds() - before < 5


def test_layers_cost_the_same_each():
    """The work grows by the same amount with each further layer, the peak nearly so, and a network of 1,000
    layers is planned within the time that a program may wait for it."""
    few, more, many = (describe(*NARROW, "--layers", n) for n in ((50, 100, 200) if is_sanitized() else (250, 500, 1000)))
    for key in ("parameters", "flops_model_per_item", "persistent_bytes", "peak_bytes"):
        rel = 1e-3 if key == "peak_bytes" else 1e-9
        assert many[key] - more[key] == pytest.approx(2 * (more[key] - few[key]), rel=rel), key


@pytest.mark.skipif(is_sanitized(), reason="built with AddressSanitizer: minutes")
def test_the_time_of_4000_layers_is_near_that_of_4_times_1000():
    """Of the processor, so that it does not depend on what else runs."""
    def seconds(layers):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        describe("gpt-117m", "--layers", layers, "--hidden", 8, "--heads", 1, "--vocab", 64, "--seq", 8)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    few = min(seconds(1000) for _ in range(2))
    many = min(seconds(4000) for _ in range(2))
    assert many < 3 * 4 * few, (few, many)


def test_small_by_hand():
    d = describe(*SMALL, "--batch", 3, "--seq", 16)
    layer = 12 * 64 * 64 + 13 * 64
    assert d["parameters"] == 2 * layer + 256 * 64 + 32 * 64 + 2 * 64
    weights = 2 * 12 * 64 * 64 + 256 * 64
    assert d["flops_model_per_item"] == 6 * weights + 3 * 2 * 2 * 16 * 64
    assert d["flops_executed_per_item"] == d["flops_model_per_item"] + 2 * 16 * 64
    assert (d["batch"], d["seq"], d["precision"], d["item"]) == (3, 16, "f32", "token")


def test_what_is_not_given_is_completed():
    short = describe(*"gpt --layers 2 --hidden 64 --heads 4 --seq 32 --device ref".split())
    full = describe(*SMALL)
    assert short == full


def test_batch_scales_activations_only():
    one, four = (describe(*SMALL, "--batch", n) for n in (1, 4))
    assert one["parameters"] == four["parameters"]
    assert one["flops_model_per_item"] == four["flops_model_per_item"]
    assert 2 * one["arena_bytes"] < four["arena_bytes"] < 5 * one["arena_bytes"]


@pytest.mark.parametrize("precision", ["f32", "tf32", "bf16", "bf16-true", "fp16", "fp8", "fp8-true", "f64"])
def test_every_precision_is_planned_without_a_device(precision):
    """On cpu where it has the precision, else on ref; the same plan as with that device named."""
    words = [*SMALL[:SMALL.index("--device")], "--layers", "2", "--precision", precision]
    alone = describe(*words)
    assert alone["device"] == ("ref" if precision in ("tf32", "fp16", "f64") else "cpu")
    assert alone == describe(*words, "--device", alone["device"])


@pytest.mark.parametrize("optimizer, states", [("adamw", 2), ("adam", 2), ("sgd", 1)])
def test_bytes_of_each_precision(optimizer, states):
    """By hand: masters and gradients of 4 bytes; bf16-true has matrices with theirs in 2. Gradients stay between
    steps only where those of several micro-steps add up."""
    matrices = 2 * 12 * 64 * 64 + 256 * 64 + 32 * 64
    vectors = 2 * 13 * 64 + 2 * 64
    for precision in ("f32", "bf16", "bf16-true", "f64"):
        d = describe(*SMALL, "--precision", precision, "--optimizer", optimizer)
        wide = 8 if precision == "f64" else 4
        own = 2 * matrices + 4 * vectors if precision == "bf16-true" else wide * (matrices + vectors)
        assert d["parameters"] == matrices + vectors
        assert (d["parameter_bytes"], d["optimizer_bytes"]) == (own, states * own)
        assert d["gradient_bytes"] == own
        assert (d["precision"], d["optimizer"]) == (precision, optimizer)
        rest = d["persistent_bytes"] - d["parameter_bytes"] - d["optimizer_bytes"]
        assert 0 < rest < 2000  # inputs and scalars
        several = describe(*SMALL, "--precision", precision, "--optimizer", optimizer, "--accumulate", 2)
        assert several["persistent_bytes"] == d["persistent_bytes"] + own


@pytest.mark.parametrize("model, parameters, complex_ones", [
    ("fno-rbc2d", 296_884, 2 * 16 * 16 * 24 * 12), ("fno-rbc3d", 8_644_555, 2 * 25 * 25 * 24 * 24 * 6)])
def test_fourier_operators_are_those_of_caraml(model, parameters, complex_ones):
    d = describe(model, "--device", "ref")
    assert d["parameters"] == parameters
    assert {"rule": "uniform", "parameters": 2 * complex_ones}.items() <= next(
        s for s in d["start_values"] if s["rule"] == "uniform").items()


def test_the_unet_is_that_of_stable_diffusion():
    d = describe("unet-sd2", "--device", "ref")
    assert d["parameters"] == 865_910_724
    assert d["flops_model_per_item"] == pytest.approx(2.41e12, rel=0.01)


def test_stable_diffusion_trains_the_unet_behind_frozen_encoders():
    d = describe("sd2", "--device", "ref")
    assert (d["parameters_trained"], d["parameters_frozen"]) == (865_910_724, 34_163_664 + 340_387_840)
    # 2.41 for the U-Net, forward and backward, and 1.117 and 0.045 for the encoders, forward only
    assert d["flops_model_per_item"] == pytest.approx(3.575e12, rel=0.005)


@pytest.mark.parametrize("model, projector, llama", [("llava-7b", 20_979_712, 6_738_415_616), ("llava-13b", 31_467_520, 13_015_864_320)])
def test_llava_is_a_frozen_clip_a_projector_and_a_llama(model, projector, llama):
    def of(*words):
        d = describe(model, "--device", "ref", "--seq", "704", *(() if "--precision" in words else ("--precision", "bf16-true")), *words)
        return d, {part["part"]: (part["parameters"], part["trained"]) for part in d["parts"]}
    clip = 303_507_456 - 12_596_224 - 2_048  # without its last block and norm
    d, parts = of()
    assert parts == {"vision": (clip, 0), "projector": (projector, projector), "llama": (llama, llama)}
    assert d["parameters"] == clip + projector + llama
    # forward through CLIP (0.366 TFLOP), forward and backward through the others; 575 of the 576 places of the picture have no
    # targets, so that the last block computes only their keys and values, and no logits
    hidden, ffn, all_rows = {"llava-7b": (4096, 11008, 28.7e12), "llava-13b": (5120, 13824, 55.4e12)}[model]
    spared = 6 * 575 * (hidden ** 2 + 3 * hidden * ffn + 32000 * hidden)
    assert 704 * d["flops_model_per_item"] == pytest.approx(all_rows - spared, rel=0.005) and spared > 0.02 * all_rows
    assert of("--freeze", "projector.*")[1]["projector"] == (projector, 0)
    assert of("--dp", 2, "--precision", "bf16")[1] == parts


def test_memory_of_parts_and_of_the_mean_has_a_unit_that_fits():
    """Matrices of frozen parts have the type of products, and what one part has is said in MB, of the whole network in GB."""
    out = jm("describe", "sd2", "--precision", "bf16", "--ema", "0.9999", "--device", "ref").stdout
    assert re.search(r"^  vae +34,163,664 parameters in 68\.38 MB, frozen$", out, re.M)
    assert re.search(r"^  unet +865,910,724 parameters in 3\.464 GB, trained$", out, re.M)
    assert re.search(r"^    optimizer \(adamw\), mean +10\.39 GB$", out, re.M)  # two moments and the mean, of 4 bytes


@pytest.mark.parametrize("names", ["conv_in.*", "down_blocks.*"])
def test_names_of_weight_files_freeze_as_own_names_do(names):
    """Also of parameters that are called alike in both, such as convolutions."""
    words = ["diffusion", "--device", "ref", "--hidden", "8", "--layers", "1", "--head-width", "4", "--norm-groups", "2", "--image", "64",
             "--vae-hidden", "4", "--vae-layers", "1", "--text-layers", "2", "--text-heads", "2", "--caption-width", "8", "--vocab", "100"]
    of_file, own, none = (describe(*words, *more)["parameters_trained"] for more in
                          (["--freeze", f"unet/{names}"], ["--freeze", f"unet.{names}"], []))
    assert of_file == own < none


def test_start_values():
    def of(words):
        return {s["rule"]: (s["tensors"], s["parameters"]) for s in describe(*words)["start_values"]}
    resnet = of(["resnet50", "--device", "ref"])
    assert resnet["he-normal"] == (53, 25_557_032 - 2_049_000 - 2 * 26_560) and resnet["normal"] == (1, 2_048_000)
    assert resnet["ones"] == (53, 26_560) and resnet["zeros"] == (54, 27_560)
    gpt = of(["gpt-117m", "--device", "ref", "--init", "xavier-uniform"])
    assert gpt["xavier-uniform"][0] == 48 and gpt["normal"] == (2, (50257 + 1024) * 768)
    assert sum(n for _, n in gpt.values()) == 124_439_808
    out = jm("describe", "resnet50", "--device", "ref").stdout
    assert "arXiv 1502.01852" in out and "optimizer (adamw)" in out


def test_dropout_and_zero_gamma():
    plain, some = (describe(*SMALL, "--keep-all", *more) for more in ([], ["--dropout", 0.1]))
    assert some["groups"] > plain["groups"] and some["parameters"] == plain["parameters"]
    assert "has no dropout" in sentence(jm("describe", "resnet18", "--dropout", 0.1), USAGE)
    starts = {s["rule"]: s["tensors"] for s in describe(
        "resnet50", "--device", "ref", "--zero-gamma")["start_values"]}
    assert starts["ones"] == 53 - 16 and starts["zeros"] == 54 + 16
    assert "batch norm" in sentence(jm("describe", *SMALL, "--zero-gamma"), USAGE)


def test_accumulation_changes_work_per_step_only():
    one, four = (describe(*SMALL, "--precision", "bf16", "--accumulate", n) for n in (1, 4))
    assert four["flops_model_per_item"] == one["flops_model_per_item"]
    assert four["bytes_per_item"] < one["bytes_per_item"]  # one update, one copy of the parameters
    assert four["persistent_bytes"] == one["persistent_bytes"] + one["gradient_bytes"]


def test_json_file(tmp_path):
    file = tmp_path / "d.json"
    done = jm("describe", *SMALL, "--json", file)
    assert done.returncode == 0 and "parameters" in done.stdout
    assert json.loads(file.read_text())["schema"] == "joulemark.describe/1"
    assert "nowhere" in sentence(jm("describe", *SMALL, "--json", tmp_path / "nowhere" / "d"), FAILURE)


def test_two_documents_need_two_places(tmp_path):
    file = tmp_path / "plan"
    for place, name in (("-", "standard output"), (file, str(file))):
        done = jm("describe", *SMALL, "--json", place, "--svg", place)
        assert name in sentence(done, USAGE) and not done.stdout
    assert not file.exists()
    done = jm("describe", *SMALL, "--json", "-", "--svg", file)
    assert json.loads(done.stdout)["model"] == "gpt" and file.read_text().startswith("<svg")


def of_column(text):
    """{model: {figure: value in base units}} of the side-by-side table."""
    units = {"k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
    out, names = {}, []
    for line in text.splitlines()[2:]:
        cells = re.split(r" {2,}", line.rstrip())
        if line.startswith(" ") and not re.match(r"  \w", line[:3]):
            names = cells[1:]
        elif len(cells) > 1:
            what, values = (cells[0], cells[1:]) if cells[0] else ("  " + cells[1], cells[2:])
            for name, value in zip(names, values):
                number, _, unit = value.partition(" ")
                scale = units.get(unit[:1], 1) if unit not in ("B",) or what == "parameters" else 1
                out.setdefault(name, {})[what] = float(number) * scale if re.match(r"[\d.]+$", number) else value
    return out


def test_models_side_by_side():
    """Every figure of the table is that of the model alone; a number of parameters has B for billions."""
    names = ["resnet50", "vit-l16", "gpt-117m", "llama3-8b", "gpt-175b"]
    out, status = terminal("describe", *names, "--batch", "4", "--precision", "bf16")
    assert status == 0 and max(map(len, out.splitlines())) <= 80
    table = of_column(out)
    assert list(table) == names and " 8.030 B" in out and " 174.6 B" in out
    for name in names:
        d = describe(name, "--batch", "4", "--precision", "bf16")
        got = table[name]
        assert got["item"] == d["item"]
        for title, key in {"parameters": "parameters", "model FLOPs per item": "flops_model_per_item",
                           "executed per item": "flops_executed_per_item", "traffic per item": "bytes_per_item",
                           "peak memory": "peak_bytes", "kept between steps": "persistent_bytes",
                           "planned over a step": "arena_bytes", "  optimizer": "optimizer_bytes"}.items():
            assert got[title] == pytest.approx(d[key], rel=1e-3), (name, title)
        assert (got["sequence"] == "-") == (d["item"] == "image")


def test_side_by_side_as_json_and_with_options():
    many = describe("gpt-800m", "gpt-117m", "--layers", "2")
    assert [d["model"] for d in many] == ["gpt-800m", "gpt-117m"]
    assert many[1] == describe("gpt-117m", "--layers", "2")
    images, text = describe("resnet18", "gpt-117m", "--seq", "64")  # is of text alone
    assert images == describe("resnet18") and text["seq"] == 64


def test_the_text_of_one_model_fits_80_columns():
    out, status = terminal("describe", "resnet50")
    assert status == 0 and max(map(len, out.splitlines())) <= 80 and "He et al." in " ".join(out.split())
    assert "8.03 B" in terminal("describe", "llama3-8b")[0]


@pytest.mark.parametrize("words, status, hint", [
    (["resnet18", "gpt-117m", "--graph"], USAGE, "--graph shows one model"),
    (["resnet18", "gpt-117m", "--svg", "-"], USAGE, "--svg shows one model"),
    (["resnet18", "gpt-117m", "--heads", "4"], USAGE, "resnet18 has no option --heads"),
    (["resnet18", "gpt-117n"], USAGE, "did you mean 'gpt-117m'"),
    (["resnet18", "resnet34", "--seq", "8"], USAGE, "omit --seq"),
    (["gpt-117n"], USAGE, "did you mean 'gpt-117m'"),
    (["gpt"], USAGE, "--layers"),
    (["gpt", "--layers", "2", "--hidden", "64", "--heads", "4"], USAGE, "--context"),
    (["gpt-117m", "--heads", "7"], USAGE, "do not divide"),
    (["gpt-800m", "--hidden", "24", "--heads", "8"], USAGE, "even"),
    (["gpt-117m", "--seq", "1025"], USAGE, "1024 learned positions"),
    (["gpt-117m", "--batch", "0"], USAGE, "range"),
    (["resnet50", "--image", "31"], USAGE, "too small"),
    (["resnet50", "--image", "7", "--stem", "cifar"], USAGE, "too small"),
    (["resnet50", "--stem", "mnist"], USAGE, "cifar"),
    (["vgg16", "--image", "100"], USAGE, "--image 224"),
    (["alexnet", "--image", "20"], USAGE, "--image 224"),
    (["convnet", "--layers", "12"], USAGE, "16 or 19"),
    (["xception", "--hidden", "30"], USAGE, "multiple of 4"),
    (["xception", "--image", "31"], USAGE, "too small"),
    (["inception3", "--hidden", "31"], USAGE, "even number"),
    (["inception3", "--image", "74", "--auxiliary", "0"], USAGE, "too small"),
    (["inception3", "--image", "298"], USAGE, "--auxiliary 0"),
    (["resnet50", "--layers", "51"], USAGE, "101 or 152"),
    (["resnet50", "--heads", "8"], USAGE, "Model resnet50 has no option --heads"),
    (["resnet50", "--imge", "64"], USAGE, "did you mean --image"),
    (["resnet50", "--lookahead", "64"], USAGE, "has an option --lookahead"),
    (["resnet50", "--image", "0"], USAGE, "range 1 to"),
    (["--layers", "3"], USAGE, "any model"),
    ([], USAGE, "No model is named"),
    (["resnet50", "--seq", "8"], USAGE, "omit --seq"),
    (["resnet18", "--image", "32", "--batch", "1", "--device", "ref"], USAGE, "variance"),
    (["vit-l16", "--patch", "15"], USAGE, "do not divide"),
    (["vit-l16", "--heads", "7"], USAGE, "do not divide"),
    (["llama3-8b", "--kv-heads", "7"], USAGE, "--kv-heads"),
    (["llama3-8b", "--heads", "4096"], USAGE, "even"),
    (["gpt-117m", "--precision", "fp4"], USAGE, "bf16-true"),
    (["gpt-117m", "--optimizer", "adamv"], USAGE, "did you mean 'adamw'"),
    (["gpt-117m", "--init", "he-norm"], USAGE, "did you mean 'he-normal'"),
    (["gpt-117m", "--device", "abacus"], FAILURE, "abacus"),
    (["gpt-117m", "--hidden", "10000000", "--heads", "1", "--ffn", "100000000", "--layers", "1",
      "--vocab", "100000000", "--batch", "1000000000", "--seq", "1024"], USAGE, "too many"),
    (["llama3-8b", "--heads", "100000", "--hidden", "10000000"], USAGE, "too many"),
    ([*NARROW, "--layers", "100000"], USAGE, "1 to 4000"),
])
def test_refusals(words, status, hint):
    assert hint in sentence(jm("describe", *words), status)
