# SPDX-License-Identifier: Apache-2.0
"""A folder as Hugging Face lays it out, trained and served: config.json gives the dimensions; what does not fit is refused with
one sentence."""
import json
import os

import numpy
import pytest

from jm import SOURCE, jm
from runs import one
from weights_files import read, values

FAILED = 1
NET = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
       "intermediate_size": 24, "vocab_size": 700, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
       "tie_word_embeddings": True, "hidden_act": "silu"}
DIMS = ("--layers", 2, "--hidden", 16, "--heads", 4, "--kv-heads", 2, "--ffn", 24, "--vocab", 700, "--context", 64, "--tied", "yes")
RUN = ("--source", "null", "--device", "ref", "--precision", "f32", "--warmup", 0, "--selftest", 0)
TRAIN = (*RUN, "--batch", 2, "--seq", 8, "--steps", 2)
SERVE = ("run", "serve", *RUN, "--steps", 12, "--requests", 2, "--input-tokens", 3, "--output-tokens", 4)


@pytest.fixture(scope="module", name="weights")
def saved_weights(tmp_path_factory):
    file = tmp_path_factory.mktemp("net") / "model.safetensors"
    one("run", "llama", *DIMS, *TRAIN, "--save", file)
    return file


@pytest.fixture(name="folder")
def folder_of_hugging_face(weights, tmp_path):
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to(weights)
    (folder / "config.json").write_text(json.dumps(NET))
    return folder


def change(folder, **keys):
    config = {name: value for name, value in {**NET, **keys}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))


def refused(*words):
    r = jm(*words)
    assert r.returncode != 0
    return r.stdout + r.stderr


def test_a_folder_gives_the_dimensions_of_a_training(folder, tmp_path):
    record = one("run", "llama", "--from", folder, *TRAIN, "--save", tmp_path / "again.safetensors")
    assert record["weights"]["from"] == str(folder)
    assert (tmp_path / "again.safetensors").stat().st_size == (folder / "model.safetensors").stat().st_size


def test_a_folder_is_served_and_options_go_before_its_config(folder):
    assert one(*SERVE, "--from", folder)["weights"]["from"] == str(folder)
    assert "context of 6" in refused(*SERVE, "--from", folder, "--context", 6)


def test_random_tokens_have_answers_without_text(folder, tmp_path):
    one(*SERVE, "--from", folder, "--answers", tmp_path / "answers")
    lines = [json.loads(line) for line in (tmp_path / "answers").read_text().splitlines()]
    assert len(lines) >= 2 and all(line.keys() == {"request", "prompt_tokens", "tokens", "token_s"} for line in lines)
    assert {(len(line["prompt_tokens"]), len(line["tokens"])) for line in lines} == {(3, 4)}


def shards(folder):
    return sorted(file.name for file in folder.iterdir())


def test_a_folder_that_was_saved_is_read_again(tmp_path):
    """In shards, and then in one file in its place: what is behind a tensor does not depend on it."""
    net, again = tmp_path / "deep/net", tmp_path / "again"
    one("run", "llama", *DIMS, *TRAIN, "--norm-eps", "1e-3", "--rope-factor", 4, "--save", f"{net}/", "--save-shard", "1e-6")
    assert len(list(net.glob("model-*-of-*.safetensors"))) > 10
    index = json.loads((net / "model.safetensors.index.json").read_text())
    parts = {name: read(net / file)[name] for name, file in index["weight_map"].items()}
    assert index["metadata"]["total_size"] == sum(len(data) for _, _, data in parts.values())
    assert "lm_head.weight" not in parts
    still = (*TRAIN, "--optimizer", "sgd", "--lr", "1e-12", "--weight-decay", 0)
    one("run", "llama", "--from", net, *still, "--save", f"{again}/")
    assert shards(again) == ["config.json", "model.safetensors"]
    assert json.loads((again / "config.json").read_text()) == json.loads((net / "config.json").read_text())
    whole = read(again / "model.safetensors")
    assert whole.keys() == parts.keys()
    for name, part in parts.items():
        numpy.testing.assert_allclose(values(whole[name]), values(part), rtol=0, atol=1e-7, err_msg=name)
    one("run", "llama", "--from", again, *still, "--save", net)
    assert (net / "model.safetensors").exists() and not (net / "model.safetensors.index.json").exists()
    assert one(*SERVE, "--from", net)["verified"] is True


