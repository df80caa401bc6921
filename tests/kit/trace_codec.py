# SPDX-License-Identifier: Apache-2.0
"""Readings of a chunk of a trace, as lib/trace/codec.h says it is written."""
import math
import struct

from page_data import varints

HEADER = struct.Struct("<4sIIIqqd")  # "jmT1", records, bytes, readings, t of the first and the last, step
MULTIPLE, FRACTION, RAW, NOTHING, SAME = range(5)


def unzigzag(v):
    return v >> 1 ^ -(v & 1)


def readings(chunk):
    """[(ns, value)]; a reading without a value is NAN."""
    _, records, size, _, t, _, step = HEADER.unpack_from(chunk)
    numbers, out, dt, q, value = varints(chunk[HEADER.size:HEADER.size + size]), [], 0, 0, math.nan
    for i, (change, token) in enumerate(zip(numbers, numbers)):
        dt += unzigzag(change)
        t += dt if i else 0
        kind = token & 7
        assert kind != RAW, "values of this trace are multiples of their step"
        if kind in (MULTIPLE, FRACTION):
            q += unzigzag(token >> 3)
            value = q * step if kind == MULTIPLE else q / round(1 / step)
        elif kind == NOTHING:
            value = math.nan
        out.append((t, value))
    assert len(out) == records
    return out
