# SPDX-License-Identifier: Apache-2.0
"""data tokenize gives the ids of the package `tokenizers` for fuzzed Unicode, with each kind of tokenizer: for short texts, 300 kB
and with JM_LONG 1 MB, and for one text of twice that.

The package is installed from PyPI into the build folder (tools/requirements-test.txt); without a network the comparison with
the ids that it gave earlier remains (tests/unit/data/test_tokenizer.c).
"""
import json
import os

from data_sets import documents
from jm import SOURCE, jm
from packages import python

SIZE = 1000000 if os.environ.get("JM_LONG") else 300000  # make check STEPS=long
SCRIPT = """
import json, pathlib, sys, unicodedata
sys.path.insert(0, sys.argv[1])
import kinds
out, size, seed = pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
texts = [t for t in kinds.fuzzed(seed, size) if t] + [chr(0x11935) + chr(0x11930)]
texts += [f"a{chr(c)}{chr(0x334)}b" for c in range(0x110000) if unicodedata.combining(chr(c))]  # normal form C sorts marks
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
    done = jm("data", "tokenize", "--tokenizer", folder / f"{kind}.json", *text, folder / "out", timeout=1000)
    assert done.returncode == 0, done.stderr
    return documents(folder / "out")


def test_ids_are_those_of_the_package(tmp_path):
    kinds = python("test", SCRIPT, SOURCE / "tests/data/tokenizers", tmp_path, SIZE, 7).split()
    assert len(kinds) >= 9
    for kind in kinds:
        expected = [ids for ids in json.loads((tmp_path / f"{kind}.ids").read_text()) if ids]
        got = tokenize(tmp_path, kind, "--field", "text", tmp_path / "texts.jsonl")
        assert len(got) == len(expected)
        wrong = [i for i, (a, b) in enumerate(zip(got, expected)) if a != b]
        assert not wrong, (kind, len(wrong), wrong[0])
        # one document, read in several parts
        assert tokenize(tmp_path, kind, tmp_path / "long") == [json.loads((tmp_path / f"{kind}.long").read_text())], kind
