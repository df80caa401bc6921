# SPDX-License-Identifier: Apache-2.0
"""`joulemark data show` of pictures that other programs wrote."""
import gzip
import json
import os
import struct

import pytest

from data_sets import BAD_PICTURES, bad_picture, noise
from jm import BUILD, USAGE, jm

DAMAGED = 1
FASHION = "/usr/share/datasets/fashion-mnist"


@pytest.fixture
def folder(tmp_path):
    """Two classes of two pictures each."""
    root = tmp_path / "set"
    for i, name in enumerate(["ant", "bee"]):
        (root / name).mkdir(parents=True)
        noise(20 + i, 30, i).save(root / name / "a.jpg")
        noise(20, 30 + i, i).save(root / name / "b.png")
    return root


def show(path, *options):
    return jm("data", "show", *options, path)


def entry(text, name):
    return [line.split(None, name.count(" ") + 1)[-1] for line in text.splitlines() if line.startswith(name + " ")]


def test_counts_a_folder(folder):
    out = show(folder).stdout
    assert entry(out, "classes") == ["2"] and entry(out, "pictures") == ["4"]
    assert entry(out, "corrupt files") == ["0"]
    assert entry(out, "pixels") == ["20 to 21 wide, 30 to 31 high"]


def test_says_how_many_classes_it_does_not_list(folder):
    assert "more classes" not in show(folder).stdout
    for name in "cdefg":
        (folder / name).mkdir()
        noise(20, 30).save(folder / name / "a.png")
    out = show(folder).stdout
    assert len(entry(out, "class")) == 5 and entry(out, "more classes") == ["2"]


@pytest.mark.parametrize("kind", BAD_PICTURES)
def test_counts_and_names_a_bad_file(folder, kind):
    bad_picture(folder / "bee" / "c.jpg", kind)
    shown = show(folder)
    out = " ".join(shown.stdout.split())
    assert "corrupt files 1" in out and "pictures 4" in out
    assert shown.returncode == DAMAGED and "1 sample cannot be read" in shown.stderr
    assert BAD_PICTURES[kind] in out and "c.jpg" in out and ("remove it" in out or "copy it again" in out)


def test_says_no_size_of_pictures_that_cannot_be_read(folder):
    for path in folder.glob("*/*"):
        path.write_bytes(b"no picture")
    shown = jm("data", folder, "--json")
    facts = json.loads(shown.stdout)
    assert shown.returncode == DAMAGED and "4 samples cannot be read" in shown.stderr
    assert facts["corrupt_files"] == 4 and facts["pictures"] == 0 and "pixels" not in facts


def test_takes_a_picture_of_one_pixel(folder):
    noise(1, 1).save(folder / "ant" / "c.jpg")
    out = show(folder).stdout
    assert entry(out, "pictures") == ["5"] and "1 to 21 wide" in out


NVJPEG = BUILD / "tests" / "peers" / "libnvjpeg-fake.so"


def on_device(path, *options, **more):
    """By a fake GPU, which changes the lowest bit of red: a third of the values, by 1."""
    return jm("data", "show", "--decode", "device", *options, path,
              env={"JM_NVJPEG_LIB": str(NVJPEG), "JM_CUDA_LIB": str(NVJPEG), **more})


@pytest.mark.skipif(not NVJPEG.exists(), reason="needs the headers of libjpeg-turbo")
def test_compares_pixels_of_both_decoders(folder):
    noise(40, 30).save(folder / "ant" / "c.jpg", progressive=True)
    bad_picture(folder / "bee" / "c.jpg", "truncated")
    facts = json.loads(on_device(folder, "--json", NVJPEG_FAKE="engine").stdout)
    assert facts["differences"] == "0.333 of 255 on average, 1 at most"
    assert facts["decoder"].startswith("nvJPEG 13.") and facts["corrupt_files"] == 1
    assert [facts["decoded_" + by] for by in ("engine", "gpu", "host")] == [2, 1, 2]  # two are PNG
    assert "nvJPEG" not in show(folder).stdout


def test_says_how_to_get_nvjpeg(folder):
    failed = on_device(folder, JM_NVJPEG_LIB="/none.so")
    assert failed.returncode and "nvJPEG cannot be loaded (/none.so" in failed.stderr
    assert "nvidia-nvjpeg" in failed.stderr and "JM_NVJPEG_LIB" in failed.stderr


def test_decoding_needs_pictures(tmp_path):
    (tmp_path / "text").write_bytes(b"no picture")
    failed = on_device(tmp_path / "text", JM_NVJPEG_LIB="/none.so")
    assert failed.returncode == 2 and "--decode device has no effect on" in " ".join(failed.stderr.split())


def test_training_decodes_on_a_gpu_alone(folder):
    train = ["run", "resnet18", "--image", 32, "--device", "ref", "--steps", 1, "--decode", "device"]
    failed = jm(*train, "--data", folder)
    assert failed.returncode
    assert "--decode device needs a GPU of NVIDIA, and --device is ref" in " ".join((failed.stdout + failed.stderr).split())
    failed = jm(*train)
    assert failed.returncode == USAGE and "--data" in failed.stderr


