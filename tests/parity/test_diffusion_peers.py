# SPDX-License-Identifier: Apache-2.0
"""The networks that bench/gpu/unet_torch.py and sd2_torch.py time beside joulemark: those of diffusers and transformers, in f64, and
with joulemark's weights the loss of joulemark."""
import os
import subprocess

import numpy
import pytest

from jm import BUILD, SOURCE
from packages import Interpreter

SCRIPT = f"""
import sys, numpy, torch, torch.nn.functional as F
sys.path.insert(0, {str(SOURCE / "bench/gpu")!r})
torch.set_num_threads(1)

def attention(q, k, v, is_causal=False, **_):
    "torch 1.13 has no attention of one call."
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(future, -torch.inf) if is_causal else scores, -1) @ v

F.scaled_dot_product_attention = attention
torch.baddbmm = lambda _, q, k, beta, alpha: alpha * torch.bmm(q, k)  # that of 1.13 does not leave out what it multiplies by 0
import sd2_torch, unet_torch
""" + """
UNET = {"widths": (16, 32, 64, 64), "layers": 2, "head": 8, "groups": 4, "caption": 24}
PICTURES = {"widths": (8, 16, 32, 32), "layers": 2, "groups": 4, "channels": 4}
CAPTIONS = {"layers": 3, "width": 24, "heads": 3, "vocabulary": 50, "context": 5}
BLOCK = "transformer_blocks.0."
PARTS = {"norm1": "norm1", "norm2": "norm2", "norm3": "norm3", "out1": "attn1.to_out.0", "out2": "attn2.to_out.0", "q": "attn2.to_q",
         "up": "ff.net.0.proj", "down": "ff.net.2"}
TEXT = {"ln_1": "layer_norm1", "ln_2": "layer_norm2", "out": "self_attn.out_proj", "up": "mlp.fc1", "down": "mlp.fc2"}

def unet_tensor(their, name):
    for i, part in enumerate(("resnets.0", "attentions.0", "resnets.1")):
        name = name.replace(f"mid_block.{i}.", f"mid_block.{part}.")
    name = name.replace(".size.", ".downsamplers.0.conv." if "down" in name else ".upsamplers.0.conv.")
    name = "time_embedding." + name if name.startswith("linear_") else name
    head, part, what = name.rsplit(".", 2) if "attentions" in name else ("", "", "")
    if part in ("qkv", "kv"):
        return torch.cat([their[f"{head}.{BLOCK}attn{1 if part == 'qkv' else 2}.to_{one}.weight"] for one in part])
    return their[f"{head}.{BLOCK}{PARTS[part]}.{what}" if part in PARTS else name]

def picture_tensor(their, name):
    for i, part in enumerate(("resnets.0", "attentions.0", "resnets.1")):
        name = name.replace(f"mid_block.{i}.", f"mid_block.{part}.")
    name = name.replace(".size.", ".downsamplers.0.conv.").replace(".to_out.", ".to_out.0.")
    name = name if name.startswith("quant_conv") else "encoder." + name
    return torch.cat([their[name.replace("qkv", "to_" + one)] for one in "qkv"]) if "qkv" in name else their[name]

def caption_tensor(their, name):
    head, what = name.rsplit(".", 1)
    if not name.startswith("blocks."):
        return their["text_model." + {"tokens": "embeddings.token_embedding", "positions": "embeddings.position_embedding",
                                      "ln_f": "final_layer_norm"}[head] + "." + what]
    _, i, part = head.split(".")
    layer = f"text_model.encoder.layers.{i}."
    if part == "qkv":
        return torch.cat([their[f"{layer}self_attn.{one}_proj.{what}"] for one in "qkv"])
    return their[f"{layer}{TEXT[part]}.{what}"]

def filled(ours, their, tensor):
    "In f64, all parameters by the names of the other side."
    ours.double().load_state_dict({name: tensor(their, name) for name in ours.state_dict()})
    return ours

def networks(unet, pictures, captions):
    return (filled(unet_torch.UNet(**UNET), unet, unet_tensor), filled(sd2_torch.PictureEncoder(**PICTURES), pictures, picture_tensor),
            filled(sd2_torch.CaptionEncoder(**CAPTIONS), captions, caption_tensor))

def compare():
    "Of each network the largest difference to the module, and that one's largest value."
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel
    torch.manual_seed(3)
    unet = UNet2DConditionModel(sample_size=8, layers_per_block=2, block_out_channels=UNET["widths"], attention_head_dim=(2, 4, 8, 8),
                                cross_attention_dim=24, norm_num_groups=4, use_linear_projection=True)
    vae = AutoencoderKL(latent_channels=4, layers_per_block=2, block_out_channels=PICTURES["widths"], norm_num_groups=4,
                        down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4)
    text = CLIPTextModel(CLIPTextConfig(vocab_size=50, hidden_size=24, intermediate_size=96, num_hidden_layers=3, num_attention_heads=3,
                                        max_position_embeddings=5, hidden_act="gelu"))
    theirs = [part.double().eval() for part in (unet, vae, text)]
    for part in theirs:
        for p in part.parameters():  # zeros and ones would hide what is in the wrong place
            p.data += 0.1 * torch.rand_like(p)
    unet, vae, text = theirs
    ours = networks(*(part.state_dict() for part in theirs))
    x, at, caption = torch.randn(3, 4, 8, 8).double(), torch.tensor([3, 500, 999]), torch.randn(3, 5, 24).double()
    picture, drawn, ids = torch.randn(2, 3, 64, 64).double(), torch.randn(2, 4, 8, 8).double(), torch.randint(50, (3, 5))
    with torch.no_grad():
        moments = vae.encode(picture).latent_dist
        state = text.float()(ids)[0]  # torch 1.13 makes no causal mask in f64
        expected = unet(x, at, caption).sample, 0.18215 * (moments.mean + moments.std * drawn), state.double()
        found = ours[0](x, at, caption), ours[1](picture, drawn), ours[2](ids)
    return [[float((a - b).abs().max()), float(b.abs().max())] for a, b in zip(found, expected)]

def loss(file, data):
    "Of the first batch of the data, with weights that joulemark wrote."
    from safetensors.torch import load_file
    tensors = load_file(file)
    of = lambda part: {name[len(part):]: t for name, t in tensors.items() if name.startswith(part)}
    unet, pictures, captions = networks(of("unet/"), of("vae/"), of("text_encoder/"))
    kind = [("picture", "<f4", (2, 3, 64, 64)), ("ids", "<i4", (2, 5)), ("drawn", "<f4", (2, 4, 8, 8)), ("noise", "<f4", (2, 4, 8, 8)), ("at", "<i4", 2)]
    row, = numpy.fromfile(data, kind, 1)
    picture, drawn, noise = (torch.tensor(row[name].astype(float)) for name in ("picture", "drawn", "noise"))
    with torch.no_grad():
        model = unet_torch.Diffusion(unet)
        state = captions(torch.tensor(row["ids"].astype(int)))
        return float(model(pictures(picture, drawn), noise, torch.tensor(row["at"].astype(int)), state))

def parameters():
    torch.nn.init.kaiming_uniform_ = torch.nn.init.uniform_ = torch.nn.init.normal_ = lambda x, *_, **__: x  # no page is touched
    made = unet_torch.UNet(), sd2_torch.PictureEncoder(**sd2_torch.PICTURES), sd2_torch.CaptionEncoder(**sd2_torch.CAPTIONS)
    return [sum(p.numel() for p in part.parameters()) for part in made]
"""
DIMS = {"hidden": 16, "layers": 2, "head-width": 8, "norm-groups": 4, "image": 64, "latent-channels": 4, "caption": 5, "caption-width": 24,
        "vae-hidden": 8, "vae-layers": 2, "text-layers": 3, "text-heads": 3, "vocab": 50}


