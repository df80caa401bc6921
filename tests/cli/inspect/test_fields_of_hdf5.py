# SPDX-License-Identifier: Apache-2.0
"""run --data NAME.h5: fields on a grid, read from HDF5, are learnt and evaluated; losses are NumPy's."""
import json
import re

import numpy
import pytest

import weights_files
from fourier_net import network, relative_error
from jm import jm

tables = pytest.importorskip("tables")

MODES, FIELDS, X, Y, SAMPLES = 3, 2, 12, 16, 9
NET = ("fno-rbc2d", "--hidden", 8, "--modes-x", MODES, "--modes-y", MODES, "--device", "cpu", "--source", "null", "--warmup", 0)
DAMAGED = 1


def write(path, arrays):
    """The first as it is, in doubles; the others in compressed pieces, in single precision."""
    with tables.open_file(str(path), "w") as h5:
        for i, (name, array) in enumerate(arrays.items()):
            if i:
                h5.create_carray("/", name, obj=array.astype("f4") if array.dtype.kind == "f" else array, filters=tables.Filters(5, "zlib"))
            else:
                h5.create_array("/", name, array)
    return path


def samples(seed, n=SAMPLES, shape=(FIELDS, X, Y)):
    rng = numpy.random.default_rng(seed)
    return {name: rng.standard_normal((n, *shape)) for name in ("inputs", "outputs")}


