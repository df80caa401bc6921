# SPDX-License-Identifier: Apache-2.0
"""--save, --from, --checkpoint and --continue of models that ranks share: their files are those of one rank."""
import shutil

import numpy
import pytest

from gangs import devices
from runs import FAILED, limit_files, one
from split_models import losses, language_models
from weights_files import read, values

GPT, LLAMA = language_models("--accumulate", 2, vocab=257)
WAYS = {
    "tensor": ["--ranks", 2, "--tp", 2],
    "stages": ["--ranks", 2, "--pp", 2],
    "chunks": ["--ranks", 2, "--pp", 2, "--pp-chunks", 2],
    "both": ["--ranks", 8, "--tp", 2, "--pp", 2, "--sequence-parallel"],
}
F64 = ["--precision", "f64", "--device", "ref"]


def train(work, way, *more, steps=3, status=0, **kwargs):
    """The samples of a step are those of four sequences, twice."""
    ranks = WAYS.get(way, [])
    models = 2 if way == "both" else 1
    return one(*work, *ranks, "--batch", 4 // models, "--steps", steps, *more, status=status, **kwargs)


@pytest.fixture(name="alone", scope="module")
def files_and_losses_of_one_rank(tmp_path_factory):
    """After three steps a checkpoint, the weights as a folder of shards and as a file; losses of eight steps, and of three from
    the weights."""
    folder = tmp_path_factory.mktemp("alone")
    train(GPT, "", *F64, "--save", f"{folder}/shards/", "--save-shard", "5e-5", "--checkpoint", folder / "c")
    train(GPT, "", *F64, "--save", folder / "net")
    return folder, losses(train(GPT, "", *F64, steps=8)), train(GPT, "", *F64, "--from", folder / "net")


@pytest.mark.parametrize("way", WAYS)
def test_start_values_are_saved_as_the_bytes_of_one_rank(way, tmp_path):
    """With this rate no parameter in f32 changes."""
    still = ["--optimizer", "sgd", "--lr", "1e-12", "--weight-decay", 0, "--device", "cpu"]
    train(LLAMA, "", *still, "--save", tmp_path / "one", steps=1)
    train(LLAMA, way, *still, "--save", tmp_path / "shared", steps=1)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "shared").read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_weights_and_moments_after_steps_are_those_of_one_rank(alone, way, tmp_path):
    one_rank, shared = alone[0], tmp_path / "shards"
    train(GPT, way, *F64, "--save", f"{shared}/", "--save-shard", "5e-5", "--checkpoint", tmp_path / "c")
    files = sorted(path.name for path in (one_rank / "shards").iterdir())
    assert files == sorted(path.name for path in shared.iterdir()) and len(files) > 3
    shards = [(one_rank / "shards" / f, shared / f) for f in files if f.endswith(".safetensors")]
    for first, second in [*shards, (one_rank / "c", tmp_path / "c")]:
        ours, theirs = read(first), read(second)
        assert list(ours) == list(theirs)
        for name, t in ours.items():
            assert theirs[name][:2] == t[:2], name
            most = numpy.abs(values(t)).max()
            numpy.testing.assert_allclose(values(theirs[name]), values(t), rtol=0, atol=1e-9 * most, err_msg=name)
    assert {"adamw.m/h0.attn.out.weight", "adamw.v/h3.attn.qkv.weight"} <= set(read(tmp_path / "c"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [["--device", "cpu", "--dropout", "0.1"], ["--device", "ref", "--precision", "bf16-true"]],
                         ids=["dropout", "pure"])
def test_two_parts_have_the_bits_of_one_run(way, kind, tmp_path):
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    if way == "both":
        kind = [word for word in kind if word not in ("--dropout", "0.1")]  # not with --sequence-parallel
    a = train(GPT, way, *kind, "--checkpoint", first, "--checkpoint-every", 2, steps=4)
    b = train(GPT, way, *kind, "--continue", first, "--checkpoint", second, steps=3)
    c = train(GPT, way, *kind, "--checkpoint", whole, steps=7)
    assert losses(a) + losses(b) == losses(c)
    assert b["weights"]["continued"] == str(first) and b["weights"]["first_step"] == 4
    assert second.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_other_ranks_go_on_from_the_files(alone, way, tmp_path):
    """From one rank to several and back, by checkpoints; and from saved weights."""
    folder, whole, ours = alone
    c, net = shutil.copy(folder / "c", tmp_path), folder / "net"
    assert losses(train(GPT, way, *F64, "--continue", c, "--checkpoint", c)) == pytest.approx(whole[3:6], rel=1e-9)
    assert losses(train(GPT, "", *F64, "--continue", c, steps=2)) == pytest.approx(whole[6:], rel=1e-9)
    theirs = train(GPT, way, *F64, "--from", net)
    assert losses(theirs) == pytest.approx(losses(ours), rel=1e-9) and losses(ours)[0] < whole[0]
    assert theirs["weights"]["from"] == str(net)
    assert 0 < theirs["weights"]["bytes"] < ours["weights"]["bytes"]  # of rank 0


def test_frozen_parts_are_saved_too(alone, tmp_path):
    """A frozen bias of a sum over ranks is on the first of them only."""
    frozen = [*F64, "--freeze", "h0.*"]
    for name, way in (("one", ""), ("shared", "tensor")):
        train(GPT, way, *frozen, "--from", alone[0] / "net", "--save", tmp_path / name, "--checkpoint", tmp_path / f"{name}.c")
        train(GPT, way, *frozen, "--continue", tmp_path / f"{name}.c", "--save", tmp_path / f"{name}.again", steps=1)
    for end in ("", ".c", ".again"):
        ours, theirs = (read(tmp_path / f"{name}{end}") for name in ("one", "shared"))
        assert list(ours) == list(theirs) and len(ours) > 20
        for name, t in ours.items():
            numpy.testing.assert_allclose(values(theirs[name]), values(t), rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("transport", ["net", "later"])
def test_by_other_ways_between_ranks(transport, tmp_path):
    """Files are gathered in memory of the host, also where ranks have devices of their own (a fake NCCL)."""
    how = ["--transport", "net", "--device", "cpu"]
    env = {}
    if transport == "later":
        how, env = ["--device", ",".join(f"later:{i}" for i in range(8))], {"env": devices(8)}
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    a = train(LLAMA, "both", *how, "--checkpoint", first, steps=2, **env)
    b = train(LLAMA, "both", *how, "--continue", first, "--checkpoint", second, steps=2, **env)
    c = train(LLAMA, "both", *how, "--checkpoint", whole, steps=4, **env)
    assert losses(a) + losses(b) == losses(c) and second.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("option", ["--save", "--checkpoint"])
@pytest.mark.parametrize("way", ["tensor", "stages"])
def test_a_full_disk_ends_all_ranks_and_keeps_the_older_file(way, option, tmp_path):
    file = tmp_path / "file"
    file.write_text("older")
    large = [word if word != 257 else 20000 for word in LLAMA]  # more than what the ranks share in memory
    r = train(large, way, "--device", "cpu", option, file, status=FAILED, preexec_fn=limit_files(2_000_000))
    assert "Cannot write" in r["reason"] and file.read_text() == "older"


def test_weights_of_another_shape_are_refused(tmp_path):
    train(LLAMA, "tensor", "--device", "cpu", "--save", tmp_path / "net", steps=1)
    wide = [word if word != 48 else 64 for word in LLAMA]
    for way in WAYS:
        r = train(wide, way, "--device", "cpu", "--from", tmp_path / "net", status=FAILED)
        assert "[48, 32], but in the network it is [64, 32]" in r["reason"], r["reason"]
