# SPDX-License-Identifier: Apache-2.0
"""`joulemark data show` of folders of pictures with captions, as COCO, diffusers and others lay them out."""
import json
import os

import pytest

from data_sets import noise
from jm import SOURCE, jm

DAMAGED = 1
NAMES = ["b.jpg", "a.png", "below/c.JPEG", "a.b.png"]


def pictures(root, names=NAMES):
    for i, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(20 + i, 30, i).save(path)


def as_texts(root, captions):
    for name, texts in captions.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / (os.path.splitext(name)[0] + ".txt")).write_text(texts[0] + "\n")


def as_lines(root, captions):
    lines = [json.dumps({"file_name": name, "text": texts if len(texts) > 1 else texts[0]}) for name, texts in captions.items()]
    (root / "metadata.jsonl").write_text("\n".join(lines) + "\n")


def as_coco(root, captions):
    ids = {name: 7 * i + 1 for i, name in enumerate(captions)}
    (root / "captions.json").write_text(json.dumps({
        "images": [{"id": n, "file_name": name} for name, n in ids.items()],
        "annotations": [{"image_id": ids[name], "caption": text} for name, texts in captions.items() for text in texts]}))


def test_coco_as_it_is_distributed(tmp_path):
    """Parts beside a folder of annotations; the last year counts."""
    for part, names in (("train2014", NAMES[:1]), ("train2017", NAMES[:3]), ("val2017", NAMES[3:])):
        pictures(tmp_path / part, names)
        as_coco(tmp_path, {name: [f"{part} of {name}", "again"] for name in names})
        (tmp_path / "annotations").mkdir(exist_ok=True)
        (tmp_path / "captions.json").rename(tmp_path / f"annotations/captions_{part}.json")
    (tmp_path / "annotations/captions_train2020.json").write_text("a list without pictures")
    (tmp_path / "annotations/instances_train2017.json").write_text("not read")
    seen, held_out = show(tmp_path), show(tmp_path, "--held-out")
    assert seen["pictures"] == ["3"] and seen["captions"] == ["6"] and seen["caption"][0] == "train2017 of a.png"
    assert held_out["pictures"] == ["1"] and held_out["caption"] == ["val2017 of a.b.png", "again"]
    (tmp_path / "val2017" / NAMES[3]).unlink()
    failed = jm("data", "show", "--held-out", tmp_path)
    assert failed.returncode and "captions without a picture" in " ".join(failed.stderr.split())
    (tmp_path / "annotations/captions_val2017.json").unlink()
    failed = jm("data", "show", "--held-out", tmp_path)
    assert failed.returncode and "annotations/captions_val2017.json" in " ".join(failed.stderr.split())


LAYOUTS = {"texts": as_texts, "lines": as_lines, "coco": as_coco}


def show(path, *options, status=0):
    shown = jm("data", "show", *options, path)
    assert shown.returncode == status, shown.stderr
    entries = {}
    for line in shown.stdout.splitlines():
        entries.setdefault(line[:16].strip(), []).append(line[16:])
    return entries


def refused(path):
    failed = jm("data", "show", path)
    assert failed.returncode
    return " ".join(failed.stderr.split())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_captions_come_in_the_order_of_pictures(tmp_path, layout):
    pictures(tmp_path)
    LAYOUTS[layout](tmp_path, {name: [f"of {name}"] for name in NAMES})
    seen = show(tmp_path)
    assert seen["fields"] == ["image, caption"] and seen["pictures"] == ["4"] and seen["captions"] == ["4"]
    assert seen["caption"] == [f"of {name}" for name in sorted(NAMES)]


def test_texts_are_found_where_all_pictures_are_in_folders(tmp_path):
    """As img2dataset writes them; not folders of classes."""
    names = ["00000/a.jpg", "00000/b.jpg", "00001/a.jpg"]
    pictures(tmp_path, names)
    as_texts(tmp_path, {name: [f"of {name}"] for name in names})
    seen = show(tmp_path)
    assert seen["fields"] == ["image, caption"] and seen["caption"] == [f"of {name}" for name in names]


