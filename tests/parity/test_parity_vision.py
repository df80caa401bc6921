# SPDX-License-Identifier: Apache-2.0
"""
Small ResNets, an AlexNet, a VGG, an Xception, an Inception and a ViT against torchvision from the same start values and images: losses of
twenty steps and all gradients of the first. f64 must agree to rounding; in f32 and bf16 the engine's
error may be at most twice PyTorch's (autocast for bf16).
"""
import collections
import itertools
import os

import numpy
import pytest

import parity
from parity import STEPS, gradient_errors

torch = pytest.importorskip("torch", reason="python3-torch is not installed: nothing to compare with")
peer = pytest.importorskip("torch_peer")
xception = pytest.importorskip("torch_xception")
inception = pytest.importorskip("torch_inception")
torchvision = pytest.importorskip("torchvision", reason="python3-torchvision is not installed")

CLASSES, SEEDS = 10, range(1, 9)
RESNET = {"hidden": 8, "image": 40, "classes": CLASSES}
CONVNET = {"hidden": 6, "ffn": 24, "image": 224, "classes": CLASSES}
MODELS = {
    "basic": ("resnet", {"layers": 18, **RESNET}, 8),
    "bottleneck": ("resnet", {"layers": 14, **RESNET}, 8),
    "cifar": ("resnet", {"layers": 18, **RESNET, "image": 16, "stem": "cifar"}, 8),
    "alexnet": ("convnet", {"layers": 8, **CONVNET}, 2),
    "vgg11": ("convnet", {"layers": 11, **CONVNET, "hidden": 2}, 2),
    "xception": ("separable", {"layers": 1, "hidden": 4, "image": 48, "classes": CLASSES}, 8),
    "inception": ("inception", {"hidden": 4, "image": 107, "classes": CLASSES, "auxiliary": 0}, 8),
    "auxiliary": ("inception", {"hidden": 2, "image": 299, "classes": CLASSES, "auxiliary": 0.4}, 8),
    "vit": ("vit", {"layers": 2, "hidden": 48, "heads": 3, "ffn": 96, "image": 32, "patch": 8,
                    "classes": CLASSES}, 4),
}
REAL = {"hidden": 64, "image": 64, "classes": CLASSES}
OF_GPU = {
    **MODELS,
    "vgg11": ("convnet", {**MODELS["vgg11"][1], "hidden": 8, "ffn": 64}, 4),
    "resnet18": ("resnet", {"layers": 18, **REAL}, 16),
    "resnet50": ("resnet", {"layers": 50, **REAL}, 16),
    "vit": ("vit", {**MODELS["vit"][1], "hidden": 128, "heads": 2, "ffn": 512}, 16),
} if parity.ON_GPU else MODELS
REAL_WIDTHS = OF_GPU.keys() - MODELS.keys()
LONG = bool(os.environ.get("JM_LONG"))  # make check STEPS=long
ORDINARY = ("basic", "bottleneck", "alexnet", "vit")  # compared without JM_LONG, too; "auxiliary" takes 9 minutes on a CPU
SLOW = ("alexnet", "vgg11", "cifar", "xception", "inception", "auxiliary")  # fewer seeds
VIT_NAMES = {
    "class": "class_token", "positions.weight": "encoder.pos_embedding", "patches.": "conv_proj.",
    "ln_f.": "encoder.ln.", "head.": "heads.head.", "attn.qkv.": "self_attention.in_proj_",
    "attn.out.": "self_attention.out_proj.", "mlp.in.": "mlp.0.", "mlp.out.": "mlp.3.",
}


def resnet(dims):
    """torchvision's blocks, with stages as narrow as asked for."""
    kinds = torchvision.models.resnet
    block, counts = {18: (kinds.BasicBlock, (2, 2, 2, 2)), 14: (kinds.Bottleneck, (1, 1, 1, 1)),
                     50: (kinds.Bottleneck, (3, 4, 6, 3))}[dims["layers"]]
    norm, width = torch.nn.BatchNorm2d, dims["hidden"]
    cifar = dims.get("stem") == "cifar"
    stem = torch.nn.Conv2d(3, width, 3, 1, 1, bias=False) if cifar else torch.nn.Conv2d(3, width, 7, 2, 3, bias=False)
    parts = [("conv1", stem), ("bn1", norm(width)), ("relu", torch.nn.ReLU())]
    if not cifar:
        parts.append(("maxpool", torch.nn.MaxPool2d(3, 2, 1)))
    now = width
    if block is kinds.Bottleneck:  # its width is planes * base_width / 64
        norm_width = {"base_width": 64}
    else:
        norm_width = {}
    for stage, count in enumerate(counts):
        planes, blocks = width << stage, []
        for i in range(count):
            stride, down = (2 if stage and not i else 1), None
            if stride > 1 or now != planes * block.expansion:
                down = torch.nn.Sequential(
                    torch.nn.Conv2d(now, planes * block.expansion, 1, stride, bias=False),
                    norm(planes * block.expansion))
            blocks.append(block(now, planes, stride, down, **norm_width))
            now = planes * block.expansion
        parts.append((f"layer{stage + 1}", torch.nn.Sequential(*blocks)))
    parts += [("avgpool", torch.nn.AdaptiveAvgPool2d(1)), ("flatten", torch.nn.Flatten()),
              ("fc", torch.nn.Linear(now, CLASSES))]
    return torch.nn.Sequential(collections.OrderedDict(parts))


