# SPDX-License-Identifier: Apache-2.0
"""data: texts become a data set that a training reads, whole or not at all."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest

from data_sets import documents
from jm import BIN, FAILURE, SOURCE, USAGE, jm, sentence

TOKENIZERS = SOURCE / "tests/data/tokenizers"
GPT2 = TOKENIZERS / "gpt2.json"
TEXT = "Watts are joules per second.\n\nIt's 3 o'clock, naïve 漢字 🙂.\r\nEnd\n"


def tokenize(text, out, *more, tokenizer=GPT2, **how):
    return jm("data", "tokenize", "--tokenizer", tokenizer, *more, text, out, **how)


@pytest.fixture(name="text")
def one_text(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(TEXT.encode())
    return path


def shown(out, tokenizer=GPT2):
    done = jm("data", out, "--tokenizer", tokenizer)
    assert done.returncode == 0, done.stderr
    assert jm("data", "show", out, "--tokenizer", tokenizer).stdout == done.stdout
    return done.stdout


def test_file_is_one_document(tmp_path, text):
    done = tokenize(text, tmp_path / "out.bin", "--eos", "<|endoftext|>")
    assert done.returncode == 0, done.stderr
    (ids,) = documents(tmp_path / "out")
    assert ids[-1] == 0 and 0 not in ids[:-1]
    assert re.search(rf"^tokens +{len(ids)}$", done.stdout, re.M) and re.search(r"^tokens/s +[\d,]+$", done.stdout, re.M)
    assert re.search(rf"^bytes +{len(TEXT.encode())}$", done.stdout, re.M)
    seen = shown(tmp_path / "out")
    assert re.search(r"^type +u16$", seen, re.M) and re.search(r"^documents +1$", seen, re.M)
    assert "as text         Watts are joules per second." in seen


def test_tokens_are_not_taken_for_the_file_of_cifar_of_that_name(tmp_path, text):
    assert tokenize(text, tmp_path / "train").returncode == 0
    assert jm("data", tmp_path / "train.bin").stdout == jm("data", tmp_path / "train").stdout != ""


def test_several_files_and_standard_input(tmp_path, text):
    done = jm("data", "tokenize", text, "-", text, tmp_path / "out", "--tokenizer", GPT2, stdin=open(text, "rb"))
    assert done.returncode == 0, done.stderr
    one, two, three = documents(tmp_path / "out")
    assert one == two == three


def test_lines_and_json_lines(tmp_path, text):
    lines = [line for line in re.split("\r?\n", TEXT) if line]
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps({"n": 1, "body": line}) + "\n\n" for line in lines))
    assert tokenize(text, tmp_path / "a", "--lines").returncode == 0
    assert tokenize(tmp_path / "lines.jsonl", tmp_path / "b", "--field", "body").returncode == 0
    assert documents(tmp_path / "a") == documents(tmp_path / "b") and len(documents(tmp_path / "a")) == 3


def test_template_stands_around_each_document(tmp_path, text):
    assert tokenize(text, tmp_path / "a", "--lines", "--template", tokenizer=TOKENIZERS / "llama2.json").returncode == 0
    assert all(ids[0] == 1 and len(ids) > 1 for ids in documents(tmp_path / "a"))


def test_large_vocabulary_takes_four_bytes(tmp_path, text):
    made = json.loads(GPT2.read_text())
    made["added_tokens"].append({"id": 65499, "content": "<last>", "special": True})
    (tmp_path / "t.json").write_text(json.dumps(made))
    text.write_text("a<last>b")
    assert tokenize(text, tmp_path / "out", tokenizer=tmp_path / "t.json").returncode == 0
    assert documents(tmp_path / "out")[0][1] == 65499
    assert re.search(r"^type +i32$", shown(tmp_path / "out", tmp_path / "t.json"), re.M)


@pytest.mark.parametrize("kind", ["gpt2", "llama3", "llama2", "llama2-newer", "metaspace", "clip"])
def test_long_text_gives_the_tokens_of_its_lines(tmp_path, kind):
    """A text of several parts of 1 MiB, with lines that are short; a new line is a token of its own or none."""
    rows = [f"Line {i} has {'some words that cost' if i % 3 else 'Größe, 漢字'} {i * 7} J." for i in range(60000)]
    (tmp_path / "text").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "half").write_text("\n".join(rows[:30000]) + "\n", encoding="utf-8")
    for name in ("text", "half"):
        assert tokenize(tmp_path / name, tmp_path / f"{name}.out", tokenizer=TOKENIZERS / f"{kind}.json").returncode == 0
    (whole,), (half,) = documents(tmp_path / "text.out"), documents(tmp_path / "half.out")
    assert whole[:len(half) - 2] == half[:-2]  # the end of a text may differ from its middle
    lines = tokenize(tmp_path / "text", tmp_path / "lines", "--lines", tokenizer=TOKENIZERS / f"{kind}.json")
    assert lines.returncode == 0 and len(documents(tmp_path / "lines")) == 60000


def peak(*args):
    """Largest memory of a run, in kB."""
    env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"}
    child = subprocess.Popen([BIN, *map(str, args)], stdout=subprocess.DEVNULL, env=env)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = status
    assert status == 0
    return used.ru_maxrss


def test_memory_does_not_grow_with_the_text(tmp_path):
    part = "".join(f"It takes {i} J to say it {i * i} times.\n" for i in range(60000))
    used = []
    for times in (1, 8):
        (tmp_path / "text").write_text(part * times)
        for how in ([], ["--lines"]):
            used.append(peak("data", "tokenize", "--tokenizer", GPT2, *how, tmp_path / "text", tmp_path / "out"))
    assert used[2] < used[0] + 3000 and used[3] < used[1] + 3000, used


def test_network_learns_from_it(tmp_path):
    (tmp_path / "text").write_text("A joule is a watt for a second. " * 200)
    assert tokenize(tmp_path / "text", tmp_path / "set").returncode == 0
    done = jm("run", "gpt", "--layers", "1", "--hidden", "16", "--heads", "2", "--seq", "16", "--vocab", "704", "--text",
              tmp_path / "set.bin", "--device", "ref", "--batch", "2", "--warmup", "1", "--steps", "2", "--json",
              tmp_path / "run.json", "--quiet", env={"JM_STATE": str(tmp_path)})
    assert done.returncode == 0, done.stderr


WRONG = [
    ([], USAGE, "needs --tokenizer"),
    (["--tokenizer", "no-such.json"], FAILURE, "No such file"),
    (["--tokenizer", "/"], FAILURE, "not a regular file"),
    (["--tokenizer", GPT2, "--eos", "<none>"], USAGE, "<none>"),
    (["--tokenizer", GPT2, "--field", "text"], FAILURE, "Line 1 of"),
    (["--tokenizer", GPT2, "--held-out"], USAGE, "--held-out has no effect"),
    (["--tokenizer", GPT2, "--decode", "device"], USAGE, "--decode has no effect"),
]


def test_options_that_change_nothing_of_what_is_shown_are_refused(tmp_path, text):
    assert tokenize(text, tmp_path / "set").returncode == 0
    for words in (["--lines"], ["--field", "x"], ["--eos", "x"], ["--template"], ["--held-out"]):
        assert f"{words[0]} has no effect" in sentence(jm("data", *words, tmp_path / "set"), USAGE)
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3073))
    for words in (["--lines"], ["--tokenizer", GPT2]):
        assert f"{words[0]} has no effect" in sentence(jm("data", *words, tmp_path / "data_batch_1.bin"), USAGE)


@pytest.mark.parametrize("options, status, words", WRONG)
def test_what_is_wrong_is_named_and_nothing_is_left(tmp_path, text, options, status, words):
    done = jm("data", "tokenize", *options, text, tmp_path / "out")
    assert words in sentence(done, status)
    assert os.listdir(tmp_path) == ["text"]


@pytest.mark.parametrize("end", [".bin", ".idx"])
def test_tokens_never_replace_their_text(tmp_path, text, end):
    own, link = tmp_path / f"own{end}", tmp_path / "link"
    text.rename(own)
    link.symlink_to(own)
    for name in [own, link]:
        assert "would replace their text" in sentence(tokenize(name, tmp_path / "own"), USAGE)
    assert own.read_bytes() == TEXT.encode()


def test_other_words_and_texts_are_refused(tmp_path, text):
    assert "tokenise" in sentence(jm("data", "tokenise", text, "out"), USAGE)
    assert "'show' takes one data set" in sentence(jm("data", "show"), USAGE)
    assert "TEXT" in sentence(jm("data", "tokenize", text), USAGE)
    assert "Is a directory" in sentence(tokenize(tmp_path, tmp_path / "out"), FAILURE)
    assert "No such file" in sentence(tokenize(tmp_path / "none", tmp_path / "out"), FAILURE)
    (tmp_path / "empty").touch()
    assert "no tokens" in sentence(tokenize(tmp_path / "empty", tmp_path / "out"), USAGE)
    assert "No such file" in sentence(tokenize(text, tmp_path / "no" / "out"), FAILURE)
    assert sorted(os.listdir(tmp_path)) == ["empty", "text"]


def test_full_disk_leaves_the_old_set(tmp_path, text):
    assert tokenize(text, tmp_path / "out").returncode == 0
    before = documents(tmp_path / "out")
    (tmp_path / "long").write_text("watt " * 400000)
    done = tokenize(tmp_path / "long", tmp_path / "out",
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)))
    assert "File too large" in sentence(done, FAILURE)
    assert documents(tmp_path / "out") == before
    assert sorted(os.listdir(tmp_path)) == ["long", "out.bin", "out.idx", "text"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_killed_run_leaves_nothing(tmp_path, number):
    child = subprocess.Popen([BIN, "data", "tokenize", "--tokenizer", GPT2, "-", tmp_path / "out"], stdin=subprocess.PIPE,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    child.stdin.write(b"some words " * 300000)
    child.stdin.flush()
    time.sleep(0.2)
    child.send_signal(number)
    assert child.wait(timeout=240) != 0
    child.stdin.close()
    assert not os.listdir(tmp_path)


def test_links_stay_and_their_targets_are_replaced(tmp_path, text):
    (tmp_path / "there").mkdir()
    assert tokenize(text, tmp_path / "there/out").returncode == 0
    for end in ("bin", "idx"):
        (tmp_path / f"out.{end}").symlink_to(tmp_path / f"there/out.{end}")
    (tmp_path / "long").write_text("some other words " * 5000)
    assert tokenize(tmp_path / "long", tmp_path / "out").returncode == 0 and tokenize(tmp_path / "long", tmp_path / "new").returncode == 0
    assert (tmp_path / "out.idx").is_symlink() and documents(tmp_path / "out") == documents(tmp_path / "there/out") == documents(tmp_path / "new")


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_killed_run_mixes_no_two_sets(tmp_path, text, number):
    """A kill before the first, second or third time that a file gets another name."""
    (tmp_path / "long").write_text("some other words " * 5000)
    assert tokenize(text, tmp_path / "out").returncode == 0 and tokenize(tmp_path / "long", tmp_path / "new").returncode == 0
    sets = [documents(tmp_path / name) for name in ("out", "new")]
    done = subprocess.run(["strace", "-f", "-o", "/dev/null", "-e", f"inject=rename:signal=SIGKILL:when={number}", BIN, "data", "tokenize",
                           "--tokenizer", GPT2, tmp_path / "long", tmp_path / "out"], capture_output=True, check=False,
                          env={**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"})  # not under strace
    if not (tmp_path / "out.idx").exists():  # no index: refused
        assert done.returncode and "has no index" in jm("data", tmp_path / "out.bin").stderr
    else:
        assert documents(tmp_path / "out") == sets[0 if done.returncode else 1]
