# SPDX-License-Identifier: Apache-2.0
"""run --data: a folder of pictures is learnt and evaluated over all that are held out."""
import gzip
import json
import os
import pathlib
import struct
import subprocess

import numpy
import pytest
from PIL import Image

from data_sets import BAD_PICTURES, bad_picture, noise
from jm import BIN, BUILD, FAILURE, USAGE, jm

FAILED = 1
PEERS = BUILD / "tests" / "peers"
NARROW = ("resnet", "--layers", 10, "--hidden", 8, "--image", 32, "--batch", 7, "--device", "cpu", "--source", "null",
          "--lr", "0.01", "--weight-decay", 0)
NAMES = ["blue", "green", "red"]


def colour(kind, seed):
    """Noise with more of one colour."""
    pixels = numpy.random.default_rng(seed).integers(0, 120, (40, 36, 3), numpy.uint8)
    pixels[:, :, 2 - kind] += 100
    return Image.fromarray(pixels)


@pytest.fixture
def folders(tmp_path):
    """For training 30 JPEGs; for evaluation 20 PNGs."""
    for part, n, kind in [("train", 10, "jpg"), ("val", 7, "png")]:
        for i, name in enumerate(NAMES):
            (tmp_path / part / name).mkdir(parents=True)
            for k in range(n - (part == "val" and i == 2)):
                colour(i, 1000 * i + k + 100 * n).save(tmp_path / part / name / f"{k}.{kind}")
    return tmp_path


def run(folders, *more, status=0, model=NARROW):
    data = () if "--data" in more else ("--data", folders / "train")
    done = jm("run", *model, *data, *more, "--json", "-", timeout=1000,
              env={"OMP_WAIT_POLICY": "passive"})
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def losses(record):
    return record["step_series"]["loss"]


def test_learns_three_colours(folders):
    record = run(folders, "--eval-data", folders / "val", "--epochs", 6)
    data, evaluations = record["data"], record["evaluations"]
    assert (data["format"], data["classes"], data["pictures"], data["epoch_steps"]) == ("folder", 3, 30, 5)
    assert [e["step"] for e in evaluations] == [5, 10, 15, 20, 25, 30]
    assert all(e["samples"] == 20 and e["accuracy"] == e["right"] / 20 for e in evaluations)
    assert evaluations[-1]["right"] == 20
    assert data["decode_s"] > 0 and data["bytes"] > 0 and data["corrupt"] == 0 and data["decoded"] >= 30 * 6 + 20 * 6
    assert 0 < data["decode_cpu_s"] <= 1.01 * data["decode_s"]
    assert data["machine_cpu_s"] > 0 and data["host_joules"] is None  # no meter


def test_evaluates_after_each_epoch_of_given_steps(folders):
    record = run(folders, "--eval-data", folders / "val", "--epochs", 3, "--epoch-steps", 2)
    assert [e["step"] for e in record["evaluations"]] == [2, 4, 6] and record["data"]["epoch_steps"] == 5
    assert record["note"] is None


def test_says_that_nothing_was_evaluated(folders):
    record = run(folders, "--eval-data", folders / "val", "--steps", 4, "--warmup", 0)
    assert not record.get("evaluations")
    assert "Nothing was evaluated: evaluations come after every 5 steps, and the run had 4" in record["note"]


def test_more_threads_than_processors_load_no_more(folders):
    """They take turns, so their sum is no more than what the processors can do."""
    data, cores = run(folders, "--epochs", 1, "--data-threads", 32)["data"], len(os.sched_getaffinity(0))
    most = cores * data["decoded"] / data["decode_cpu_s"]
    assert data["threads"] == 32 and data["load_per_s"] == pytest.approx(min(most, 32 * data["decoded"] / data["decode_s"]))


def test_loading_has_a_share_of_the_packages(folders):
    record = run(folders, "--steps", 20, model=[word if word != "null" else "estimate:core=10,idle=5" for word in NARROW])
    package = [m["id"] for m in record["meters"] if m["scope"] == "package"]
    joules = sum(m["joules"] for phase in record["phases"] for m in phase["meters"] if m["id"] in package)
    share = record["data"]["decode_cpu_s"] / record["data"]["machine_cpu_s"]
    assert record["data"]["host_joules"] == pytest.approx(joules * share, rel=1e-9) and joules > 0 and 0 < share < 1


