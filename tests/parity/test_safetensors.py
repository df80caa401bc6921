# SPDX-License-Identifier: Apache-2.0
"""Weights that the package safetensors wrote are read, and what is written it reads: every type, in one file and in shards."""
import subprocess

from jm import BUILD
from packages import python

MAKE = """
import json, pathlib, sys, torch
from safetensors.torch import save_file
folder = pathlib.Path(sys.argv[1])
torch.manual_seed(3)
types = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
         torch.uint8, torch.bool]
shapes = [(), (0, 3), (1,), (7, 5, 3), (501,)]
all = {f"{t}.{i}.é".replace("torch.", ""): (100 * torch.randn(shape)).to(t) for t in types for i, shape in enumerate(shapes)}
save_file(all, folder / "all.safetensors", {"format": "pt"})
(folder / "shards").mkdir()
names = sorted(all)
parts = {f"model-0000{i + 1}-of-00003.safetensors": names[i::3] for i in range(3)}
for file, own in parts.items():
    save_file({name: all[name] for name in own}, folder / "shards" / file)
index = {"metadata": {"total_size": 1}, "weight_map": {name: file for file, own in parts.items() for name in own}}
(folder / "shards" / "model.safetensors.index.json").write_text(json.dumps(index))
"""
COMPARE = """
import sys, torch
from safetensors import safe_open
from safetensors.torch import load_file
expected = load_file(sys.argv[1])
for file in sys.argv[2:]:
    found = load_file(file)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert torch.equal(found[name], value), name
    with safe_open(file, "pt") as opened:
        assert opened.metadata() == {"format": "pt"}
print(len(expected))
"""


def copy(source, target):
    return subprocess.run([BUILD / "tests" / "parity" / "copy_weights", source, target], check=False, text=True,
                          stderr=subprocess.PIPE)


def test_weights_of_the_package_and_back(tmp_path):
    python("networks", MAKE, tmp_path)
    copies = [tmp_path / "copy.safetensors", tmp_path / "joined.safetensors"]
    for source, target in zip((tmp_path / "all.safetensors", tmp_path / "shards"), copies):
        done = copy(source, target)
        assert done.returncode == 0, done.stderr
    assert int(python("networks", COMPARE, tmp_path / "all.safetensors", *copies)) == 50


def test_a_file_cut_anywhere_is_refused(tmp_path):
    python("networks", MAKE, tmp_path)
    whole, cut = (tmp_path / "all.safetensors").read_bytes(), tmp_path / "cut.safetensors"
    for size in (0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        done = copy(cut, tmp_path / "none")
        assert done.returncode == 1 and str(cut) in done.stderr, (size, done.stderr)
        assert not (tmp_path / "none").exists()
