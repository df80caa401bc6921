# SPDX-License-Identifier: Apache-2.0
"""
run llava --data FILE.json --accumulate 4 with the Llama trained, from a folder of transformers: its LlavaForConditionalGeneration learns
the same conversations, whose tokens the package `tokenizers` gives and whose pictures Pillow reads. In f32 losses and gradients agree
to rounding; in bf16-true, also with an update that two ranks share, their error to f64 is at most twice PyTorch's in bfloat16.
"""
import json
import pathlib

import numpy
import pytest
from PIL import Image

import weights_files
from jm import SOURCE, jm
from packages import Interpreter
from parity import distance, gradient_errors

TOKENIZER = SOURCE / "tests/data/tokenizers/llama2.json"
STEPS, COLOURS = 8, ["red", "tall", "near", "red", "tall", "near", "red", "tall"]  # answers of one length: all means are then one
NET = ("llava", "--layers", 2, "--hidden", 48, "--heads", 4, "--kv-heads", 2, "--ffn", 96, "--vocab", 1024, "--context", 64, "--image", 16,
       "--patch", 4, "--vision-layers", 2, "--vision-hidden", 32, "--vision-heads", 2, "--vision-ffn", 64, "--seq", 60)
RUN = ("--tokenizer", TOKENIZER, "--augment", "off", "--warmup", 0, "--weight-decay", 0, "--clip", 0, "--lr", 1e-3, "--device", "cpu",
       "--source", "null", "--accumulate", 4)

SCRIPT = """
import json, numpy, torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
torch.set_num_threads(1)
PICTURE = 1023
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
MEAN, DEVIATION = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]

def save(folder):
    torch.manual_seed(5)
    net = LlavaForConditionalGeneration(LlavaConfig(
        CLIPVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2, image_size=16, patch_size=4),
        LlamaConfig(vocab_size=1024, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0), image_token_index=PICTURE))
    with torch.no_grad():
        for p in net.parameters():  # values that bfloat16 has, so that all precisions begin alike
            p.copy_((p + (0.1 * torch.rand_like(p) if p.dim() < 2 else 0.05 * torch.randn_like(p))).bfloat16().float())
    net.save_pretrained(folder)

def rows(folder, tokenizer):
    "(picture, ids, labels) of each conversation."
    given = json.load(open(tokenizer))
    given["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in given["model"]["merges"]]  # as older versions read them
    words = Tokenizer.from_str(json.dumps(given))
    for talk in json.load(open(folder + "/talks.json")):
        question, answer = (turn["value"].replace("<image>", "").strip() for turn in talk["conversations"])
        asked = words.encode("\\n" + question + " ASSISTANT:", add_special_tokens=False).ids
        both = words.encode("\\n" + question + " ASSISTANT: " + answer, add_special_tokens=False).ids
        assert both[:len(asked)] == asked
        ids = [*words.encode("USER: ").ids, PICTURE, *both, words.token_to_id("</s>")]
        learnt = len(both) - len(asked) + 1
        pixels = numpy.asarray(Image.open(folder + "/" + talk["image"]), float) / 255
        yield ((pixels - MEAN) / DEVIATION).transpose(2, 0, 1), ids, [-100] * (len(ids) - learnt) + ids[-learnt:]

def train(folder, tokenizer, precision, frozen, steps, gradients):
    net = LlavaForConditionalGeneration.from_pretrained(folder + "/theirs").to(TYPES[precision])
    trained = {n: p for n, p in net.named_parameters() if not n.startswith(tuple(frozen))}
    optimizer, talks, losses = torch.optim.AdamW(trained.values(), lr=1e-3, weight_decay=0), list(rows(folder, tokenizer)), []
    assert len({sum(label >= 0 for label in labels) for _, _, labels in talks}) == 1
    for step in range(steps):
        optimizer.zero_grad()
        found = [net(input_ids=torch.tensor([ids]), pixel_values=torch.tensor(pixels[None]).to(TYPES[precision]),
                     attention_mask=torch.ones(1, len(ids), dtype=torch.int64), labels=torch.tensor([labels]), vision_feature_layer=-2,
                     vision_feature_select_strategy="default").loss.double() for pixels, ids, labels in talks]
        loss = sum(found) / len(found)
        loss.backward()
        if not step:
            save_file({n: p.grad.double().contiguous() for n, p in trained.items()}, gradients)
        optimizer.step()
        losses.append(loss.item())
    return losses
"""