def test_report_has_top1(folders):
    store = folders / "store.db"
    record = run(folders, "--eval-data", folders / "val", "--epochs", 3, "--store", store)
    threads = record["data"]["threads"]
    shown = " ".join(jm("report", store).stdout.split())
    seconds = sum(e["seconds"] for e in record["evaluations"])
    assert f"Evaluations (3) took {seconds:.3g} s, which the time of their phases includes." in shown
    assert "of 20 held-out pictures right) after step 15" in shown and "steps waited" in shown
    assert f"s of {threads} thread{'s' if threads > 1 else ''} (" in shown


def test_evaluation_does_not_depend_on_the_batch(folders):
    """The weights stay those of --from, but running statistics need frozen norms."""
    saved = folders / "net.safetensors"
    run(folders, "--steps", 20, "--warmup", 0, "--save", saved)
    found = []
    for batch in [1, 3, 20, 32]:
        model = (*NARROW[:NARROW.index("--batch")], "--batch", batch, "--device", "cpu", "--source", "null", "--lr", "1e-12")
        record = run(folders, "--eval-data", folders / "val", "--from", saved, "--freeze", "conv1*,bn1*,layer*", "--steps", 1,
                     "--warmup", 0, "--eval-every", 1, model=model)
        found.append(record["evaluations"][0])
    assert all(e["samples"] == 20 and e["right"] == found[0]["right"] for e in found)
    assert all(abs(e["loss"] - found[0]["loss"]) < 1e-4 for e in found)


def test_a_step_of_several_epochs_is_refused(folders):
    def steps(batch, *more, status=0):
        return run(folders, "--epochs", 1, *more, status=status, model=[batch if word == 7 else word for word in NARROW])
    assert "A step takes 31 samples, but an epoch of" in steps(31, status=FAILED)["reason"]
    assert steps(30)["steps"] == 1 and steps(31, "--epoch-steps", 2)["steps"] == 2


@pytest.mark.parametrize("option", [("--augment", "off"), ("--pixels", "values"), ("--decode", "host"), ("--strict-data",), ("--data-threads", 2)])
def test_what_concerns_pictures_of_files_needs_them(option):
    done = jm("run", *NARROW, "--steps", 1, *option)
    assert done.returncode == USAGE and f"{option[0]} has no effect without --data" in done.stderr


def test_skips_and_counts_damaged_files(folders):
    (folders / "train" / "red" / "x.jpg").write_text("no picture")
    (folders / "val" / "blue" / "x.png").write_bytes(b"")
    (folders / "val" / "red" / "y.png").write_bytes((folders / "val" / "red" / "0.png").read_bytes()[:-900])
    record = run(folders, "--eval-data", folders / "val", "--epochs", 2)
    assert record["data"]["corrupt"] == 3
    assert [e["samples"] for e in record["evaluations"]] == [20, 20]
    assert "3 files of the data could not be read" in record["note"]


def test_each_kind_of_bad_file_is_counted_once(folders):
    for i, kind in enumerate(BAD_PICTURES):
        bad_picture(folders / "train" / "red" / f"x{i}.jpg", kind)
    record = run(folders, "--epochs", 2)
    assert record["data"]["corrupt"] == len(BAD_PICTURES) and record["status"] == "ok"


@pytest.mark.parametrize("kind", BAD_PICTURES)
def test_damaged_file_is_fatal_by_option(folders, kind):
    bad_picture(folders / "train" / "red" / "x.jpg", kind)
    record = run(folders, "--epochs", 2, "--strict-data", status=FAILED)
    assert "x.jpg" in record["reason"] and BAD_PICTURES[kind] in record["reason"]


