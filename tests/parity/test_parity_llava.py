# SPDX-License-Identifier: Apache-2.0
"""
A small LLaVA against transformers' LlavaForConditionalGeneration: weights in both directions, losses of three steps and all
gradients of the first one. f64 must agree with ref to rounding; in f32 and bf16 the engine's error may be at most twice PyTorch's.
"""
import os
import subprocess

import numpy
import pytest

import parity
import weights_files
from parity import gradient_errors
from packages import Interpreter

BATCH, SEQ, STEPS, PATCHES, VOCAB, SEEDS = 3, 28, 3, 16, 96, (1, 2, 3)
DIMS = {"layers": 2, "hidden": 48, "heads": 6, "kv-heads": 2, "ffn": 80, "vocab": VOCAB, "context": 64, "image": 16, "patch": 4,
        "vision-layers": 2, "vision-hidden": 24, "vision-heads": 3, "vision-ffn": 40}
STEP = [("image", "<f4", (BATCH, 3, 16, 16)), ("ids", "<i4", (BATCH, SEQ)), ("target", "<i4", (BATCH, SEQ)), ("picture", "<i4", BATCH)]

# The merge of pictures and text is written out, because that of transformers needs a picture in each sample; `own_loss` is the
# latter's. An image encoder of three blocks, of which the last one is not used.
NETWORK = """
import fnmatch, numpy, torch
from safetensors.torch import load_file, save_file
from transformers.models.llama import modeling_llama as llama
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
torch.set_num_threads(1)
PATCHES, IMAGE_TOKEN = 16, 95
FLOAT = torch.Tensor.float
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.float32}

class Wide:
    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)

def use(precision):
    "Norms, angles and softmax of transformers are in f32 whatever the type is; here they are in f64 with it."
    llama.torch = Wide() if precision == "f64" else torch
    torch.Tensor.float = torch.Tensor.double if precision == "f64" else FLOAT

def network():
    torch.manual_seed(5)
    return LlavaForConditionalGeneration(LlavaConfig(
        CLIPVisionConfig(hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=3, image_size=16, patch_size=4),
        LlamaConfig(vocab_size=96, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0), image_token_index=IMAGE_TOKEN))

def save(folder):
    net = network()
    with torch.no_grad():
        for p in net.parameters():  # zeros and ones would hide what is in the wrong place
            p.add_(0.1 * torch.rand_like(p) if p.dim() < 2 else 0.05 * torch.randn_like(p))
    net.save_pretrained(folder)

def loaded(file, precision):
    net = network().to(TYPES[precision]).eval()
    missing, unexpected = net.load_state_dict({name: t.to(TYPES[precision]) for name, t in load_file(file).items()}, strict=False)
    assert not unexpected, unexpected
    assert all(".layers.2." in name or ".post_layernorm." in name for name in missing), missing
    return net

def merged(net, step):
    tower = net.vision_tower.vision_model
    with torch.no_grad():
        seen = tower(torch.tensor(step["image"], dtype=net.dtype), output_hidden_states=True).hidden_states[-2][:, 1:]
    rows, x = net.multi_modal_projector(seen), net.get_input_embeddings()(torch.tensor(step["ids"].astype(numpy.int64)))
    x = x.to(torch.promote_types(rows.dtype, x.dtype))
    parts = [torch.cat((x[b, :at], rows[b].to(x.dtype), x[b, at + PATCHES:])) if at >= 0 else x[b] for b, at in enumerate(step["picture"])]
    return torch.stack(parts)

def loss_of(net, step):
    logits = net.language_model(inputs_embeds=merged(net, step)).logits
    logits = logits.double() if net.dtype == torch.float64 else logits.float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(step["target"].astype(numpy.int64)).flatten())

def steps_of(data, kind):
    return numpy.fromfile(data, numpy.dtype([(name, form, shape if isinstance(shape, int) else tuple(shape)) for name, form, shape in kind]))

def own_loss(folder, data, kind):
    "Of samples with pictures, by transformers alone."
    use("f32")
    net, step = LlavaForConditionalGeneration.from_pretrained(folder).double().eval(), steps_of(data, kind)[0]
    has = step["picture"] >= 0
    ids, labels = [], []
    for b in numpy.flatnonzero(has):
        at, row, target = step["picture"][b], step["ids"][b].tolist(), step["target"][b].tolist()
        ids.append([*row[:at], IMAGE_TOKEN, *row[at + PATCHES:]])
        behind = [-100, *target[:-1]]  # transformers shifts by itself
        labels.append([*behind[:at], -100, *behind[at + PATCHES:]])
    ids = torch.tensor(ids)
    with torch.no_grad():
        return net(input_ids=ids, pixel_values=torch.tensor(step["image"][has]).double(), attention_mask=torch.ones_like(ids),
                   labels=torch.tensor(labels), vision_feature_layer=-2, vision_feature_select_strategy="default").loss.item()

def train(file, data, kind, precision, freeze, gradients):
    use(precision)
    net = loaded(file, precision)
    frozen = ["vision_tower.*", *freeze]
    p = {name: w for name, w in net.named_parameters() if not any(fnmatch.fnmatch(name, f) for f in frozen)}
    for name, w in net.named_parameters():
        w.requires_grad_(name in p)
    optimizer = torch.optim.AdamW([{"params": [w for w in p.values() if w.dim() > 1], "weight_decay": 0.1},
        {"params": [w for w in p.values() if w.dim() == 1], "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    losses = []
    for step in steps_of(data, kind):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(net, step)
        optimizer.zero_grad()
        loss.backward()
        if not losses:
            save_file({name: w.grad.double() for name, w in p.items()}, gradients)
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses
"""


