# SPDX-License-Identifier: Apache-2.0
"""One random LLaMA as Hugging Face lays it out and as GGUF, the file of llama.cpp; not a test. llama_files.py FOLDER
FILE.gguf [bf16] writes what FOLDER (config.json, model.safetensors in F32) has, matrices in F32 or BF16, by the package gguf."""
import json
import math
import pathlib
import sys

import numpy

from weights_files import read, tensor, values, write

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def config(hidden, ffn, layers, heads, kv_heads, vocab, context, **more):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
            "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
            "hidden_act": "silu", **more}


def shapes_of(c):
    """Of all tensors, by name."""
    hidden, head = c["hidden_size"], c["hidden_size"] // c["num_attention_heads"]
    keys, ffn = c["num_key_value_heads"] * head, c["intermediate_size"]
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        for name, shape in {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
                            "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden),
                            "mlp.down_proj": (hidden, ffn), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}.items():
            shapes[f"model.layers.{i}.{name}.weight"] = shape
    return shapes


def make(folder, c, spread, seed=5):
    """Writes such a network: normal matrices of this standard deviation."""
    draw = numpy.random.default_rng(seed)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(c))
    write(folder / "model.safetensors", {
        name: tensor((draw.standard_normal(shape, numpy.float32) * (spread if len(shape) > 1 else 0.2)
                      + (len(shape) == 1)).astype("<f4")) for name, shape in shapes_of(c).items()})


def turned(w, heads):
    """llama.cpp rotates the pairs (2 i, 2 i + 1) of a head, not (i, i + D/2)."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(w.shape)


def slower(c, scaling):
    """How many times slower each pair of a head turns."""
    head = c["hidden_size"] // c["num_attention_heads"]
    length = 2 * math.pi * c["rope_theta"] ** (numpy.arange(0, head, 2) / head)  # tokens of a turn
    turns = scaling["original_max_position_embeddings"] / length
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    share = numpy.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - share) / factor + share)).astype("<f4")


NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}


def own_name(name):
    part = name.removeprefix("model.").removesuffix(".weight").split(".", 2)
    return f"blk.{part[1]}.{NAMES[part[2]]}.weight" if part[0] == "layers" else f"{NAMES[part[0]]}.weight"


def word(token):
    """The text of a token, from which words() reads it again."""
    return f"{token};"


def words(text):
    return [int(part) for part in text.split(";")[:-1]]


def with_end(w):
    """One token more, which ends a text and whose logit is 0; a server with ignore_eos never chooses it."""
    return numpy.concatenate([w, numpy.zeros((1, w.shape[1]), w.dtype)])


def tensors(folder, c):
    for name, data in read(folder / "model.safetensors").items():
        w = values(data)
        if "q_proj" in name:
            w = turned(w, c["num_attention_heads"])
        elif "k_proj" in name:
            w = turned(w, c["num_key_value_heads"])
        elif "embed_tokens" in name or "lm_head" in name:
            w = with_end(w)
        yield own_name(name), w
    if c.get("rope_scaling"):
        yield "rope_freqs.weight", slower(c, c["rope_scaling"])


def write_gguf(folder, path, precision):
    import gguf  # pylint: disable=import-outside-toplevel,import-error  # in the folder of llama.cpp
    c = json.loads((folder / "config.json").read_text())
    vocab = c["vocab_size"] + 1
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(c["max_position_embeddings"])
    out.add_embedding_length(c["hidden_size"])
    out.add_block_count(c["num_hidden_layers"])
    out.add_feed_forward_length(c["intermediate_size"])
    out.add_head_count(c["num_attention_heads"])
    out.add_head_count_kv(c["num_key_value_heads"])
    out.add_layer_norm_rms_eps(c["rms_norm_eps"])
    out.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    out.add_rope_freq_base(c["rope_theta"])
    out.add_vocab_size(vocab)
    types = gguf.GGMLQuantizationType
    out.add_file_type(32 if precision == "bf16" else 0)  # what llama.cpp says of the file
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("llama-bpe")
    out.add_token_list([word(i) for i in range(vocab)])
    out.add_token_types([1] * vocab)
    out.add_token_merges(["0 ;"])
    out.add_bos_token_id(vocab - 1)
    out.add_eos_token_id(vocab - 1)
    out.add_add_bos_token(False)
    for name, w in tensors(folder, c):
        kind = types.BF16 if precision == "bf16" and w.ndim > 1 else types.F32
        out.add_tensor(name, gguf.quants.quantize(w, kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    write_gguf(pathlib.Path(sys.argv[1]), sys.argv[2], *(sys.argv[3:] or ["f32"]))