@pytest.mark.skipif(not (PEERS / "libnvjpeg-fake.so").exists(), reason="needs the headers of libjpeg-turbo")
@pytest.mark.parametrize("bus, status", [("0000:1b:00.0", 0), ("0000:ff:00.0", FAILURE)], ids=["found", "lost"])
def test_gpu_decodes_by_option(folders, monkeypatch, bus, status):
    """Another device takes the place of the GPU, and a fake nvJPEG decodes on the one with its address."""
    (folders / "cuda.so").symlink_to(PEERS / "later.so")
    bad_picture(folders / "train" / "red" / "bad.jpg", "CMYK")
    noise(50, 40).save(folders / "train" / "red" / "p.jpg", progressive=True)
    for name, value in (("JM_BACKENDS", folders), ("JM_FAKE_LATER_IDS", f"GPU-0/{bus}"), ("NVJPEG_FAKE", "engine"),
                        ("JM_NVJPEG_LIB", PEERS / "libnvjpeg-fake.so"), ("JM_CUDA_LIB", PEERS / "libnvjpeg-fake.so")):
        monkeypatch.setenv(name, str(value))
    words = ("--epochs", 2, "--eval-data", folders / "val", "--decode", "device")
    told = run(folders, *words, status=status, model=[word if word != "cpu" else "cuda:0" for word in NARROW])
    if status:
        assert "Finding the GPU for nvJPEG failed" in json.dumps(told)
        return
    data = told["data"]
    assert data["decoder"] == "nvJPEG 13.12.11" and data["corrupt"] == 1
    assert data["decoded_engine"] >= 60 and data["decoded_gpu"] >= 2 and data["engine_failed"] == 0
    host = data["decoded"] - data["decoded_engine"] - data["decoded_gpu"]
    assert host >= 2 * 20  # held-out pictures are PNG files
    told = run(folders, *words, status=FAILED, model=[{"cpu": "cuda:0", 7: "max"}.get(word, word) for word in NARROW])
    assert "--decode device does not go with --batch max" in told["reason"]
    monkeypatch.setenv("NVJPEG_FAKE", "engine-fails")
    told = run(folders, *words, model=[word if word != "cpu" else "cuda:0" for word in NARROW])
    failed = told["data"]["engine_failed"]
    assert failed >= 60 and told["data"]["decoded_engine"] == 0
    (folders / "r.json").write_text(json.dumps(told))
    assert f"The engine failed at {failed} pictures" in " ".join(jm("report", folders / "r.json").stdout.split())
    monkeypatch.undo()
    data = run(folders, "--steps", 1)["data"]
    assert data["decoder"] is None and data["engine_failed"] == 0


def test_a_picture_of_one_pixel_is_learnt(folders):
    noise(1, 1).save(folders / "train" / "red" / "x.jpg")
    noise(1, 1).save(folders / "val" / "red" / "x.png")
    record = run(folders, "--eval-data", folders / "val", "--epochs", 2, "--strict-data")
    assert record["data"]["corrupt"] == 0 and record["evaluations"][0]["samples"] == 21


@pytest.mark.parametrize("change, sentence", [
    (lambda f: (f / "val" / "red").rename(f / "val" / "rot"), "Class 2 is 'red' for training"),
    (lambda f: (f / "val" / "more").mkdir() or colour(0, 1).save(f / "val" / "more" / "a.png"), "has 3 classes for training and"),
    (lambda f: (f / "val" / "more").mkdir(), "has no pictures"),
    (lambda f: (f / "train" / "more").mkdir(), "has no pictures"),
])
def test_refuses_other_classes_for_evaluation(folders, change, sentence):
    change(folders)
    assert sentence in json.dumps(run(folders, "--eval-data", folders / "val", "--epochs", 2, status=FAILED))


def test_refuses_what_does_not_go_together(folders):
    val, one = folders / "val", folders / "one"
    (one / "red").mkdir(parents=True)
    noise(40, 40).save(one / "red" / "a.jpg")
    for words, sentence in [((*NARROW, "--eval-data", val), "--data is not"),
                            ((*NARROW, "--data", val, "--classes", 5), "--classes is 5"),
                            ((*NARROW, "--data", one), f"{one} has one class, but a classification needs two or more"),
                            ((*NARROW, "--classes", 1), "--classes is 1, but a classification needs two or more"),
                            ((*NARROW, "--data", val, "--eval-every", 2), "held out"),
                            ((*NARROW, "--data", folders / "none"), "does not exist"),
                            ((*NARROW, "--data", val, "--eval-data", f"{val}/"), "none are held out"),
                            ((*NARROW, "--data", folders, "--eval-data", folders / "train"), "the part of --data that is learnt"),
                            ((*NARROW, "--text", __file__), "reads no text"),
                            (("gpt", "--layers", 1, "--hidden", 16, "--heads", 2, "--context", 32, "--data", val), "reads neither pictures nor fields")]:
        done = jm("run", *words, "--steps", 1)
        assert done.returncode in (USAGE, FAILED) and sentence in " ".join(done.stderr.split()), done.stderr


