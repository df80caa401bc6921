# SPDX-License-Identifier: Apache-2.0
"""run --save and --from: what is saved is what the next run starts from; weights that do not fit are refused with one sentence."""
import gzip
import json
import os
import re
import resource
import shutil
import subprocess

import numpy
import pytest
from PIL import Image

from jm import BIN, jm
from runs import limit_files
from weights_files import read, tensor, values, write

RESNET = ("resnet", "--layers", 10, "--hidden", 4, "--image", 32, "--batch", 4, "--warmup", 0, "--images", "fresh",
          "--device", "cpu", "--source", "null")
FAILED = 1
FASHION = "/usr/share/datasets/fashion-mnist"


def run(*words, status=0, net=RESNET, **more):
    done = jm("run", *net, "--json", "-", *words, timeout=1000, **more)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", name="saved")
def saved_weights(tmp_path_factory):
    """(file, record of the run that saved it)"""
    file = tmp_path_factory.mktemp("weights") / "net.safetensors"
    return file, run("--classes", 5, "--steps", 3, "--save", file)


def test_names_and_types_are_those_of_torchvision(saved):
    tensors = read(saved[0])
    assert tensors["conv1.weight"][:2] == ("F32", [4, 3, 7, 7])
    assert tensors["layer4.0.downsample.1.running_var"][:2] == ("F32", [32])
    assert tensors["fc.bias"][:2] == ("F32", [5])
    counters = {name: values(t) for name, t in tensors.items() if name.endswith("num_batches_tracked")}
    assert len(counters) == sum(name.endswith("running_mean") for name in tensors) > 0
    assert {int(value) for value in counters.values()} == {3}


def test_a_run_from_saved_weights_goes_on_with_them(saved, tmp_path):
    """Without steps that change anything what is saved again is the same; the loss is no longer that of a network that
    knows nothing, which the check of the first loss would refuse."""
    file, _ = saved
    again = tmp_path / "again,1.safetensors"  # a file that is written is no list
    record = run("--classes", 5, "--steps", 1, "--optimizer", "sgd", "--lr", "1e-12", "--weight-decay", 0, "--from", file,
                 "--save", again)
    weights = record["weights"]
    assert weights.pop("load_s") >= 0
    size = sum(4 * values(t).size for t in read(file).values() if t[0] == "F32")
    assert weights == {"from": str(file), "bytes": size, "new_top": False, "continued": None, "first_step": 0}
    first, second = read(file), read(again)
    assert first.keys() == second.keys()
    for name, t in first.items():
        if "running" in name:
            continue  # one batch more
        if name.endswith("num_batches_tracked"):
            assert values(second[name]) == 4
        else:
            numpy.testing.assert_allclose(values(second[name]), values(t), rtol=0, atol=1e-7, err_msg=name)


def test_other_classes_give_a_new_top_and_keep_the_rest(saved, tmp_path):
    file, again = saved[0], tmp_path / "again.safetensors"
    record = run("--classes", 3, "--steps", 1, "--lr", "1e-12", "--weight-decay", 0, "--optimizer", "sgd", "--from", file,
                 "--save", again)
    assert record["weights"]["new_top"] and "The last layer is new: the weights have 5 classes, the network 3." in record["note"]
    old, new = read(file), read(again)
    assert new["fc.weight"][1] == [3, 32] and numpy.abs(values(new["fc.weight"])).max() > 0
    numpy.testing.assert_allclose(values(new["layer1.0.conv1.weight"]), values(old["layer1.0.conv1.weight"]), atol=1e-7)


