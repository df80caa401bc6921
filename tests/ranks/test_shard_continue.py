# SPDX-License-Identifier: Apache-2.0
"""--continue from the files of several ranks, each of which updates a share, by another number of ranks."""
import json
import struct

import numpy
import pytest

from gangs import GPT
from shard_runs import UNEVEN, header, losses, train
from weights_files import read, values


@pytest.fixture(name="alone", scope="module")
def checkpoints_and_losses_of_one_rank(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    found = {}
    for name, more in EXACT.items():
        train(UNEVEN, 1, *more, "--checkpoint", folder / name)
        found[name] = folder / name, losses(train(UNEVEN, 1, *more, steps=9))
    return found


F64 = ["--precision", "f64", "--device", "ref", "--ema", "0.9"]
EXACT = {"adamw": F64, "sgd": [*F64, "--optimizer", "sgd", "--lr", "0.1"], "frozen": [*F64, "--freeze", "h1.*", "--clip", "0.1"]}


@pytest.mark.parametrize("first, second", [(1, 2), (1, 3), (2, 3), (3, 2), (2, 1), (3, 1)])
@pytest.mark.parametrize("name", EXACT)
def test_another_number_of_ranks_goes_on(alone, name, first, second, tmp_path):
    """In f64, so that another order of sums does not hide a wrong moment."""
    theirs, expected = alone[name]
    more = EXACT[name]
    a = train(UNEVEN, first, *more, "--checkpoint", tmp_path / "a")
    assert header(tmp_path / "a") == header(theirs)
    before, after = read(theirs), read(tmp_path / "a")
    for tensor, t in before.items():
        numpy.testing.assert_allclose(values(after[tensor]), values(t), rtol=0, atol=1e-9 * numpy.abs(values(t)).max(), err_msg=tensor)
    b = train(UNEVEN, second, *more, "--continue", tmp_path / "a", "--checkpoint", tmp_path / "b")
    c = train(UNEVEN, first, *more, "--continue", tmp_path / "b")
    assert losses(a) + losses(b) + losses(c) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("precision", ["bf16", "bf16-true"])
def test_one_rank_goes_on_as_several_in_16_bits(precision, tmp_path):
    """The names of moments do not depend on the slabs of the types."""
    more = ["--device", "cpu", "--precision", precision, "--lr", "0.01"]
    expected = losses(train(UNEVEN, 1, *more, steps=6))
    for first, second in (1, 3), (3, 1):
        file = tmp_path / f"{first}"
        found = losses(train(UNEVEN, first, *more, "--checkpoint", file))
        assert found + losses(train(UNEVEN, second, *more, "--continue", file)) == pytest.approx(expected, rel=1e-3)
    assert header(tmp_path / "1") == header(tmp_path / "3")


@pytest.mark.parametrize("precision", ["fp8", "fp8-true"])
def test_another_number_of_ranks_takes_the_ranges_of_the_first(precision, tmp_path):
    """Those of a file without others, too; each of as many ranks as wrote it takes its own, whether the update is sharded or not."""
    more, file = ["--device", "cpu", "--precision", precision, "--lr", "0.01"], tmp_path / "c"
    how = ["--shard-update", "off"] if precision == "fp8-true" else []
    a = train(GPT, 3, *more, *how, "--checkpoint", file)
    names = set(read(file))
    assert {"fp8.ranges", "fp8.ranges@1", "fp8.ranges@2"} <= names and "fp8.ranges@3" not in names
    whole = losses(train(GPT, 3, *more, *how, steps=6))
    assert losses(a) + losses(train(GPT, 3, *more, *how, "--continue", file)) == whole
    for ranks in 1, 2, 6:
        found = losses(train(GPT, ranks, *more, *(how if ranks > 1 else []), "--continue", file, "--checkpoint", tmp_path / "d"))
        assert found == pytest.approx(whole[3:], rel=5e-3)
        assert losses(train(GPT, 3, *more, *how, "--continue", tmp_path / "d", steps=1))


def test_moments_of_older_files_are_found(tmp_path):
    """They named those of vectors after a slab of their own, where matrices have another type."""
    more, file = ["--device", "cpu", "--precision", "bf16-true"], tmp_path / "c"
    train(GPT, 2, *more, "--checkpoint", file)
    expected = losses(train(GPT, 2, *more, "--continue", file))
    data = file.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    rows = json.loads(data[8:8 + length])
    vectors = [name for name, row in rows.items() if name.startswith("adamw.") and len(row["shape"]) == 1]
    assert len(vectors) > 10
    text = json.dumps({name.replace("/", ".vectors/") if name in vectors else name: row for name, row in rows.items()}).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])
    assert losses(train(GPT, 2, *more, "--continue", file)) == expected
