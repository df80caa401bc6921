# SPDX-License-Identifier: Apache-2.0
"""A Fourier neural operator for a grid of two axes, by NumPy's transforms; not a test."""
import math

import numpy


def gelu(x):
    return x * (1 + numpy.vectorize(math.erf)(x / math.sqrt(2))) / 2


def network(p, x, modes):
    """x: [samples,x,y,fields]; p: parameters by the names of `run --save`."""
    def linear(name, x):
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]
    shape = x.shape[1:3]
    x = linear("lift", x)
    for layer in ("h0", "h1"):
        real, imaginary = p[f"{layer}.modes.weight"]
        weight = (real + 1j * imaginary).reshape(2 * modes, modes, *real.shape[1:])
        spectrum = numpy.fft.rfft2(x, axes=(1, 2), norm="ortho")
        mixed = numpy.zeros_like(spectrum)
        for here, there in ((slice(0, modes), slice(0, modes)), (slice(-modes, None), slice(modes, None))):
            mixed[:, here, :modes] = numpy.einsum("bxyi,xyio->bxyo", spectrum[:, here, :modes], weight[there])
        x = gelu(numpy.fft.irfft2(mixed, s=shape, axes=(1, 2), norm="ortho") + linear(f"{layer}.linear", x))
    return linear("project.out", gelu(linear("project.in", x)))


def relative_error(found, wanted):
    """The mean of |found - wanted| / |wanted| over samples and fields; both [samples,x,y,fields]."""
    return (numpy.linalg.norm(found - wanted, axis=(1, 2)) / numpy.linalg.norm(wanted, axis=(1, 2))).mean()
