# SPDX-License-Identifier: Apache-2.0
"""What `describe` says as JSON, and two small networks for it."""
import json

from jm import jm

NARROW = "gpt --hidden 64 --heads 4 --ffn 256 --vocab 256 --context 32 --positions learned --device ref".split()
SMALL = [*NARROW, "--layers", "2"]


def describe(*words):
    done = jm("describe", *words, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
