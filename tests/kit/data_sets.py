# SPDX-License-Identifier: Apache-2.0
"""Reading data sets as Megatron writes them, in plain Python."""
import pathlib
import struct


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
