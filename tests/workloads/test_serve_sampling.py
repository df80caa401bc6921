# SPDX-License-Identifier: Apache-2.0
"""Tokens that serve draws have the distribution of NumPy's softmax over the logits of the same weights, and depend on their request
alone."""
import collections
import json
import os
import pathlib

import numpy
import pytest

from jm import jm
from runs import one
from serving import SERVE
from weights_files import tensor, write

CPU = pathlib.Path(os.environ["JM_BUILD"]) / "backends/cpu.so"
DEVICES = ["ref"] + (["cpu"] if CPU.exists() else [])
VOCAB, HIDDEN, FFN, HEADS, KV, EPS = 8, 16, 24, 4, 2, 1e-5
NET = {"model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": HEADS,
       "num_key_value_heads": KV, "intermediate_size": FFN, "vocab_size": VOCAB, "max_position_embeddings": 64,
       "rms_norm_eps": EPS, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"}
# chi-square that 1 of 100,000 samples exceeds, by degrees of freedom (tables); the seed is fixed, so it holds always or never
MOST = dict(enumerate([19.51, 23.03, 25.90, 28.47, 30.86, 33.11, 35.26], 1))


def weights():
    """Weights large enough for logits that differ."""
    random = numpy.random.default_rng(7)
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    layer = {"input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,), "self_attn.q_proj": (HIDDEN, HIDDEN),
             "self_attn.k_proj": (HIDDEN // 2, HIDDEN), "self_attn.v_proj": (HIDDEN // 2, HIDDEN),
             "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN),
             "mlp.down_proj": (HIDDEN, FFN)}
    shapes.update({f"model.layers.0.{name}.weight": shape for name, shape in layer.items()})
    return {name: (random.normal(size=shape) * 0.3 + (len(shape) == 1)).astype("<f4") for name, shape in shapes.items()}


def logits(w, token):
    """After a prompt of one token, which attends to itself alone."""
    def norm(x, name):
        return x / numpy.sqrt((x * x).mean() + EPS) * w[name]

    def of(name):
        return w[f"model.layers.0.{name}.weight"].astype(float)

    x = w["model.embed_tokens.weight"][token].astype(float)
    value = of("self_attn.v_proj") @ norm(x, "model.layers.0.input_layernorm.weight")
    heads = numpy.repeat(value.reshape(KV, -1), HEADS // KV, axis=0).reshape(-1)
    x = x + of("self_attn.o_proj") @ heads
    h = norm(x, "model.layers.0.post_attention_layernorm.weight")
    gate = of("mlp.gate_proj") @ h
    x = x + of("mlp.down_proj") @ (gate / (1 + numpy.exp(-gate)) * (of("mlp.up_proj") @ h))
    return w["lm_head.weight"].astype(float) @ norm(x, "model.norm.weight")


def probabilities(x, temperature, k, p):
    weight = numpy.exp((x - x.max()) / temperature)
    order = numpy.argsort(-x, kind="stable")
    kept = order[:k or None]
    share = numpy.cumsum(weight[kept]) / weight[kept].sum()
    kept = kept[:int((share < p).sum()) + 1]
    out = numpy.zeros_like(weight)
    out[kept] = weight[kept] / weight[kept].sum()
    return out


@pytest.fixture(scope="module", name="net")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("net")
    (folder / "config.json").write_text(json.dumps(NET))
    write(folder / "model.safetensors", {name: tensor(w) for name, w in weights().items()})
    return folder


FROM = SERVE[:SERVE.index("--model")]  # without the options of a model


def drawn(tmp_path, net, device, *options):
    answers = tmp_path / "answers"
    one(*FROM, "--from", net, "--device", device, "--input-tokens", "1", "--answers", answers,
        *options)
    return [json.loads(line) for line in answers.read_text().splitlines()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("temperature, k, p", [(1, 0, 1), (0.7, 3, 1), (1.3, 0, 0.8), (2, 6, 0.9)])
def test_tokens_have_the_distribution_of_softmax(tmp_path, net, device, temperature, k, p):
    w = weights()
    rows = drawn(tmp_path, net, device, "--requests", "3000", "--output-tokens", "1", "--steps", "60", "--temperature",
                 temperature, "--top-k", k, "--top-p", p, "--running", "64", "--step-tokens", "64")
    assert len(rows) > 2500
    for prompt in range(VOCAB):
        seen = collections.Counter(row["tokens"][0] for row in rows if row["prompt_tokens"] == [prompt])
        expected = probabilities(logits(w, prompt), temperature, k, p) * sum(seen.values())
        assert set(seen) <= set(numpy.flatnonzero(expected))
        large = [token for token in range(VOCAB) if expected[token] >= 5]
        rest = expected.sum() - expected[large].sum()
        found = [seen[token] for token in large] + ([sum(seen.values()) - sum(seen[t] for t in large)] if rest >= 5 else [])
        ideal = [expected[token] for token in large] + ([rest] if rest >= 5 else [])
        if len(ideal) > 1:
            chi = sum((f - e) ** 2 / e for f, e in zip(found, ideal))
            assert chi < MOST[len(ideal) - 1], (prompt, found, ideal)


@pytest.mark.parametrize("device", DEVICES)
def test_draws_depend_on_their_request_alone(tmp_path, net, device):
    def run(*options):
        return {row["request"]: row["tokens"] for row in
                drawn(tmp_path, net, device, "--requests", "20", "--output-tokens", "1:12", "--temperature", "1", "--steps", "60",
                      *options)}
    beside, few = run("--running", "16"), run("--running", "2", "--step-tokens", "8", "--cache-pages", "3")
    both = beside.keys() & few.keys()
    assert len(both) > 10 and all(beside[i] == few[i] for i in both)
    assert len({token for i in both for token in beside[i]}) > 3


def test_temperature_0_takes_the_likeliest(tmp_path, net):
    w = weights()
    for row in drawn(tmp_path, net, "ref", "--requests", "40", "--output-tokens", "1", "--steps", "3", "--top-k", "3"):
        assert row["tokens"] == [int(logits(w, row["prompt_tokens"][0]).argmax())]


def test_what_is_no_rule_is_said(net):
    for option in (["--temperature", "-1"], ["--top-p", "1.5"], ["--top-k", "-2"]):
        r = jm(*FROM, "--from", net, "--device", "ref", *option)
        assert r.returncode != 0 and option[0] in r.stdout + r.stderr
