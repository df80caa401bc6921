# SPDX-License-Identifier: Apache-2.0
"""The memory of the rank that needs most, as `describe` prints it, beside what that rank of a run allocates, and by kind beside the shapes."""
import collections
import os
import pathlib

import pytest

from described import describe
from runs import one

BUILD = pathlib.Path(os.environ["JM_BUILD"])
PAGE = 4096
L, H, V, C = 4, 128, 512, 64  # blocks, width, vocabulary, context
SHAPE = f"gpt --layers {L} --hidden {H} --heads 4 --vocab {V} --context {C} --seq {C} --batch 4 --accumulate 4 --device cpu".split()

pytestmark = pytest.mark.skipif(not (BUILD / "backends/cpu.so").exists(), reason="needs the backend cpu")


def parameters(tp, pp):
    """Of a rank of the first stage: by columns qkv and the first layer of the feed-forward part, by rows what follows each."""
    matrices, ends = 12 * H * H / tp, (V + C) * H + (2 * H if pp == 1 else 0)
    vectors = 4 * H + (3 * H + 4 * H) / tp + 2 * H  # norms, biases of columns, biases of rows
    return L / pp * (matrices + vectors) + ends


@pytest.fixture
def counted(tmp_path):
    """Environment in which device cpu writes what it allocates; and the allocations of each process, with their pages."""
    (tmp_path / "cpu.so").symlink_to(BUILD / "tests/peers/counted.so")
    log = tmp_path / "log"

    def read():
        got, written = collections.defaultdict(list), collections.defaultdict(int)
        for line in log.read_text().splitlines():
            process, size, pages = map(int, line.split())
            if size > 0:
                got[process].append(size)
            written[process] += pages * PAGE
        return got, written
    return {"JM_BACKENDS": str(tmp_path), "JM_COUNTED_FROM": str(BUILD / "backends"), "JM_COUNTED_LOG": str(log)}, read


@pytest.mark.parametrize("tp, pp, dp, more", [
    (2, 1, 1, []), (2, 1, 1, ["--sequence-parallel"]), (1, 2, 1, ["--pp-chunks", "2"]), (1, 1, 2, []),
    (2, 2, 2, ["--sequence-parallel"])], ids=lambda x: "".join(x) if isinstance(x, list) else str(x))
def test_the_largest_rank_allocates_what_describe_prints(counted, tp, pp, dp, more):
    env, read = counted
    split = ["--tp", tp, *(["--pp", pp] if pp > 1 else []), *more]
    one("run", *SHAPE, *split, "--ranks", tp * pp * dp, "--steps", "1", "--warmup", "0", "--selftest", "0", "--source", "null", env=env)
    planned = describe(*SHAPE, *map(str, split), "--dp", str(dp))
    got, written = read()
    assert len(got) == tp * pp * dp
    most = max(got, key=lambda process: sum(got[process]))
    # one step writes all that is allocated
    assert sum(got[most]) == pytest.approx(planned["peak_bytes"], rel=0.01)
    assert written[most] == pytest.approx(planned["peak_bytes"], rel=0.01)
    # by kind: weights and their state are the first allocation, the last one is reused over a step
    weights, inputs, arena = got[most]
    kept = [planned[kind + "_bytes"] for kind in ("parameter", "gradient", "optimizer")]
    assert weights == pytest.approx(sum(kept), rel=0.01)
    assert weights + inputs == pytest.approx(planned["persistent_bytes"], rel=0.01)
    assert arena == pytest.approx(planned["arena_bytes"], rel=0.01)
    # all in f32: two moments of each parameter, which the models share; a share of the sums of gradients beside them
    share = 4 * parameters(tp, pp)
    assert kept == pytest.approx([share, share * (1.5 if dp > 1 else 1), 2 * share / dp], rel=0.01)
