# SPDX-License-Identifier: Apache-2.0
"""
Logits of run serve: in steps of a few rows, with pages that held NaN before, they are those of one step; in bf16 their error against
f64 is at most twice PyTorch's.
"""
import numpy
import pytest

from jm import BUILD, SOURCE
from served_net import DEPTH, EPS, GROUPS, HEADS, LAYERS, THETA, VOCAB, logits, random_weights, write_net

torch = pytest.importorskip("torch", reason="python3-torch is not installed: no independent logits")
F = torch.nn.functional
TEXT = (SOURCE / "LICENSE").read_bytes()[:75]  # the last of its five pages has 11 tokens


def norm(x, gamma):
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * gamma


def turn(x):
    """x[heads, positions, depth]"""
    speed = THETA ** (-torch.arange(DEPTH // 2, dtype=torch.float64) / (DEPTH // 2))
    angle = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), speed).repeat(1, 2)
    a, b = x.chunk(2, -1)
    return x * angle.cos().to(x.dtype) + torch.cat((-b, a), -1) * angle.sin().to(x.dtype)


def peer(weights, dtype):
    """PyTorch's logits of TEXT, as the model is written there."""
    weights = {name: torch.tensor(value).to(dtype) for name, value in weights.items()}
    x = weights["model.embed_tokens.weight"][list(TEXT)]
    for i in range(LAYERS):
        w = {name.removeprefix(f"model.layers.{i}."): value for name, value in weights.items()}
        h = norm(x, w["input_layernorm.weight"])
        q, k, v = (F.linear(h, w[f"self_attn.{p}_proj.weight"]).view(len(TEXT), -1, DEPTH).transpose(0, 1) for p in "qkv")
        k, v = (part.repeat_interleave(HEADS // GROUPS, 0) for part in (turn(k), v))
        z = turn(q) @ k.transpose(1, 2) / DEPTH ** 0.5 + torch.full((len(TEXT), len(TEXT)), -torch.inf, dtype=dtype).triu(1)
        y = (z.softmax(-1) if dtype == torch.float64 else z.float().softmax(-1).to(dtype)) @ v
        x = x + F.linear(y.transpose(0, 1).reshape(len(TEXT), -1), w["self_attn.o_proj.weight"])
        h = norm(x, w["post_attention_layernorm.weight"])
        h = F.silu(F.linear(h, w["mlp.gate_proj.weight"])) * F.linear(h, w["mlp.up_proj.weight"])
        x = x + F.linear(h, w["mlp.down_proj.weight"])
    return F.linear(norm(x, weights["model.norm.weight"]), weights["lm_head.weight"]).double().numpy()


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    if not (BUILD / "backends/cpu.so").exists():
        pytest.skip("backend cpu is absent")
    weights = random_weights()
    return write_net(tmp_path_factory.mktemp("net") / "net", weights), peer(weights, torch.float64), weights


@pytest.mark.parametrize("device", ["cpu", "ref"])
def test_pieces_and_pages_of_nan_change_no_logit(tmp_path, net, device):
    folder, exact, _ = net
    for how in [], ["pieces"]:
        found = logits(device, "f32", folder, TEXT, tmp_path, *how)
        assert numpy.abs(found - exact).max() < 1e-5 * numpy.abs(exact).max(), how
    for precision in "f32", "bf16":  # no code of 8 bits may differ by a rounding: 1 % is much less than what NaN or a slot of another does
        whole, pieces = (logits(device, precision, folder, TEXT, tmp_path, "f8e4m3", *how) for how in ([], ["pieces"]))
        assert numpy.abs(whole - pieces).mean() < 0.01 * numpy.abs(whole).mean(), precision


def test_error_in_bf16_is_at_most_twice_that_of_pytorch(tmp_path, net):
    folder, exact, weights = net
    theirs = numpy.sqrt(numpy.square(peer(weights, torch.bfloat16) - exact).mean())
    for how in [], ["pieces"]:
        off = numpy.sqrt(numpy.square(logits("cpu", "bf16", folder, TEXT, tmp_path, *how) - exact).mean())
        print(how, off, theirs, off / theirs)
        assert exact.shape[1] == VOCAB and 0.3 * theirs < off < 2 * theirs
