# SPDX-License-Identifier: Apache-2.0
"""A module gcipuinfo whose IPUs a test gives as rows of text."""
import textwrap

MODULE = """
    import time
    BEGIN = time.monotonic()
    ROWS = {rows!r}
    NAMES = ("board serial number", "ipu power", "total board power")
    class gcipuinfo:
        def updateData(self):
            if time.monotonic() - BEGIN > {life}:
                raise RuntimeError("the device is gone")
        def getNamedAttributeForAll(self, name):
            return [row[NAMES.index(name)] for row in ROWS]
"""


def module(folder, rows, life=1e9):
    (folder / "gcipuinfo.py").write_text(textwrap.dedent(MODULE.format(rows=rows, life=life)), encoding="utf-8")
    return {"PYTHONPATH": str(folder)}