@pytest.fixture(name="theirs", scope="module")
def their_package():
    theirs = Interpreter("networks", NETWORK)
    yield theirs
    theirs.close()


@pytest.fixture(name="data", scope="module")
def samples(tmp_path_factory):
    """Pictures at two places and a sample without one; questions have no targets."""
    file, rng, steps = tmp_path_factory.mktemp("llava") / "data", numpy.random.default_rng(3), numpy.zeros(STEPS, STEP)
    for step in steps:
        step["image"], step["picture"] = rng.standard_normal(step["image"].shape), (4, -1, 0)
        step["ids"] = rng.integers(0, VOCAB - 1, (BATCH, SEQ))  # the last token marks pictures in transformers
        step["target"][:, :-1], step["target"][:, -1] = step["ids"][:, 1:], -100
        for b, at in enumerate(step["picture"]):
            step["target"][b, :at + PATCHES + 2 if at >= 0 else 9] = -100
    steps.tofile(file)
    return file


def run(data, device, precision, steps, seed=1, **env):
    """What tests/parity/losses prints."""
    words = [parity.LOSSES, "llava", device, precision, steps, BATCH, SEQ, data, data.with_name("w"), seed,
             *(f"{name}={value}" for name, value in DIMS.items())]
    done = subprocess.run([*map(str, words)], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**os.environ, **{name: str(value) for name, value in env.items()}}, timeout=1000)
    assert done.returncode == 0, done.stderr
    return numpy.array([float(line.split()[0]) for line in done.stdout.splitlines()])


def own_names(found):
    """Gradients by the names of joulemark."""
    names, gradients = {"language_model.model.embed_tokens.weight": "llama.tokens.weight", "language_model.model.norm.weight": "llama.norm.weight",
                        "language_model.lm_head.weight": "llama.output.weight"}, {}
    parts = {"attn_norm": ["input_layernorm"], "attn.qkv": [f"self_attn.{x}_proj" for x in "qkv"], "attn.out": ["self_attn.o_proj"],
             "ffn_norm": ["post_attention_layernorm"], "ffn.gate_up": ["mlp.gate_proj", "mlp.up_proj"], "ffn.down": ["mlp.down_proj"]}
    for i in range(DIMS["layers"]):
        for own, theirs in parts.items():
            rows = [found.pop(f"language_model.model.layers.{i}.{name}.weight", None) for name in theirs]
            if rows[0] is not None:
                gradients[f"llama.h{i}.{own}.weight"] = numpy.concatenate(rows)
    return {**gradients, **{names.get(name, name.replace("multi_modal_projector", "projector")): g for name, g in found.items()}}


def trained_by(theirs, data, start, precision, freeze=()):
    file = data.with_name("gradients.safetensors")
    losses = theirs.call("train", start, data, STEP, precision, freeze, file)
    return numpy.array(losses), own_names({name: weights_files.values(t) for name, t in weights_files.read(file).items()})


def trained(data, device, precision, seed=1, **env):
    """(losses, start values that are trained, gradients), and a file with all start values in the names of transformers."""
    start = data.with_name(f"start.{precision}.{seed}.safetensors")
    run(data, device, precision, 0, seed, **{**env, "JM_TEST_SAVE": start})
    losses = run(data, device, precision, STEPS, seed, **env)
    return (losses, parity.take(data.with_name("w")), parity.take(data.with_name("w.grad"))), start


@pytest.mark.parametrize("freeze", ["", "projector.*", "llama.*"])
def test_transformers_has_the_same_losses_and_gradients(theirs, data, freeze):
    names = {"projector.*": ["multi_modal_projector.*"], "llama.*": ["language_model.*"]}.get(freeze, [])
    (losses, _, gradients), start = trained(data, "ref", "f64", **({"JM_TEST_FREEZE": freeze} if freeze else {}))
    expected, first = trained_by(theirs, data, start, "f64", names)
    assert set(gradients) == set(first) and any(name.startswith("projector.") for name in first) == (freeze != "projector.*")
    assert gradient_errors(gradients, first)[1] < 1e-9
    assert numpy.abs(losses - expected).max() < 1e-9


def test_their_weights_give_their_loss(theirs, data, tmp_path):
    """That of transformers' own merge too, where each sample has a picture."""
    theirs.call("save", tmp_path / "theirs")
    full = data.with_name("full")
    steps = numpy.fromfile(data, STEP)
    steps["target"][:, 1] = -100  # of the sample without a picture
    steps.tofile(full)
    run(full, "cpu", "f32", 0, JM_TEST_FROM=tmp_path / "theirs")
    found = float(full.with_name("w.eval").read_text().split()[0])
    assert found == pytest.approx(theirs.call("own_loss", tmp_path / "theirs", full, STEP), rel=3e-5)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_error_to_f64(theirs, data, precision, record_property):
    start = {}

    def ours(precision, seed):
        found, start["file"] = trained(data, "cpu", precision, seed)
        return found

    parity.compare(record_property, (f"llava-{precision}", precision), SEEDS, ours,
                   lambda _, precision: trained_by(theirs, data, start["file"], precision), smooth=True)
