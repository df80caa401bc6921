# SPDX-License-Identifier: Apache-2.0
"""Frozen parameters: losses of some steps, gradients of the trained ones and the saved rest are those of torchvision with the same
parameters frozen, whose norms use running statistics."""
import fnmatch
import itertools
import os
import subprocess

import numpy
import pytest

import parity
from jm import BUILD
from weights_files import read, tensor, values, write

torch = pytest.importorskip("torch", reason="python3-torch is not installed: nothing to compare with")
peer = pytest.importorskip("torch_peer")
torchvision = pytest.importorskip("torchvision", reason="python3-torchvision is not installed")

BATCH, STEPS, CLASSES = 4, 3, 5
FREEZE = {
    "top": "conv1*,bn1*,layer*",
    "norms": "*bn*,*downsample.1*",
    "inner": "layer1*,layer3*",
    "filters": "*conv*",
}


@pytest.fixture(scope="module", name="start")
def start_weights(tmp_path_factory):
    """A file of all weights; running statistics are not those of a new network."""
    torch.manual_seed(5)
    rng = numpy.random.default_rng(5)
    tensors = {}
    for name, value in torchvision.models.resnet18(num_classes=CLASSES).state_dict().items():
        value = value.numpy()
        if name.endswith(("running_mean", "running_var", "bias")):
            value = value + rng.uniform(0, 0.3, value.shape).astype("<f4")
        tensors[name] = tensor(value)
    return write(tmp_path_factory.mktemp("start") / "start.safetensors", tensors)


def make_data(file, seed):
    rng = numpy.random.default_rng(seed)
    file.write_bytes(b"".join(rng.standard_normal((BATCH, 3, 32, 32)).astype("<f4").tobytes() +
                              rng.integers(0, CLASSES, BATCH).astype("<i4").tobytes() for _ in range(STEPS)))
    return file


@pytest.fixture(scope="module", name="data")
def images(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data") / "data", 6)


def batches(file):
    data, pixels = file.read_bytes(), BATCH * 3 * 32 * 32
    for at in range(0, len(data), 4 * (pixels + BATCH)):
        yield (numpy.frombuffer(data, "<f4", pixels, at).reshape(BATCH, 3, 32, 32),
               numpy.frombuffer(data, "<i4", BATCH, at + 4 * pixels).astype(numpy.int64))


def theirs(start, data, patterns, steps=STEPS):
    """Losses, first gradients of what is trained, and the state behind the last step."""
    peer.use("f64")
    net = torchvision.models.resnet18(num_classes=CLASSES)
    net.load_state_dict({name: torch.tensor(values(t)) for name, t in read(start).items()})
    net = net.to(peer.WHERE, peer.wide()).train()
    trained = {name: p for name, p in net.named_parameters()
               if not any(fnmatch.fnmatchcase(name, one) for one in patterns.split(","))}
    for name, p in net.named_parameters():
        p.requires_grad_(name in trained)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d) and not module.weight.requires_grad:
            module.eval()
    weights = {name: p.detach().cpu().numpy() for name, p in trained.items()}
    losses, first = peer.train(trained, weights, (
        lambda image=image, target=target: torch.nn.functional.cross_entropy(net(peer.numbers(image)), peer.tensor(target))
        for image, target in itertools.islice(batches(data), steps)))
    return losses, first, {name: value.cpu().numpy() for name, value in net.state_dict().items()}


def ours(start, data, patterns, folder, device=("ref", "f64"), steps=STEPS):
    words = [BUILD / "tests/parity/losses", "resnet", *device, steps, BATCH, 1, data, folder / "w", 1, "layers=18", "hidden=64",
             "image=32", f"classes={CLASSES}"]
    done = subprocess.run([*map(str, words)], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=1000,
                          env={**os.environ, "JM_TEST_FROM": str(start), "JM_TEST_FREEZE": patterns,
                               "JM_TEST_SAVE": str(folder / "end.safetensors")})
    assert done.returncode == 0, done.stderr
    losses = numpy.array([float(line.split()[0]) for line in done.stdout.splitlines()])
    return losses, parity.take(folder / "w.grad"), read(folder / "end.safetensors")


@pytest.mark.parametrize("kind", FREEZE)
def test_frozen_parameters(kind, start, data, tmp_path):
    expected, gradients, end = theirs(start, data, FREEZE[kind])
    losses, found, saved = ours(start, data, FREEZE[kind], tmp_path)
    assert found.keys() == gradients.keys()
    for name, error in parity.tensor_errors(found, gradients).items():
        assert error < 1e-7, (name, error)
    numpy.testing.assert_allclose(losses, expected, rtol=1e-6)
    for name, value in end.items():
        if name in gradients or name.endswith("num_batches_tracked"):
            continue
        numpy.testing.assert_allclose(values(saved[name]), value, rtol=0, atol=1e-5 * numpy.abs(value).max(), err_msg=name)


@pytest.mark.parametrize("kind", ("norms", "inner"))
def test_gradients_in_f32_on_the_processor(kind, start, tmp_path):
    """The median of three: rounding may make one ReLU or maximum choose otherwise."""
    errors = []
    for seed in range(3):
        data = make_data(tmp_path / "data", seed)
        expected, gradients, _ = theirs(start, data, FREEZE[kind], 1)
        losses, found, _ = ours(start, data, FREEZE[kind], tmp_path, ("cpu", "f32"), 1)
        assert losses[0] == pytest.approx(expected[0], rel=1e-5)
        errors.append(parity.tensor_errors(found, gradients))
    for name in errors[0]:
        assert numpy.median([error[name] for error in errors]) < 1e-3, (name, [error[name] for error in errors])


GPT = ("gpt", {"layers": 2, "hidden": 32, "heads": 2, "ffn": 64, "vocab": 256, "context": 16, "positions": "learned"}, 16)
LLAMA = ("llama", {"layers": 2, "hidden": 32, "heads": 4, "kv-heads": 2, "ffn": 64, "vocab": 256, "context": 16, "theta": 10000}, 16)
VIT = ("vit", {"layers": 2, "hidden": 32, "heads": 2, "ffn": 64, "image": 32, "patch": 8, "classes": CLASSES}, 1)
TRANSFORMERS = [
    (GPT, "h0*,tokens*"), (GPT, "*.bias,h1.attn*"), (GPT, "positions*,ln_f*"), (LLAMA, "*norm*,h1*"), (LLAMA, "tokens*,output*"),
    (VIT, "h0*"), (VIT, "class,patches*"), (VIT, "*.weight"),
]


@pytest.mark.parametrize("case, patterns", TRANSFORMERS)
def test_without_batch_norms_the_other_gradients_stay_as_they_are(case, patterns, data, tmp_path):
    model, dims, seq = case

    def run(name, **env):
        words = [BUILD / "tests/parity/losses", model, "ref", "f64", 1, BATCH, seq, data, tmp_path / name, 1,
                 *(f"{key}={value}" for key, value in dims.items())]
        done = subprocess.run([*map(str, words)], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, **env}, timeout=1000)
        assert done.returncode == 0, done.stderr
        return parity.take(tmp_path / f"{name}.grad")
    whole, some = run("whole"), run("some", JM_TEST_FREEZE=patterns)
    frozen = {name for name in whole if any(fnmatch.fnmatchcase(name, one) for one in patterns.split(","))}
    assert some.keys() == whole.keys() - frozen and frozen and some
    for name, error in parity.tensor_errors(some, {name: whole[name] for name in some}).items():
        assert error < 1e-12, (name, error)
