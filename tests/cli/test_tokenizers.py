# SPDX-License-Identifier: Apache-2.0
"""data tokenize gives the ids of the package `tokenizers` for fuzzed Unicode, with each kind of tokenizer: for 1 MB of short
texts, and for one text of 2 MB.

The package is installed from PyPI into the build folder (tools/requirements-test.txt); without a network the comparison with
the ids that it gave earlier remains (tests/unit/test_tokenizer.c).
"""
import json
import subprocess
import sys

import pytest

from data_sets import documents
from jm import BUILD, SOURCE, jm

FOLDER = BUILD / "test-packages"
SCRIPT = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import kinds
out, size, seed = pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
texts = [t for t in kinds.fuzzed(seed, size) if t]
(out / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\\n" for t in texts))
for kind, make in kinds.KINDS.items():
    t = make()
    t.save(str(out / f"{kind}.json"))
    ids = [t.encode(x, add_special_tokens=False).ids for x in texts]
    (out / f"{kind}.ids").write_text(json.dumps(ids))
    long = " so it goes\\nOn ".join(texts)
    (out / "long").write_bytes(long.encode())
    (out / f"{kind}.long").write_text(json.dumps(t.encode(long, add_special_tokens=False).ids))
    print(kind)
"""


def tokenize(folder, kind, *text):
    """The documents' ids."""
    done = jm("data", "tokenize", "--tokenizer", folder / f"{kind}.json", *text, folder / "out", timeout=200)
    assert done.returncode == 0, done.stderr
    return documents(folder / "out")


@pytest.fixture(name="package", scope="module")
def installed_package():
    """The folder of the package."""
    if not (FOLDER / "tokenizers").exists():
        done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:",
                               "--retries", "0", "--timeout", "20", "--target", FOLDER, "-r", SOURCE / "tools/requirements-test.txt"],
                              check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            pytest.skip("the package tokenizers cannot be installed here")
    return FOLDER


def test_ids_are_those_of_the_package(package, tmp_path):
    made = subprocess.run([sys.executable, "-c", SCRIPT, SOURCE / "tests/data/tokenizers", tmp_path, "1000000", "7"], text=True,
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PYTHONPATH": str(package)})
    assert made.returncode == 0, made.stderr
    kinds = made.stdout.split()
    assert len(kinds) >= 9
    for kind in kinds:
        expected = [ids for ids in json.loads((tmp_path / f"{kind}.ids").read_text()) if ids]
        got = tokenize(tmp_path, kind, "--field", "text", tmp_path / "texts.jsonl")
        assert len(got) == len(expected)
        wrong = [i for i, (a, b) in enumerate(zip(got, expected)) if a != b]
        assert not wrong, (kind, len(wrong), wrong[0])
        # one document, read in several parts
        assert tokenize(tmp_path, kind, tmp_path / "long") == [json.loads((tmp_path / f"{kind}.long").read_text())], kind
