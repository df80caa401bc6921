# SPDX-License-Identifier: Apache-2.0
"""run serve --from FOLDER: prompts, greedy tokens and text of small random networks that transformers made equal its own."""
import json
import os
import pathlib

import pytest

from jm import SOURCE
from packages import python
from runs import one

pytestmark = pytest.mark.skipif(not (pathlib.Path(os.environ["JM_BUILD"]) / "backends/cpu.so").exists(),
                                reason="backend cpu is absent")
TEXT = """The quick brown fox jumps over the lazy dog.

Energy is power times time; 300 W for 20 s are 6 kJ.
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.
a
"""
TOKENS = 24
# folder tokenizer config type text tokens: saves a network, prints what it answers
MAKE = """
import json, pathlib, sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
torch.manual_seed(5)
torch.set_num_threads(1)
folder, tokenizer, config, dtype, text, tokens = sys.argv[1:]
old = json.loads(pathlib.Path(tokenizer).read_text())  # these tokenizers do not read pairs as lists
old["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in old["model"]["merges"]]
pathlib.Path(folder).mkdir()
pathlib.Path(folder, "tokenizer.json").write_text(json.dumps(old))
words = PreTrainedTokenizerFast(tokenizer_file=folder + "/tokenizer.json")
config = LlamaConfig(vocab_size=len(words), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8,
                     max_position_embeddings=256, initializer_range=0.3, **json.loads(config))
net = LlamaForCausalLM(config)
with torch.no_grad():
    for p in net.parameters():
        if p.dim() < 2:
            p.add_(0.2 * torch.randn_like(p))
net.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="60KB")
net = LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
for line in filter(None, pathlib.Path(text).read_text().split("\\n")):
    prompt = words(line, return_tensors="pt").input_ids
    out = net.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=int(tokens), do_sample=False, eos_token_id=None,
                       pad_token_id=0)[0, prompt.shape[1]:]
    print(json.dumps({"prompt_tokens": prompt[0].tolist(), "tokens": out.tolist(),
                      "text": words.decode(out, skip_special_tokens=True, clean_up_tokenization_spaces=False)}))
"""
LLAMA3_1 = {"rope_theta": 10000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                    "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}
KINDS = {  # tokenizer, config, type of the files
    "llama2": ("llama2", {"num_key_value_heads": 8, "rms_norm_eps": 1e-5}, "float32"),
    "llama2_f16": ("llama2", {"num_key_value_heads": 8}, "float16"),
    "llama3": ("llama3", {"num_key_value_heads": 2, "rope_theta": 500000.0}, "float32"),
    "llama3_1_bf16": ("llama3", {"num_key_value_heads": 2, **LLAMA3_1}, "bfloat16"),
    "llama3_2_tied": ("llama3", {"num_key_value_heads": 1, "tie_word_embeddings": True, **LLAMA3_1}, "float32"),
}


def serve(folder, text, answers, *more):
    record = one("run", "serve", "--source", "null", "--device", "cpu", "--precision", "f32", "--from", folder, "--text", text,
                 "--requests", "4", "--output-tokens", TOKENS, "--warmup", "0", "--steps", TOKENS + 20, "--step-tokens", 32,
                 "--answers", answers, *more)
    assert record["verified"] is True and record["weights"]["from"] == str(folder)
    return [json.loads(line) for line in answers.read_text().splitlines()]


def theirs(kind, folder, text):
    tokenizer, config, dtype = KINDS[kind]
    text.write_text(TEXT)
    lines = python("networks", MAKE, folder, SOURCE / f"tests/data/tokenizers/{tokenizer}.json", json.dumps(config), dtype, text,
                   TOKENS)
    return [json.loads(line) for line in lines.splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_equal_those_of_transformers(kind, tmp_path):
    expected = theirs(kind, tmp_path / "net", tmp_path / "text")
    assert len(expected) == 4 and all(len(set(line["tokens"])) > 4 for line in expected)
    found = serve(tmp_path / "net", tmp_path / "text", tmp_path / "answers")
    for ours, line, text in zip(found, expected, filter(None, TEXT.split("\n")), strict=True):
        assert {key: ours[key] for key in line} == line
        assert ours["prompt"] == text


def test_slower_angles_change_the_answers(tmp_path):
    """So the test above would find that they were not read."""
    expected = theirs("llama3_1_bf16", tmp_path / "net", tmp_path / "text")
    found = serve(tmp_path / "net", tmp_path / "text", tmp_path / "answers", "--rope-factor", 1)
    assert [line["tokens"] for line in found] != [line["tokens"] for line in expected]
