# SPDX-License-Identifier: Apache-2.0
"""Runs one training step of a model by PyTorch on request, with the shapes and the update of bench/step.c.

step_torch.py MODEL PRECISION BATCH SEQ THREADS [DIM=VALUE...]
"""
import functools
import math
import pathlib
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "peers"), str(ROOT / "bench" / "gpu")]


class Block(nn.Module):
    act = staticmethod(functools.partial(F.gelu, approximate="tanh"))

    def __init__(self, dims):
        super().__init__()
        c = dims["hidden"]
        self.heads = dims["heads"]
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.up, self.down = nn.Linear(c, dims["ffn"]), nn.Linear(dims["ffn"], c)

    def attention(self, x, mask):
        b, s, c = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(c, 2))
        z = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(c // self.heads))
        z = z if mask is None else z.masked_fill(mask, float("-inf"))
        return self.out((z.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(b, s, c))

    def forward(self, x, mask=None):
        x = x + self.attention(self.ln_1(x), mask)
        return x + self.down(self.act(self.up(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.tokens = nn.Embedding(dims["vocab"], dims["hidden"])
        self.positions = nn.Embedding(dims["context"], dims["hidden"])
        self.blocks = nn.ModuleList(Block(dims) for _ in range(dims["layers"]))
        self.ln_f = nn.LayerNorm(dims["hidden"])
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, target, mask):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        logits = F.linear(self.ln_f(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def angles(seq, head, theta):
    turn = torch.arange(seq)[:, None] * theta ** (-torch.arange(0, head, 2) / head)
    return turn.cos(), turn.sin()


def rotate(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


class LlamaBlock(nn.Module):
    def __init__(self, dims):
        super().__init__()
        c = dims["hidden"]
        self.heads, self.groups = dims["heads"], dims["kv-heads"]
        self.head = c // self.heads
        self.ln_1, self.ln_2 = RmsNorm(c), RmsNorm(c)
        self.qkv = nn.Linear(c, (self.heads + 2 * self.groups) * self.head, bias=False)
        self.out = nn.Linear(c, c, bias=False)
        self.up = nn.Linear(c, 2 * dims["ffn"], bias=False)
        self.down = nn.Linear(dims["ffn"], c, bias=False)

    def attention(self, x, mask, turn):
        b, s, c = x.shape
        parts = self.qkv(x).view(b, s, -1, self.head).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.groups, self.groups), 1)
        q, k = rotate(q, *turn), rotate(k, *turn)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        z = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(self.head))
        z = z.masked_fill(mask, float("-inf")).softmax(-1)
        return self.out((z.to(v.dtype) @ v).transpose(1, 2).reshape(b, s, c))

    def forward(self, x, mask, turn):
        x = x + self.attention(self.ln_1(x), mask, turn)
        gate, value = self.up(self.ln_2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Llama(nn.Module):
    def __init__(self, dims, seq):
        super().__init__()
        self.tokens = nn.Embedding(dims["vocab"], dims["hidden"])
        self.blocks = nn.ModuleList(LlamaBlock(dims) for _ in range(dims["layers"]))
        self.ln_f = RmsNorm(dims["hidden"])
        self.head = nn.Linear(dims["hidden"], dims["vocab"], bias=False)
        self.turn = angles(seq, dims["hidden"] // dims["heads"], dims["theta"])
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, target, mask):
        return self.loss(self.tokens(ids), target, mask)

    def loss(self, x, target, mask):
        """Of the last places of x, as many as there are targets."""
        for block in self.blocks:
            x = block(x, mask, self.turn)
        logits = self.head(self.ln_f(x)[:, -target.shape[1]:])
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


class ClipBlock(Block):
    def act(self, x):
        return x * torch.sigmoid(1.702 * x)


class Clip(nn.Module):
    """L/14 at 336 pixels: the states of the patches behind 23 of its 24 blocks."""
    IMAGE, PATCH, DIMS = 336, 14, {"layers": 23, "hidden": 1024, "heads": 16, "ffn": 4096}

    def __init__(self, layers):
        super().__init__()
        c, self.places = self.DIMS["hidden"], (self.IMAGE // self.PATCH)**2
        self.patches = nn.Conv2d(3, c, self.PATCH, self.PATCH, bias=False)
        self.first, self.positions = nn.Parameter(0.02 * torch.randn(c)), nn.Parameter(0.02 * torch.randn(self.places + 1, c))
        self.ln_pre, self.blocks = nn.LayerNorm(c), nn.Sequential(*(ClipBlock(self.DIMS) for _ in range(layers)))

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), 1, -1), x), 1) + self.positions
        return self.blocks(self.ln_pre(x))[:, 1:]


class Llava(nn.Module):
    """CLIP is frozen, and in the type in which it computes."""

    def __init__(self, dims, seq, kind):
        super().__init__()
        self.clip = Clip(dims.get("vision-layers", Clip.DIMS["layers"])).to(kind).requires_grad_(False)
        self.llama, c = Llama(dims, seq), dims["hidden"]
        self.projector = nn.Sequential(nn.Linear(Clip.DIMS["hidden"], c), nn.GELU(), nn.Linear(c, c))

    def forward(self, image, ids, target, mask):
        with torch.no_grad():
            seen = self.clip(image)
        rows, text = self.projector(seen), self.llama.tokens(ids)
        return self.llama.loss(torch.cat((rows.to(text.dtype), text), 1), target, mask)


def torchvision_has(name, **more):
    import torchvision
    return getattr(torchvision.models, name)(**more)


def cifar(name):
    """torchvision's, with a first layer for images of 32 pixels."""
    net = torchvision_has(name, num_classes=10)
    net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return net


def xception():
    import torch_xception
    return torch_xception.Xception({"hidden": 32, "layers": 8, "classes": 1000})


class Classifier(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net.to(memory_format=torch.channels_last)

    def forward(self, image, target):
        logits = self.net(image)
        if isinstance(logits, tuple):  # inception3's two
            return F.cross_entropy(logits[0], target) + 0.4 * F.cross_entropy(logits[1], target)
        return F.cross_entropy(logits, target)


# how it is made, pixels of an image, classes
IMAGES = {
    "resnet18": (lambda: torchvision_has("resnet18"), 224, 1000),
    "resnet50": (lambda: torchvision_has("resnet50"), 224, 1000),
    "vit-l16": (lambda: torchvision_has("vit_l_16"), 224, 1000),
    "alexnet": (lambda: torchvision_has("alexnet", dropout=0.0), 224, 1000),
    "vgg16": (lambda: torchvision_has("vgg16", dropout=0.0), 224, 1000),
    "inception3": (lambda: torchvision_has("inception_v3", init_weights=False, dropout=0.0), 299, 1000),
    "xception": (xception, 299, 1000),
    "resnet152-cifar": (lambda: cifar("resnet152"), 32, 10),
}


def attention(q, k, v, is_causal=False):
    """Where torch has none of one call."""
    assert not is_causal
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def unet(batch, dims):
    """U-Net of Stable Diffusion 2, and latents with noise, its steps and captions."""
    import unet_torch
    if not hasattr(F, "scaled_dot_product_attention"):
        F.scaled_dot_product_attention = attention
    width, side = dims["hidden"], dims["latent"]
    net = unet_torch.UNet([times * width for times in (1, 2, 4, 4)]).to(memory_format=torch.channels_last)
    both = [torch.randn(batch, 4, side, side).to(memory_format=torch.channels_last) for _ in range(2)]
    caption = torch.randn(batch, unet_torch.CAPTION, unet_torch.CAPTION_WIDTH)
    return unet_torch.Diffusion(net), (*both, torch.randint(unet_torch.STEPS, (batch,)), caption)


def of_points(layer, x):
    """fno_torch.Linear as a convolution of single points, which oneDNN computes in a tenth of the time of the product."""
    return F.conv1d(x.flatten(2), layer.weight[:, :, None], layer.bias[:, 0]).unflatten(2, x.shape[2:])


def fields(name, batch):
    """Fourier neural operator, and two states of its fields."""
    import fno_torch
    fno_torch.Linear.forward = of_points
    dims = fno_torch.MODELS[name]
    return fno_torch.Operator(**dims), [torch.randn(batch, dims["fields"], *dims["points"]) for _ in range(2)]


GPT_117M = {"layers": 12, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 50257, "context": 1024}


def pictures_and_texts(batch, seq, dims, kind):
    """A text follows its picture; what the last place of the picture says is learnt, too."""
    model = Llava(dims, seq, kind)
    texts = seq - model.clip.places
    ids, target = (torch.randint(dims["vocab"], (batch, n)) for n in (texts, texts + 1))
    image = torch.randn(batch, 3, Clip.IMAGE, Clip.IMAGE).to(kind)
    return model, (image, ids, target, torch.ones(seq, seq, dtype=torch.bool).triu(1))


def declare(name, batch, seq, given, kind):
    """The model, and what it is called with."""
    if name in IMAGES:
        make, size, classes = IMAGES[name]
        image = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
        return Classifier(make()).train(), (image, torch.randint(classes, (batch,)))
    if name == "unet":
        return unet(batch, given)
    if name.startswith("fno"):
        return fields(name, batch)
    if name == "clip":
        return pictures_and_texts(batch, seq, given, kind)
    dims = {**(GPT_117M if name.startswith("gpt") else {}), **given}
    ids, target = (torch.randint(dims["vocab"], (batch, seq)) for _ in range(2))
    mask = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    model = Gpt(dims) if name.startswith("gpt") else Llama(dims, seq)
    return model, (ids, target, mask)


def learnt(model):
    return [p for p in model.parameters() if p.requires_grad]


def adamw(model):
    matrices = [p for p in learnt(model) if p.dim() > 1]
    vectors = [p for p in learnt(model) if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, foreach=True)


def main(name, precision, batch, seq, threads, *given):
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    dims = {k: int(v) for k, v in (g.split("=") for g in given) if v.isdigit()}
    model, inputs = declare(name, int(batch), int(seq), dims, torch.bfloat16 if precision == "bf16" else torch.float32)
    optimizer = adamw(model)
    print("ready", torch.__version__, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model(*inputs)
        loss.backward()
        nn.utils.clip_grad_norm_(learnt(model), 1.0)
        optimizer.step()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"{time.perf_counter() - start:.6f} {loss.item():.6f} {most}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