def test_half_precision_and_shards_are_read(saved, tmp_path):
    """In f16, in two shards; the values are those of the file."""
    tensors = {name: tensor(values(t).astype("<f2")) if t[0] == "F32" else t for name, t in read(saved[0]).items()}
    folder = tmp_path / "folder"
    folder.mkdir()
    names = sorted(tensors)
    for i in range(2):
        write(folder / f"{i}.safetensors", {name: tensors[name] for name in names[i::2]})
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"weight_map": {name: f"{i}.safetensors" for i in range(2) for name in names[i::2]}}))
    run("--classes", 5, "--steps", 1, "--optimizer", "sgd", "--lr", "1e-12", "--weight-decay", 0, "--from", folder,
        "--save", tmp_path / "again.safetensors")
    again = read(tmp_path / "again.safetensors")
    for name in ("conv1.weight", "bn1.weight", "fc.bias"):
        numpy.testing.assert_allclose(values(again[name]), values(tensors[name]).astype("<f4"), rtol=0, atol=1e-7)


def without(tensors, name):
    return {key: value for key, value in tensors.items() if key != name}


def damaged(values_of, number):
    array = values_of.copy()
    array.flat[array.size // 2] = number
    return tensor(array)


BAD = {
    "missing": (lambda t: without(t, "bn1.bias"), "lack tensor 'bn1.bias'"),
    "extra": (lambda t: {**t, "bn9.bias": t["bn1.bias"]}, "'bn9.bias', which the network does not have"),
    "shape": (lambda t: {**t, "bn1.bias": tensor(numpy.zeros(5, "<f4"))}, "'bn1.bias' of weights FILE is [5], but in the network it "
              "is [4]"),
    "type": (lambda t: {**t, "bn1.bias": ("I64", [4], bytes(32))}, "of type I64"),
    "nan": (lambda t: {**t, "conv1.weight": damaged(values(t["conv1.weight"]), numpy.nan)}, "'conv1.weight' of weights FILE has a "
            "value that is not a number or infinite"),
    "infinite": (lambda t: {**t, "bn1.running_var": damaged(values(t["bn1.running_var"]), numpy.inf)}, "'bn1.running_var'"),
    "other": (lambda t: {"a" + name: value for name, value in t.items()}, "of another network than resnet"),
}


@pytest.mark.parametrize("kind", BAD)
def test_weights_that_do_not_fit_are_refused(saved, tmp_path, kind):
    make, reason = BAD[kind]
    file = write(tmp_path / "bad.safetensors", make(read(saved[0])))
    record = run("--classes", 5, "--steps", 1, "--from", file, status=FAILED)
    assert record["status"] == "failed" and reason.replace("FILE", str(file)) in record["reason"], record["reason"]


DIFFUSION = ("diffusion", "--hidden", 8, "--layers", 1, "--head-width", 4, "--norm-groups", 2, "--image", 64,
             "--vae-layers", 1, "--text-layers", 2, "--text-heads", 2, "--caption", 5, "--caption-width", 8, "--vocab", 100,
             "--batch", 1, "--device", "ref", "--source", "null", "--warmup", 0, "--steps", 1)


def test_frozen_parts_are_checked(tmp_path):
    """Stable Diffusion with an encoder of another width, or with one that has a value which is not a number."""
    def diffuse(*words, width=4, status=0):
        done = jm("run", *DIFFUSION, "--vae-hidden", width, *words, "--json", "-", timeout=200)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)
    file, name = tmp_path / "net.safetensors", "vae/encoder.conv_in.bias"
    diffuse("--save", file)
    wider = diffuse("--from", file, width=8, status=FAILED)["reason"]
    assert "Tensor 'vae/encoder.conv_in." in wider and "give the options with which it was trained" in wider
    tensors = read(file)
    write(file, {**tensors, name: damaged(values(tensors[name]), numpy.nan)})
    assert f"Tensor '{name}' of weights {file} has a value that is not a number" in diffuse("--from", file, status=FAILED)["reason"]


def test_a_file_that_is_damaged_or_absent_is_refused(saved, tmp_path):
    file = write(tmp_path / "longer.safetensors", read(saved[0]), behind=b"x")
    assert "1 bytes follow the last tensor" in run("--steps", 1, "--from", file, status=FAILED)["reason"]
    assert "No such file" in run("--steps", 1, "--from", tmp_path / "none", status=FAILED)["reason"]
    assert str(tmp_path / "no") in run("--steps", 1, "--save", tmp_path / "no" / "net", status=FAILED)["reason"]


