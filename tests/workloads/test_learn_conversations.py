# SPDX-License-Identifier: Apache-2.0
"""run llava --data FILE.json: answers about pictures are learnt from the pictures, and bad conversations are refused."""
import json
import math
import re

import numpy
import pytest
from PIL import Image

from jm import SOURCE, jm

COLOURS = {"red": (220, 20, 30), "green": (20, 200, 40), "blue": (30, 40, 230)}
TOY = ("llava", "--layers", 1, "--hidden", 32, "--heads", 2, "--vocab", 1024, "--image", 16, "--patch", 8, "--vision-layers", 1,
       "--vision-hidden", 32, "--vision-heads", 2, "--seq", 48, "--device", "cpu", "--source", "null", "--lr", "1e-2",
       "--weight-decay", 0, "--warmup", 0, "--tokenizer", SOURCE / "tests/data/tokenizers/llama2.json")


def talk(image, answer, question="<image>\nWhich colour is it?"):
    return {"image": image, "conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]}


@pytest.fixture(name="folder")
def pictures(tmp_path):
    (tmp_path / "of").mkdir()
    for name, colour in COLOURS.items():
        Image.new("RGB", (20, 18), colour).save(tmp_path / f"of/{name}.png")
    return tmp_path


def run(folder, entries, *more, status=0):
    file = folder / "talks.json"
    file.write_text(entries if isinstance(entries, str) else json.dumps(entries))
    batch = () if "--batch" in more else ("--batch", 12)
    done = jm("run", *TOY, *batch, "--data", file, *more, "--json", "-", timeout=1000, env={"OMP_WAIT_POLICY": "passive"})
    assert done.returncode == status, done.stderr
    return done.stderr if status else json.loads(done.stdout)


@pytest.mark.parametrize("shuffled", [False, True])
def test_answers_from_the_picture(folder, shuffled):
    """There are three pictures, so what is not in them cannot be learnt: the answer of a shuffled one has ln(3) left."""
    names = sorted(COLOURS) * 30
    shown = numpy.random.default_rng(4).permutation(names) if shuffled else names
    record = run(folder, [talk(f"of/{image}.png", name) for image, name in zip(shown, names)], "--steps", 60)
    last = numpy.mean(record["step_series"]["loss"][-10:])
    assert last > math.log(3) / 8 if shuffled else last < 0.02
    assert record["data"]["format"] == "conversations about pictures" and record["data"]["pictures"] == 90


def test_says_how_many_answers_are_left_out(folder):
    """The second question is too long, and the third one comes after it."""
    long = talk("of/red.png", "red")
    for question in ("Why? " * 40, "Really?"):
        long["conversations"] += talk("", "yes", question)["conversations"]
    record = run(folder, [long, talk("of/blue.png", "blue")] * 6, "--steps", 1)
    assert "12 of 24 answers of " in record["note"] and "do not fit into sequences of 48 tokens" in record["note"]


def test_held_out_conversations_are_evaluated(folder):
    """All samples are a batch: what is found after the first step, with another order and crops of one colour, is the next loss."""
    talks = [talk(f"of/{name}.png", f"{name} {k}", f"Colour {k}?") for name in COLOURS for k in range(4)]
    (folder / "held.json").write_text(json.dumps(talks[::-1] + talks[:1]))
    record = run(folder, talks, "--eval-data", folder / "held.json", "--eval-every", 1, "--steps", 3)
    found = record["evaluations"]
    assert [e["loss"] for e in found[:2]] == pytest.approx(record["step_series"]["loss"][1:], rel=1e-4)
    assert all(e["samples"] == 12 and "right" not in e for e in found)


def test_shows_conversations(folder):
    (folder / "talks.json").write_text(json.dumps([talk("of/red.png", "It is red.")]))
    done = jm("data", "show", folder / "talks.json")
    assert done.returncode == 0, done.stderr
    assert "Which colour is it?" in done.stdout and "It is red." in done.stdout and "<image>" not in done.stdout
    assert re.search(r"^turns +2$", done.stdout, re.M)


@pytest.mark.parametrize("entries, why", [
    ([talk("of/red.png", "red"), talk("of/pink.png", "pink")], "Entry 1 of .*talks.json names the picture .*of/pink.png, which cannot be read"),
    ([talk("of", "red")], "Entry 0 of .* names the picture .*/of, which cannot be read"),
    ([talk("of/red.png", "red <image>")], "Entry 0 of .* has <image> more than once, and one picture"),
    ([{"conversations": talk("", "red")["conversations"]}], 'Entry 0 of .* has no "image"'),
    ([talk("../red.png", "red")], 'Entry 0 of .* has no "image", a path within the folder'),
    ([{"image": "of/red.png", "conversations": talk("", "red")["conversations"][:1]}], 'Entry 0 of .* has no "conversations"'),
    ([{"image": "of/red.png", "conversations": talk("", "red")["conversations"][::-1]}], 'Entry 0 of .* has a turn'),
    ([talk("of/red.png", "red " * 60)], "Entry 0 of .* up to the end of its first answer, .* a sequence has 48; give a larger --seq"),
    ("[1", "talks.json is no JSON"), ("{}", "is no list of conversations")])
def test_bad_conversations(folder, entries, why):
    assert re.search(why, run(folder, entries, "--steps", 1, status=1))


def test_groups_of_one_length(folder):
    """Half of the answers have one word, half three: in groups of all 24 samples, the first batch has the long ones alone."""
    talks = [talk(f"of/{name}.png", f"{name} " * (1 + 2 * (k % 2))) for name in COLOURS for k in range(8)]
    words = ("--steps", 2, "--augment", "off")
    mixed, sorted_, again = (run(folder, talks, *words, *more)["step_series"]["loss"]
                             for more in ((), ("--group-by-length", 24), ("--group-by-length", 24, "--data-threads", 3)))
    assert sorted_ == again
    long = run(folder, talks[1::2], *words)["step_series"]["loss"][0]  # the same twelve in another order
    assert sorted_[0] == pytest.approx(long, rel=1e-4) and mixed[0] != pytest.approx(long, rel=1e-4)


def test_batches_of_a_step_count_alike(folder):
    """Of two answers of unlike lengths: in one batch tokens have one weight, in two batches, of one rank or of two, answers have."""
    talks = [talk("of/red.png", "red"), talk("of/blue.png", "blue blue blue blue")]
    loss = lambda entries, *words: run(folder, entries, "--steps", 1, "--augment", "off", *words)["step_series"]["loss"][0]
    *each, one = (loss(entries, "--batch", len(entries)) for entries in (talks[:1], talks[1:], talks))
    mean = sum(each) / 2
    assert loss(talks, "--batch", 1, "--accumulate", 2) == pytest.approx(mean, rel=1e-5)
    assert loss(talks, "--batch", 1, "--ranks", 2) == pytest.approx(mean, rel=1e-5)
    assert abs(one - each[1]) < 0.4 * abs(each[0] - each[1])  # nearer to the longer one


def test_groups_need_conversations(folder):
    (folder / "few/red").mkdir(parents=True)
    (folder / "of/red.png").rename(folder / "few/red/red.png")
    done = jm("run", "resnet", "--layers", 10, "--hidden", 8, "--image", 32, "--data", folder / "few", "--group-by-length", 8,
              "--device", "ref", "--steps", 1)
    assert done.returncode == 1 and "--group-by-length sorts conversations" in " ".join((done.stdout + done.stderr).split())


def test_a_data_set_without_conversations(folder):
    for name in COLOURS:
        (folder / f"of/{name}.txt").write_text(name)
    done = jm("run", *TOY, "--data", folder / "of", "--steps", 1)
    assert done.returncode == 1 and "reads the field 'ids'" in done.stderr


def test_text_under_a_picture_is_not_learnt(folder):
    """A text of one window, of which the four places of the picture have no targets but the last, which has the text's first token."""
    def loss(changed=None):
        text = bytearray(b"The quick brown fox jumps over the lazy dog, a".ljust(49, b"."))
        if changed is not None:
            text[changed] = ord("#")
        (folder / "text").write_bytes(text)
        done = jm("run", *TOY[:-2], "--text", folder / "text", "--steps", 1, "--json", "-", env={"OMP_WAIT_POLICY": "passive"})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["step_series"]["loss"][0]
    assert loss() == loss(3) != loss(4)
