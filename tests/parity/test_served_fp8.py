# SPDX-License-Identifier: Apache-2.0
"""
run serve --precision fp8 and --kv f8e4m3: logits equal those of a model in NumPy that rounds in the same places; a network that was trained
loses little; processors answer as the reference does; the plan has the smaller weights.
"""
import json
import math

import numpy
import pytest

from jm import BUILD, SOURCE, jm
from served_net import DEPTH, EPS, FFN, GROUPS, HEADS, LAYERS, THETA, bf16, logits, random_weights, write_net

TEXT = (SOURCE / "LICENSE").read_bytes()


@pytest.fixture
def cpu():
    if not (BUILD / "backends/cpu.so").exists():
        pytest.skip("backend cpu is absent")


# ---- the model in NumPy ---------------------------------------------------------------------------------------------------

CODES = numpy.array([(m / 8 + (e > 0)) * 2.0 ** (max(e, 1) - 7) for e in range(16) for m in range(8)][:-1])


def e4m3(x):
    """The nearest of all numbers that e4m3 has; of two the one whose code is even."""
    size = numpy.minimum(numpy.abs(x), 448)
    above = numpy.clip(numpy.searchsorted(CODES, size), 1, len(CODES) - 1)
    low, high = CODES[above - 1], CODES[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    return numpy.where(up, high, low) * numpy.sign(x)


def by_rows(x):
    """(x in e4m3, the factor of each row)"""
    x = x.astype("f4")
    scale = numpy.float32(448) / numpy.abs(x).max(-1, keepdims=True)
    return e4m3((scale * x).astype("f8")), (numpy.float32(1) / scale).astype("f8")


def whole(x):
    x = x.astype("f4")
    scale = numpy.float32(448) / numpy.abs(x).max()
    return e4m3((scale * x).astype("f8")), float(numpy.float32(1) / scale)


def product(x, w, narrow):
    if not narrow:
        return bf16(x @ w.T)
    (x, xs), (w, ws) = narrow(x), narrow(w)
    return bf16(x @ w.T * xs * numpy.transpose(ws))


def norm(x, gamma):
    return bf16(x / numpy.sqrt((x * x).mean(-1, keepdims=True) + EPS) * gamma)


def turn(x, positions, stored):
    half = DEPTH // 2
    angle = positions[:, None, None] * THETA ** (-numpy.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return stored(numpy.concatenate([a * numpy.cos(angle) - b * numpy.sin(angle), b * numpy.cos(angle) + a * numpy.sin(angle)], -1))


def attention(qkv, rows, kept):
    """kept: how keys and values are rounded, and so queries before they meet keys of 8 bits."""
    parts = qkv.reshape(rows, HEADS + 2 * GROUPS, DEPTH)
    positions = numpy.arange(rows)
    q, k, v = (kept(turn(parts[:, :HEADS], positions, bf16)), turn(parts[:, HEADS:HEADS + GROUPS], positions, kept), kept(parts[:, HEADS + GROUPS:]))
    k, v = (numpy.repeat(x, HEADS // GROUPS, 1) for x in (k, v))
    z = numpy.einsum("qhd,khd->hqk", q, k) / math.sqrt(DEPTH)
    z = numpy.where(positions[None, :] <= positions[:, None], z, -numpy.inf)
    p = numpy.exp(z - z.max(-1, keepdims=True))
    return bf16(numpy.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v).reshape(rows, -1))


def model(weights, ids, narrow, kept=bf16):
    """The logits. narrow: how factors of products inside blocks are rounded; None = not at all. kept: keys and values."""
    x = weights["model.embed_tokens.weight"][ids]
    for i in range(LAYERS):
        w = {name.removeprefix(f"model.layers.{i}."): value for name, value in weights.items()}
        h = norm(x, w["input_layernorm.weight"])
        qkv = product(h, numpy.concatenate([w[f"self_attn.{p}_proj.weight"] for p in "qkv"]), narrow)
        x = bf16(x + product(attention(qkv, len(ids), kept), w["self_attn.o_proj.weight"], narrow))
        h = norm(x, w["post_attention_layernorm.weight"])
        pair = product(h, numpy.concatenate([w[f"mlp.{p}_proj.weight"] for p in ("gate", "up")]), narrow)
        gate, up = pair[:, :FFN], pair[:, FFN:]
        x = bf16(x + product(bf16(gate / (1 + numpy.exp(-gate)) * up), w["mlp.down_proj.weight"], narrow))
    return bf16(norm(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T)


# ---- the comparisons -------------------------------------------------------------------------------------------------------

def test_logits_equal_those_of_numpy(tmp_path, cpu):
    """The reference has the same bits; a processor, whose sums are in f32, sometimes rounds one of them to the other side. Both
    are far nearer than what the same network gives with one scale for a tensor, or in bf16."""
    weights = random_weights()
    folder = write_net(tmp_path / "net", weights)
    text = TEXT[:23]
    expected = model(weights, numpy.frombuffer(text, "u1"), by_rows)
    size = numpy.abs(expected).mean()
    for how in [], ["pieces"]:
        assert (logits("ref", "fp8", folder, text, tmp_path, *how) == expected).mean() > 0.99, how
    off = {"cpu": logits("cpu", "fp8", folder, text, tmp_path), "ref": logits("ref", "fp8", folder, text, tmp_path),
           "one scale": model(weights, numpy.frombuffer(text, "u1"), whole),
           "bf16": model(weights, numpy.frombuffer(text, "u1"), None)}
    off = {name: numpy.abs(found - expected).mean() / size for name, found in off.items()}
    print(off)
    assert off["ref"] < 1e-4 and off["cpu"] < 4e-3, off
    assert min(off["one scale"], off["bf16"]) > 5 * off["cpu"], off


@pytest.mark.parametrize("precision, narrow", [("bf16", None), ("fp8", by_rows)])
def test_keys_and_values_of_8_bits_equal_those_of_numpy(tmp_path, cpu, precision, narrow):
    """Some values exceed 448, and are kept as 448."""
    weights = random_weights()
    weights["model.layers.0.self_attn.v_proj.weight"] *= 512
    weights["model.layers.0.self_attn.o_proj.weight"] /= 512
    folder = write_net(tmp_path / "net", weights)
    text = TEXT[:23]
    ids = numpy.frombuffer(text, "u1")
    expected = model(weights, ids, narrow, e4m3)
    size = numpy.abs(expected).mean()
    found = {device: logits(device, precision, folder, text, tmp_path, "f8e4m3") for device in ("cpu", "ref")}
    assert (found["ref"] == expected).mean() > 0.99
    found["bf16"] = model(weights, ids, narrow)
    found["not saturated"] = model(weights, ids, narrow, lambda x: numpy.where(numpy.abs(x) < 464, e4m3(x), x))
    off = {name: numpy.abs(x - expected).mean() / size for name, x in found.items()}
    print(off)
    assert off["ref"] < 1e-4 and off["cpu"] < 4e-3, off
    assert min(off["bf16"], off["not saturated"]) > 5 * off["cpu"], off


def test_a_trained_network_loses_less_than_1_percent(tmp_path, cpu):
    """Of perplexity, on bytes that it was not trained on."""
    folder, licence, learnt = tmp_path / "net", (SOURCE / "LICENSE").read_bytes(), tmp_path / "learnt.txt"
    learnt.write_bytes(licence[:9000])
    done = jm("run", "train", "--model", "llama", "--layers", 2, "--hidden", 64, "--heads", 4, "--kv-heads", 2, "--ffn", 96,
              "--vocab", 256, "--context", 256, "--seq", 64, "--batch", 8, "--lr", 0.003, "--device", "cpu", "--precision", "f32",
              "--text", learnt, "--warmup", 0, "--steps", 150, "--source", "null", "--save", f"{folder}/", timeout=1000)
    assert done.returncode == 0, done.stderr
    found = {}
    for precision, *kv in (["bf16"], ["fp8"], ["bf16", "f8e4m3"], ["fp8", "f8e4m3"]):
        losses = []
        for text in (licence[at:at + 256] for at in range(9000, 11048, 256)):
            z = logits("cpu", precision, folder, text, tmp_path, *kv)[:-1]
            wanted = numpy.frombuffer(text, "u1")[1:]
            losses.append((numpy.log(numpy.exp(z - z.max(-1, keepdims=True)).sum(-1)) + z.max(-1) - z[numpy.arange(len(z)), wanted]).mean())
        found[precision, *kv] = math.exp(numpy.mean(losses))
    print(found)
    whole = found[("bf16",)]
    assert whole < 30 and len(set(found.values())) == 4  # of 256 without knowledge
    assert max(found.values()) < 1.01 * whole, found


@pytest.mark.parametrize("kv, kept", [("auto", "bf16"), ("f8e4m3", "f8e4m3")])
def test_a_processor_answers_as_the_reference(tmp_path, cpu, kv, kept):
    answers = {}
    for device in ("cpu", "ref"):
        file = tmp_path / device
        done = jm("run", "serve", "--model", "llama", "--layers", 2, "--hidden", 32, "--heads", 4, "--kv-heads", 2, "--context", 64,
                  "--device", device, "--precision", "fp8", "--kv", kv, "--requests", 3, "--input-tokens", 5, "--output-tokens", 12, "--warmup",
                  0, "--steps", 40, "--source", "null", "--answers", file, "--json", "-")
        assert done.returncode == 0, done.stderr
        record = json.loads(done.stdout)
        assert record["precision"] == "fp8" and record["serving"]["cache_type"] == kept
        answers[device] = [json.loads(line)["tokens"] for line in file.read_text().splitlines()]
    assert answers["cpu"] == answers["ref"] and len(answers["cpu"]) >= 3
    assert all(len(set(tokens)) > 4 for tokens in answers["ref"][:3])


def planned(precision):
    done = jm("describe", "llama3-8b", "--serve", "--memory", 80, "--device", "ref", "--step-tokens", 64, "--precision", precision,
              "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_plan_has_weights_of_8_bits():
    """Matrices inside blocks, and a factor in f32 for each of their rows; the tables of tokens and classes stay in bf16."""
    layer = {6144: 4096, 4096: 4096 + 14336, 28672: 4096}  # rows: columns of all matrices with so many
    codes = 32 * sum(rows * columns for rows, columns in layer.items())
    factors = 32 * 4 * (6144 + 2 * 4096 + 28672)
    tables, norms = 2 * 2 * 128256 * 4096, 4 * 4096 * 65
    eight, sixteen = planned("fp8"), planned("bf16")
    assert 0 <= eight["parameter_bytes"] - (codes + factors + tables + norms) < 64 * 400  # each tensor begins at a multiple of 64
    assert eight["parameters"] == sixteen["parameters"] == 8030261248
    assert sixteen["parameter_bytes"] - eight["parameter_bytes"] == pytest.approx(codes - factors, rel=1e-4)
    assert eight["cache_pages"] > sixteen["cache_pages"]