@pytest.fixture(name="peers", scope="module")
def their_process():
    peers = Interpreter("networks", SCRIPT)
    yield peers
    peers.close()


def test_they_are_the_networks_of_diffusers_and_transformers(peers):
    unet, pictures, captions = peers.call("compare")
    for (difference, largest), limit in ((unet, 1e-12), (pictures, 1e-12), (captions, 2e-5)):  # the last one's module is in f32
        assert difference < limit * max(1, largest) and largest > 0.1


def test_they_have_all_parameters_of_stable_diffusion_2(peers):
    assert peers.call("parameters") == [865910724, 34163664, 340387840]


def test_their_loss_is_that_of_joulemark(peers, tmp_path):
    rng, data, weights = numpy.random.default_rng(5), tmp_path / "data", tmp_path / "ours.safetensors"
    data.write_bytes(rng.standard_normal((2, 3, 64, 64)).astype("<f4").tobytes() + rng.integers(0, 50, (2, 5)).astype("<i4").tobytes()
                     + rng.standard_normal((2, 2, 4, 8, 8)).astype("<f4").tobytes() + rng.integers(0, 1000, 2).astype("<i4").tobytes())
    words = [BUILD / "tests/parity/losses", "diffusion", "ref", "f64", 0, 2, 1, data, tmp_path / "w", 1, *(f"{k}={v}" for k, v in DIMS.items())]
    done = subprocess.run([*map(str, words)], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**os.environ, "JM_TEST_SAVE": str(weights)}, timeout=1000)
    assert done.returncode == 0, done.stderr
    expected = float((tmp_path / "w.eval").read_text().split()[0])
    assert peers.call("loss", weights, data) == pytest.approx(expected, rel=1e-7)
