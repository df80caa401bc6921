# SPDX-License-Identifier: Apache-2.0
"""What an evaluation cuts out of a picture and resizes is what Pillow makes of it, in f32."""
import subprocess

import numpy
import pytest
from PIL import Image

from jm import BUILD

MEAN = numpy.array([0.485, 0.456, 0.406])[:, None, None]  # of ImageNet, as torchvision has them
DEVIATION = numpy.array([0.229, 0.224, 0.225])[:, None, None]


SHAPES = [(500, 375, 224), (64, 48, 224), (40, 36, 32), (90, 70, 50), (33, 100, 7), (1, 1, 32)]


def cropped(picture, size, kind, *more):
    height, width, _ = picture.shape
    done = subprocess.run([BUILD / "tests/parity/crop", str(width), str(height), str(size), *more], input=picture.tobytes(),
                          stdout=subprocess.PIPE, check=True)
    return numpy.frombuffer(done.stdout, kind).reshape(3, size, size)


@pytest.mark.parametrize("width, height, size", SHAPES)
def test_is_what_pillow_makes(width, height, size):
    picture = numpy.random.default_rng(1).integers(0, 256, (height, width, 3), numpy.uint8)
    got = cropped(picture, size, numpy.float32) * DEVIATION + MEAN
    side = 0.875 * min(width, height)
    box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
    for c in range(3):
        plane = Image.fromarray(picture[:, :, c].astype(numpy.float32))
        expected = numpy.array(plane.resize((size, size), Image.BILINEAR, box=box)) / 255
        assert abs(got[c] - expected).max() < 1e-6


@pytest.mark.parametrize("width, height, size", SHAPES)
def test_bytes_are_the_rounded_values(width, height, size):
    """White stays 255, although the weights of a resizing may sum up to more than 1 by rounding."""
    picture = numpy.random.default_rng(1).integers(0, 256, (height, width, 3), numpy.uint8)
    picture[: height // 2] = 255
    pixels = (cropped(picture, size, numpy.float32).astype(float) * DEVIATION + MEAN) * 255
    assert abs(cropped(picture, size, numpy.uint8, "u8") - pixels).max() <= 0.5 + 1e-3