def test_names_the_folder_that_is_missing(folders):
    done = jm("run", *NARROW, "--steps", 1, "--save", folders / "no" / "net.safetensors")
    assert done.returncode == FAILED and f"make the folder {folders}/no first" in " ".join(done.stderr.split())


@pytest.mark.parametrize("words", [NARROW, ("vit", "--layers", 1, "--hidden", 16, "--heads", 2, "--patch", 8, "--image", 32, "--batch", 7,
                                            "--device", "ref", "--source", "null")])
def test_bytes_are_normalised_on_the_device(tmp_path, words):
    """Pictures of CIFAR keep their pixels, so that both ways have the same values but for rounding in f32."""
    rng = numpy.random.default_rng(3)
    for n in range(1, 6):
        rows = rng.integers(0, 256, (4, 3073), numpy.uint8)
        rows[:, 0] %= 10
        (tmp_path / f"data_batch_{n}.bin").write_bytes(rows.tobytes())
    found = [run(tmp_path, "--data", tmp_path, "--pixels", pixels, "--steps", 3, "--warmup", 0, model=words)
             for pixels in ("bytes", "values")]
    assert losses(found[0]) == pytest.approx(losses(found[1]), rel=1e-5)
    assert all(record["data"]["decoded"] >= 20 for record in found)


def test_goes_on_with_the_same_pictures(folders):
    """Behind step 8, in the second epoch; each run has its own threads."""
    file = folders / "half"
    whole = run(folders, "--steps", 14, "--warmup", 0, "--data-threads", 1)
    run(folders, "--steps", 8, "--warmup", 0, "--checkpoint", file)
    rest = run(folders, "--steps", 6, "--warmup", 0, "--continue", file, "--data-threads", 5)
    assert losses(rest) == losses(whole)[8:]


def test_frozen_layers_get_a_new_top(folders):
    saved = folders / "net.safetensors"
    run(folders, "--steps", 30, "--warmup", 0, "--save", saved)
    for part in ["train", "val"]:
        (folders / part / "red").rename(folders / "red")
        (folders / "red").rename(folders / f"{part}-red")
    record = run(folders, "--eval-data", folders / "val", "--from", saved, "--freeze", "conv1*,bn1*,layer*", "--epochs", 10,
                 "--lr", "0.05", model=NARROW[:-4] + ("--weight-decay", 0))
    assert record["data"]["classes"] == 2 and record["weights"]["new_top"]
    assert record["evaluations"][-1]["right"] == record["evaluations"][-1]["samples"] == 14


def test_ranks_share_an_epoch(folders):
    """Two ranks of 7 take the pictures of one of 14."""
    (folders / "val" / "red" / "x.png").write_bytes(b"no picture")
    record = run(folders, "--epochs", 2, "--ranks", 2, "--eval-data", folders / "val")
    assert record["note"].startswith("1 file of the data could not be read by rank 0, more perhaps by others, and was skipped")
    (folders / "record.json").write_text(json.dumps(record))
    assert "Of rank 0 of 2: " in " ".join(jm("report", folders / "record.json").stdout.split())
    assert record["data"]["epoch_steps"] == 3 and record["evaluations"][-1]["samples"] == 20


FASHION = "/usr/share/datasets/fashion-mnist"


@pytest.mark.skipif(not os.path.exists(FASHION), reason="needs dataset-fashion-mnist")
def test_learns_fashion_mnist():
    """700 steps of 64: 44,800 of the 60,000 pictures, once each; all 10,000 that are held out are evaluated."""
    done = jm("run", "resnet", "--layers", 10, "--hidden", 8, "--image", 32, "--data", FASHION, "--eval-data", FASHION,
              "--device", "cpu", "--source", "null", "--batch", 64, "--lr", "0.01", "--schedule", "cosine", "--lr-steps", 700,
              "--weight-decay", "0.01", "--augment", "off", "--steps", 700, "--warmup", 0, "--eval-every", 700, "--json", "-",
              timeout=500, env={"OMP_WAIT_POLICY": "passive"})
    assert done.returncode == 0, done.stderr
    found, = json.loads(done.stdout)["evaluations"]
    assert found["samples"] == 10000 and found["accuracy"] == found["right"] / 10000 > 0.85


