# SPDX-License-Identifier: Apache-2.0
"""Safetensors files, read and written without a package; not a test. {name: (type, shape, bytes)}"""
import json
import struct

import numpy

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8"}


def read(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: (row["dtype"], row["shape"], data[8 + n + row["data_offsets"][0]:8 + n + row["data_offsets"][1]])
            for name, row in header.items()}


def write(path, tensors, behind=b""):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()) + behind)
    return path


def values(tensor):
    dtype, shape, data = tensor
    return numpy.frombuffer(data, TYPES[dtype]).reshape(shape)


def tensor(array):
    """Of an array of NumPy."""
    return {"<f8": "F64", "<f4": "F32", "<f2": "F16", "<i8": "I64"}[array.dtype.str], list(array.shape), array.tobytes()