def convnet(dims):
    """torchvision's AlexNet or VGG without dropout, with narrower layers in place of its own."""
    nn, width, ffn = torch.nn, dims["hidden"], dims["ffn"]
    if dims["layers"] == 8:
        net, first, linear = torchvision.models.AlexNet(CLASSES, dropout=0), (1, 4, 6), 36 * 4 * width
        for at, (i, to, *window) in {0: (3, width, 11, 4, 2), 3: (width, 3 * width, 5, 1, 2),
                                     6: (3 * width, 6 * width, 3, 1, 1), 8: (6 * width, 4 * width, 3, 1, 1),
                                     10: (4 * width, 4 * width, 3, 1, 1)}.items():
            net.features[at] = nn.Conv2d(i, to, *window)
    else:
        counts = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3)}[dims["layers"]]
        parts = [part for times, n in zip((1, 2, 4, 8, 8), counts) for part in [times * width] * n + ["M"]]
        net = torchvision.models.VGG(torchvision.models.vgg.make_layers(parts), CLASSES, init_weights=False, dropout=0)
        first, linear = (0, 3, 6), 49 * 8 * width
    for at, i, to in zip(first, (linear, ffn, ffn), (ffn, ffn, CLASSES)):
        net.classifier[at] = nn.Linear(i, to)
    return net


def vit(dims):
    return torchvision.models.VisionTransformer(
        dims["image"], dims["patch"], dims["layers"], dims["heads"], dims["hidden"], dims["ffn"],
        num_classes=CLASSES)


def their_name(model, name):
    if model != "vit":
        return name
    block, _, rest = name.partition(".")
    if block[0] == "h" and block[1:].isdigit():
        name, block = rest, f"encoder.layers.encoder_layer_{block[1:]}."
    else:
        block = ""
    for mine, theirs in VIT_NAMES.items():
        if name.startswith(mine):
            return block + theirs + name[len(mine):]
    return block + name


def network(model, dims, weights):
    """The module with these weights, and its parameters under our names."""
    kinds = {"vit": vit, "resnet": resnet, "convnet": convnet, "separable": xception.Xception, "inception": inception.Inception}
    net = kinds[model](dims).to(peer.WHERE, peer.wide())
    if parity.ON_GPU:
        net = net.to(memory_format=torch.channels_last)
    found = dict(net.named_parameters())
    names = {their_name(model, name): name for name in weights}
    assert names.keys() == found.keys()
    with torch.no_grad():
        for theirs, p in found.items():
            p.copy_(torch.tensor(weights[names[theirs]]).reshape(p.shape))
    return net.train(), {names[theirs]: p for theirs, p in found.items()}


def make_data(file, dims, batch, steps):
    rng = numpy.random.default_rng(5)
    with file.open("wb") as f:
        for _ in range(steps):
            labels = rng.integers(0, CLASSES, batch)
            images = rng.standard_normal((batch, 3, dims["image"], dims["image"]))
            images[:, 0] += labels[:, None, None] / CLASSES  # something to learn
            f.write(images.astype("<f4").tobytes() + labels.astype("<i4").tobytes())
    return file


def batches(file, dims, batch):
    data, pixels = file.read_bytes(), batch * 3 * dims["image"] ** 2
    for at in range(0, len(data), 4 * (pixels + batch)):
        image = numpy.frombuffer(data, "<f4", pixels, at).reshape(batch, 3, dims["image"], -1)
        yield image, numpy.frombuffer(data, "<i4", batch, at + 4 * pixels).astype(numpy.int64)