def run(*words):
    done = jm("run", *NET, *words, "--json", "-", env={"OMP_WAIT_POLICY": "passive"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*words):
    done = jm("run", *NET, "--steps", 1, *words)
    assert done.returncode
    return " ".join(done.stderr.split())


def test_losses_are_those_of_all_samples(tmp_path):
    """A batch of all samples has the same mean loss in any order; an evaluation takes the whole batches in order."""
    data, held = samples(0), samples(1)
    path = write(tmp_path / "train.h5", data), write(tmp_path / "held.hdf5", held)
    saved = tmp_path / "net.safetensors"
    run("--data", path[0], "--batch", 3, "--steps", 1, "--save", saved)
    record = run("--data", path[0], "--eval-data", path[1], "--batch", SAMPLES - 1, "--epochs", 1, "--from", saved, "--lr", 1e-12)
    weights = {name: weights_files.values(t).astype(float) for name, t in weights_files.read(saved).items()}
    last = lambda name, of: numpy.moveaxis(of[name], 1, -1)
    loss = lambda of: relative_error(network(weights, last("inputs", of), MODES), last("outputs", of))
    [found] = record["evaluations"]
    assert found["loss"] == pytest.approx(loss({name: a[:SAMPLES - 1] for name, a in held.items()}), rel=1e-5)
    assert found["samples"] == SAMPLES - 1 and "right" not in found
    # the first batch has all samples but one
    but_one = [loss({name: numpy.delete(a, i, 0) for name, a in data.items()}) for i in range(SAMPLES)]
    assert min(abs(record["step_series"]["loss"][0] - x) for x in but_one) < 1e-5
    assert record["data"]["format"] == "fields of HDF5" and record["data"]["pictures"] == SAMPLES
    assert record["data"]["corrupt"] == 0


def test_threads_and_order_change_no_loss(tmp_path):
    path = write(tmp_path / "a.h5", samples(0, shape=(3, 8, 8, 6)))
    words = ("--modes-z", 2, "--data", path, "--batch", 2, "--steps", 7)
    one, four = (run(*words, "--data-threads", n)["step_series"]["loss"] for n in (1, 4))
    assert one == four and len(set(one)) == 7


def test_show_has_ranges(tmp_path):
    data = samples(3)
    data["outputs"][2, 1, 3, 4] = numpy.nan
    data["inputs"][:, 1] = numpy.inf
    shown = jm("data", "show", write(tmp_path / "a.h5", data))
    assert shown.returncode == 0, shown.stderr
    assert "2 fields on 12 x 16" in shown.stdout and re.search(r"samples +9$", shown.stdout, re.M)
    assert f"0: {data['inputs'][:, 0].min():.4g} to {data['inputs'][:, 0].max():.4g}, mean" in shown.stdout
    assert "1 of 1728 values are not finite" in shown.stdout
    assert "1: no range; 1728 of 1728 values are not finite" in " ".join(shown.stdout.split()) and "nan" not in shown.stdout
    refused = jm("data", "show", "--decode", "device", tmp_path / "a.h5")
    assert refused.returncode == 2 and "--decode device has no effect" in " ".join(refused.stderr.split())


def write_checked(path, arrays, damage=()):
    """Each sample has a sum of its own; samples of `damage`, (array, number), are changed afterwards."""
    with tables.open_file(str(path), "w") as h5:
        for name, array in arrays.items():
            h5.create_carray("/", name, obj=array, chunkshape=(1, *array.shape[1:]), filters=tables.Filters(fletcher32=True))
    held = bytearray(path.read_bytes())
    for name, i in damage:
        piece = arrays[name][i].tobytes()
        assert held.count(piece) == 1
        held[held.index(piece) + 9] ^= 1
    path.write_bytes(held)
    return path


def test_a_damaged_sample_is_skipped_and_counted(tmp_path):
    """A batch of the two samples that are left has the loss of these two, in any order."""
    data = samples(5, 4)
    whole = write_checked(tmp_path / "whole.h5", {name: array[[1, 3]] for name, array in data.items()})
    path = write_checked(tmp_path / "damaged.h5", data, [("inputs", 0), ("outputs", 2)])
    saved = tmp_path / "net.safetensors"
    run("--data", whole, "--batch", 1, "--steps", 1, "--save", saved)
    words = ("--from", saved, "--lr", 1e-12, "--batch", 2, "--steps", 1, "--eval-every", 1)
    found, expected = (run("--data", whole, "--eval-data", held, *words) for held in (path, write(tmp_path / "two.h5", {
        name: array[[1, 3]] for name, array in data.items()})))
    assert found["data"]["corrupt"] == 2 and "2 samples of the data could not be read" in found["note"]
    assert expected["data"]["corrupt"] == 0
    trained = run("--data", path, "--batch", 2, "--epochs", 2)
    assert trained["data"]["corrupt"] == 2 and trained["status"] == "ok"
    assert re.search("Sample [02] of .*damaged.h5 cannot be read", refused("--data", path, "--strict-data"))
    shown = jm("data", "show", path)
    assert shown.returncode == DAMAGED and re.search(r"corrupt samples +2$", shown.stdout, re.M), shown.stderr
    assert "Sample 0 of" in shown.stdout and "Sample 2 of" in shown.stdout
    assert f"0: {data['inputs'][[1, 3], 0].min():.4g} to {data['inputs'][[1, 3], 0].max():.4g}, mean" in shown.stdout


def test_without_a_sample_that_can_be_read_it_says_so(tmp_path):
    path = write_checked(tmp_path / "all.h5", samples(5, 2), [("inputs", 0), ("inputs", 1)])
    assert "has no sample that can be read" in refused("--data", path)
    assert "corrupt samples" in jm("data", "show", path).stdout


def damaged(path):
    path.write_bytes(path.read_bytes()[:-500])


BAD = [
    (lambda a: a.pop("outputs"), "has no array 'outputs'"),
    (lambda a: a.pop("inputs"), "has no array 'inputs'"),
    (lambda a: a.update(outputs=a["outputs"][:-1]), "differ in size"),
    (lambda a: a.update(inputs=a["inputs"].astype(int)), "'inputs' of {} is no array of floating-point numbers"),
    (lambda a: a.update({name: x[:, 0, :, 0] for name, x in a.items()}), "has 2 dimensions in place of 4 or 5"),
    (lambda a: a.update({name: x[:0] for name, x in a.items()}), "has no samples"),
]


@pytest.mark.parametrize("change,sentence", BAD, ids=[sentence.split("{}")[-1] for _, sentence in BAD])
def test_foreign_arrays_are_refused(tmp_path, change, sentence):
    arrays = samples(4)
    change(arrays)
    path = tmp_path / "a.h5"
    with tables.open_file(str(path), "w") as h5:
        for name, array in arrays.items():
            if len(array):
                h5.create_array("/", name, array)
            else:
                h5.create_earray("/", name, atom=tables.Float32Atom(), shape=array.shape)
    assert sentence.format(path) in refused("--data", path)
    shown = jm("data", "show", path)
    assert shown.returncode and sentence.format(path) in " ".join(shown.stderr.split())


def test_a_network_without_preset_has_the_fields_and_points_of_the_file(tmp_path):
    path = write(tmp_path / "a.h5", samples(0, shape=(3, 8, 8)))
    done = jm("run", "fno", "--hidden", 4, "--layers", 1, "--modes-x", 2, "--modes-y", 2, "--device", "cpu", "--source", "null", "--warmup", 0,
              "--data", path, "--batch", 2, "--steps", 1, "--json", "-")
    assert done.returncode == 0 and json.loads(done.stdout)["status"] == "ok", done.stderr
    assert "has 3 fields and --fields is 2; omit --fields" in refused("--data", path, "--fields", 2)


def test_a_value_that_is_no_number_is_said(tmp_path):
    data = samples(0)
    data["inputs"][:, 0, 1, 2] = numpy.nan
    path = write(tmp_path / "a.h5", data)
    assert "was not finite before the step; correct the data" in refused("--data", path, "--batch", 2)


def test_a_target_of_zeros_is_said(tmp_path):
    """Its error relative to its own size is infinite, whatever the learning rate."""
    data = samples(0)
    data["outputs"][4, 1] = 0
    path = write(tmp_path / "a.h5", data)
    assert "a field of 'outputs' is 0 everywhere" in refused("--data", path, "--batch", SAMPLES)
    held = refused("--data", write(tmp_path / "b.h5", samples(1)), "--eval-data", path, "--eval-every", 1, "--batch", SAMPLES)
    assert "The held-out loss after step 1 is not a number or infinite" in held and "correct the held-out data" in held


def test_other_files_and_models_are_refused(tmp_path):
    path = write(tmp_path / "a.h5", samples(0))
    cut = write(tmp_path / "cut.h5", samples(0))
    damaged(cut)
    other = write(tmp_path / "other.h5", samples(0, shape=(FIELDS, X, Y + 2)))
    (tmp_path / "text.h5").write_text("no HDF5")
    for words, sentence in [
            (("--data", cut), "cannot be read as HDF5"), (("--data", tmp_path / "text.h5"), "cannot be read as HDF5"),
            (("--data", path, "--eval-data", path), "names the file of --data, so nothing is held out; give another one."),
            (("--data", path, "--eval-data", other, "--batch", 2), "differ in number or points"),
            (("--data", path, "--eval-data", write(tmp_path / "b.h5", samples(1)), "--batch", 10), "give --batch 9 or less"),
            (("--data", path, "--fields", 4), f"has {FIELDS} fields and --fields is 4"),
            (("--data", path, "--points-y", 32), f"has {Y} points-y and --points-y is 32")]:
        assert sentence in refused(*words), sentence
    done = jm("run", "resnet18", "--device", "cpu", "--source", "null", "--steps", 1, "--data", path)
    assert "reads the field 'image'" in " ".join(done.stderr.split())


def test_without_the_library_it_says_what_to_install(tmp_path):
    path = write(tmp_path / "a.h5", samples(0))
    done = jm("data", "show", path, env={"JM_HDF5_LIB": "/no.so"})
    assert done.returncode and "install libhdf5" in " ".join(done.stderr.split())