@pytest.fixture(name="theirs", scope="module")
def their_package():
    theirs = Interpreter("networks", SCRIPT)
    yield theirs
    theirs.close()


@pytest.fixture(name="folder", scope="module")
def conversations(theirs, tmp_path_factory):
    folder, rng, talks = tmp_path_factory.mktemp("talks"), numpy.random.default_rng(0), []
    for i, colour in enumerate(COLOURS):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), numpy.uint8)).save(folder / f"{i}.png")
        talks.append({"image": f"{i}.png", "conversations": [{"from": "human", "value": "<image>\nWhich is it?"},
                                                             {"from": "gpt", "value": f"It is {colour}."}]})
    (folder / "talks.json").write_text(json.dumps(talks))
    theirs.call("save", folder / "theirs")
    return folder


def array(tensor):
    dtype, shape, data = tensor
    if dtype == "BF16":
        return (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(float).reshape(shape)
    return weights_files.values(tensor).astype(float)


def by_own_names(found):
    """Of Llama and projector; queries, keys and values are one matrix, and gate and up."""
    names = {"model.embed_tokens": "tokens", "model.norm": "norm", "lm_head": "output"}
    parts = {"attn_norm": ["input_layernorm"], "attn.qkv": [f"self_attn.{x}_proj" for x in "qkv"], "attn.out": ["self_attn.o_proj"],
             "ffn_norm": ["post_attention_layernorm"], "ffn.gate_up": ["mlp.gate_proj", "mlp.up_proj"], "ffn.down": ["mlp.down_proj"]}
    for i in range(2):
        names.update({f"model.layers.{i}.{theirs[0]}": f"h{i}.{own}" for own, theirs in parts.items()})
        for theirs in parts.values():
            rows = [found.pop(f"language_model.model.layers.{i}.{name}.weight") for name in theirs]
            found[f"language_model.model.layers.{i}.{theirs[0]}.weight"] = numpy.concatenate(rows)
    own = {f"language_model.{theirs}.weight": f"llama.{name}.weight" for theirs, name in names.items()}
    return {own.get(name, name.replace("multi_modal_", "")): value for name, value in found.items()}


def by_pytorch(theirs, folder, precision, frozen):
    file = folder / f"{precision}.safetensors"
    losses = theirs.call("train", folder, TOKENIZER, precision, frozen, STEPS, file)
    return numpy.array(losses), by_own_names({name: array(t) for name, t in weights_files.read(file).items()})


def by_joulemark(folder, *words):
    """The first moment is half of the gradient of a first step."""
    def run(*more):
        done = jm("run", *NET, *RUN, "--data", folder / "talks.json", "--from", folder / "theirs", *words, *more, "--json", "-",
                  env={"OMP_WAIT_POLICY": "passive"})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    file = folder / "checkpoint.safetensors"
    run("--steps", 1, "--beta1", 0.5, "--checkpoint", file)
    record = run("--steps", STEPS)
    gradients = {name.removeprefix("adamw.m/"): 2 * array(t) for name, t in weights_files.read(pathlib.Path(file)).items()
                 if name.startswith("adamw.m/")}
    return numpy.array(record["step_series"]["loss"]), gradients, record


@pytest.mark.parametrize("freeze, frozen", [([], []), (["--freeze", "projector.*"], ["multi_modal_projector"])])
def test_transformers_learns_the_same(theirs, folder, freeze, frozen):
    truth, true_gradients = by_pytorch(theirs, folder, "f64", ["vision_tower", *frozen])
    losses, gradients, _ = by_joulemark(folder, "--precision", "f32", "--batch", 2, *freeze)
    assert losses == pytest.approx(truth, rel=1e-5)
    assert gradient_errors(gradients, true_gradients)[1] < 1e-5
    found, found_gradients = by_pytorch(theirs, folder, "bf16", ["vision_tower", *frozen])
    for words in (["--batch", 2], ["--batch", 1, "--ranks", 2, "--shard-update", "on"]):
        losses, gradients, record = by_joulemark(folder, "--precision", "bf16-true", *words, *freeze)
        assert record.get("communication", {"shard_update": True})["shard_update"] is True
        assert distance(losses, truth) <= 2 * distance(found, truth)
        own, pytorch = (numpy.array(gradient_errors(g, true_gradients)) for g in (gradients, found_gradients))
        assert (own <= 2 * pytorch).all(), (own, pytorch)