def theirs(case, weights, precision, steps=STEPS, evaluated=None):
    """
    case: (model, dims, batch, file). Losses and first gradients by torchvision. evaluated: gets loss and share of right
    answers of the first batch behind the last step, with running statistics.
    """
    model, dims, batch, file = case
    peer.use(precision)
    net, p = network(model, dims, weights)

    def loss_of(image, target):
        logits = net(peer.numbers(image))
        heads = zip((1, dims["auxiliary"]), logits) if isinstance(logits, tuple) else [(1, logits)]
        return sum(weight * torch.nn.functional.cross_entropy(peer.widen(x), peer.tensor(target)) for weight, x in heads)
    losses, first = peer.train(
        p, weights, (lambda b=one: loss_of(*b) for one in itertools.islice(batches(file, dims, batch), steps)))
    if evaluated is not None:
        image, target = next(batches(file, dims, batch))
        with torch.no_grad():
            logits = net.eval()(peer.numbers(image))
        evaluated.append(torch.nn.functional.cross_entropy(logits, peer.tensor(target)).item())
        evaluated.append((logits.argmax(1).cpu().numpy() == target).mean())
    return losses, first


def case_of(models, name, folder):
    model, dims, batch = models[name]
    return model, dims, batch, make_data(folder.mktemp(name) / "data", dims, batch, STEPS)


@pytest.fixture(scope="module", params=MODELS, name="both")
def both_sides(request, tmp_path_factory):
    """The same training in f64 here and there: losses, first gradients, and the evaluation on the weights at its end."""
    case = model, dims, batch, file = case_of(MODELS, request.param, tmp_path_factory)
    steps = 3 if not LONG else 4 if dims["image"] > 200 else STEPS
    losses, weights, gradients = parity.ours(model, dims, "ref", "f64", batch, 1, file, 1, steps=steps)
    evaluated = []
    expected, first = theirs(case, weights, "f64", steps=steps, evaluated=evaluated)
    return (losses, gradients, parity.evaluated(model, "ref", "f64", file, 1)), (expected, first, evaluated)


def test_f64_is_the_same_mathematics(both):
    (losses, gradients, _), (expected, first, _) = both
    assert gradient_errors(gradients, first)[1] < 1e-10
    assert numpy.abs(losses[:3] - expected[:3]).max() < 1e-10
    assert numpy.abs(losses - expected).max() < 1e-6  # small batches multiply what rounding, of sums in another order, begins


def test_evaluation_on_the_same_weights(both):
    """With running statistics in place of the batch's."""
    (_, _, (loss, right)), (_, _, expected) = both
    assert abs(loss - expected[0]) < 1e-7 and right == pytest.approx(expected[1])


def first_gradients(case, device, precision):
    """Those of one step, of both sides."""
    model, dims, batch, file = case
    _, weights, own = parity.ours(model, dims, device, precision, batch, 1, file, SEEDS[0], steps=1)
    return own | {f"{name} of PyTorch": g for name, g in theirs(case, weights, precision, steps=1)[1].items()}


@pytest.mark.parametrize("precision", parity.PRECISIONS)
@pytest.mark.parametrize("name", [name for name in OF_GPU if parity.ON_GPU or name in ORDINARY or LONG and name != "auxiliary"])
def test_error_to_f64(name, precision, record_property, tmp_path_factory, monkeypatch):
    case = case_of(OF_GPU, name, tmp_path_factory)
    model, dims, batch, file = case
    device = parity.device_for(model, dims)
    if precision == "fp16":
        parity.lower_scale(monkeypatch, lambda: first_gradients(case, device, precision))
    parity.compare(
        record_property, (name, precision), SEEDS[:3] if name in REAL_WIDTHS or name in SLOW else SEEDS if LONG and not parity.ON_GPU else SEEDS[:4],
        lambda precision, seed: parity.ours(model, dims, device, precision, batch, 1, file, seed),
        lambda weights, precision: theirs(case, weights, precision))


@pytest.mark.skipif(parity.ON_GPU, reason="test_error_to_f64 has the real widths on a GPU")
def test_resnet50_as_torchvision_has_it(tmp_path):
    """The real widths: gradients of one step of small images."""
    dims = {"layers": 50, "hidden": 64, "image": 64, "classes": CLASSES}
    device = parity.device_for("resnet", dims)
    kinds = torchvision.models.resnet50(num_classes=CLASSES)
    shapes = {n: tuple(p.shape) for n, p in kinds.named_parameters()}
    batch = 8
    file = make_data(tmp_path / "data", dims, batch, 1)
    own, pytorch = [], []
    for seed in SEEDS[:4 if LONG else 2]:
        _, weights, gradients = parity.ours("resnet", dims, device, "f32", batch, 1, file, seed, steps=1)
        assert shapes == {n: w.shape for n, w in weights.items()}
        _, first = theirs(("resnet", dims, batch, file), weights, "f64")
        _, rough = theirs(("resnet", dims, batch, file), weights, "f32")
        own.append(gradient_errors(gradients, first))
        pytorch.append(gradient_errors(rough, first))
    own, pytorch = numpy.mean(own, 0), numpy.mean(pytorch, 0)
    print(f"resnet50 {device} f32: ours {own}, PyTorch {pytorch}")
    assert (own <= 2 * pytorch).all(), (own, pytorch)