def test_of_an_older_file_and_shards_all_readers_take_the_same(tmp_path):
    """transformers reads model.safetensors where there is one, and no index: shards that are saved later take its place, and as
    long as it is there, it counts here, too."""
    net, still = tmp_path / "net", (*TRAIN, "--optimizer", "sgd", "--lr", "1e-12", "--weight-decay", 0)
    one("run", "llama", *DIMS, *TRAIN, "--save", f"{net}/")
    old = net / "model.safetensors"
    older = old.read_bytes()
    one("run", "llama", *DIMS, *TRAIN, "--seed", 7, "--save", f"{net}/", "--save-shard", "1e-6")
    assert not old.exists() and (net / "model.safetensors.index.json").exists()
    old.write_bytes(older)  # as if a kill had come before the end
    one("run", "llama", "--from", net, *still, "--save", tmp_path / "read")
    for name, tensor in read(tmp_path / "read").items():
        numpy.testing.assert_allclose(values(tensor), values(read(old)[name]), rtol=0, atol=1e-7, err_msg=name)


def test_a_run_that_saves_nothing_leaves_no_folder(tmp_path):
    """Of those above it, too, what it has made; a folder that was there, or has a file in it, stays."""
    (tmp_path / "there").mkdir()
    for more in (("--freeze", "*"), ("--checkpoint", tmp_path / "none/c")):
        for name in ("new/", "there/new/newer/", "there/"):
            refused("run", "llama", *DIMS, *TRAIN, *more, "--save", f"{tmp_path}/{name}")
            assert list(tmp_path.rglob("*")) == [tmp_path / "there"]
    one("run", "llama", *DIMS, *TRAIN, "--save", f"{tmp_path}/new/", "--checkpoint", tmp_path / "new/c", "--checkpoint-every", 1)
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"config.json", "model.safetensors", "c"}


def test_a_folder_that_cannot_be_written_is_said_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    said = refused("run", "llama", *DIMS, *TRAIN, "--save", f"{tmp_path}/file/net/")
    assert str(tmp_path / "file") in said and "Steps" not in said


@pytest.mark.parametrize("keys, word", [
    ({"hidden_size": None}, "'hidden_size'"), ({"hidden_size": "x"}, "'hidden_size'"), ({"vocab_size": 1e12}, "'vocab_size'"),
    ({"rms_norm_eps": -1}, "'rms_norm_eps'"), ({"model_type": "mistral"}, "mistral"), ({"hidden_act": "gelu"}, "gelu"),
    ({"attention_bias": True}, "attention_bias"), ({"mlp_bias": True}, "mlp_bias"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}}, "'high_freq_factor'"),
    ({"num_key_value_heads": 3}, "divide"), ({"intermediate_size": 32}, "mlp."), ({"tie_word_embeddings": False}, "lm_head.weight"),
    ({"num_hidden_layers": 3}, "model.layers.2.")])
def test_a_config_that_does_not_fit_is_refused(folder, keys, word):
    change(folder, **keys)
    for words in ((*SERVE, "--from", folder), ("run", "llama", *TRAIN, "--from", folder)):
        said = refused(*words)
        assert word in said
        assert str(folder) in said or word == "divide"


@pytest.mark.parametrize("command", [("run", "llama", *TRAIN), SERVE], ids=["train", "serve"])
def test_weights_without_a_config_are_named(folder, weights, command):
    """Not the first of the options that the file would give."""
    assert f"Weights {folder / 'absent'} cannot be opened" in one(*command, "--from", folder / "absent", status=FAILED)["reason"]
    assert "no config.json with the dimensions of model llama" in one(*command, "--from", weights, status=FAILED)["reason"]


def test_what_a_config_may_leave_out(folder):
    change(folder, rope_theta=None, hidden_act=None, rope_scaling={"rope_type": "default"}, head_dim=4)
    assert one(*SERVE, "--from", folder)["status"] == "ok"
    change(folder, rope_theta=None, rope_parameters={"rope_theta": 10000.0, "rope_type": "default"})
    assert one(*SERVE, "--from", folder)["status"] == "ok"


def test_a_damaged_config_is_said(folder):
    (folder / "config.json").write_text('{"hidden_size": ')
    assert "config.json is damaged" in refused(*SERVE, "--from", folder)
    (folder / "config.json").write_text("[]")
    assert "config.json is damaged" in refused(*SERVE, "--from", folder)
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    assert "config.json is no regular file" in refused(*SERVE, "--from", folder)
    (folder / "config.json").rmdir()
    os.mkfifo(folder / "config.json")
    assert "config.json is no regular file" in refused(*SERVE, "--from", folder)


