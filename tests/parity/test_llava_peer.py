# SPDX-License-Identifier: Apache-2.0
"""The LLaVA of bench/step_torch.py, whose CLIP is timed beside ours, has the loss of joulemark on joulemark's weights."""
import os
import subprocess
import sys

import numpy
import pytest

import parity
import weights_files
from jm import SOURCE

torch = pytest.importorskip("torch", reason="python3-torch is not installed: no other side")
sys.path.insert(0, str(SOURCE / "bench"))
import step_torch  # pylint: disable=wrong-import-position

BATCH, SEQ, PLACES, VOCAB = 2, 24, 16, 96
CLIP = {"layers": 2, "hidden": 24, "heads": 3, "ffn": 40}
DIMS = {"layers": 1, "hidden": 32, "heads": 2, "kv-heads": 1, "ffn": 48, "vocab": VOCAB, "context": SEQ, "theta": 10000}
STEP = [("image", "<f4", (BATCH, 3, 16, 16)), ("ids", "<i4", (BATCH, SEQ)), ("target", "<i4", (BATCH, SEQ)), ("picture", "<i4", BATCH)]
VISION, LLAMA = "vision_tower.vision_model.", "language_model.model."
BLOCK = {"ln_1": ["layer_norm1"], "qkv": [f"self_attn.{x}_proj" for x in "qkv"], "out": ["self_attn.out_proj"], "ln_2": ["layer_norm2"],
         "up": ["mlp.fc1"], "down": ["mlp.fc2"]}
LAYER = {"ln_1": ["input_layernorm"], "qkv": [f"self_attn.{x}_proj" for x in "qkv"], "out": ["self_attn.o_proj"],
         "ln_2": ["post_attention_layernorm"], "up": ["mlp.gate_proj", "mlp.up_proj"], "down": ["mlp.down_proj"]}
NAMES = {"clip.patches": VISION + "embeddings.patch_embedding", "clip.first": VISION + "embeddings.class_embedding",
         "clip.positions": VISION + "embeddings.position_embedding.weight", "clip.ln_pre": VISION + "pre_layrnorm",
         "projector.0": "multi_modal_projector.linear_1", "projector.2": "multi_modal_projector.linear_2",
         "llama.tokens": LLAMA + "embed_tokens", "llama.ln_f": LLAMA + "norm", "llama.head": "language_model.lm_head"}


def theirs(name):
    """The names in files of transformers whose tensors make that of step_torch.py."""
    if name in NAMES:
        return [NAMES[name]]
    part, kind = name.rsplit(".", 1)
    if part in NAMES:
        return [f"{NAMES[part]}.{kind}"]
    network, _, layer, inner = part.split(".")
    prefix, table = (VISION + "encoder", BLOCK) if network == "clip" else (LLAMA[:-1], LAYER)
    return [f"{prefix}.layers.{layer}.{one}.{kind}" for one in table[inner]]


def test_same_loss(tmp_path, monkeypatch):
    rng, step = numpy.random.default_rng(4), numpy.zeros(1, STEP)
    step["image"], step["ids"] = rng.standard_normal(step["image"].shape), rng.integers(0, VOCAB, (BATCH, SEQ))
    step["target"] = rng.integers(0, VOCAB, (BATCH, SEQ))
    step["target"][:, :, :PLACES - 1] = -100
    step.tofile(tmp_path / "data")
    saved = tmp_path / "start.safetensors"
    vision = {"image": 16, "patch": 4, **{f"vision-{name}": value for name, value in CLIP.items()}}
    words = [parity.LOSSES, "llava", "cpu", "f32", 1, BATCH, SEQ, tmp_path / "data", tmp_path / "w", 1,
             *(f"{name}={value}" for name, value in {**DIMS, **vision}.items())]
    run = lambda steps, **env: subprocess.run([*map(str, words[:4]), str(steps), *map(str, words[5:])], check=True, text=True,
                                              stdout=subprocess.PIPE, env={**os.environ, **env}, timeout=100).stdout
    run(0, JM_TEST_SAVE=str(saved))
    ours = float(run(1).split()[0])
    for name, value in (("IMAGE", 16), ("PATCH", 4), ("DIMS", CLIP)):
        monkeypatch.setattr(step_torch.Clip, name, value)
    net, _ = step_torch.declare("clip", BATCH, SEQ, DIMS, torch.float32)
    found = {name: weights_files.values(t) for name, t in weights_files.read(saved).items()}
    net.load_state_dict({name: torch.tensor(numpy.concatenate([found.pop(one) for one in theirs(name)])).reshape(p.shape)
                         for name, p in net.state_dict().items()})
    assert not found
    image, ids, target = (torch.tensor(step[name][0]) for name in ("image", "ids", "target"))
    mask = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1)
    loss, unlike = (net(x, ids[:, PLACES:].long(), target[:, PLACES - 1:].long(), mask).item() for x in (image, image.flip(2)))
    assert ours == pytest.approx(loss, rel=1e-5)
    assert abs(loss - unlike) > 1e-3  # the picture matters
