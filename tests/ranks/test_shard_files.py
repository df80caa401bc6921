# SPDX-License-Identifier: Apache-2.0
"""--checkpoint, --save and --ema of several ranks, each of which updates a share: their files, and what ends a run meanwhile."""
import os
import signal
import time

import pytest

from gangs import GPT, Running, two_fake_devices  # pylint: disable=unused-import
from runs import FAILED, limit_files
from shard_runs import RESNET, UNEVEN, header, losses, train
from weights_files import read

KINDS = {
    "cpu-f32": (GPT, 2, "--device", "cpu"),
    "ref-uneven": (UNEVEN, 3, "--device", "ref", "--bucket", "0.003"),
    "cpu-bf16": (UNEVEN, 3, "--device", "cpu", "--precision", "bf16", "--bucket", "0.01"),
    "ref-bf16": (GPT, 2, "--device", "ref", "--precision", "bf16", "--accumulate", "2", "--ema", "0.9"),
    "cpu-true": (UNEVEN, 3, "--device", "cpu", "--precision", "bf16-true", "--ema", "0.5"),
    "ref-true-sgd": (GPT, 2, "--device", "ref", "--precision", "bf16-true", "--optimizer", "sgd", "--bucket", "0.003"),
    "cpu-sgd": (UNEVEN, 2, "--device", "cpu", "--optimizer", "sgd", "--momentum", "0", "--ema", "0.7"),
    "cpu-momentum": (UNEVEN, 3, "--device", "cpu", "--optimizer", "sgd", "--nesterov", "--precision", "bf16"),
    "cpu-adam": (GPT, 3, "--device", "cpu", "--optimizer", "adam", "--freeze", "h0.*", "--ema", "0.9"),
    "ref-fp16": (GPT, 3, "--device", "ref", "--precision", "fp16", "--loss-scale", "dynamic:1e7"),
    "cpu-fp8": (GPT, 3, "--device", "cpu", "--precision", "fp8", "--ema", "0.9"),
    "ref-f64": (UNEVEN, 2, "--device", "ref", "--precision", "f64", "--ema", "0.9"),
    "resnet": (RESNET, 3, "--device", "cpu", "--precision", "bf16", "--ema", "0.5"),
    "resnet-frozen": (RESNET, 2, "--device", "cpu", "--optimizer", "sgd", "--lr", "0.01", "--freeze", "conv1*,bn1*,layer1*"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_files_have_the_bytes_of_a_whole_update(kind, tmp_path):
    """Where nothing is clipped: transport local adds in the order of the ranks in both."""
    work, ranks, *more = KINDS[kind]
    for how in "off", "on":
        train(work, ranks, *more, "--clip", 0, "--shard-update", how, "--checkpoint", tmp_path / f"{how}.c", "--save", tmp_path / how)
    assert (tmp_path / "on.c").read_bytes() == (tmp_path / "off.c").read_bytes()
    assert (tmp_path / "on").read_bytes() == (tmp_path / "off").read_bytes()
    names = set(read(tmp_path / "on.c"))
    assert any(".average/" in name for name in names) == ("--ema" in more)


@pytest.mark.parametrize("kind", KINDS)
def test_two_parts_have_the_bits_of_one_run(kind, tmp_path):
    """Of losses, also of evaluations, and of files; with gradients that are clipped by the norm of all shares. The whole run
    writes a checkpoint after the same step, so that both know what the loss scale skipped."""
    work, ranks, *more = KINDS[kind]
    more += ["--eval-every", "1", "--eval-batches", "1", "--clip", "0.5"]
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    a = train(work, ranks, *more, "--checkpoint", first, steps=4)
    b = train(work, ranks, *more, "--continue", first, "--checkpoint", second, "--save", tmp_path / "b", steps=3)
    c = train(work, ranks, *more, "--checkpoint", whole, "--checkpoint-every", 4, "--save", tmp_path / "c", steps=7)
    assert losses(a) + losses(b) == losses(c)
    assert [e["loss"] for e in a["evaluations"] + b["evaluations"]] == [e["loss"] for e in c["evaluations"]]
    assert second.read_bytes() == whole.read_bytes()
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


@pytest.mark.parametrize("transport", ["nccl", "host"])
def test_devices_that_work_by_themselves(two_devices, transport, tmp_path):
    """Behind a fake NCCL, and by copies through the memory of the host, where every rank updates the tables as a whole."""
    more = ["--device", "later:0,later:1", "--transport", transport, "--precision", "bf16", "--ema", "0.9"]
    slow = {"env": {**two_devices, "JM_FAKE_NCCL_US": "3000", "JM_FAKE_LANES_US": "1000"}}
    first, second, whole, one_rank = (tmp_path / name for name in ("first", "second", "whole", "one"))
    a = train(GPT, 2, *more, "--checkpoint", first, "--checkpoint-every", 1, **slow)
    b = train(GPT, 2, *more, "--continue", first, "--checkpoint", second, "--save", tmp_path / "b", **slow)
    c = train(GPT, 2, *more, "--checkpoint", whole, "--save", tmp_path / "c", steps=6, **slow)
    assert losses(a) + losses(b) == losses(c) and second.read_bytes() == whole.read_bytes()
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    train(GPT, 1, "--device", "ref", *more[4:], "--checkpoint", one_rank, steps=6)
    assert header(one_rank) == header(whole)


def test_over_tcp_the_same_bytes(tmp_path):
    for transport in "local", "net":
        how = [] if transport == "local" else ["--transport", "net"]
        train(UNEVEN, 3, "--device", "cpu", "--ema", "0.9", *how, "--checkpoint", tmp_path / transport)
    assert (tmp_path / "net").read_bytes() == (tmp_path / "local").read_bytes()


@pytest.mark.parametrize("option, share", [("--checkpoint", 2), ("--ema", 3)])
def test_a_share_of_the_optimizer_needs_less_memory(option, share, tmp_path):
    """Half of each moment, and of the mean, less the sums of the own gradients, in f32."""
    more = ["--device", "cpu", option, tmp_path / "c" if option == "--checkpoint" else 0.9]
    work = [{"32": "128"}.get(word, word) for word in GPT]
    whole, shared = (train(work, 2, *more, "--shard-update", how, steps=1)["plan"] for how in ("off", "on"))
    saved = whole["persistent_bytes"] - shared["persistent_bytes"]
    assert saved == pytest.approx((share - 1) / 2 * 4 * whole["parameters"], rel=0.02)


LARGE = ["20000" if word == "256" else "128" if before == "--hidden" else word for before, word in zip(["", *GPT], GPT)]


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rank_that_is_killed_while_shares_are_gathered_leaves_the_older_file(victim, tmp_path):
    """The file that is to replace it is there from the first byte to the last."""
    file, more = tmp_path / "c", ["--checkpoint", tmp_path / "c", "--checkpoint-every", "1"]
    gang = Running(3, *more, device="cpu", work=(*LARGE, "--batch", "2", "--steps", "100000"))
    end = time.monotonic() + 200
    while not file.exists() and gang.process.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end:
        pass
    os.kill(gang.ranks[victim], signal.SIGKILL)
    status, err, _ = gang.ended()
    assert status == FAILED and f"Rank {victim} of 3" in err and "was killed by signal 9" in err, err
    assert gang.nothing_is_left()
    step = int(header(file)[0]["__metadata__"]["step"])
    assert step > 0
    assert len(read(file)) > 50
    more = losses(train(LARGE, 3, "--device", "cpu", "--continue", file, steps=2))
    assert more == losses(train(LARGE, 3, "--device", "cpu", "--checkpoint", tmp_path / "whole", steps=step + 2))[step:]


def test_a_full_disk_ends_all_ranks_and_keeps_the_older_file(tmp_path):
    file = tmp_path / "file"
    file.write_text("older")
    r = train(LARGE, 3, "--device", "cpu", "--checkpoint", file, status=FAILED, preexec_fn=limit_files(20_000_000))
    assert "Cannot write" in r["reason"] and "an older file stays as it was" in r["reason"], r["reason"]
    assert file.read_text() == "older"