def test_a_preset_of_another_network_is_refused(folder):
    said = refused(*SERVE, "--from", folder, "--model", "llama3-8b")
    assert "config.json" in said and "name the model llama instead" in said


def test_prompts_that_cannot_be_read_are_said(folder, tmp_path):
    text = tmp_path / "text"
    tokenizer = SOURCE / "tests/data/tokenizers/llama3.json"  # 702 tokens
    assert "cannot be opened" in refused(*SERVE, "--from", folder, "--text", text, "--tokenizer", tokenizer)
    text.write_text("\n\n")
    assert "no line" in refused(*SERVE, "--from", folder, "--text", text, "--tokenizer", tokenizer)
    text.write_bytes(bytes(9 << 20))
    said = refused(*SERVE, "--from", folder, "--text", text, "--tokenizer", tokenizer)
    assert f"Line 1 of text {text} is longer than 8 MiB" in said
    text.write_text("Hello\n")
    assert "--tokenizer" in refused(*SERVE, "--from", folder, "--text", text)
    assert "token 700" in refused(*SERVE, "--from", folder, "--text", text, "--tokenizer", tokenizer)


# ---- gpt

GPT = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "n_inner": None, "vocab_size": 300, "n_positions": 8,
       "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True}
GPT_DIMS = ("--layers", 2, "--hidden", 16, "--heads", 4, "--vocab", 300, "--context", 8)


@pytest.fixture(scope="module", name="saved_gpt")
def save_gpt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt")
    one("run", "gpt", *GPT_DIMS, *TRAIN, "--save", folder)
    return folder


@pytest.fixture(name="gpt")
def folder_of_gpt(saved_gpt, tmp_path):
    """change(key=value): its config.json, as transformers writes it, with other values."""
    (tmp_path / "model.safetensors").symlink_to(saved_gpt / "model.safetensors")

    def change_gpt(**keys):
        config = {name: value for name, value in {**GPT, **keys}.items() if value is not None}
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path
    return change_gpt


def test_a_folder_of_gpt_gives_the_dimensions_of_a_training(gpt, saved_gpt, tmp_path):
    assert json.loads((saved_gpt / "config.json").read_text()) == {
        **GPT, "n_inner": 64, "architectures": ["GPT2LMHeadModel"], "torch_dtype": "float32"}
    again = tmp_path / "again.safetensors"
    for folder in saved_gpt, gpt():
        assert one("run", "gpt", "--from", folder, *TRAIN, "--save", again)["weights"]["from"] == str(folder)
        old, new = read(saved_gpt / "model.safetensors"), read(again)
        assert {name: shape for name, (_, shape, _) in old.items()} == {name: shape for name, (_, shape, _) in new.items()}


def test_rotary_positions_have_no_config_of_gpt2(tmp_path):
    one("run", "gpt", *GPT_DIMS, "--positions", "rotary", *TRAIN, "--save", f"{tmp_path}/net/")
    assert shards(tmp_path / "net") == ["model.safetensors"]


@pytest.mark.parametrize("keys, word", [
    ({"n_embd": None}, "has no 'n_embd', which model gpt needs"), ({"n_positions": "x"}, "'n_positions' is no number"),
    ({"vocab_size": 1e12}, "'vocab_size' is no number"), ({"layer_norm_epsilon": -1}, "'layer_norm_epsilon'"),
    ({"model_type": "gpt_neo"}, "gpt_neo"), ({"activation_function": "relu"}, "computes gelu_new only"),
    ({"scale_attn_weights": False}, "scale_attn_weights is false, and model gpt computes true only"),
    ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ({"add_cross_attention": True}, "add_cross_attention"), ({"tie_word_embeddings": False}, "tie_word_embeddings"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"), ({"n_inner": 32}, "c_fc"), ({"n_layer": 3}, "h.2.")])
def test_a_config_of_gpt_that_does_not_fit_is_refused(gpt, keys, word):
    folder = gpt(**keys)
    said = refused("run", "gpt", *TRAIN, "--from", folder)
    assert word in said and str(folder) in said


def test_a_preset_of_another_gpt_is_refused(gpt):
    assert "name the model gpt instead" in refused("run", "gpt-117m", *TRAIN, "--from", gpt())
