# SPDX-License-Identifier: Apache-2.0
"""What an evaluation cuts out of a picture and resizes is what Pillow makes of it, in f32."""
import subprocess

import numpy
import pytest
from PIL import Image

from jm import BUILD

MEAN = numpy.array([0.485, 0.456, 0.406])[:, None, None]  # of ImageNet, as torchvision has them
DEVIATION = numpy.array([0.229, 0.224, 0.225])[:, None, None]


@pytest.mark.parametrize("width, height, size", [(500, 375, 224), (64, 48, 224), (40, 36, 32), (33, 100, 7), (1, 1, 32)])
def test_is_what_pillow_makes(width, height, size):
    picture = numpy.random.default_rng(1).integers(0, 256, (height, width, 3), numpy.uint8)
    done = subprocess.run([BUILD / "tests/parity/crop", str(width), str(height), str(size)], input=picture.tobytes(),
                          stdout=subprocess.PIPE, check=True)
    got = numpy.frombuffer(done.stdout, numpy.float32).reshape(3, size, size) * DEVIATION + MEAN
    side = 0.875 * min(width, height)
    box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
    for c in range(3):
        plane = Image.fromarray(picture[:, :, c].astype(numpy.float32))
        expected = numpy.array(plane.resize((size, size), Image.BILINEAR, box=box)) / 255
        assert abs(got[c] - expected).max() < 1e-6