@pytest.mark.parametrize("layout", ["lines", "coco"])
def test_a_picture_may_have_several_captions(tmp_path, layout):
    pictures(tmp_path)
    LAYOUTS[layout](tmp_path, {name: [f"{k} of {name}" for k in "zyx"] for name in NAMES})
    seen = show(tmp_path)
    assert seen["captions"] == ["12"]
    assert seen["caption"][:4] == ["z of a.b.png", "y of a.b.png", "x of a.b.png", "z of a.png"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_picture_without_a_caption_is_an_error(tmp_path, layout):
    pictures(tmp_path)
    LAYOUTS[layout](tmp_path, {name: ["x"] for name in NAMES[:-1]})
    assert "pictures without a caption: 1, the first one a.b.png" in refused(tmp_path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_caption_without_a_picture_is_an_error(tmp_path, layout):
    pictures(tmp_path, NAMES[:2])
    LAYOUTS[layout](tmp_path, {name: ["x"] for name in NAMES})
    assert "captions without a picture: 2, the first one for a.b." in refused(tmp_path)


@pytest.mark.parametrize("kept", [".jpg", ".txt"])
def test_a_folder_of_only_one_side_is_said(tmp_path, kept):
    """Pictures that no text describes, or texts alone: of either there is not one pair."""
    (tmp_path / f"a{kept}").write_bytes(b"x")
    assert "neither a folder of pictures for each class nor pictures with captions (in metadata.jsonl" in refused(tmp_path)


def test_parts_are_found_and_a_bad_picture_is_counted(tmp_path):
    for part, n in (("train", 4), ("val", 2)):
        pictures(tmp_path / part, NAMES[:n])
        as_texts(tmp_path / part, {name: [part] for name in NAMES[:n]})
    (tmp_path / "train" / "b.jpg").write_bytes(b"no picture")
    seen, held_out = show(tmp_path, status=DAMAGED), show(tmp_path, "--held-out")
    assert seen["pictures"] == ["3"] and seen["corrupt files"] == ["1"] and seen["captions"] == ["4"]
    assert held_out["pictures"] == ["2"] and held_out["caption"] == ["val", "val"]


BAD_LISTS = {
    ("metadata.jsonl", '{"file_name": "b.jpg", "text": 1}'): "Line 1 of",
    ("metadata.jsonl", '{"file_name": "b.jpg", "text": []}'): "Line 1 of",
    ("metadata.jsonl", '{"file_name": "b.jpg", "text": "x"}\n\n{"file_name'): "Line 3 of",
    ("captions.json", "[]"): 'no lists "images" and "annotations"',
    ("captions.json", '{"images": [{"file_name": "b.jpg"}], "annotations": []}'): 'Entry 0 of "images"',
    ("captions.json", '{"images": [], "annotations": [{"image_id": 3, "caption": "x"}]}'): 'Entry 0 of "annotations"',
    ("captions.json", '{"images": [{"id": 1, "file_name": "b.jpg"}, {"id": 1, "file_name": "c.jpg"}], "annotations": []}'):
        'gives the "id" 1 to two pictures',
    ("captions.json", '{"images": ['): "is no JSON"}


@pytest.mark.parametrize("name,text", BAD_LISTS)
def test_a_damaged_list_is_named(tmp_path, name, text):
    pictures(tmp_path, ["b.jpg"])
    (tmp_path / name).write_text(text)
    said = refused(tmp_path)
    assert BAD_LISTS[name, text] in said and name in said and "correct it" in said


def test_a_model_that_needs_classes_says_what_is_missing(tmp_path):
    pictures(tmp_path)
    as_texts(tmp_path, {name: ["x"] for name in NAMES})
    failed = jm("run", "resnet18", "--data", tmp_path, "--device", "ref", "--steps", "1", "--image", "32")
    assert failed.returncode
    assert "reads the field 'class'" in " ".join((failed.stdout + failed.stderr).split())


def test_says_how_many_captions_are_cut(tmp_path):
    """A letter is at most one token of this tokenizer, and its template adds two."""
    pictures(tmp_path)
    as_texts(tmp_path, {name: ["a" if i else "a long caption with many words"] for i, name in enumerate(NAMES)})
    done = jm("run", "diffusion", "--hidden", 8, "--layers", 1, "--head-width", 4, "--norm-groups", 2, "--image", 64, "--vae-hidden", 4,
              "--vae-layers", 1, "--text-layers", 2, "--text-heads", 2, "--caption", 5, "--caption-width", 8, "--vocab", 2000, "--batch", 1,
              "--device", "ref", "--source", "null", "--warmup", 0, "--steps", 1, "--selftest", 0, "--data", tmp_path,
              "--tokenizer", SOURCE / "tests/data/tokenizers/clip.json", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert "1 of 4 captions of" in json.loads(done.stdout)["note"] and "than the network reads (5) and were cut" in done.stdout
