# SPDX-License-Identifier: Apache-2.0
"""The sharded update of models that ranks share: each rank updates a share of its part, and the losses are those of one rank."""
import pytest

from gangs import devices
from runs import FAILED, one
from split_models import STEPS, losses, language_models

GPT, LLAMA = language_models("--accumulate", 2, vocab=257)
ALONE = {"gpt": GPT, "llama": LLAMA}  # with a table that both ends have, and with two
CLIPPED = ["--precision", "f64", "--device", "ref", "--optimizer", "sgd", "--lr", "0.1", "--clip", "0.1"]
WAYS = {
    "tensor": ["--ranks", 4, "--tp", 2],
    "rows": ["--ranks", 6, "--tp", 2, "--sequence-parallel"],
    "stages": ["--ranks", 4, "--pp", 2],
    "chunks": ["--ranks", 4, "--pp", 2, "--pp-chunks", 2],
    "both": ["--ranks", 8, "--tp", 2, "--pp", 2, "--sequence-parallel"],
}


def train(work, way, *more, steps=STEPS, status=0, **kwargs):
    """Of each step twelve sequences, whatever the ranks."""
    models = 3 if way == "rows" else 2 if way else 1
    r = one(*work, *WAYS.get(way, []), "--batch", 6 // models, "--steps", steps, *more, status=status, **kwargs)
    if way and not status:
        assert r["communication"]["shard_update"] is ("off" not in more)
    return r


@pytest.fixture(name="alone", scope="module")
def of_one_rank():
    return {name: losses(train(work, "", *CLIPPED)) for name, work in ALONE.items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ALONE)
def test_losses_are_those_of_one_rank(alone, name, way):
    """Each step is clipped, so that a wrong norm of the shares shows."""
    assert losses(train(ALONE[name], way, *CLIPPED)) == pytest.approx(alone[name], rel=1e-12)


@pytest.mark.parametrize("how", ["local", "net", "later", "host"])
def test_by_each_way_between_ranks(how):
    """`later`: by the fake NCCL, whose transfers take time, so that what follows has to wait for them; `host`: by copies of
    such devices through the memory of the host, in queues of their own."""
    more, env = ["--device", "cpu", "--transport", how], {}
    if how in ("later", "host"):
        more, env = ["--device", ",".join(f"later:{i}" for i in range(8))], {"env": {**devices(8), "JM_FAKE_NCCL_US": "500"}}
        more += ["--transport", "host"] if how == "host" else []
    elif how == "local":
        more = more[:2]
    shared = train(GPT, "both", *more, **env)
    assert losses(shared) == pytest.approx(losses(train(GPT, "", "--device", "cpu")), rel=2e-6)


@pytest.mark.parametrize("name, pp, shards", [("gpt", 1, "off"), ("llama", 1, "on"), ("gpt", 2, "on")])
def test_groups_that_add_in_other_orders_keep_whole_parameters_equal(name, pp, shards):
    """Three models: each rank of a model has the sum over its own group, which the fake NCCL adds in an order of its own.
    The run compares whole parameters bit by bit at its end."""
    ranks = 6 * pp
    env = {**devices(ranks), "JM_FAKE_NCCL_ORDER": "own"}
    work = [*ALONE[name], "--ranks", ranks, "--tp", 2, "--pp", pp, "--batch", 2, "--steps", 2, "--shard-update", shards]
    r = one(*work, "--device", ",".join(f"later:{i}" for i in range(ranks)), env=env)
    assert losses(r) == pytest.approx(losses(train(ALONE[name], "", "--device", "cpu", steps=2)), rel=2e-6)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("precision", ["f32", "bf16", "bf16-true"])
def test_files_have_the_bits_of_a_whole_update(way, precision, tmp_path):
    """Where nothing is clipped: weights and checkpoints, also of matrices of which each rank has an up-to-date copy, and not the master; and of those
    that are rounded at random, by the number of an element in the slab."""
    more = ["--device", "ref", "--precision", precision, "--clip", 0, "--gradients", "f32"]
    found = [train(LLAMA, way, *more, "--shard-update", word, "--save", tmp_path / word, "--checkpoint", tmp_path / f"{word}.c",
                   steps=4) for word in ("on", "off")]
    assert (tmp_path / "on").read_bytes() == (tmp_path / "off").read_bytes()
    assert (tmp_path / "on.c").read_bytes() == (tmp_path / "off.c").read_bytes()
    assert found[0]["step_series"]["loss"] == found[1]["step_series"]["loss"]
    kept = [r["plan"]["persistent_bytes"] for r in found]
    assert kept[0] < kept[1] or precision == "bf16-true"  # whose halved moments take as much as the sums of gradients


def test_a_rank_that_counts_nothing_of_the_norm_updates_all():
    """With frozen matrices no rank has a part of its own."""
    more = ["--device", "cpu", "--freeze", "*.attn.*,*.mlp.*"]
    shared = one(*LLAMA, *WAYS["tensor"], "--batch", 3, "--steps", 2, *more)
    sums = shared["communication"]
    assert sums["shard_update"] is False and "some ranks of a model have no trained part" in sums["whole_update_reason"]
    assert shared["step_series"]["loss"] == pytest.approx(train(LLAMA, "", *more, steps=2)["step_series"]["loss"], rel=2e-6)


@pytest.mark.parametrize("way", [["--tp", 2], ["--pp", 2]], ids=str)
def test_one_model_has_no_shares(way):
    r = one(*LLAMA, "--ranks", 2, *way, "--device", "cpu", "--batch", 3, "--steps", 1, "--shard-update", "on", status=FAILED)
    assert "--shard-update on has no effect" in r["reason"]
