# SPDX-License-Identifier: Apache-2.0
"""Functions that the tests of `measure` share: its record, checked against the schema, and fake drivers."""
import json

import jsonschema

from jm import BUILD, SOURCE, jm

FAKE = BUILD / "tests" / "peers" / "libnvidia-ml-fake.so"
SCHEMA = json.loads((SOURCE / "docs" / "record.schema.json").read_text(encoding="utf-8"))


def check(record):
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(record, SCHEMA, jsonschema.Draft7Validator)
    return record


def record_of(*args, env=None, status=0, **more):
    """The record of `measure args`, validated; it comes by stdout."""
    done = jm("measure", "--json", "-", *args, env=env, **more)
    assert done.returncode == status, done.stderr
    return check(json.loads(done.stdout))


def fakes(text):
    return {"JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": text}
