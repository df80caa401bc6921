# SPDX-License-Identifier: Apache-2.0
"""Several runners of one plan: one store has one writer, and --shard gives each runner repeats of its own."""
import signal
import subprocess

import pytest

from fake_gpus import wait_for
from jm import BIN, FAILURE, USAGE, jm, sentence
from runs import query, records

PLAN = """\
work: "null"
source: "null"
step-time: [1ms, 2ms]
warmup: 0
steps: 2
repeat: 5
"""


def plan(tmp_path, text):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return path


def taken(store):
    return {(r["case"]["id"], r["case"]["repeat"], r["case"]["position"], r["case"]["seed"]) for r in records(store)}


def test_runners_share_the_repeats(tmp_path):
    """Together they have what one runner has: each case once, at its place of the block."""
    path = plan(tmp_path, PLAN)
    assert jm("run", path, "--store", tmp_path / "one.db").returncode == 0
    shares = [subprocess.Popen([BIN, "run", path, "--shard", f"{k}/2", "--store", tmp_path / f"{k}.db"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for k in (1, 2)]
    for child in shares:
        said = child.communicate(timeout=240)[1]
        assert child.returncode == 0, said
        assert "# the rest" not in said
    a, b = taken(tmp_path / "1.db"), taken(tmp_path / "2.db")
    assert {repeat for _, repeat, _, _ in a} == {1, 3, 5} and {repeat for _, repeat, _, _ in b} == {2, 4}
    assert not a & b and a | b == taken(tmp_path / "one.db")
    merged = tmp_path / "all.db"
    assert jm("merge", merged, tmp_path / "1.db", tmp_path / "2.db").returncode == 0
    assert taken(merged) == a | b
    again = jm("run", path, "--store", merged)
    assert again.returncode == 0 and query(merged, "SELECT max(attempt), count(*) FROM records") == [(1, 10)]


def test_a_runner_whose_store_has_repeats_of_others_names_its_own_rest(tmp_path):
    """Three records for the two repeats that are its own are not all of them: two are of the other runner."""
    store, flag = tmp_path / "s.db", tmp_path / "fails"
    words = ["run", "--store", store, "--repeat", 4, "--source", "null", "--fail-fast"]
    work = ["--", "sh", "-c", f"test ! -e {flag}"]
    assert "# the rest" not in jm(*words, "--shard", "2/2", *work).stderr
    flag.touch()
    done = jm(*words, "--shard", "1/2", *work)
    assert done.returncode != 0 and query(store, "SELECT count(*) FROM records") == [(3,)]
    assert "# the rest" in done.stderr


@pytest.mark.parametrize("shard, more, words", [
    ("0/2", "", "such as 1/2|as in 1/2"), ("3/2", "", "as in 1/2"), ("x", "", "as in 1/2"), ("1/2/3", "", "as in 1/2"),
    ("1/6", "", "the plan has 5; give --repeat 6"),
    ("1/2", "until-interval: 1%\n", "exclude each other"),
])
def test_wrong_shards_are_refused(tmp_path, shard, more, words):
    store = tmp_path / "s.db"
    text = sentence(jm("run", plan(tmp_path, PLAN + more), "--shard", shard, "--store", store), USAGE)
    assert any(word in text for word in words.split("|")), text
    assert not store.exists()


def test_a_killed_runner_and_its_case(tmp_path):
    """While it lives the store is its own; after SIGKILL the case that it was running is run by the next."""
    begun = tmp_path / "begun"
    path = plan(tmp_path, f"command: sh -c 'if [ -e {begun} ]; then exit 0; fi; touch {begun}; sleep 60'\nsource: \"null\"\n"
                          "repeat: 2\n")
    store = tmp_path / "s.db"
    with subprocess.Popen([BIN, "run", path, "--store", store], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as first:
        assert wait_for(begun.exists)
        text = sentence(jm("run", path, "--store", store), FAILURE)
        assert f"process {first.pid}" in text and "--shard" in text and "merge" in text, text
        first.send_signal(signal.SIGKILL)
    done = jm("run", path, "--store", store)
    assert done.returncode == 0, done.stderr
    assert query(store, "SELECT repeat, status, attempt FROM records ORDER BY repeat") == [(1, "ok", 2), (2, "ok", 1)]