def idx(name):
    data = gzip.decompress((pathlib.Path(FASHION) / f"{name}.gz").read_bytes())
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def write_idx(path, array):
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


@pytest.mark.skipif(not os.path.exists(FASHION), reason="needs dataset-fashion-mnist")
def test_a_folder_of_jpegs_is_learnt_as_well(tmp_path):
    """The same 20,000 pictures in the same order; all 10,000 held out are evaluated. JPEGs have a black margin: the eighth of a folder's
    picture that is not taken."""
    pictures, classes = idx("train-images-idx3-ubyte")[:20000], idx("train-labels-idx1-ubyte")[:20000]
    order = numpy.argsort(classes, kind="stable")  # that of a folder of classes
    (tmp_path / "idx").mkdir()
    write_idx(tmp_path / "idx/train-images-idx3-ubyte", pictures[order])
    write_idx(tmp_path / "idx/train-labels-idx1-ubyte", classes[order])
    for part, of in (("train", (pictures, classes)), ("val", (idx("t10k-images-idx3-ubyte"), idx("t10k-labels-idx1-ubyte")))):
        for one in range(10):
            (tmp_path / f"jpeg/{part}/{one}").mkdir(parents=True)
        for i, (picture, one) in enumerate(zip(*of)):
            Image.fromarray(numpy.pad(picture, 4)).save(tmp_path / f"jpeg/{part}/{one}/{i:05}.jpg", quality=95)
    found = {}
    for name, held_out in (("idx", FASHION), ("jpeg", tmp_path / "jpeg")):
        record = run(tmp_path, "--data", tmp_path / name, "--eval-data", held_out, "--threads", 1, "--augment", "off", "--schedule", "cosine",
                     "--lr-steps", 700, "--steps", 700, "--warmup", 0, "--eval-every", 700, model=[{7: 64}.get(word, word) for word in NARROW])
        evaluation, = record["evaluations"]
        assert evaluation["samples"] == 10000
        found[name] = evaluation["accuracy"], losses(record)[0]
    assert found["jpeg"][1] == pytest.approx(found["idx"][1], rel=0.01) and found["jpeg"][1] != found["idx"][1]
    assert min(found["idx"][0], found["jpeg"][0]) > 0.85 and abs(found["idx"][0] - found["jpeg"][0]) < 0.01, found


@pytest.mark.skipif(not os.path.exists(FASHION), reason="needs dataset-fashion-mnist")
def test_refuses_classes_without_names_of_two_formats(tmp_path):
    for n in range(1, 6):
        (tmp_path / f"data_batch_{n}.bin").write_bytes((b"\7" + bytes(3072)) * 4)
    done = jm("run", *NARROW, "--data", tmp_path, "--eval-data", FASHION, "--steps", 1)
    assert done.returncode == FAILED and "nothing shows that they are the same" in " ".join(done.stderr.split())


def test_a_folder_may_change_during_the_run(folders):
    """A file that is removed, one that is replaced by a text, and one that is new, which is not read."""
    red = folders / "train" / "red"
    words = ["--eval-data", folders / "val", "--epochs", 60, "--json", "-"]
    child = subprocess.Popen([BIN, "run", *map(str, (*NARROW, "--data", folders / "train", *words))], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    before = next(line for line in child.stderr if "After step" in line)  # the first epoch is over
    (red / "0.jpg").unlink()
    (red / "1.jpg").write_text("no picture")
    colour(0, 5).save(red / "new.jpg")
    out, said = child.communicate(timeout=1000)
    record, = [json.loads(out)]
    assert child.returncode == 0, before + said
    assert record["data"]["corrupt"] == 2 and record["data"]["pictures"] == 30
    assert "2 files of the data could not be read" in record["note"]
