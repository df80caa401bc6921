# SPDX-License-Identifier: Apache-2.0
"""The U-Net that bench/gpu/unet_torch.py times beside joulemark is that of diffusers, in f64."""
import json

from jm import SOURCE
from packages import python

SCRIPT = """
import json, sys, torch, torch.nn.functional as F
sys.path.insert(0, sys.argv[1])
torch.set_num_threads(1)
# torch 1.13 has neither attention of one call nor a baddbmm that leaves out what it multiplies by 0
F.scaled_dot_product_attention = lambda q, k, v, **_: torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v
torch.baddbmm = lambda _, q, k, beta, alpha: alpha * torch.bmm(q, k)
from diffusers import UNet2DConditionModel
import unet_torch
theirs = UNet2DConditionModel(sample_size=8, layers_per_block=2, block_out_channels=(16, 32, 64, 64), attention_head_dim=(2, 4, 8, 8),
                              cross_attention_dim=24, norm_num_groups=4, use_linear_projection=True).double()
ours = unet_torch.UNet((16, 32, 64, 64), 2, 8, 4, 24, 4).double()
their = theirs.state_dict()
BLOCK = "transformer_blocks.0."
PARTS = {"norm1": "norm1", "norm2": "norm2", "norm3": "norm3", "out1": "attn1.to_out.0", "out2": "attn2.to_out.0", "q": "attn2.to_q",
         "up": "ff.net.0.proj", "down": "ff.net.2"}

def of_theirs(name):
    for i, part in enumerate(("resnets.0", "attentions.0", "resnets.1")):
        name = name.replace(f"mid_block.{i}.", f"mid_block.{part}.")
    name = name.replace(".size.", ".downsamplers.0.conv." if "down" in name else ".upsamplers.0.conv.")
    name = "time_embedding." + name if name.startswith("linear_") else name
    head, part, what = name.rsplit(".", 2) if "attentions" in name else ("", "", "")
    if part in ("qkv", "kv"):
        return torch.cat([their[f"{head}.{BLOCK}attn{1 if part == 'qkv' else 2}.to_{one}.weight"] for one in part])
    return their[f"{head}.{BLOCK}{PARTS[part]}.{what}" if part in PARTS else name]

ours.load_state_dict({name: of_theirs(name) for name in ours.state_dict()})
x, at, caption = torch.randn(3, 4, 8, 8).double(), torch.tensor([3, 500, 999]), torch.randn(3, 5, 24).double()
with torch.no_grad():
    expected, found = theirs(x, at, caption).sample, ours(x, at, caption)
torch.nn.init.kaiming_uniform_ = torch.nn.init.uniform_ = lambda x, *_, **__: x  # no page of the whole network is touched
parameters = sum(p.numel() for p in unet_torch.UNet().parameters())
print(json.dumps([float((found - expected).abs().max()), float(expected.abs().max()), parameters]))
"""


def test_it_is_the_network_of_diffusers():
    difference, largest, parameters = json.loads(python("networks", SCRIPT, SOURCE / "bench/gpu"))
    assert difference < 1e-12 * max(1, largest) and largest > 0.1
    assert parameters == 865910724
