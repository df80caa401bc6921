# SPDX-License-Identifier: Apache-2.0
"""Data sets for tests: pictures that are bad, and what Megatron writes, read in plain Python."""
import io
import os
import pathlib
import struct

import numpy
from PIL import Image

# what can be wrong with a file of a folder of pictures, and what is said of it
BAD_PICTURES = {
    "truncated": "is damaged", "truncated PNG": "is damaged", "CMYK": "colours of print", "empty": "is empty",
    "text": "is no picture", "30,000 pixels": "has 30000 x 1 pixels", "pipe": "is no regular file"}


def noise(width, height, seed=0):
    return Image.fromarray(numpy.random.default_rng(seed).integers(0, 256, (height, width, 3), numpy.uint8))


def coded(picture, kind):
    out = io.BytesIO()
    picture.save(out, kind)
    return out.getvalue()


def bad_picture(path, kind):
    """Writes a file of one of BAD_PICTURES."""
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes({"truncated": coded(noise(20, 30), "JPEG")[:-400], "truncated PNG": coded(noise(20, 30), "PNG")[:-400],
                          "CMYK": coded(noise(8, 8).convert("CMYK"), "JPEG"), "empty": b"", "text": b"no picture\n",
                          "30,000 pixels": coded(Image.new("RGB", (30000, 1)), "JPEG")}[kind])


def documents(stem):
    """The ids of each document of STEM.bin and STEM.idx, which must describe the file completely."""
    index, tokens = pathlib.Path(f"{stem}.idx").read_bytes(), pathlib.Path(f"{stem}.bin").read_bytes()
    assert index[:9] == b"MMIDIDX\0\0"
    version, kind, sequences, ends = struct.unpack_from("<QBQQ", index, 9)
    width, letter = {4: (4, "i"), 8: (2, "H")}[kind]
    lengths = struct.unpack_from(f"<{sequences}i", index, 34)
    places = struct.unpack_from(f"<{sequences}q", index, 34 + 4 * sequences)
    firsts = struct.unpack_from(f"<{ends}q", index, 34 + 12 * sequences)
    assert version == 1 and len(index) == 34 + 12 * sequences + 8 * ends
    assert firsts[0] == 0 and firsts[-1] == sequences and sum(lengths) * width == len(tokens)
    assert all(place == width * sum(lengths[:i]) for i, place in list(enumerate(places))[:100])
    ids = struct.unpack(f"<{len(tokens) // width}{letter}", tokens)
    each = [list(ids[p // width:p // width + n]) for p, n in zip(places, lengths)]
    return [sum(each[a:b], []) for a, b in zip(firsts, firsts[1:])]