@pytest.mark.parametrize("option", ["--save", "--checkpoint"])
@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_no_binary_data_come_between_the_results(option, name, tmp_path):
    """But to a file that is called so, and to a device."""
    done = jm("run", *RESNET, "--classes", 5, "--steps", 1, option, name, cwd=tmp_path)
    said = " ".join(done.stdout.split())
    assert done.returncode == FAILED and "metadata" not in done.stdout
    assert f"{option} {name} names what the results and messages of this run go to; name a file" in said
    # with --json the worker has another output, where the weights would be lost
    assert "go to; name a file" in run("--classes", 5, "--steps", 1, option, name, status=FAILED)["reason"]
    for file in (f"./{name}" if name == "-" else "/dev/null",):
        assert run("--classes", 5, "--steps", 1, option, file, cwd=tmp_path)["status"] == "ok"


def test_a_full_disk_keeps_the_old_file(saved, tmp_path):
    file = tmp_path / "net.safetensors"
    before = saved[0].read_bytes()
    file.write_bytes(before)
    record = run("--classes", 100_000, "--steps", 1, "--save", file, status=FAILED, preexec_fn=limit_files(5_000_000))
    assert record["reason"].startswith(f"Cannot write {file}"), record["reason"]
    assert record["verified"] is None
    assert file.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir() if "net" in p.name} == {"net.safetensors"}


def test_a_full_disk_keeps_all_old_shards(tmp_path):
    """The last layer comes last; the shards before it fit."""
    net, words = tmp_path / "net", ("--classes", 100_000, "--steps", 1, "--save-shard", "1e-6", "--save", f"{tmp_path}/net/")
    run(*words)
    before = {path.name: path.read_bytes() for path in net.iterdir()}
    record = run(*words, "--seed", 9, status=FAILED, preexec_fn=limit_files(5_000_000))
    assert re.match(f"Cannot write {net}/model-000[0-9]*[1-9]-of", record["reason"]), record["reason"]
    assert {path.name: path.read_bytes() for path in net.iterdir()} == before
    run(*words, "--seed", 9)
    after = {path.name: path.read_bytes() for path in net.iterdir()}
    assert after.keys() == before.keys() and after != before


def test_there_are_no_more_shards_than_files_may_be_open(tmp_path):
    net = [34 if word == 10 else 16 if i == 4 else word for i, word in enumerate(RESNET)]
    words = ("--classes", 5, "--steps", 1, "--save-shard", "1e-6", "--save")
    run(*words, f"{tmp_path}/many/", net=net)
    run(*words, f"{tmp_path}/few/", net=net, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    many, few = (list((tmp_path / name).glob("model-*")) for name in ("many", "few"))
    assert len(many) > 40 and 10 < len(few) <= 32
    tensors = [{name: tensor for path in paths for name, tensor in read(path).items()} for paths in (many, few)]
    assert tensors[0] == tensors[1]


CAN_MOUNT = shutil.which("unshare") and not subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"],
                                                          capture_output=True, check=False).returncode


def on_small_disk(folder, mib, *runs):
    """The record of the last of these runs, in turn on one new file system of that size; SMALL is a folder of it."""
    small, record = folder / "small", folder / "record.json"
    small.mkdir()
    lines = [f"mount -t tmpfs -o size={mib}m none {small}"]
    for words in runs:
        words = (BIN, "run", *RESNET, "--classes", 50_000, "--steps", 2, *words.split(), "--json", record)
        lines.append(" ".join(str(word).replace("SMALL", str(small)) for word in words))
    subprocess.run(["unshare", "-m", "sh", "-c", "; ".join(lines)], capture_output=True, check=False)
    return small, json.loads(record.read_text())