def test_refuses_an_empty_class(folder):
    (folder / "cat").mkdir()
    failed = show(folder)
    assert failed.returncode and "has no pictures" in failed.stderr and "cat" in failed.stderr


def test_says_which_folder_has_the_classes(folder):
    """A folder with one part alone has no parts."""
    (folder.parent / "all").mkdir()
    folder.rename(folder.parent / "all" / "train")
    said = " ".join(show(folder.parent / "all").stderr.split())
    assert "all/train has no pictures, but folders, such as bee; if these are the classes, name" in said
    assert entry(show(folder.parent / "all" / "train").stdout, "classes") == ["2"]


def test_refuses_a_folder_without_classes(tmp_path):
    failed = show(tmp_path)
    assert failed.returncode and "has neither a folder of pictures for each class nor" in failed.stderr


def test_a_path_that_is_not_there_is_named(tmp_path):
    failed = show(tmp_path / "none")
    assert failed.returncode and f"There is no data set '{tmp_path}/none'" in failed.stderr and "--text" not in failed.stderr


def test_one_picture_is_no_data_set(folder):
    failed = show(folder / "ant" / "a.jpg")
    assert failed.returncode and "is one picture" in failed.stderr


def test_reads_both_parts_of_fashion_mnist():
    out = show(FASHION).stdout
    assert entry(out, "pictures") == ["60,000"] and entry(out, "classes") == ["10"]
    assert entry(show(FASHION, "--held-out").stdout, "pictures") == ["10,000"]


def test_reads_idx_that_is_not_compressed(tmp_path):
    for kind in ["images-idx3", "labels-idx1"]:
        with gzip.open(f"{FASHION}/t10k-{kind}-ubyte.gz") as f:
            (tmp_path / f"t10k-{kind}-ubyte").write_bytes(f.read())
    assert entry(show(tmp_path, "--held-out").stdout, "pictures") == ["10,000"]
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 3) + b"abc")
    failed = show(tmp_path, "--held-out")
    assert failed.returncode and f"IDX file of labels in {tmp_path} is damaged" in failed.stderr
    assert "put them there" in show(tmp_path).stderr


@pytest.mark.parametrize("file, classes, labels", [("data_batch_1.bin", 10, b"\7"), ("train.bin", 100, b"\3\x63")])
def test_reads_cifar(tmp_path, file, classes, labels):
    for n in range(1, 6):
        (tmp_path / file.replace("1", str(n))).write_bytes((labels + bytes(3072)) * 4)
    out = show(tmp_path).stdout
    files = 5 if classes == 10 else 1
    assert entry(out, "pictures") == [str(4 * files)] and entry(out, "classes") == [str(classes)]
    assert entry(out, "pixels") == ["32 to 32 wide, 32 to 32 high"]
    (tmp_path / file).write_bytes(labels + bytes(3000))
    assert f"CIFAR file {tmp_path / file} is damaged" in show(tmp_path).stderr
    (tmp_path / file).write_bytes(b"\xff" * (len(labels) + 3072))
    assert "has class 255" in show(tmp_path).stderr


@pytest.mark.parametrize("file", ["data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"])
def test_one_file_of_cifar_is_a_data_set(tmp_path, file):
    """Also in the current folder; its classes have the names that lie beside it."""
    (tmp_path / file).write_bytes((b"\7" + bytes(3072)) * 4)
    (tmp_path / "batches.meta.txt").write_text("".join(f"name {i}\n" for i in range(10)))
    for done in [show(tmp_path / file), jm("data", file, cwd=tmp_path)]:
        assert entry(done.stdout, "format") == ["CIFAR"] and entry(done.stdout, "pictures") == ["4"]
        assert "0: 0 pictures of name 0" in entry(done.stdout, "class")


def test_pipes_in_place_of_files_are_not_waited_for(tmp_path):
    for kind in ["images-idx3", "labels-idx1"]:
        os.mkfifo(tmp_path / f"train-{kind}-ubyte")
    assert "is no regular file" in show(tmp_path).stderr
    assert "not a regular file" in show(tmp_path / "train-images-idx3-ubyte").stderr


def test_odd_fields_of_a_header_are_no_damage(folder):
    """Of another version of JFIF, and with a range of coefficients that a sequential JPEG has no use for."""
    whole = (folder / "ant/a.jpg").read_bytes()
    scan = whole.index(b"\xff\xda") + 5
    scan += 2 * whole[scan - 1]
    assert whole.count(b"JFIF\0\1") == 1 and whole[scan:scan + 3] == b"\0\x3f\0"
    (folder / "ant/version.jpg").write_bytes(whole.replace(b"JFIF\0\1", b"JFIF\0\2"))
    (folder / "bee/range.jpg").write_bytes(whole[:scan] + bytes(3) + whole[scan + 3:])
    done = show(folder)
    assert done.returncode == 0 and entry(done.stdout, "pictures") == ["6"] and entry(done.stdout, "corrupt files") == ["0"]
