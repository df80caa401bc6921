# SPDX-License-Identifier: Apache-2.0
"""A small LLaMA with random weights, and the logits of a text that joulemark serves with it; not a test."""
import json
import subprocess

import numpy

from jm import BUILD
from weights_files import tensor, write

HIDDEN, HEADS, GROUPS, FFN, LAYERS, VOCAB, EPS, THETA = 64, 4, 2, 96, 2, 256, 1e-5, 10000.0
DEPTH = HIDDEN // HEADS
CONFIG = {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": LAYERS,
          "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "vocab_size": VOCAB, "max_position_embeddings": 256,
          "rms_norm_eps": EPS, "rope_theta": THETA, "hidden_act": "silu", "tie_word_embeddings": False}


def bf16(x):
    bits = numpy.asarray(x, "<f4").view("<u4")
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype("<u4").view("<f4").astype("f8")


def random_weights():
    """In f64: matrices of values that bf16 has, vectors of values that f32 has."""
    random = numpy.random.default_rng(7)

    def matrix(rows, columns):  # rows of very different sizes, as one scale for all would not serve
        return bf16(random.normal(0, 0.15, (rows, columns)) * 2.0 ** random.uniform(-3, 1, (rows, 1)))

    def vector():
        return numpy.asarray(random.normal(1, 0.2, HIDDEN), "<f4").astype("f8")
    weights = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN), "model.norm.weight": vector(),
               "lm_head.weight": matrix(VOCAB, HIDDEN)}
    for i in range(LAYERS):
        heads = {"q": HEADS, "k": GROUPS, "v": GROUPS}
        layer = {f"self_attn.{p}_proj.weight": matrix(n * DEPTH, HIDDEN) for p, n in heads.items()}
        layer |= {"self_attn.o_proj.weight": matrix(HIDDEN, HIDDEN), "mlp.gate_proj.weight": matrix(FFN, HIDDEN),
                  "mlp.up_proj.weight": matrix(FFN, HIDDEN), "mlp.down_proj.weight": matrix(HIDDEN, FFN),
                  "input_layernorm.weight": vector(), "post_attention_layernorm.weight": vector()}
        weights |= {f"model.layers.{i}.{name}": value for name, value in layer.items()}
    return weights


def write_net(folder, weights):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write(folder / "model.safetensors", {name: tensor(value.astype("<f4")) for name, value in weights.items()})
    return folder


def logits(device, precision, folder, text, tmp_path, *more):
    """[position, class]; more: as tests/parity/served_logits.c has them."""
    (tmp_path / "ids").write_bytes(text)
    served = BUILD / "tests" / "parity" / "served_logits"
    subprocess.run([served, device, precision, folder, tmp_path / "ids", tmp_path / "logits", *more], check=True, timeout=100)
    return numpy.fromfile(tmp_path / "logits").reshape(len(text), -1)