@pytest.mark.skipif(not CAN_MOUNT, reason="needs the right to mount")
@pytest.mark.parametrize("option, mib, fits", [("--save", 5, False), ("--save", 8, True),
                                               ("--checkpoint", 15, False), ("--checkpoint", 24, True),
                                               ("--checkpoint-every=1 --checkpoint", 24, False), ("--checkpoint-every=1 --checkpoint", 42, True)])
def test_a_disk_without_room_shows_before_the_first_step(tmp_path, option, mib, fits):
    """The last layer alone has 50,000 x 33 parameters: 6.6 MB, and with both moments 19.8 MB, twice with --checkpoint-every."""
    small, found = on_small_disk(tmp_path, mib, f"{option} SMALL/net")
    if fits:
        assert found["status"] == "ok", found["reason"]
    else:
        assert found["reason"].startswith(f"Cannot write {small}/net: it needs at least 0.0") and found["steps"] == 0
        assert float(found["reason"].split()[7]) * 1e9 >= (4 if option == "--save" else 12) * 50_000 * 33


@pytest.mark.skipif(not CAN_MOUNT, reason="needs the right to mount")
@pytest.mark.parametrize("mib, runs, fits", [
    (24, ["--save SMALL/w --checkpoint SMALL/c"], False), (24, ["--save SMALL/w/ --checkpoint SMALL/c"], False),
    (32, ["--save SMALL/w --checkpoint SMALL/c"], True),
    (24, ["--save FOLDER/w --checkpoint SMALL/c"], True),  # on two file systems
    (32, ["--save SMALL/w", "--save SMALL/w --checkpoint SMALL/c"], True),  # each old file is replaced before the next is written
    (32, ["--save SMALL/w/", "--save SMALL/w/ --checkpoint SMALL/c"], True),
    (30, ["--save SMALL/v", "--save SMALL/w --checkpoint SMALL/c"], False)])
def test_a_disk_has_room_for_both_files_together(tmp_path, mib, runs, fits):
    """Weights of 6.6 MB and a checkpoint of 19.8 MB."""
    small, found = on_small_disk(tmp_path, mib, *(words.replace("FOLDER", str(tmp_path)) for words in runs))
    if fits:
        assert found["status"] == "ok", found["reason"]
    else:
        assert re.match(rf"Cannot write {small}/c: it needs at least 0.02\d* GB with {small}/w/?, which", found["reason"]), found["reason"]
        assert found["steps"] == 0


FREEZE = "conv1*,bn1*,layer*"


def test_frozen_tensors_are_copied_from_the_given_file(saved, tmp_path):
    """Also where the run has them in bf16 and the file in f16: no bit changes, and their norms have seen no batch."""
    tensors = {name: tensor(values(t).astype("<f2")) if t[0] == "F32" else t for name, t in read(saved[0]).items()}
    file, again = write(tmp_path / "half.safetensors", tensors), tmp_path / "again.safetensors"
    plan = run("--classes", 3, "--steps", 3, "--precision", "bf16", "--freeze", FREEZE, "--from", file, "--save", again)["plan"]
    assert plan["parameters"] - plan["parameters_frozen"] == 3 * 32 + 3  # the new top
    assert 2 * plan["parameters_frozen"] < plan["frozen_bytes"] < 4 * plan["parameters_frozen"]  # filters in bf16, norms in f32
    found = read(again)
    assert found.keys() == tensors.keys()
    for name, t in tensors.items():
        if not name.startswith("fc."):
            assert found[name] == t, name
    assert found["fc.weight"][:2] == ("F32", [3, 32])


def make_jpegs(root, name, classes, each):
    """The first `each` pictures of each of these classes of Fashion-MNIST."""
    with gzip.open(f"{FASHION}/{name}-images-idx3-ubyte.gz") as f:
        pictures = numpy.frombuffer(f.read(), numpy.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(f"{FASHION}/{name}-labels-idx1-ubyte.gz") as f:
        labels = numpy.frombuffer(f.read(), numpy.uint8, offset=8)
    for k in classes:
        (root / str(k)).mkdir(parents=True)
        for i in numpy.flatnonzero(labels == k)[:each]:
            Image.fromarray(pictures[i]).save(root / str(k) / f"{i}.jpg", quality=95)


@pytest.mark.skipif(not os.path.exists(FASHION), reason="needs dataset-fashion-mnist")
def test_frozen_layers_tell_unseen_classes_apart(tmp_path):
    """Layers that learnt seven classes of clothes from JPEG files, and a new top for trousers, sneakers and bags."""
    unseen = (1, 7, 8)
    for part, name, each in (("train", "train", 400), ("val", "t10k", 100)):
        make_jpegs(tmp_path / "seven" / part, name, set(range(10)) - set(unseen), each)
        make_jpegs(tmp_path / "three" / part, name, unseen, each)
    net = ("resnet", "--layers", 10, "--hidden", 8, "--image", 32, "--device", "cpu", "--source", "null", "--batch", 32,
           "--weight-decay", "0.01", "--augment", "off", "--warmup", 0, "--lr", "0.01")
    saved = tmp_path / "net.safetensors"
    run("--data", tmp_path / "seven", "--steps", 250, "--schedule", "cosine", "--lr-steps", 250, "--save", saved, net=net)
    record = run("--data", tmp_path / "three", "--eval-data", tmp_path / "three", "--from", saved, "--freeze",
                 "conv1*,bn1*,layer*", "--steps", 150, "--eval-every", 150, net=net)
    found, = record["evaluations"]
    assert found["samples"] == 300 and found["right"] >= 285


def test_frozen_parameters_have_no_gradient_master_or_moment():
    def describe(*words):
        done = jm("describe", "resnet18", "--device", "ref", "--batch", 4, "--precision", "bf16", "--json", "-", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    whole, frozen = describe(), describe("--freeze", FREEZE)
    top = 512 * 1000 + 1000
    norms = 2 * 4800  # of all 20 norms: gamma and beta, which are vectors
    assert whole["parameters_frozen"] == 0 and whole["parameters_trained"] == whole["parameters"] == 11689512
    assert frozen["parameters"] == 11689512 and frozen["parameters_trained"] == top
    assert frozen["parameters_frozen"] == 11689512 - top
    assert frozen["frozen_bytes"] == 2 * (11689512 - top - norms) + 4 * norms
    assert frozen["gradient_bytes"] == pytest.approx(4 * top, rel=0.01)
    assert frozen["optimizer_bytes"] == pytest.approx(8 * top, rel=0.01)
    assert frozen["peak_bytes"] < whole["peak_bytes"] / 3
    assert frozen["flops_executed_per_item"] == pytest.approx(whole["flops_model_per_item"] / 3, rel=0.01)


@pytest.mark.parametrize("patterns, reason", [
    ("conv1*,bn7*", "no parameter of resnet has a name like 'bn7*'"),
    ("*", "fits all parameters of resnet"),
    ("bn1.weight", "fits bn1.weight and not bn1.bias"),
])
def test_patterns_that_cannot_be_meant_are_refused(patterns, reason):
    record = run("--classes", 3, "--steps", 1, "--freeze", patterns, status=FAILED)
    assert reason in record["reason"], record["reason"]


def test_patterns_fit_names_of_files_too(tmp_path):
    """GPT-2's blocks are h0.attn.qkv here and transformer.h.0.attn.c_attn there."""
    words = ("describe", "gpt", "--layers", 2, "--hidden", 16, "--heads", 2, "--context", 16, "--device", "ref", "--json", "-")
    found = [json.loads(jm(*words, "--freeze", pattern).stdout)["parameters_frozen"]
             for pattern in ("h0.attn.qkv*", "transformer.h.0.attn.c_attn*")]
    assert found == [16 * 48 + 48] * 2


def test_frozen_filters_lie_as_convolutions_read_them():
    done = jm("describe", "resnet18", "--device", "cpu", "--batch", 2, "--freeze", FREEZE, "--graph")
    assert done.returncode == 0 and ", 0 reorders between layouts" in done.stdout, done.stderr
